package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// named returns a history with what is random replaced by where it was before:
// "old" values keep their text, others are "new".
func named(h *v1alpha1.AgentHistory) string {
	if h == nil {
		return "none"
	}
	name := func(s string) string {
		if strings.HasPrefix(s, "old") {
			return s
		}
		return "new"
	}
	tokens := make([]string, len(h.Tokens))
	for i, token := range h.Tokens {
		tokens[i] = name(token)
	}
	return fmt.Sprintf("%s %s of %s", name(h.ID), tokens, h.ClusterUID)
}

func TestHistoryFollowsTheSession(t *testing.T) {
	old := func(tokens ...string) *v1alpha1.AgentHistory {
		return &v1alpha1.AgentHistory{ID: "old", Tokens: tokens, ClusterUID: "c1"}
	}
	tests := map[string]struct {
		have    *v1alpha1.AgentHistory
		session func(*Session)
		// after is how long ago observedAt was written.
		after time.Duration
		want  string
	}{
		"a first contact, before it may begin": {
			session: func(*Session) {}, after: time.Minute,
			want: "none",
		},
		"a first contact": {
			session: func(s *Session) { s.History.Begin = true },
			want:    "new [new] of c1",
		},
		"a first contact with a spoke that does not say what cluster it is": {
			session: func(s *Session) { s.History.Begin, s.ClusterUID = true, "" },
			want:    "none",
		},
		"asked to begin after another history went away": {
			session: func(s *Session) { s.History.Begin, s.History.Replaces = true, "old" },
			want:    "none",
		},
		"asked to begin again what has begun": {
			have: old("old1"), session: func(s *Session) { s.History.Begin = true }, after: time.Minute,
			want: "old [old1] of c1",
		},
		"asked to replace the present history, on another cluster": {
			have: old("old3", "old2", "old1"),
			session: func(s *Session) {
				s.History = fleet.SessionHistory{Broken: "why", Begin: true, Replaces: "old"}
				s.ClusterUID = "c2"
			},
			want: "new [new] of c2",
		},
		"asked to replace an earlier history": {
			have: old("old1"), session: func(s *Session) { s.History = fleet.SessionHistory{Begin: true, Replaces: "older"} }, after: time.Minute,
			want: "old [old1] of c1",
		},
		"a minute after the last token, which the spoke keeps": {
			have: old("old1"), session: func(s *Session) { s.History.Stored = "old1" }, after: time.Minute,
			want: "old [new old1] of c1",
		},
		"less than a minute": {
			have: old("old2", "old1"), session: func(s *Session) { s.History.Stored = "old2" }, after: 59 * time.Second,
			want: "old [old2 old1] of c1",
		},
		"the first token, as soon as the spoke keeps it": {
			have: old("old1"), session: func(s *Session) { s.History.Stored = "old1" },
			want: "old [new old1] of c1",
		},
		"the first token, before the spoke keeps it": {
			have: old("old1"), session: func(*Session) {}, after: time.Minute,
			want: "old [old1] of c1",
		},
		"a fourth token": {
			have: old("old3", "old2", "old1"), session: func(s *Session) { s.History.Stored = "old3" }, after: time.Hour,
			want: "old [new old3 old2] of c1",
		},
		"a spoke that keeps the token before": {
			have: old("old2", "old1"), session: func(s *Session) { s.History.Stored = "old1" }, after: time.Minute,
			want: "old [old2 old1] of c1",
		},
		"a spoke that keeps none": {
			have: old("old2", "old1"), session: func(*Session) {}, after: time.Minute,
			want: "old [old2 old1] of c1",
		},
		"a broken history": {
			have:    old("old2", "old1"),
			session: func(s *Session) { s.History = fleet.SessionHistory{Broken: "why", Stored: "old2"} }, after: time.Minute,
			want: "old [old2 old1] of c1",
		},
		"an agent that went": {
			have: old("old2", "old1"), after: time.Minute,
			session: func(s *Session) { s.Connected, s.History = false, fleet.SessionHistory{Stored: "old2"} },
			want:    "old [old2 old1] of c1",
		},
		"an agent that went before a history began": {
			session: func(s *Session) { s.Connected, s.History = false, fleet.SessionHistory{Begin: true} },
			want:    "none",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			agent.Status.History, agent.Status.ObservedAt = tt.have, at(-tt.after)
			session := connected(func(s *Session) { s.ClusterUID = "c1"; tt.session(s) })
			got := wantStatus(agent, findings{session: session}, noon)
			if got := named(got.History); got != tt.want {
				t.Errorf("history is %s, want %s", got, tt.want)
			}
			if tt.have != nil && agent.Status.History.Tokens[0] != tt.have.Tokens[0] {
				t.Error("the Agent's own status was changed")
			}
		})
	}
}

