//go:build linux

package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// connect gives an agent a session, and returns it.
func (r *registration) connect(name string, change func(*controller.Session)) controller.Session {
	r.t.Helper()
	now := time.Now()
	session := controller.Session{Connected: true, Replica: "principal-0", Since: now, ObservedAt: now, ClusterUID: "cluster-1"}
	if change != nil {
		change(&session)
	}
	r.sessions.set(r.t, name, session)
	r.condition(name, v1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	return session
}

// status waits until the status of an agent is as check wants it, and returns it.
func (r *registration) status(name, what string, check func(v1alpha1.AgentStatus) bool) v1alpha1.AgentStatus {
	r.t.Helper()
	var status v1alpha1.AgentStatus
	env.Eventually(r.t, what+" of "+name, func() error {
		a, err := r.getAgent(name)
		if err != nil {
			return err
		}
		if status = a.Status; !check(status) {
			return fmt.Errorf("status is %+v", status)
		}
		return nil
	})
	return status
}

func (r *registration) testHistory(t *testing.T) {
	r = r.in(t)
	r.create("historic", nil)
	session := r.connect("historic", nil)
	if h := r.agent("historic").Status.History; h != nil {
		t.Errorf("history before it may begin is %+v", h)
	}
	session.History.Begin = true
	r.sessions.set(t, "historic", session)
	first := *r.status("historic", "a history", func(s v1alpha1.AgentStatus) bool { return s.History != nil }).History
	if first.ID == "" || first.ClusterUID != "cluster-1" || len(first.Tokens) != 1 || first.Tokens[0] == first.ID {
		t.Fatalf("history is %+v, want an ID and one token", first)
	}

	// The spoke keeps the token: the second comes at once, each further one when
	// observedAt is renewed.
	session.History.Stored = first.Tokens[0]
	r.sessions.set(t, "historic", session)
	kept := *r.status("historic", "a second token", func(s v1alpha1.AgentStatus) bool { return len(s.History.Tokens) == 2 }).History
	if kept.ID != first.ID || kept.Tokens[1] != first.Tokens[0] {
		t.Errorf("history is %+v, want a new token before %q", kept, first.Tokens[0])
	}
	session.History.Stored = kept.Tokens[0]
	session.Counts.Applications = 1
	r.sessions.set(t, "historic", session)
	r.status("historic", "a count", func(s v1alpha1.AgentStatus) bool { return s.Counts.Applications == 1 })
	if diff := cmp.Diff(kept, *r.agent("historic").Status.History); diff != "" {
		t.Errorf("history before the minute is over (-want +got):\n%s", diff)
	}
	session.ObservedAt, session.Counts.Applications = session.ObservedAt.Add(time.Minute), 2
	r.sessions.set(t, "historic", session)
	second := r.status("historic", "a third token", func(s v1alpha1.AgentStatus) bool { return len(s.History.Tokens) == 3 })
	if second.History.ID != first.ID || second.History.Tokens[1] != kept.Tokens[0] || second.Counts.Applications != 2 {
		t.Errorf("status is %+v, want a new token before %q", second, kept.Tokens[0])
	}

	// A break ends that, and a new history takes the old one's place once.
	session.ObservedAt = session.ObservedAt.Add(time.Minute)
	session.History = fleet.SessionHistory{Broken: "restored", Stored: second.History.Tokens[0]}
	r.sessions.set(t, "historic", session)
	at := metav1.NewTime(session.ObservedAt.Truncate(time.Second))
	broken := r.status("historic", "a later look", func(s v1alpha1.AgentStatus) bool { return s.ObservedAt.Equal(&at) })
	if diff := cmp.Diff(second.History, broken.History); diff != "" {
		t.Errorf("a broken history (-want +got):\n%s", diff)
	}
	session.History.Begin, session.History.Replaces = true, first.ID
	r.sessions.set(t, "historic", session)
	third := r.status("historic", "a new history", func(s v1alpha1.AgentStatus) bool { return s.History.ID != first.ID })
	session.Counts.Applications = 3
	r.sessions.set(t, "historic", session)
	same := r.status("historic", "a count", func(s v1alpha1.AgentStatus) bool { return s.Counts.Applications == 3 })
	if diff := cmp.Diff(third.History, same.History); diff != "" {
		t.Errorf("a history that began already (-want +got):\n%s", diff)
	}

	// A history that is lost does not begin again for the same wish: that the hub
	// was restored has to show.
	r.create("restored", nil)
	session = r.connect("restored", func(s *controller.Session) { s.History.Begin = true })
	r.status("restored", "a history", func(s v1alpha1.AgentStatus) bool { return s.History != nil })
	if _, err := r.agents.Patch(t.Context(), "restored", types.MergePatchType, []byte(`{"status":{"history":null}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	session.Counts.Applications = 4
	r.sessions.set(t, "restored", session)
	lost := r.status("restored", "a count", func(s v1alpha1.AgentStatus) bool { return s.Counts.Applications == 4 })
	if lost.History != nil {
		t.Errorf("after its history was lost the Agent has %+v", lost.History)
	}
	session.History.Broken = "the hub was restored"
	r.sessions.set(t, "restored", session)
	r.status("restored", "a history after the break", func(s v1alpha1.AgentStatus) bool { return s.History != nil })
}

// testTwoControllers runs a second controller beside the first, as when one that
// was thought dead wakes up. Neither may write its history over the other's: each
// token that was ever shown is the next one's predecessor.
func (r *registration) testTwoControllers(t *testing.T) {
	r = r.in(t)
	r.create("twice", nil)
	session := r.connect("twice", func(s *controller.Session) { s.History.Begin = true })
	r.status("twice", "a history", func(s v1alpha1.AgentStatus) bool { return s.History != nil })
	events, err := r.agents.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=twice"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	second, stop := r.another()
	defer stop()
	env.Eventually(r.t, "the second controller", func() error {
		if !second.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	session.History = fleet.SessionHistory{}
	const minutes = 8
	for range minutes {
		newest := r.agent("twice").Status.History.Tokens[0]
		session.History.Stored, session.ObservedAt = newest, session.ObservedAt.Add(time.Minute)
		r.sessions.set(t, "twice", session)
		r.status("twice", "another token", func(s v1alpha1.AgentStatus) bool { return s.History.Tokens[0] != newest })
	}
	var last []string
	tokens := 0
	for tokens < minutes {
		event, open := <-events.ResultChan()
		if !open {
			t.Fatalf("the watch ended after %d tokens", tokens)
		}
		raw, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the watch says %v", event.Object)
		}
		now, _, err := unstructured.NestedStringSlice(raw.Object, "status", "history", "tokens")
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case last == nil:
		case slices.Equal(now, last):
			continue
		case !slices.Equal(now[1:], last[:min(len(last), v1alpha1.MaxHistoryTokens-1)]):
			t.Fatalf("tokens went from %q to %q, want one more in front", last, now)
		default:
			tokens++
		}
		last = now
	}
}

// another starts a second controller on the same hub and sessions, and returns
// what stops it.
func (r *registration) another() (*controller.Controller, func()) {
	r.t.Helper()
	c, err := controller.New(controller.Config{
		Client: r.hub.Dynamic(), Namespace: harness.ArgoCDNamespace, ProxyURL: agentsProxyURL,
		Sessions: r.sessions, Teardown: r.departures.depart, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return c, kit.Background(r.t, c.Run)
}

// heldOf returns a hold of two Applications.
func heldOf(id string) *v1alpha1.DeletionsHeld {
	return &v1alpha1.DeletionsHeld{
		ID: id, Reason: v1alpha1.HoldHistoryBroken, Message: "the hub was restored", Total: 2,
		Objects: []v1alpha1.HeldObject{{Kind: "Application", Namespace: "argocd", Name: "a"}, {Kind: "Application", Namespace: "argocd", Name: "b"}},
	}
}

func (r *registration) testHeld(t *testing.T) {
	r = r.in(t)
	r.create("holding", nil)
	session := r.connect("holding", func(s *controller.Session) { s.Held = heldOf("hold-1") })
	r.condition("holding", v1alpha1.ConditionDeletionsHeld, metav1.ConditionTrue,
		"2 deletions are held: the hub was restored; look at them and let them happen with: agentctl agent accept-deletions holding")
	got := r.agent("holding").Status.DeletionsHeld
	if diff := cmp.Diff(heldOf("hold-1"), got, cmpopts.IgnoreFields(v1alpha1.DeletionsHeld{}, "Since")); diff != "" || got.Since.IsZero() {
		t.Errorf("deletionsHeld since %v (-want +got):\n%s", got.Since, diff)
	}

	// The hold stands while the agent is away, and while it is not known again.
	r.sessions.remove(t, "holding")
	r.condition("holding", v1alpha1.ConditionConnected, metav1.ConditionFalse, "")
	session.Held, session.HeldUnknown = nil, true
	r.sessions.set(t, "holding", session)
	r.condition("holding", v1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	r.condition("holding", v1alpha1.ConditionDeletionsHeld, metav1.ConditionTrue, "2 deletions")
	if diff := cmp.Diff(got, r.agent("holding").Status.DeletionsHeld); diff != "" {
		t.Errorf("deletionsHeld after a reconnect (-want +got):\n%s", diff)
	}
	session.HeldUnknown = false
	r.sessions.set(t, "holding", session)
	r.condition("holding", v1alpha1.ConditionDeletionsHeld, metav1.ConditionFalse, "")
	if got := r.agent("holding").Status.DeletionsHeld; got != nil {
		t.Errorf("deletionsHeld is %+v, want none", got)
	}
}

func (r *registration) testOrphan(t *testing.T) {
	r = r.in(t)
	for name, mode := range map[string]v1alpha1.AgentMode{"orphaned": v1alpha1.ModeManaged, "independent": v1alpha1.ModeAutonomous} {
		r.create(name, func(a *v1alpha1.Agent) { a.Spec.Mode = mode })
		r.inForce(name)
		r.connect(name, nil)
		answer := r.departures.script(name)
		answer.waits("the hub's mirrors to go")
		r.delete(name)
		r.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, "waits for its streams to end")
		if calls := answer.seen(); len(calls) > 0 {
			t.Errorf("%s: Depart was called for %v before the streams ended", name, calls)
		}
		r.sessions.remove(t, name)
		r.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, "the Agent is being deleted and waits for the hub's mirrors to go")
		if _, err := r.getSecret("cluster-" + name); err != nil {
			t.Errorf("%s: the Secret went before Depart was done: %v", name, err)
		}
		answer.fails(errors.New("the hub is tired"))
		r.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, "waits for another attempt, since one failed: the hub is tired")
		answer.waits("")
		r.gone(name)
		if _, err := r.getSecret("cluster-" + name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: get the Secret of a deleted Agent: %v, want not found", name, err)
		}
		for _, call := range answer.seen() {
			if want := string(mode) + " orphan"; call != want {
				t.Errorf("Depart was called for %s, want %s", call, want)
			}
		}
	}
}

func (r *registration) testCascade(t *testing.T) {
	r = r.in(t)
	cascade := func(a *v1alpha1.Agent) { a.Spec.DeletionPolicy = v1alpha1.DeletionCascade }
	r.create("cascading", cascade)
	r.inForce("cascading")
	session := r.connect("cascading", func(s *controller.Session) { s.History.Begin = true })
	history := r.status("cascading", "a history", func(s v1alpha1.AgentStatus) bool { return s.History != nil }).History
	answer := r.departures.script("cascading")
	answer.waits("the spoke to remove 2 Applications")
	r.delete("cascading")
	r.condition("cascading", v1alpha1.ConditionReady, metav1.ConditionFalse, "the Agent is being deleted and waits for the spoke to remove 2 Applications")

	// Meanwhile it is an agent as others are: its status, history and Secret go on.
	session.History = fleet.SessionHistory{Stored: history.Tokens[0]}
	session.ObservedAt = session.ObservedAt.Add(time.Minute)
	r.sessions.set(t, "cascading", session)
	r.status("cascading", "a second token", func(s v1alpha1.AgentStatus) bool { return len(s.History.Tokens) == 2 })
	uid := r.secret("cluster-cascading").UID
	r.deleteSecret("cluster-cascading")
	env.Eventually(r.t, "a new Secret", func() error {
		s, err := r.getSecret("cluster-cascading")
		if err == nil && s.UID == uid {
			err = errors.New("it is the old one")
		}
		return err
	})
	r.condition("cascading", v1alpha1.ConditionClusterSecretReady, metav1.ConditionTrue, "")
	r.sessions.remove(t, "cascading")
	r.condition("cascading", v1alpha1.ConditionReady, metav1.ConditionFalse, "the spoke to remove 2 Applications; the agent is not connected")
	r.patchAgent("cascading", `{"spec":{"suspended":true}}`)
	r.condition("cascading", v1alpha1.ConditionReady, metav1.ConditionFalse, "2 Applications; the agent may not connect, since spec.suspended is true")
	r.patchAgent("cascading", `{"spec":{"suspended":false}}`)
	r.connect("cascading", nil)

	answer.waits("")
	r.gone("cascading") // while it is connected
	if _, err := r.getSecret("cluster-cascading"); !apierrors.IsNotFound(err) {
		t.Errorf("get the Secret of a deleted Agent: %v, want not found", err)
	}
	for _, call := range answer.seen() {
		if call != "managed cascade" {
			t.Errorf("Depart was called for %s, want managed cascade", call)
		}
	}
	r.sessions.remove(t, "cascading")
}

// A cascade whose spoke does not come back ends when its policy becomes orphan.
func (r *registration) testForce(t *testing.T) {
	r = r.in(t)
	r.create("lost", func(a *v1alpha1.Agent) { a.Spec.DeletionPolicy = v1alpha1.DeletionCascade })
	r.inForce("lost")
	r.connect("lost", nil)
	answer := r.departures.script("lost")
	answer.waitsFor(func(a v1alpha1.Agent) string {
		if a.Spec.DeletionPolicy == v1alpha1.DeletionCascade {
			return "the spoke to remove 1 Application"
		}
		return ""
	})
	r.delete("lost")
	r.condition("lost", v1alpha1.ConditionReady, metav1.ConditionFalse, "the spoke to remove 1 Application")
	r.patchAgent("lost", `{"spec":{"deletionPolicy":"orphan"}}`)
	r.condition("lost", v1alpha1.ConditionReady, metav1.ConditionFalse, "waits for its streams to end")
	before := answer.seen()
	if slices.Contains(before, "managed orphan") {
		t.Error("Depart was called for an orphaning Agent while it was connected")
	}
	r.sessions.remove(t, "lost")
	r.gone("lost")
	after := answer.seen()[len(before):]
	if len(after) == 0 || strings.Join(slices.Compact(after), ", ") != "managed orphan" {
		t.Errorf("after the change Depart was called for %q, want managed orphan only", after)
	}
}

// departureTable is controller.Config.Teardown for a test to answer. Who has no
// script may go at once.
type departureTable struct {
	mu      sync.Mutex // guards scripts
	scripts map[string]*departure
}

// departure is what Depart says of one agent.
type departure struct {
	mu     sync.Mutex // guards what follows
	answer func(v1alpha1.Agent) (string, error)
	calls  []string
}

func newDepartureTable() *departureTable {
	return &departureTable{scripts: map[string]*departure{}}
}

func (d *departureTable) script(agent string) *departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &departure{answer: func(v1alpha1.Agent) (string, error) { return "", nil }}
	d.scripts[agent] = s
	return s
}

func (d *departureTable) depart(_ context.Context, agent v1alpha1.Agent) (string, error) {
	d.mu.Lock()
	s := d.scripts[agent.Name]
	d.mu.Unlock()
	if s == nil {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, string(agent.Spec.Mode)+" "+string(agent.Spec.DeletionPolicy))
	return s.answer(agent)
}

func (s *departure) waits(what string) {
	s.waitsFor(func(v1alpha1.Agent) string { return what })
}

func (s *departure) waitsFor(what func(v1alpha1.Agent) string) {
	s.set(func(a v1alpha1.Agent) (string, error) { return what(a), nil })
}

func (s *departure) fails(err error) {
	s.set(func(v1alpha1.Agent) (string, error) { return "", err })
}

func (s *departure) set(answer func(v1alpha1.Agent) (string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// seen returns the mode and policy of each call.
func (s *departure) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}
