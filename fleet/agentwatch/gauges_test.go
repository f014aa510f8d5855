package agentwatch

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// What an Agent's status says of one agent is in series of its own, and they go with it.
func TestAgentsAreMetrics(t *testing.T) {
	w := newWatch(func(identity.AgentName) {})
	defer w.stop()
	r := prometheus.NewRegistry()
	r.MustRegister(NewGauges(w.All))
	away := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "away", UID: "1", Generation: 1}}
	away.Spec.Suspended = true
	there := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "there", UID: "2", Generation: 1}}
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	there.Status = v1alpha1.AgentStatus{
		Connected: true, Since: at(100), ObservedAt: at(200), SVIDExpiry: at(300), Counts: v1alpha1.AgentCounts{Applications: 4, Parked: 3, Delayed: 2},
		DeletionsHeld: &v1alpha1.DeletionsHeld{Total: 11},
	}
	for _, a := range []v1alpha1.Agent{away, there} {
		if err := w.agents.Add(watchedAgent(t, a)); err != nil {
			t.Fatal(err)
		}
	}
	served := func(t *testing.T) string {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "agent" {
					t.Errorf("%s has labels %v", f.GetName(), m.GetLabel())
				}
				_, _ = out.WriteString(strings.TrimPrefix(f.GetName(), "argomesh_agent_") + " " + m.GetLabel()[0].GetValue() + " " + strconv.FormatFloat(m.GetGauge().GetValue(), 'f', -1, 64) + "\n")
			}
		}
		return out.String()
	}
	const rest = `applications there 4
connected there 1
delayed_objects there 2
held_deletions there 11
observed_timestamp_seconds there 200
parked_objects there 3
since_timestamp_seconds there 100
suspended there 0
svid_not_after_timestamp_seconds there 300
`
	const both = `applications away 0
applications there 4
connected away 0
connected there 1
delayed_objects away 0
delayed_objects there 2
held_deletions away 0
held_deletions there 11
observed_timestamp_seconds there 200
parked_objects away 0
parked_objects there 3
since_timestamp_seconds there 100
suspended away 1
suspended there 0
svid_not_after_timestamp_seconds there 300
`
	if got := served(t); got != both {
		t.Errorf("it serves\n%s\nwant\n%s", got, both)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if err := w.agents.Delete(watchedAgent(t, away)); err != nil {
		t.Fatal(err)
	}
	if got := served(t); got != rest {
		t.Errorf("without the Agent it serves\n%s\nwant\n%s", got, rest)
	}
}