// TestHistoryTokensAreDifferent plays an hour of an agent that keeps every token.
func TestHistoryTokensAreDifferent(t *testing.T) {
	agent := &v1alpha1.Agent{}
	var lastWrite time.Time
	seen := map[string]int{}
	for elapsed := time.Duration(0); elapsed < time.Hour; elapsed += time.Second {
		now := noon.Add(elapsed)
		session := connected(func(s *Session) {
			s.ClusterUID, s.ObservedAt = "c1", now
			s.History.Begin = true // also when it has begun
			if h := agent.Status.History; h != nil {
				s.History.Stored = h.Tokens[0]
			}
		})
		want := wantStatus(agent, findings{secret: secretPlan{ready: true}, session: session}, now)
		if decide(agent.Status, want, true, now, lastWrite).write {
			lastWrite, agent.Status = now, want
			seen[want.History.Tokens[0]]++
		}
	}
	if len(seen) < 60 || len(seen) > 61 {
		t.Errorf("an hour made %d tokens, want one at the start and one a minute", len(seen))
	}
	if tokens := agent.Status.History.Tokens; len(tokens) != v1alpha1.MaxHistoryTokens || len(slices.Compact(slices.Sorted(slices.Values(tokens)))) != len(tokens) {
		t.Errorf("tokens are %q, want %d different ones", tokens, v1alpha1.MaxHistoryTokens)
	}
}

// A new history and a new hold are shown as soon as a connection is, not after the
// longer pause for counts.
func TestHistoryAndHoldAreNotLate(t *testing.T) {
	agent := &v1alpha1.Agent{}
	quiet := findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.ClusterUID = "c1" })}
	agent.Status = wantStatus(agent, quiet, noon)
	now := noon.Add(2 * time.Second)
	tests := map[string]func(*Session){
		"a history": func(s *Session) { s.History.Begin = true },
		"a hold":    func(s *Session) { s.Held = &v1alpha1.DeletionsHeld{ID: "x", Reason: v1alpha1.HoldTooMany, Total: 11} },
	}
	for name, change := range tests {
		found := quiet
		change(&found.session)
		if !decide(agent.Status, wantStatus(agent, found, now), true, now, noon).write {
			t.Errorf("%s is not written 2 s after another change", name)
		}
	}
	// Another hold of as many objects has the same condition.
	agent.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{ID: "x", Since: *at(0), Reason: v1alpha1.HoldTooMany, Total: 11}
	found := quiet
	found.session.Held = agent.Status.DeletionsHeld.DeepCopy()
	agent.Status = wantStatus(agent, found, noon)
	found.session.Held.ID = "y"
	if !decide(agent.Status, wantStatus(agent, found, now), true, now, noon).write {
		t.Error("another hold is not written 2 s after another change")
	}
}

