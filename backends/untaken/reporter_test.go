package untaken_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/untaken"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// nobodys is a hub whose Applications no one takes whose destination is "no one", which
// ends their syncs, or "told", which does not.
type nobodys struct {
	t       *testing.T
	store   *memory.Store
	counts  []int
	events  []string
	mu      sync.Mutex  // guards events and written, while a hub writes
	written []time.Time // times of all writes, Events included
	again   chan struct{}
	taken   map[string]bool // by name
	by      string          // in what it says
	look    time.Duration   // how long it takes to check one
}

func newNobodys(t *testing.T) *nobodys {
	n := &nobodys{t: t, again: make(chan struct{}), taken: map[string]bool{}}
	n.store = memory.New(memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
		if op == memory.OpUpdate {
			n.wrote()
		}
		return nil
	}})
	return n
}

func (n *nobodys) wrote() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.written = append(n.written, time.Now())
}

func (n *nobodys) hasEvent(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events, func(e string) bool { return strings.HasPrefix(e, name+": ") })
}

func (n *nobodys) create(name, metadata, rest string) stream.ResourceKey {
	n.t.Helper()
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}
	raw := fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":%q%s}%s}`, name, metadata, rest)
	if _, err := n.store.Create(n.t.Context(), key, []byte(raw)); err != nil {
		n.t.Fatal(err)
	}
	return key
}

func (n *nobodys) run(selector string) (stop func()) {
	n.t.Helper()
	only, err := labels.Parse(selector)
	if err != nil {
		n.t.Fatal(err)
	}
	u := &untaken.Reporter{
		Store: n.store, Selector: only, Log: zerolog.Nop(),
		Changed: func() <-chan struct{} { return n.again },
		Verdicts: func() (func(string, mapping.Placement) (string, bool), bool) {
			return func(name string, p mapping.Placement) (string, bool) {
				time.Sleep(n.look) //nolint:forbidigo // virtual time
				if n.taken[name] || p.Name != "nobody" && p.Name != "told" {
					return "", false
				}
				return "no agent takes it: " + n.by + name + " is for " + p.Name, p.Name == "nobody"
			}, true
		},
		Event: func(_ context.Context, about backends.Object, message string) error {
			n.wrote()
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, about.Key.Name+": "+message)
			return nil
		},
		Count: func(_ context.Context, count int) error {
			n.counts = append(n.counts, count)
			return nil
		},
	}
	return kit.Background(n.t, u.Run)
}

// application is what a test looks at.
type application struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Operation map[string]any `json:"operation"`
	Status    struct {
		ReconciledAt   string           `json:"reconciledAt"`
		Conditions     []map[string]any `json:"conditions"`
		OperationState map[string]any   `json:"operationState"`
	} `json:"status"`
}

func (n *nobodys) get(key stream.ResourceKey) (a application) {
	n.t.Helper()
	o, err := n.store.Read(n.t.Context(), key)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := json.Unmarshal(o.Raw, &a); err != nil {
		n.t.Fatal(err)
	}
	return a
}

// said are the messages of its conditions.
func (n *nobodys) said(key stream.ResourceKey) string {
	n.t.Helper()
	var messages []string
	for _, c := range n.get(key).Status.Conditions {
		messages = append(messages, fmt.Sprintf("%s: %s", c["type"], c["message"]))
	}
	return strings.Join(messages, "; ")
}

const (
	forNobody = `,"spec":{"destination":{"name":"nobody"}}`
	forTold   = `,"spec":{"destination":{"name":"told"}}`
	// refreshNow is as argocd app sync leaves it.
	refreshNow = `,"annotations":{"argocd.argoproj.io/refresh":"normal","argocd.argoproj.io/hydrate":"normal","note":"x"}`
	syncNow    = `,"operation":{"initiatedBy":{"username":"admin"},"sync":{"revision":"main"}}`
)

