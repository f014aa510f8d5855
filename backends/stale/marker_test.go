package stale_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/stale"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// absent is a hub of which agents are away, each with a namespace of its name.
type absent struct {
	t     *testing.T
	store *memory.Store

	mu      sync.Mutex // guards what follows
	away    map[identity.AgentName]stale.Absence
	budgets map[identity.AgentName]*budget.Peer
	written []absentWrite
	refuses func(stream.ResourceKey) error
}

type absentWrite struct {
	at   time.Time
	name string
}

func newAbsent(t *testing.T) *absent {
	a := &absent{t: t, away: map[identity.AgentName]stale.Absence{}, budgets: map[identity.AgentName]*budget.Peer{}}
	a.store = memory.New(memory.Config{Fault: func(op memory.Op, key stream.ResourceKey) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if op != memory.OpUpdate {
			return nil
		}
		if a.refuses != nil {
			if err := a.refuses(key); err != nil {
				return err
			}
		}
		a.written = append(a.written, absentWrite{at: time.Now(), name: key.Namespace})
		return nil
	}})
	return a
}

func (a *absent) create(namespace, name, metadata, rest string) stream.ResourceKey {
	a.t.Helper()
	key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
	raw := fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":%q,"name":%q%s},"spec":{"destination":{"name":%q}}%s}`, namespace, name, metadata, namespace, rest)
	if _, err := a.store.Create(a.t.Context(), key, []byte(raw)); err != nil {
		a.t.Fatal(err)
	}
	return key
}

// goes has an agent be away since a time; the zero time for one that is back.
func (a *absent) goes(name string, since time.Time) {
	agent := kit.Agent(a.t, name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if since.IsZero() {
		delete(a.away, agent)
		return
	}
	a.away[agent] = stale.Absence{Since: since, Message: "agent " + name + " is away since " + since.UTC().Format(time.RFC3339)}
}

func (a *absent) run() (stop func()) {
	s := stale.New(stale.Config{
		Store: a.store, Log: zerolog.Nop(),
		Away: func() (map[identity.AgentName]stale.Absence, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			out := map[identity.AgentName]stale.Absence{}
			for name, absence := range a.away {
				out[name] = absence
			}
			return out, true
		},
		Owner: func(o backends.Object) (identity.AgentName, bool) {
			name, err := identity.ParseAgentName(o.Key.Namespace)
			return name, err == nil && o.Key.Namespace != "argocd"
		},
		Applications: func(name identity.AgentName) []backends.Object {
			return a.store.List(stream.Application, name.String())
		},
		Link: func(name identity.AgentName) (ownership.Rules, *budget.Peer, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Agent: name, Namespace: "argocd"}}}, a.budgets[name], true
		},
		Divisions: func() uint64 { return 1 },
		Wrote:     func(bool, error) {},
	})
	end := kit.Background(a.t, s.Run)
	return func() {
		end()
		if n := s.Waiting(); n != 0 {
			a.t.Errorf("%d agents are left to be looked at", n)
		}
	}
}

// pass lets time go by, and returns what was written meanwhile.
func (a *absent) pass(d time.Duration) []absentWrite {
	<-time.After(d)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	written := a.written
	a.written = nil
	return written
}

// says returns the condition of an Application; nil for none.
func (a *absent) says(key stream.ResourceKey) map[string]any {
	a.t.Helper()
	o, err := a.store.Read(a.t.Context(), key)
	if err != nil {
		a.t.Fatal(err)
	}
	var app struct {
		Status struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &app); err != nil {
		a.t.Fatal(err)
	}
	for _, c := range app.Status.Conditions {
		if c["type"] == "ArgomeshStaleWarning" {
			return c
		}
	}
	return nil
}

// paced fails when there were more writes in a second than that.
func (a *absent) paced(when string, written []absentWrite, perSecond int) {
	a.t.Helper()
	for i := range written {
		if j := i + perSecond + 1; j < len(written) && written[j].at.Sub(written[i].at) < time.Second {
			a.t.Fatalf("%s: %d writes in %s", when, perSecond+2, written[j].at.Sub(written[i].at))
		}
	}
}

