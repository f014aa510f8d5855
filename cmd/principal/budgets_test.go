package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func agentNamed(t *testing.T, s string) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName(s)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLimitsOfAnAgent(t *testing.T) {
	for what, c := range map[string]struct {
		limits *v1alpha1.AgentLimits
		want   budget.Limits
	}{
		"nothing said": {want: budget.DefaultLimits()},
		"one said": {
			limits: &v1alpha1.AgentLimits{BytesPerSecond: 2048},
			want:   budget.Limits{Writes: budget.DefaultLimits().Writes, Bytes: budget.Limit{Rate: 2048, Burst: 64 << 20}},
		},
		"all said": {
			limits: &v1alpha1.AgentLimits{WritesPerSecond: 1, WritesBurst: 2, BytesPerSecond: 3, BytesBurst: 4},
			want:   budget.Limits{Writes: budget.Limit{Rate: 1, Burst: 2}, Bytes: budget.Limit{Rate: 3, Burst: 4}},
		},
	} {
		if diff := cmp.Diff(c.want, limitsOf(c.limits)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
}

func TestBoundsOfAnAgent(t *testing.T) {
	all := &v1alpha1.AgentLimits{Applications: 1, AppProjects: 2, ApplicationBytes: 3, AppProjectBytes: 4, TotalBytes: 5}
	want := bounds.Bounds{Applications: 1, AppProjects: 2, ApplicationBytes: 3, AppProjectBytes: 4, TotalBytes: 5}
	if got := boundsOf(all); got != want {
		t.Errorf("all said: %+v, want %+v", got, want)
	}
	want = bounds.Default()
	if got := boundsOf(nil); got != want {
		t.Errorf("nothing said: %+v, want %+v", got, want)
	}
	want.AppProjects = 60
	if got := boundsOf(&v1alpha1.AgentLimits{AppProjects: 60}); got != want {
		t.Errorf("one said: %+v, want %+v", got, want)
	}
}

// A link that begins anew has no new burst; an agent that is registered anew does.
func TestBudgetOutlivesItsLink(t *testing.T) {
	b, err := newBudgets(principalconfig.DefaultLimits(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	name := agentNamed(t, "edge-1")
	first := b.of(name, v1alpha1.Agent{})
	first.Settle(time.Now(), 0, 1, 64<<20)
	if again := b.of(name, v1alpha1.Agent{}); again != first {
		t.Error("a second link has another budget")
	}
	b.forget(name)
	if anew := b.of(name, v1alpha1.Agent{}); anew == first {
		t.Error("an agent that is registered anew has the budget of the one before")
	}
}

// A principal that starts goes on with what the status says, and one that lives does not
// gain by it.
func TestLevelsSurviveInTheStatus(t *testing.T) {
	now := time.Now()
	full := func() *budget.Peer { return budget.NewPeer("edge-1", budget.DefaultLimits(), nil, now) }
	if said := leftOf(full(), now); said != nil || levelsOf(said) != (budget.Levels{}) {
		t.Errorf("of a full one the status says %+v", said)
	}
	used := full()
	used.Settle(now, 0, 19_001, 60<<20)
	said := leftOf(used, now)
	next := full()
	next.Lower(levelsOf(said), now)
	if got, want := next.Levels(now), used.Levels(now); got != want {
		t.Errorf("the next principal goes on with %+v, want %+v", got, want)
	}
	used.Settle(now, 0, 501, 1<<20)
	want := used.Levels(now)
	used.Lower(levelsOf(said), now)
	if got := used.Levels(now); got != want {
		t.Errorf("by its own status of before it has %+v, and had %+v", got, want)
	}
}

func TestLevelsAreMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	b, err := newBudgets(principalconfig.Limits{BytesPerSecond: 1024, BytesBurst: 1 << 20, EtcdQuota: 1 << 30}, r)
	if err != nil {
		t.Fatal(err)
	}
	b.of(agentNamed(t, "edge-1"), v1alpha1.Agent{Spec: v1alpha1.AgentSpec{Limits: &v1alpha1.AgentLimits{WritesBurst: 7, BytesBurst: 4096, BytesPerSecond: 1024}}})
	want := `# HELP argomesh_common_budget_bytes Bytes that all agents together may still have this principal write; below zero they wait.
# TYPE argomesh_common_budget_bytes gauge
argomesh_common_budget_bytes 1.048576e+06
# HELP argomesh_mirror_budget_bytes Bytes that the peer may still have us write; below zero what it changes waits.
# TYPE argomesh_mirror_budget_bytes gauge
argomesh_mirror_budget_bytes{agent="edge-1"} 4096
# HELP argomesh_mirror_budget_writes Writes that the peer may still have us make; below zero what it changes waits.
# TYPE argomesh_mirror_budget_writes gauge
argomesh_mirror_budget_writes{agent="edge-1"} 7
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Whoever reads the Agent learns what waits, for what, and how to raise it.
func TestOverBudgetSaysHowToRaiseIt(t *testing.T) {
	for over, want := range map[budget.Over]string{
		budget.OverWrites: "spec.limits.writesPerSecond",
		budget.OverBytes:  "spec.limits.bytesPerSecond",
		budget.OverCommon: "limits.bytes_per_second",
	} {
		got := overBudget(mirror.Stats{Over: over, Delayed: 3})
		if got == nil || !strings.Contains(got.Message, want) {
			t.Errorf("%s: %+v, want %s named", over, got, want)
		}
	}
	parked := map[stream.EntryKey]stream.Refusal{{Name: "a"}: {Kind: stream.RefusalOverLimit}, {Name: "b"}: {Kind: stream.RefusalInvalid}}
	if got := overBudget(mirror.Stats{Parked: parked}); got == nil || got.Reason != "Objects" {
		t.Errorf("an object over its limit: %+v", got)
	}
	if got := overBudget(mirror.Stats{}); got != nil {
		t.Errorf("within all: %+v", got)
	}
}