// TestUntakenIsTold: within ten seconds an Application that no agent takes says so, once in
// an Event; a sync of it ends with the sentence, and argocd has nothing to wait for.
func TestUntakenIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNobodys(t)
		synced := n.create("web", refreshNow, forNobody+syncNow)
		other := n.create("other", refreshNow, forTold+syncNow)
		fine := n.create("fine", "", `,"spec":{"destination":{"name":"edge-1"}}`+syncNow)
		stop := n.run("")
		defer stop()
		Rest(10 * time.Second)
		const says = "no agent takes it: web is for nobody"
		if got := n.said(synced); got != "ArgomeshError: "+says {
			t.Errorf("web says %q", got)
		}
		web := n.get(synced)
		state := web.Status.OperationState
		want := map[string]any{"sync": map[string]any{"revision": "main"}, "initiatedBy": map[string]any{"username": "admin"}}
		if diff := cmp.Diff(want, state["operation"]); diff != "" || web.Operation != nil || state["phase"] != "Error" || state["message"] != says {
			t.Errorf("the sync of web is %v, its operation %v\n%s", state, web.Operation, diff)
		}
		if state["finishedAt"] == nil || web.Status.ReconciledAt != state["finishedAt"] {
			t.Errorf("argocd app sync would wait: finished at %v, reconciled at %q", state["finishedAt"], web.Status.ReconciledAt)
		}
		if diff := cmp.Diff(map[string]string{"note": "x"}, web.Metadata.Annotations); diff != "" {
			t.Errorf("argocd app sync would wait for a refresh: (-want +got)\n%s", diff)
		}
		if a := n.get(other); len(a.Metadata.Annotations) != 3 {
			t.Errorf("other has %v: only what is ours is answered", a.Metadata.Annotations)
		}
		if a := n.get(other); n.said(other) == "" || a.Operation == nil || a.Status.OperationState != nil {
			t.Errorf("other says %q, its operation is %v: only what is ours is ended", n.said(other), a.Operation)
		}
		if a := n.get(fine); n.said(fine) != "" || a.Operation == nil {
			t.Errorf("fine says %q and has %v", n.said(fine), a.Operation)
		}
		if len(n.events) != 2 || !strings.Contains(strings.Join(n.events, " "), "web: "+says) {
			t.Errorf("events: %q", n.events)
		}
		if diff := cmp.Diff([]int{2}, n.counts); diff != "" {
			t.Errorf("counts (-want +got)\n%s", diff)
		}
		before := len(n.written)
		Rest(time.Minute)
		if len(n.written) != before {
			t.Error("it is written again though nothing changed")
		}

		n.taken["web"] = true
		again := n.again
		n.again = make(chan struct{})
		close(again) // last: anyone who waits for it looks at the others then
		Rest(10 * time.Second)
		if got := n.said(synced); got != "" {
			t.Errorf("web is taken, and says %q", got)
		}
		if got := n.counts[len(n.counts)-1]; got != 1 {
			t.Errorf("count %d after one is taken", got)
		}
	})
}

// TestUntakenLeavesOthersAlone: what someone took out of our hands, and mirrors, are not
// written to, whatever their destination.
func TestUntakenLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNobodys(t)
		keys := []stream.ResourceKey{
			n.create("ignored", `,"labels":{"agents":"yes","argocd-agent.argoproj-labs.io/ignore-sync":"true"}`, forNobody+syncNow),
			n.create("skipped", `,"labels":{"agents":"yes"},"annotations":{"argocd.argoproj.io/skip-reconcile":"true"}`, forNobody+syncNow),
			n.create("unselected", "", forNobody+syncNow),
			n.create("mirror", `,"labels":{"agents":"yes"},"annotations":{"argomesh.io/source":"{}"}`, forNobody+syncNow),
			n.create("copy", `,"labels":{"agents":"yes"},"annotations":{"argocd.argoproj.io/principal-uid":"x"}`, forNobody+syncNow),
		}
		ours := n.create("ours", `,"labels":{"agents":"yes"}`, forNobody)
		released := n.create("released", `,"labels":{"agents":"yes"},"annotations":{"argomesh.io/source":"{}","argomesh.io/released":"true"}`, forNobody)
		stop := n.run("agents=yes")
		defer stop()
		Rest(10 * time.Second)
		if n.said(ours) == "" || n.said(released) == "" {
			t.Errorf("ours says %q, what was released %q", n.said(ours), n.said(released))
		}
		for _, key := range keys {
			if a := n.get(key); n.said(key) != "" || a.Operation == nil {
				t.Errorf("%s says %q, its operation is %v", key.Name, n.said(key), a.Operation)
			}
		}
		if len(n.written) != 4 { // the conditions of those two, and their Events
			t.Errorf("%d writes", len(n.written))
		}
	})
}

// TestUntakenLosesToAnotherWriter: a write that does not find what was seen is not made, and
// the next look goes by what is there.
func TestUntakenLosesToAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNobodys(t)
		raced := false
		n.store = memory.New(memory.Config{Fault: func(op memory.Op, k stream.ResourceKey) error {
			if op == memory.OpUpdate && k.Name == "web" && !raced {
				raced = true
				return stream.ErrConflict
			}
			return nil
		}})
		key := n.create("web", "", forNobody)
		stop := n.run("")
		defer stop()
		Rest(3 * time.Second)
		if n.said(key) != "" || len(n.events) != 0 {
			t.Fatalf("says %q, events %q after a conflict", n.said(key), n.events)
		}
		o, err := n.store.Read(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.store.Update(t.Context(), o, []byte(strings.Replace(string(o.Raw), `"spec"`, `"operation":{"sync":{}},"spec"`, 1))); err != nil {
			t.Fatal(err)
		}
		Rest(10 * time.Second)
		if a := n.get(key); a.Operation != nil || a.Status.OperationState["phase"] != "Error" {
			t.Errorf("after the other writer: %+v", a)
		}
	})
}

