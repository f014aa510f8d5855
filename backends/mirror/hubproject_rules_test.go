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

// TestNeverSentGoesByWhatWasAsked: whether an Application waits for a project that is never
// sent follows from the field that says so; a spoke words its message as it likes.
func TestNeverSentGoesByWhatWasAsked(t *testing.T) {
	rules := ruleSet(t, stream.Hub, stream.Managed)
	project := object{fields: map[string]any{"metadata": map[string]any{"labels": map[string]any{ignoreSyncKey: "true"}}}}
	refusal := func(kind stream.RefusalKind, awaits, message string) stream.Refusal {
		return stream.Refusal{Kind: kind, Awaits: awaits, Message: message}
	}
	text := onItsWay("web").Message
	for name, c := range map[string]struct {
		refusal stream.Refusal
		never   bool
	}{
		"that project":             {*onItsWay("web"), true},
		"in other words":           {refusal(stream.RefusalUnavailable, "web", "wait"), true},
		"the words alone":          {refusal(stream.RefusalUnavailable, "", text), false},
		"another project":          {refusal(stream.RefusalUnavailable, "shop", text), false},
		"a refusal that ends it":   {refusal(stream.RefusalDenied, "web", text), false},
		"an API server that fails": {refusal(stream.RefusalUnavailable, "", "the API server does not answer"), false},
	} {
		if got := rules.neverSent(c.refusal, "web", &project); (got.Kind == stream.RefusalDenied && got != c.refusal) != c.never {
			t.Errorf("%s: neverSent(%+v) = %+v", name, c.refusal, got)
		}
	}
	if got := rules.neverSent(*onItsWay("web"), "web", nil); got != *onItsWay("web") {
		t.Errorf("without the project: %+v", got)
	}
}
