//go:build linux

package bounds

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	// honestObjects are the Applications of each agent that people change, one after the
	// other, one of them every honestEvery: as often as one object may be written, and no
	// more.
	honestObjects = 4
	honestEvery   = time.Second
)

// honest is an agent whose Applications people change at a steady pace, however long it
// takes until the other side shows that.
type honest struct {
	*env.BareAgent
	from, to dynamic.ResourceInterface

	mu      sync.Mutex // guards what follows
	pending map[string][]pendingChange
	took    []time.Duration
	// begun and written are how long after its time a change began, and was answered.
	begun, written []time.Duration
	err            error
}

// pendingChange is one that is not shown yet.
type pendingChange struct {
	number int
	at     time.Time
}

// newHonest makes the Applications of an agent and waits until the other side shows them.
func newHonest(t *testing.T, r *env.BareAgent) *honest {
	t.Helper()
	h := &honest{BareAgent: r, from: r.Hub, to: r.Spoke, pending: map[string][]pendingChange{}}
	if r.Mode == "autonomous" {
		h.from, h.to = r.Spoke, r.Hub
	}
	for i := range honestObjects {
		app := r.Application(honestName(i))
		if err := unstructured.SetNestedField(app.Object, "0", "spec", "source", "targetRevision"); err != nil {
			t.Fatal(err)
		}
		env.Create(t, h.from, app)
	}
	for i := range honestObjects {
		env.Eventually(t, "the other side shows what agent "+r.Name+" has", func() error {
			_, err := h.to.Get(t.Context(), honestName(i), metav1.GetOptions{})
			return err
		})
	}
	h.watch(t)
	return h
}

func honestName(i int) string { return fmt.Sprint("shop-", i) }

// watch looks at what the other side shows, until the test ends.
func (h *honest) watch(t *testing.T) {
	t.Helper()
	list, err := h.to.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.WatchFrom(t, h.to, list.GetResourceVersion(), func(event watch.Event) { h.take(event, time.Now()) })
}

// take counts what the other side shows now, and what that is newer than.
func (h *honest) take(event watch.Event, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error || event.Type == watch.Deleted {
		h.err = errors.Join(h.err, fmt.Errorf("agent %s: the other side says %s: %v", h.Name, event.Type, event.Object))
		return
	}
	revision, _, _ := unstructured.NestedString(o.Object, "spec", "source", "targetRevision")
	shown, err := strconv.Atoi(revision)
	if err != nil {
		h.err = errors.Join(h.err, fmt.Errorf("agent %s: %s shows revision %q: %w", h.Name, o.GetName(), revision, err))
		return
	}
	h.pending[o.GetName()] = slices.DeleteFunc(h.pending[o.GetName()], func(c pendingChange) bool {
		if c.number > shown {
			return false
		}
		h.took = append(h.took, now.Sub(c.at))
		return true
	})
}

// change changes one Application after the other until ctx is done. It does not wait for
// the other side.
func (h *honest) change(ctx context.Context, first int) (next int, err error) {
	tick := time.NewTicker(honestEvery)
	defer tick.Stop()
	for n := first; ; n++ {
		select {
		case <-ctx.Done():
			return n, nil
		case at := <-tick.C:
			name := honestName(n % honestObjects)
			h.mu.Lock()
			h.pending[name] = append(h.pending[name], pendingChange{n, at})
			h.begun = append(h.begun, time.Since(at))
			h.mu.Unlock()
			// Not by ctx: what is begun is counted.
			err := env.MergePatch(context.WithoutCancel(ctx), h.from, name, map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": strconv.Itoa(n)}}})
			if err != nil {
				return n, fmt.Errorf("agent %s: %w", h.Name, err)
			}
			h.mu.Lock()
			h.written = append(h.written, time.Since(at))
			h.mu.Unlock()
		}
	}
}

// shown is a check that the other side shows every change.
func (h *honest) shown() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waiting []string
	for name, changes := range h.pending {
		if len(changes) > 0 {
			waiting = append(waiting, fmt.Sprint(name, ": ", len(changes)))
		}
	}
	if len(waiting) > 0 {
		return fmt.Errorf("agent %s: changes that are not shown: %s", h.Name, strings.Join(waiting, ", "))
	}
	return h.err
}

// latencies returns how long changes took since the last call.
func (h *honest) latencies() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := h.took
	h.took, h.begun, h.written = nil, nil, nil
	return took
}

// others are many honest agents.
type others struct {
	agents []*honest
	next   []int // change of each
}

func goodName(i int) string { return fmt.Sprint("good-", i) }

// newOthers connects as many agents, every other one of which is autonomous.
func newOthers(t *testing.T, w *env.Bare, n int) *others {
	t.Helper()
	c := &others{}
	for i := range n {
		mode := "managed"
		if i%2 == 1 {
			mode = "autonomous"
		}
		c.agents, c.next = append(c.agents, newHonest(t, w.Connect(t, goodName(i), mode))), append(c.next, 1)
	}
	return c
}

// changes has people change what the agents have, for a time, and returns how long it took
// until the other side showed it, sorted. That every change is shown is part of it.
func (c *others) changes(t *testing.T, during time.Duration) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	env.AtOnce(t, len(c.agents), len(c.agents), func(_ context.Context, i int) (err error) {
		c.next[i], err = c.agents[i].change(ctx, c.next[i])
		return err
	})
	var took, begun, written []time.Duration
	byMode := map[string][]time.Duration{}
	for _, h := range c.agents {
		env.Eventually(t, "all changes are shown", h.shown)
		h.mu.Lock()
		begun, written = append(begun, h.begun...), append(written, h.written...)
		h.mu.Unlock()
		latencies := h.latencies()
		took, byMode[h.Mode] = append(took, latencies...), append(byMode[h.Mode], latencies...)
	}
	for mode, took := range byMode {
		slices.Sort(took)
		t.Logf("of %s agents half are shown within %s, 99 %% within %s", mode, percentile(took, 50).Round(time.Millisecond), percentile(took, 99).Round(time.Millisecond))
	}
	slices.Sort(begun)
	slices.Sort(written)
	t.Logf("of the changes 99 %% began within %s, and were written within %s: that much is the test's, and the API server's",
		percentile(begun, 99).Round(time.Millisecond), percentile(written, 99).Round(time.Millisecond))
	slices.Sort(took)
	enough(t, took)
	return took
}

// enough fails the test when there are too few for a 99th percentile.
func enough(t *testing.T, took []time.Duration) {
	t.Helper()
	if len(took) < 100 {
		t.Errorf("people made %d changes, too few to say how long they take", len(took))
	}
}

// percentile is of sorted durations.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// spared fails the test when one of the agents lost its connection, or is told that it is
// over a budget.
func (c *others) spared(t *testing.T) {
	t.Helper()
	for _, h := range c.agents {
		if n := h.Said(t, "connected to the principal"); n != 1 {
			t.Errorf("agent %s connected %d times, want once", h.Name, n)
		}
		o := env.Get(t, h.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace), h.Name)
		if c := env.ConditionIn(o, "OverBudget"); c["status"] == "True" {
			t.Errorf("agent %s is told of what it has no part in: %v", h.Name, c["message"])
		}
	}
}