// TestStale is a hub with agents that go and come back: who is told first, how fast, and
// that nothing is written twice, by the next principal neither.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 100
		a := newAbsent(t)
		keys := map[string][]stream.ResourceKey{}
		for _, name := range []string{"here", "newest", "old"} {
			for i := range each {
				keys[name] = append(keys[name], a.create(name, fmt.Sprint("app-", i), "", `,"status":{"health":{"status":"Healthy"}}`))
			}
		}
		told := `,"status":{"conditions":[{"type":"ArgomeshStaleWarning","message":"agent gone is away","lastTransitionTime":"2026-11-24T11:00:00Z"}]}`
		nobodys, leftover := a.create("argocd", "nobodys", "", told), a.create("here", "leftover", "", told)
		began := time.Now()
		a.goes("old", began.Add(-time.Hour))
		stop := a.run()

		if written := a.pass(50 * time.Second); len(written) != 2 || a.says(nobodys) != nil || a.says(leftover) != nil {
			t.Errorf("an agent that was away before the principal began is given no time, or what is said wrongly stays: %d writes", len(written))
		}
		a.goes("newest", began.Add(-time.Minute)) // before anything is written
		written := a.pass(30 * time.Second)
		a.paced("they are away", written, 20)
		if len(written) != 2*each {
			t.Fatalf("%d writes, want %d", len(written), 2*each)
		}
		for i, w := range written {
			if first := i < each; first != (w.name == "old") {
				t.Fatalf("write %d is of agent %s", i, w.name)
			}
		}
		since := began.Add(-time.Hour).UTC().Format(time.RFC3339)
		want := map[string]any{"type": "ArgomeshStaleWarning", "message": "agent old is away since " + since, "lastTransitionTime": since}
		if diff := cmp.Diff(want, a.says(keys["old"][7])); diff != "" {
			t.Errorf("the condition (-want +got)\n%s", diff)
		}
		if a.says(keys["here"][7]) != nil {
			t.Error("an agent that is there is said to be away")
		}
		if written := a.pass(time.Hour); len(written) != 0 {
			t.Errorf("%d writes while nothing changes", len(written))
		}

		// The next principal knows nothing, and finds all as it should be.
		stop()
		stop = a.run()
		if written := a.pass(time.Hour); len(written) != 0 {
			t.Errorf("%d writes by the next principal", len(written))
		}
		late := a.create("old", "late", "", "")
		if written := a.pass(10 * time.Second); len(written) != 1 || a.says(late) == nil {
			t.Errorf("an Application that was made while its agent is away says nothing: %d writes", len(written))
		}

		a.goes("old", time.Time{})
		a.goes("newest", time.Time{})
		written = a.pass(10 * time.Second)
		a.paced("they are back", written, 100)
		if len(written) != 2*each+1 || a.says(keys["old"][7]) != nil || a.says(late) != nil {
			t.Errorf("%d writes when they are back", len(written))
		}
		stop()
	})
}

// TestStaleLosesNoUpdate is that what others write meanwhile stays.
func TestStaleLosesNoUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsent(t)
		key := a.create("edge-1", "app", "", `,"status":{"health":{"status":"Healthy"}}`)
		raced := false
		a.refuses = func(key stream.ResourceKey) error { // called before the write is checked
			if !raced {
				raced = true
				a.mu.Unlock()
				defer a.mu.Lock()
				o, err := a.store.Read(t.Context(), key)
				if err == nil {
					_, err = a.store.Update(t.Context(), o, []byte(strings.Replace(string(o.Raw), "Healthy", "Degraded", 1)))
				}
				return err
			}
			return nil
		}
		a.goes("edge-1", time.Now().Add(-time.Hour))
		stop := a.run()
		a.pass(2 * time.Minute)
		o, err := a.store.Read(t.Context(), key)
		if err != nil || !strings.Contains(string(o.Raw), "Degraded") || a.says(key) == nil || !raced {
			t.Errorf("%s, %v", o.Raw, err)
		}
		stop()
	})
}

// TestStaleIsOnAccountOfTheAgent is that an agent whose budget is used up waits, and no
// other; and that one Application which cannot be written keeps none waiting.
func TestStaleIsOnAccountOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsent(t)
		poor := budget.NewPeer("poor", budget.Limits{Writes: budget.Limit{Rate: 1, Burst: 10}, Bytes: budget.DefaultLimits().Bytes}, nil, time.Now())
		rich := budget.NewPeer("rich", budget.DefaultLimits(), nil, time.Now())
		a.budgets[kit.Agent(t, "poor")], a.budgets[kit.Agent(t, "rich")] = poor, rich
		for i := range 40 {
			a.create("poor", fmt.Sprint("app-", i), "", "")
			a.create("rich", fmt.Sprint("app-", i), "", "")
		}
		refused, unreached := a.create("rich", "refused", "", ""), true
		a.refuses = func(key stream.ResourceKey) error {
			switch {
			case key == refused && unreached:
				return fmt.Errorf("by a policy: %w", stream.ErrRefused)
			case key.Name == "app-3" && unreached:
				unreached = false
				return errors.Join(stream.ErrUnavailable)
			}
			return nil
		}
		before := rich.Levels(time.Now()).Writes
		a.goes("poor", time.Now().Add(-time.Hour))
		a.goes("rich", time.Now().Add(-time.Minute))
		stop := a.run()
		count := func(written []absentWrite) map[string]int {
			n := map[string]int{}
			for _, w := range written {
				n[w.name]++
			}
			return n
		}
		n := count(a.pass(75 * time.Second))
		if n["rich"] < 40 || n["poor"] > 26 || n["poor"] < 10 {
			t.Errorf("%v writes", n)
		}
		if left := rich.Levels(time.Now()).Writes; left > before {
			t.Errorf("%d writes are left of %d", left, before)
		}
		a.pass(stalePassOver)
		for _, key := range append(a.store.List(stream.Application, "poor"), a.store.List(stream.Application, "rich")...) {
			if a.says(key.Key) == nil {
				t.Errorf("%s says nothing", key.Key)
			}
		}
		stop()
	})
}

// stalePassOver is when all Applications were looked at again.
const stalePassOver = 6 * time.Minute
