package links

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/test/kit"
)

// A link that starts over has no new burst; an agent that is registered again does.
func TestBudgetOutlivesItsLink(t *testing.T) {
	b, err := NewBudgets(budget.DefaultCommon(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	name := kit.Agent(t, "edge-1")
	first := b.of(name, v1alpha1.Agent{})
	first.Charge(time.Now(), 0, 1, 64<<20)
	if again := b.of(name, v1alpha1.Agent{}); again != first {
		t.Error("a second link has another budget")
	}
	b.forget(name)
	if anew := b.of(name, v1alpha1.Agent{}); anew == first {
		t.Error("an agent that is registered anew has the budget of the one before")
	}
}

func TestLevelsAreMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	b, err := NewBudgets(budget.Limit{Rate: 1024, Burst: 1 << 20}, r)
	if err != nil {
		t.Fatal(err)
	}
	b.of(kit.Agent(t, "edge-1"), v1alpha1.Agent{Spec: v1alpha1.AgentSpec{Limits: &v1alpha1.AgentLimits{WritesBurst: 7, BytesBurst: 4096, BytesPerSecond: 1024}}})
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
