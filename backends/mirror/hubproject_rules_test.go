package mirror

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// TestAwaitingHasALimit: a hub can invent Applications of projects that never come. What is
// beyond the limit is counted, and there is room again when something has come.
func TestAwaitingHasALimit(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	rules, policy := ruleSet(t, stream.Spoke, stream.Managed), DefaultPolicy()
	rules.Policy = &policy
	l := newLoop(&Mirror{cfg: Config{Rules: rules, Metrics: metrics, Store: memory.New(memory.Config{})}})
	entry := func(i int) stream.EntryKey {
		return stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("a", i)}
	}
	for i := range maxAwaiting + 1 {
		l.await(entry(i), fmt.Sprint("p", i%3))
	}
	if got := testutil.ToFloat64(metrics.forgotten); got != 1 || len(l.awaiting.project) != maxAwaiting {
		t.Errorf("%v are counted, %d remembered", got, len(l.awaiting.project))
	}
	l.await(entry(0), "p1") // that is another project
	l.await(entry(1), "")
	l.await(entry(maxAwaiting), "p0")
	if got := testutil.ToFloat64(metrics.forgotten); got != 1 || len(l.awaiting.project) != maxAwaiting {
		t.Errorf("with room again %v are counted, %d remembered", got, len(l.awaiting.project))
	}
	for i := range maxAwaiting + 1 {
		l.await(entry(i), "")
	}
	if n := len(l.awaiting.project) + len(l.awaiting.entries); n > 0 {
		t.Errorf("%d are remembered of what waits no more", n)
	}
}
