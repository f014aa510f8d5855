package fleet_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// TestAbsences has a row for each state that the status of an Agent may say.
func TestAbsences(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	const stale = ": what is shown here is what its Argo CD said last; "
	was := v1alpha1.AgentVersions{Agent: "v1.0.0"}
	for name, tt := range map[string]struct {
		suspended bool
		policy    v1alpha1.DeletionPolicy
		gone      bool
		status    v1alpha1.AgentStatus
		since     time.Duration
		want      string
	}{
		"connected":              {status: v1alpha1.AgentStatus{Connected: true, Since: ago(time.Hour), ObservedAt: ago(0)}},
		"nothing is known":       {},
		"just gone":              {status: v1alpha1.AgentStatus{Since: ago(59 * time.Second), ObservedAt: ago(time.Minute), Versions: was}},
		"a clock that was ahead": {status: v1alpha1.AgentStatus{Since: ago(-time.Hour), ObservedAt: ago(time.Minute), Versions: was}},
		"away": {
			status: v1alpha1.AgentStatus{Since: ago(time.Minute), ObservedAt: ago(2 * time.Minute), Versions: was},
			since:  time.Minute, want: "agent edge-1 is away since 2026-11-24T11:59:00Z" + stale + "agentctl agent get edge-1 says more",
		},
		"it went while the hub was away": {
			status: v1alpha1.AgentStatus{Since: ago(time.Minute), ObservedAt: ago(time.Hour), Versions: was},
			since:  time.Hour, want: "agent edge-1 is away since 2026-11-24T11:00:00Z" + stale + "agentctl agent get edge-1 says more",
		},
		"suspended": {
			suspended: true, status: v1alpha1.AgentStatus{Since: ago(time.Hour), ObservedAt: ago(time.Hour), Versions: was},
			since: time.Hour, want: "agent edge-1 is suspended, and away since 2026-11-24T11:00:00Z" + stale + "agentctl agent resume edge-1 lets it come back",
		},
		"never connected": {
			status: v1alpha1.AgentStatus{Since: ago(time.Hour)},
			since:  time.Hour, want: "agent edge-1 has never connected, and what is shown here did not come from it; agentctl agent get edge-1 says what is missing",
		},
		"its Agent goes, and leaves the Applications": {
			gone: true, status: v1alpha1.AgentStatus{Since: ago(time.Hour), ObservedAt: ago(time.Hour), Versions: was},
		},
		"its Agent waits for it, to take them along": {
			gone: true, policy: v1alpha1.DeletionCascade, status: v1alpha1.AgentStatus{Since: ago(time.Hour), ObservedAt: ago(time.Hour), Versions: was},
			since: time.Hour, want: "agent edge-1 is away since 2026-11-24T11:00:00Z" + stale + "agentctl agent get edge-1 says more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := agent("edge-1", 0, "/edge-1")
			a.Spec.Mode, a.Spec.Suspended, a.Spec.DeletionPolicy, a.Status = v1alpha1.ModeManaged, tt.suspended, tt.policy, tt.status
			if tt.gone {
				a.DeletionTimestamp = ago(time.Minute)
			}
			var r fleet.Registry
			if _, known := r.Absences(now); known {
				t.Error("they are known before there is any Agent")
			}
			r.Set([]v1alpha1.Agent{a})
			absences, known := r.Absences(now)
			if !known {
				t.Error("they are not known")
			}
			got, want := map[string]fleet.Absence{}, map[string]fleet.Absence{}
			for name, absence := range absences {
				got[name.String()] = absence
			}
			if tt.want != "" {
				want["edge-1"] = fleet.Absence{Since: now.Add(-tt.since), Message: tt.want}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Absences() (-want +got)\n%s", diff)
			}
			edge, err := identity.ParseAgentName("edge-1")
			if err != nil {
				t.Fatal(err)
			}
			since, away := r.AwaySince(edge)
			if never := tt.status.Versions.Agent == ""; tt.want != "" && (away == never || away && !since.Equal(now.Add(-tt.since))) {
				t.Errorf("AwaySince() = %s, %t", since, away)
			}
			if tt.want == "" && away != (name == "just gone" || name == "a clock that was ahead") {
				t.Errorf("AwaySince() = %s, %t", since, away)
			}
		})
	}
}
