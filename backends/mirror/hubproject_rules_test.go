package mirror

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/refusals"
	"github.com/argomesh/argomesh/stream"
)

// TestAwaitingHasALimit: a hub can invent Applications of projects that never come. What is
// beyond the limit is counted, and there is room again when something has come.
func TestAwaitingHasALimit(t *testing.T) {
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	rules, allowed := ownershiptest.Rules(t, stream.Spoke, stream.Managed), policy.Default()
	rules.Policy = &allowed
	l := newLoop(&Mirror{cfg: Config{Rules: rules, Metrics: metrics, Store: memory.New(memory.Config{})}})
	entry := func(i int) stream.EntryKey {
		return stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("a", i)}
	}
	for i := range refusals.MaxAwaiting + 1 {
		l.answers.await(entry(i), fmt.Sprint("p", i%3))
	}
	if n, _ := l.answers.awaiting.Size(); testutil.ToFloat64(metrics.Forgotten) != 1 || n != refusals.MaxAwaiting {
		t.Errorf("%v are counted, %d remembered", testutil.ToFloat64(metrics.Forgotten), n)
	}
	l.answers.await(entry(0), "p1") // that is another project
	l.answers.await(entry(1), "")
	l.answers.await(entry(refusals.MaxAwaiting), "p0")
	if n, _ := l.answers.awaiting.Size(); testutil.ToFloat64(metrics.Forgotten) != 1 || n != refusals.MaxAwaiting {
		t.Errorf("with room again %v are counted, %d remembered", testutil.ToFloat64(metrics.Forgotten), n)
	}
	for i := range refusals.MaxAwaiting + 1 {
		l.answers.await(entry(i), "")
	}
	if n, projects := l.answers.awaiting.Size(); n+projects > 0 {
		t.Errorf("%d are remembered of what waits no more, for %d projects", n, projects)
	}
}

// TestNeverSentGoesByWhatWasAsked: whether an Application waits for a project that is never
// sent follows from the field that says so; a spoke words its message as it likes.
func TestNeverSentGoesByWhatWasAsked(t *testing.T) {
	rules := ownershiptest.Rules(t, stream.Hub, stream.Managed)
	project := object.Object{Fields: map[string]any{"metadata": map[string]any{"labels": map[string]any{object.IgnoreSyncKey: "true"}}}}
	refusal := func(kind stream.RefusalKind, awaits, message string) stream.Refusal {
		return stream.Refusal{Kind: kind, Awaits: awaits, Message: message}
	}
	text := ownership.OnItsWay("web").Message
	for name, c := range map[string]struct {
		refusal stream.Refusal
		never   bool
	}{
		"that project":             {*ownership.OnItsWay("web"), true},
		"in other words":           {refusal(stream.RefusalUnavailable, "web", "wait"), true},
		"the words alone":          {refusal(stream.RefusalUnavailable, "", text), false},
		"another project":          {refusal(stream.RefusalUnavailable, "shop", text), false},
		"a refusal that ends it":   {refusal(stream.RefusalDenied, "web", text), false},
		"an API server that fails": {refusal(stream.RefusalUnavailable, "", "the API server does not answer"), false},
	} {
		if got := rules.NeverSent(c.refusal, "web", &project); (got.Kind == stream.RefusalDenied && got != c.refusal) != c.never {
			t.Errorf("%s: neverSent(%+v) = %+v", name, c.refusal, got)
		}
	}
	if got := rules.NeverSent(*ownership.OnItsWay("web"), "web", nil); got != *ownership.OnItsWay("web") {
		t.Errorf("without the project: %+v", got)
	}
}