// TestManyUntaken: a thousand are told within 30 s, with 50 writes a second at most.
func TestManyUntaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		n := newNobodys(t)
		var keys []stream.ResourceKey
		for i := range many {
			keys = append(keys, n.create(fmt.Sprintf("app-%d", i), "", forNobody+syncNow))
		}
		stop := n.run("")
		defer stop()
		Rest(30 * time.Second)
		silent := 0
		for _, key := range keys {
			if n.said(key) == "" {
				silent++
			}
		}
		if silent > 0 {
			t.Errorf("%d of %d say nothing after 30 s", silent, many)
		}
		Rest(time.Minute)
		if len(n.events) != many {
			t.Errorf("%d Events", len(n.events))
		}
		for i := range n.written {
			if i >= 50 && n.written[i].Sub(n.written[i-50]) < time.Second {
				t.Fatalf("51 writes within %s", n.written[i].Sub(n.written[i-50]))
			}
		}
	})
}

// TestUntakenIsToldBeforeThousands: one that someone makes while thousands wait, since the
// hub has just started, says so within 10 s, in a condition and an Event, and those wait no
// longer for it.
func TestUntakenIsToldBeforeThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5000
		n := newNobodys(t)
		for i := range many {
			n.create(fmt.Sprintf("app-%d", i), "", forNobody)
		}
		stop := n.run("")
		defer stop()
		for i := range 6 {
			Rest(5 * time.Second)
			name := fmt.Sprintf("new-%d", i)
			key := n.create(name, "", forNobody)
			Rest(10 * time.Second)
			if n.said(key) == "" || !n.hasEvent(name) {
				t.Errorf("%s says %q after 10 s, or has no Event", name, n.said(key))
			}
		}
		Rest((many/writesPerSecond - 6*15 + 10) * time.Second)
		for _, o := range n.store.List(stream.Application, "") {
			if n.said(o.Key) == "" {
				t.Fatalf("%s says nothing", o.Key)
			}
		}
	})
}

// TestUntakenIsToldWhileAllAreLookedAt: of a hub with tens of thousands of Applications that
// agents have, each change of an agent makes it look at all, which takes it a while on a slow
// machine. One that someone makes meanwhile says so within 10 s, and each of those is looked
// at in time, though nothing is written of it.
func TestUntakenIsToldWhileAllAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20_000
		n := newNobodys(t)
		n.look = time.Millisecond
		for i := range many {
			n.create(fmt.Sprintf("app-%d", i), "", `,"spec":{"destination":{"name":"agent"}}`)
		}
		last := n.create("last", "", forNobody)
		stop := n.run("")
		defer stop()
		Rest(3 * time.Second)
		key := n.create("new", "", forNobody)
		Rest(10 * time.Second)
		if n.said(key) == "" || !n.hasEvent("new") {
			t.Errorf("it says %q after 10 s, or has no Event", n.said(key))
		}
		Rest(2 * many * n.look)
		if n.said(last) == "" {
			t.Error("one of those that wait says nothing")
		}
	})
}

// writesPerSecond is how many writes there are in a second.
const writesPerSecond = 50

// Two hubs may share a cluster, and each sees the Applications of the other. What one says of
// an Application is not taken back by the other without an end, nor said otherwise.
func TestTwoHubsDoNotContradictEachOther(t *testing.T) {
	for name, taken := range map[string]bool{"one says nothing": true, "both say something": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNobodys(t)
				other := &nobodys{t: t, store: n.store, again: make(chan struct{}), taken: map[string]bool{"a": taken}, by: "the other's: "}
				stop, stopOther := n.run(""), other.run("")
				key := n.create("a", "", forTold)
				time.Sleep(10 * time.Second) //nolint:forbidigo // the clock of the bubble
				synctest.Wait()
				writes, events := len(n.written)-len(n.events), len(n.events)+len(other.events)
				if said := n.said(key); !strings.Contains(said, "no agent takes it: ") {
					t.Errorf("it says %q", said)
				}
				time.Sleep(time.Hour) //nolint:forbidigo // the clock of the bubble
				synctest.Wait()
				if w, e := len(n.written)-len(n.events), len(n.events)+len(other.events); w > writes+1 || w > 5 || e > events+1 {
					t.Errorf("%d writes and %d Events, after ten seconds %d and %d", w, e, writes, events)
				}
				stop()
				stopOther()
			})
		})
	}
}

// What was said by a principal that has ended is taken back by the next one.
func TestUntakenIsTakenBackAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNobodys(t)
		stop := n.run("")
		key := n.create("a", "", forTold)
		time.Sleep(10 * time.Second) //nolint:forbidigo // the clock of the bubble
		stop()
		if said := n.said(key); !strings.Contains(said, "no agent takes it: ") {
			t.Errorf("it says %q", said)
		}
		n.taken["a"] = true
		stop = n.run("")
		time.Sleep(10 * time.Second) //nolint:forbidigo // the clock of the bubble
		synctest.Wait()
		if said := n.said(key); said != "" {
			t.Errorf("it says %q", said)
		}
		stop()
	})
}

// rest lets virtual time pass until all is at rest.
func Rest(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