func TestHeldFollowsTheSession(t *testing.T) {
	hold := func(change func(*v1alpha1.DeletionsHeld)) *v1alpha1.DeletionsHeld {
		h := &v1alpha1.DeletionsHeld{
			ID: "x", Reason: v1alpha1.HoldTooMany, Message: "12 of 40 would go", Total: 12,
			Objects: []v1alpha1.HeldObject{{Kind: "Application", Namespace: "argocd", Name: "a"}, {Kind: "AppProject", Namespace: "argocd", Name: "p"}},
		}
		if change != nil {
			change(h)
		}
		return h
	}
	shown := func(since *metav1.Time, change func(*v1alpha1.DeletionsHeld)) *v1alpha1.DeletionsHeld {
		h := hold(change)
		h.Since = *since
		slices.Reverse(h.Objects) // by kind
		return h
	}
	tests := map[string]struct {
		have    *v1alpha1.DeletionsHeld
		session Session
		want    *v1alpha1.DeletionsHeld
	}{
		"nothing": {session: connected(nil)},
		"a hold": {
			session: connected(func(s *Session) { s.Held = hold(nil) }),
			want:    shown(at(0), nil),
		},
		"the same hold later": {
			have:    shown(at(-time.Hour), nil),
			session: connected(func(s *Session) { s.Held = hold(func(h *v1alpha1.DeletionsHeld) { h.Message = "more" }) }),
			want:    shown(at(-time.Hour), func(h *v1alpha1.DeletionsHeld) { h.Message = "more" }),
		},
		"another hold": {
			have:    shown(at(-time.Hour), nil),
			session: connected(func(s *Session) { s.Held = hold(func(h *v1alpha1.DeletionsHeld) { h.ID = "y" }) }),
			want:    shown(at(0), func(h *v1alpha1.DeletionsHeld) { h.ID = "y" }),
		},
		"accepted": {
			have:    shown(at(-time.Hour), nil),
			session: connected(nil),
		},
		"away": {
			have:    shown(at(-time.Hour), nil),
			session: connected(func(s *Session) { s.Connected = false }),
			want:    shown(at(-time.Hour), nil),
		},
		"a principal that starts": {
			have: shown(at(-time.Hour), nil),
			want: shown(at(-time.Hour), nil),
		},
		"connected, and not known yet": {
			have:    shown(at(-time.Hour), nil),
			session: connected(func(s *Session) { s.HeldUnknown = true }),
			want:    shown(at(-time.Hour), nil),
		},
		"a total less than what is named": {
			session: connected(func(s *Session) { s.Held = hold(func(h *v1alpha1.DeletionsHeld) { h.Total = 0 }) }),
			want:    shown(at(0), func(h *v1alpha1.DeletionsHeld) { h.Total = 2 }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			agent.Status.DeletionsHeld = tt.have
			got := wantStatus(agent, findings{session: tt.session}, noon.Add(500*time.Millisecond)).DeletionsHeld
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("deletionsHeld (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeldFitsTheStatus(t *testing.T) {
	held := &v1alpha1.DeletionsHeld{ID: "x", Reason: v1alpha1.HoldTooMany, Message: strings.Repeat("é", 600)}
	for i := range 60 {
		held.Objects = append(held.Objects, v1alpha1.HeldObject{Kind: "Application", Namespace: "edge-1", Name: fmt.Sprintf("app-%02d", 59-i)})
	}
	got := wantStatus(&v1alpha1.Agent{}, findings{session: connected(func(s *Session) { s.Held = held })}, noon).DeletionsHeld
	if got.Total != 60 || len(got.Objects) != v1alpha1.MaxHeld || got.Objects[0].Name != "app-00" || got.Objects[49].Name != "app-49" {
		t.Errorf("status counts %d and names %d, from %s to %s; want 60 and the first %d by name",
			got.Total, len(got.Objects), got.Objects[0].Name, got.Objects[len(got.Objects)-1].Name, v1alpha1.MaxHeld)
	}
	if m := got.Message; len(m) > 1024 || strings.Trim(m, "é") != "" || len(m) < 1020 {
		t.Errorf("message has %d bytes, want whole runes in at most 1024", len(m))
	}
	if held.Total != 0 || len(held.Objects) != 60 || held.Objects[0].Name != "app-59" || !held.Since.IsZero() {
		t.Error("what the session points to was changed")
	}
}
