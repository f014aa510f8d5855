package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// noon is the time of these tests.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(offset time.Duration) *metav1.Time { return new(metav1.NewTime(noon.Add(offset))) }

// connected is a session that has been there since noon.
func connected(change func(*Session)) Session {
	s := Session{
		Connected: true, Replica: "principal-0", Since: noon.Add(300 * time.Millisecond), ObservedAt: noon,
		AgentVersion: "v0.1.0", KubernetesVersion: "v1.36.3",
		SPIFFEID: spiffeid.RequireFromString("spiffe://a/1"), SVIDExpiry: noon.Add(time.Hour),
		Counts: v1alpha1.AgentCounts{Applications: 7, AppProjects: 2},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestStatusFollowsTheSession(t *testing.T) {
	agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Generation: 3}}
	ready := findings{secret: secretPlan{ready: true, project: "web"}}

	ready.session = connected(nil)
	first := wantStatus(agent, ready, noon)
	want := v1alpha1.AgentStatus{
		ObservedGeneration: 3, ClusterProject: "web", Summary: "Connected",
		Connected: true, Replica: "principal-0", Since: at(0), ObservedAt: at(0),
		Versions:   v1alpha1.AgentVersions{Agent: "v0.1.0", Kubernetes: "v1.36.3"},
		SPIFFEID:   "spiffe://a/1",
		SVIDExpiry: at(time.Hour),
		Counts:     v1alpha1.AgentCounts{Applications: 7, AppProjects: 2},
	}
	got := first
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("connected (-want +got):\n%s", diff)
	}

	// A principal that starts knows no session: what was known of the spoke stays.
	agent.Status = first
	ready.session = Session{}
	gone := wantStatus(agent, ready, noon.Add(90*time.Second))
	want.Summary, want.Connected, want.Replica, want.Since = "Away", false, "", at(90*time.Second)
	got = gone
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("disconnected (-want +got):\n%s", diff)
	}
	if c := meta.FindStatusCondition(gone.Conditions, v1alpha1.ConditionConnected); c.Status != metav1.ConditionFalse || !c.LastTransitionTime.Equal(at(90*time.Second)) {
		t.Errorf("condition Connected = %+v, want False since then", c)
	}
	if c := meta.FindStatusCondition(gone.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue || !c.LastTransitionTime.Equal(at(0)) {
		t.Errorf("condition Ready = %+v, want True since the beginning: it is not about the connection", c)
	}

	agent.Status = gone
	if still := wantStatus(agent, ready, noon.Add(time.Hour)); !still.Since.Equal(gone.Since) {
		t.Errorf("since moves to %v while nothing happens", still.Since)
	}
}

func TestStatusNamesWhatWasShortened(t *testing.T) {
	var shortened []v1alpha1.ShortenedObject
	for i := range 60 {
		shortened = append(shortened, v1alpha1.ShortenedObject{
			Kind: "Application", Namespace: "edge-1", Name: fmt.Sprintf("app-%02d", 59-i), Paths: []string{"spec.source.tagPrefix"},
		})
	}
	got := wantStatus(&v1alpha1.Agent{}, findings{session: connected(func(s *Session) { s.Shortened = shortened })}, noon)
	if got.Counts.Shortened != 60 || len(got.Shortened) != v1alpha1.MaxShortened || got.Shortened[0].Name != "app-00" {
		t.Fatalf("status counts %d and names %v", got.Counts.Shortened, got.Shortened)
	}
	got = wantStatus(&v1alpha1.Agent{Status: got}, findings{session: Session{}}, noon)
	if got.Counts.Shortened != 60 || len(got.Shortened) != v1alpha1.MaxShortened {
		t.Error("what is known of an agent that is away is gone")
	}
	got = wantStatus(&v1alpha1.Agent{Status: got}, findings{session: connected(nil)}, noon)
	if got.Counts.Shortened != 0 || got.Shortened != nil {
		t.Errorf("what is no longer so stays: %d, %v", got.Counts.Shortened, got.Shortened)
	}
}

func TestStatusNamesTheOldestParked(t *testing.T) {
	var parked []v1alpha1.ParkedObject
	for i := range 60 {
		parked = append(parked, v1alpha1.ParkedObject{
			Kind: "Application", Name: fmt.Sprintf("app-%02d", i), Reason: "Invalid",
			Message: strings.Repeat("é", 600), Since: *at(-time.Duration(i)*time.Minute + time.Millisecond),
		})
	}
	got := wantStatus(&v1alpha1.Agent{}, findings{session: connected(func(s *Session) { s.Parked = parked })}, noon)
	if got.Counts.Parked != 60 || len(got.Parked) != v1alpha1.MaxParked {
		t.Fatalf("status counts %d and names %d parked objects, want 60 and %d", got.Counts.Parked, len(got.Parked), v1alpha1.MaxParked)
	}
	if first, last := got.Parked[0], got.Parked[49]; first.Name != "app-59" || last.Name != "app-10" {
		t.Errorf("status names %s to %s, want app-59 to app-10", first.Name, last.Name)
	}
	if m := got.Parked[0].Message; len(m) > 1024 || strings.Trim(m, "é") != "" || len(m) < 1020 {
		t.Errorf("message has %d bytes, want whole runes in at most 1024", len(m))
	}
	if parked[0].Name != "app-00" || len(parked[0].Message) != 1200 {
		t.Error("the session's own list was changed")
	}
}

func TestConditions(t *testing.T) {
	const never = "no agent has connected yet: run one with name edge-1, mode managed and SPIFFE ID spiffe://a/1 or spiffe://a/2; one that has another ID is shown by agentctl agent list --unknown"
	const away = ": start the agent on its spoke; where it runs, its /readyz and agentctl identity doctor there say what keeps it from the hub; one that has another SPIFFE ID is shown by agentctl agent list --unknown"
	registered := func(a *v1alpha1.Agent) {
		a.Name, a.Spec.Mode, a.Spec.Identity.SPIFFEIDs = "edge-1", v1alpha1.ModeManaged, []string{"spiffe://a/1", "spiffe://a/2"}
	}
	wasThere := func(a *v1alpha1.Agent) { a.Status.Versions.Agent = "v0.1.0" }
	refused := &Refused{ID: spiffeid.RequireFromString("spiffe://a/2"), What: "mode", Message: "set it", Since: noon.Add(-time.Minute)}
	stranger := &Refused{ID: spiffeid.RequireFromString("spiffe://a/3"), What: RefusedSPIFFEID, Since: noon.Add(-time.Minute)}
	conflict := fleet.Conflict{ID: spiffeid.RequireFromString("spiffe://example.org/a"), Owner: kit.Agent(t, "older")}
	tests := map[string]struct {
		agent func(*v1alpha1.Agent)
		found findings
		want  map[string]string // status, reason and message by type, those that are not in order
	}{
		"all in order": {
			found: findings{secret: secretPlan{ready: true}, session: connected(nil)},
		},
		"away is in order": {
			agent: wasThere,
			found: findings{secret: secretPlan{ready: true}},
			want:  map[string]string{"Connected": "False NotConnected away since 2026-11-21T12:00:00Z" + away},
		},
		"one that was never there": {
			agent: registered,
			found: findings{secret: secretPlan{ready: true}},
			want:  map[string]string{"Ready": "False NeverConnected " + never, "Connected": "False NeverConnected " + never},
		},
		"one that is refused and was never there": {
			agent: registered,
			found: findings{secret: secretPlan{ready: true}, session: Session{Refused: refused}},
			want:  map[string]string{"Ready": "False NeverConnected " + never, "Connected": "False RefusedMode refused since 2026-11-21T11:59:00Z: set it"},
		},
		"one that is refused now": {
			agent: func(a *v1alpha1.Agent) { registered(a); wasThere(a) },
			found: findings{secret: secretPlan{ready: true}, session: Session{Refused: refused}},
			want:  map[string]string{"Connected": "False RefusedMode refused since 2026-11-21T11:59:00Z: set it"},
		},
		"one that comes with a SPIFFE ID that no Agent has": {
			agent: func(a *v1alpha1.Agent) { registered(a); wasThere(a) },
			found: findings{secret: secretPlan{ready: true}, session: Session{Refused: stranger}},
			want: map[string]string{"Connected": "False RefusedSPIFFEID refused since 2026-11-21T11:59:00Z: no Agent has SPIFFE ID spiffe://a/3, and this one has spiffe://a/1 and spiffe://a/2: " +
				"register the pods of the agent with that; or, if the other is this agent's, agentctl agent set edge-1 --spiffe-id spiffe://a/3"},
		},
		"suspended and away": {
			agent: func(a *v1alpha1.Agent) { registered(a); wasThere(a); a.Spec.Suspended = true },
			found: findings{secret: secretPlan{ready: true}, session: Session{Refused: refused}},
			want:  map[string]string{"Ready": "False Suspended spec.suspended is true", "Connected": "False Suspended spec.suspended is true"},
		},
		"suspended": {
			agent: func(a *v1alpha1.Agent) { a.Spec.Suspended = true },
			found: findings{secret: secretPlan{ready: true}, session: connected(nil)},
			want:  map[string]string{"Ready": "False Suspended spec.suspended is true"},
		},
		"being deleted": {
			agent: func(a *v1alpha1.Agent) { a.DeletionTimestamp = at(0) },
			found: findings{secret: secretPlan{ready: true}, session: connected(nil), waits: "its streams to end"},
			want:  map[string]string{"Ready": "False Deleting the Agent is being deleted and waits for its streams to end"},
		},
		"a SPIFFE ID that stays with an older agent": {
			agent: registered,
			found: findings{conflicts: []fleet.Conflict{conflict}, secret: secretPlan{ready: true}, session: connected(nil)},
			want: map[string]string{
				"Ready":    "False SPIFFEIDConflict SPIFFE ID spiffe://example.org/a belongs to the older Agent older: give this Agent another, by agentctl agent set edge-1 --spiffe-id ID, or delete the older one",
				"Conflict": "True SPIFFEIDConflict SPIFFE ID spiffe://example.org/a belongs to the older Agent older: give this Agent another, by agentctl agent set edge-1 --spiffe-id ID, or delete the older one",
			},
		},
		"a namespace that stays with an older agent": {
			found: findings{
				namespaces: []fleet.NamespaceConflict{{Namespace: "web", Owner: conflict.Owner}}, secret: secretPlan{ready: true}, session: connected(nil),
			},
			want: map[string]string{
				"Ready":    "False NamespaceConflict namespace web belongs to the older Agent older",
				"Conflict": "True NamespaceConflict namespace web belongs to the older Agent older",
			},
		},
		"a Secret in the way of ours": {
			found: findings{secret: secretPlan{conflict: "Secret x is there"}, session: connected(nil)},
			want: map[string]string{
				"Ready":                 "False ClusterSecretConflict Secret x is there",
				"ClusterSecretReady":    "False ClusterSecretConflict Secret x is there",
				"ClusterSecretConflict": "True ClusterSecretConflict Secret x is there",
			},
		},
		"a Secret beside ours": {
			found: findings{secret: secretPlan{ready: true, conflict: "Secret x is there"}, session: connected(nil)},
			want: map[string]string{
				"Ready":                 "False ClusterSecretConflict Secret x is there",
				"ClusterSecretConflict": "True ClusterSecretConflict Secret x is there",
			},
		},
		"deletions held": {
			agent: func(a *v1alpha1.Agent) { a.Name = "edge-1" },
			found: findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) {
				s.Held = &v1alpha1.DeletionsHeld{ID: "x", Reason: v1alpha1.HoldTooMany, Message: "12 of 40 Applications would go", Total: 12}
			})},
			want: map[string]string{
				"DeletionsHeld": "True TooMany 12 deletions are held: 12 of 40 Applications would go; " +
					"look at them and let them happen with: agentctl agent accept-deletions edge-1",
			},
		},
		"one deletion held before a disconnect": {
			agent: func(a *v1alpha1.Agent) {
				a.Name = "edge-1"
				wasThere(a)
				a.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{ID: "x", Reason: v1alpha1.HoldHistoryBroken, Total: 1}
			},
			found: findings{secret: secretPlan{ready: true}},
			want: map[string]string{
				"Connected": "False NotConnected away since 2026-11-21T12:00:00Z" + away,
				"DeletionsHeld": "True HistoryBroken 1 deletion is held; " +
					"look at them and let them happen with: agentctl agent accept-deletions edge-1",
			},
		},
		"a cache that fits": {
			agent: func(a *v1alpha1.Agent) {
				a.Status.Conditions = []metav1.Condition{{Type: "CacheMismatch", Status: metav1.ConditionTrue, Reason: "OtherFormat", Message: "1 and 2"}}
			},
			found: findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.CacheKnown = true })},
			want:  map[string]string{"CacheMismatch": "False AsExpected "},
		},
		"a cache in another format": {
			found: findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.CacheKnown, s.CacheMismatch = true, "1 and 2" })},
			want:  map[string]string{"CacheMismatch": "True OtherFormat 1 and 2"},
		},
		"a cache that an earlier process knew": {
			agent: func(a *v1alpha1.Agent) {
				a.Status.Conditions = []metav1.Condition{{Type: "CacheMismatch", Status: metav1.ConditionTrue, Reason: "OtherFormat", Message: "1 and 2"}}
			},
			found: findings{secret: secretPlan{ready: true}, session: connected(nil)},
			want:  map[string]string{"CacheMismatch": "True OtherFormat 1 and 2"},
		},
		"within its budget": {
			agent: func(a *v1alpha1.Agent) {
				a.Status.Conditions = []metav1.Condition{{Type: "OverBudget", Status: metav1.ConditionTrue, Reason: "Bytes", Message: "it waits"}}
			},
			found: findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.BudgetKnown = true })},
			want:  map[string]string{"OverBudget": "False AsExpected "},
		},
		"over its budget": {
			found: findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) {
				s.BudgetKnown, s.OverBudget = true, &OverBudget{Reason: "Bytes", Message: "it waits"}
			})},
			want: map[string]string{"OverBudget": "True Bytes it waits"},
		},
		"a budget of which nothing is known yet": {
			agent: func(a *v1alpha1.Agent) {
				a.Status.Conditions = []metav1.Condition{{Type: "OverBudget", Status: metav1.ConditionTrue, Reason: "Bytes", Message: "it waits"}}
			},
			found: findings{secret: secretPlan{ready: true}, session: connected(nil)},
			want:  map[string]string{"OverBudget": "True Bytes it waits"},
		},
		"a Secret that others keep changing": {
			found: findings{secret: secretPlan{problem: "somebody does"}, session: connected(nil)},
			want: map[string]string{
				"Ready":              "False ClusterSecretNotReady somebody does",
				"ClusterSecretReady": "False ClusterSecretNotReady somebody does",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			if tt.agent != nil {
				tt.agent(agent)
			}
			agent.Status.Conditions = append(agent.Status.Conditions, metav1.Condition{Type: "SomebodyElses", Status: metav1.ConditionTrue})
			want := map[string]string{
				"Ready":                 "True AsExpected ",
				"Connected":             "True Connected connected since 2026-11-21T12:00:00Z",
				"ClusterSecretReady":    "True AsExpected ",
				"ClusterSecretConflict": "False AsExpected ",
				"Conflict":              "False AsExpected ",
				"DeletionsHeld":         "False AsExpected ",
			}
			for kind, text := range tt.want {
				want[kind] = text
			}
			got := map[string]string{}
			for _, c := range wantStatus(agent, tt.found, noon).Conditions {
				got[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// What is left of the limits goes with observedAt, each minute, and needs no write of its
// own.
func TestStatusKeepsTheBudget(t *testing.T) {
	agent := &v1alpha1.Agent{}
	ready := findings{secret: secretPlan{ready: true}}
	left := func(bytes int64, at time.Duration) func(*Session) {
		return func(s *Session) {
			s.BudgetKnown, s.ObservedAt = true, noon.Add(at)
			s.Budget = &v1alpha1.AgentBudget{Writes: 7, Bytes: bytes, At: metav1.NewTime(noon.Add(at + 300*time.Millisecond))}
		}
	}
	for _, step := range []struct {
		after time.Duration
		know  func(*Session)
		want  *v1alpha1.AgentBudget
	}{
		{after: 0, know: left(100, 0), want: &v1alpha1.AgentBudget{Writes: 7, Bytes: 100, At: *at(0)}},
		{after: 30 * time.Second, know: left(50, 30*time.Second), want: &v1alpha1.AgentBudget{Writes: 7, Bytes: 100, At: *at(0)}},
		{after: time.Minute, know: left(-5, time.Minute), want: &v1alpha1.AgentBudget{Writes: 7, Bytes: -5, At: *at(time.Minute)}},
		// A principal that starts knows nothing yet: what was kept is what it goes on with.
		{after: 2 * time.Minute, know: func(s *Session) { s.ObservedAt = noon.Add(2 * time.Minute) }, want: &v1alpha1.AgentBudget{Writes: 7, Bytes: -5, At: *at(time.Minute)}},
		{after: 3 * time.Minute, know: func(s *Session) { s.BudgetKnown, s.ObservedAt = true, noon.Add(3*time.Minute) }},
	} {
		ready.session = connected(step.know)
		agent.Status = wantStatus(agent, ready, noon.Add(step.after))
		if diff := cmp.Diff(step.want, agent.Status.Budget); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.after, diff)
		}
	}
}

// TestStatusWritesAreFew plays ten minutes of sessions, looked at every 100 ms,
// and counts the writes.
func TestStatusWritesAreFew(t *testing.T) {
	const step = 100 * time.Millisecond
	type stats struct{ Writes, Observed int }
	tests := map[string]struct {
		session  func(elapsed time.Duration) Session
		want     stats // at most
		atLeast  stats
		lastApps int64
	}{
		"connected and quiet": {
			session: func(time.Duration) Session { return connected(nil) },
			want:    stats{10, 10}, atLeast: stats{9, 9}, lastApps: 7,
		},
		"a count that changes all the time": {
			session: func(elapsed time.Duration) Session {
				return connected(func(s *Session) { s.Counts.Applications = int64(elapsed / step) })
			},
			want: stats{70, 10}, atLeast: stats{55, 9}, lastApps: 5900,
		},
		"a connection that flaps all the time": {
			session: func(elapsed time.Duration) Session {
				if elapsed/step%2 == 1 {
					return Session{Since: noon.Add(elapsed)}
				}
				return connected(func(s *Session) { s.Since = noon.Add(elapsed) })
			},
			want: stats{600, 10}, atLeast: stats{100, 9},
		},
		"away": {
			session: func(time.Duration) Session { return Session{} },
			want:    stats{1, 0}, atLeast: stats{1, 0},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			var got stats
			var lastWrite time.Time
			for elapsed := time.Duration(0); elapsed < 10*time.Minute; elapsed += step {
				now := noon.Add(elapsed)
				session := tt.session(elapsed)
				if session.Connected {
					session.ObservedAt = now
				}
				want := wantStatus(agent, findings{secret: secretPlan{ready: true}, session: session}, now)
				d := decide(agent.Status, want, session.Connected, now, lastWrite)
				if !d.write {
					continue
				}
				if gap := now.Sub(lastWrite); gap < connectionInterval {
					t.Fatalf("two writes within %v", gap)
				}
				if !want.ObservedAt.Equal(agent.Status.ObservedAt) {
					got.Observed++
				}
				got.Writes++
				lastWrite, agent.Status = now, want
			}
			if got.Writes > tt.want.Writes || got.Observed > tt.want.Observed || got.Writes < tt.atLeast.Writes || got.Observed < tt.atLeast.Observed {
				t.Errorf("got %+v, want at most %+v and at least %+v", got, tt.want, tt.atLeast)
			}
			if apps := agent.Status.Counts.Applications; apps < tt.lastApps {
				t.Errorf("the last count written is %d, want %d or more", apps, tt.lastApps)
			}
		})
	}
}

// A status is an object of the hub's etcd, which keeps each of them for a while. An agent
// whose connection flaps, with as much to tell as there may be, has it grow by no more than
// 32 KiB a second.
func TestALargeStatusIsWrittenSeldom(t *testing.T) {
	const span, flap = 10 * time.Minute, 500 * time.Millisecond
	long := strings.Repeat("x", 253)
	full := func(at time.Time) Session {
		s := connected(func(s *Session) { s.Since, s.ObservedAt = at, at })
		for i := range v1alpha1.MaxParked {
			s.Parked = append(s.Parked, v1alpha1.ParkedObject{
				Kind: "Application", Namespace: long[:63], Name: long, Reason: "Invalid", Message: strings.Repeat("m", maxMessageBytes), Since: metav1.NewTime(noon.Add(time.Duration(i))),
			})
			s.Shortened = append(s.Shortened, v1alpha1.ShortenedObject{
				Kind: "Application", Namespace: long[:63], Name: long, Paths: slices.Repeat([]string{long}, stream.MaxDropped),
			})
		}
		return s
	}
	agent := &v1alpha1.Agent{}
	var lastWrite time.Time
	written, last := 0, 0
	for elapsed := time.Duration(0); elapsed < span; elapsed += flap {
		now := noon.Add(elapsed)
		session := full(now)
		if elapsed/flap%2 == 1 {
			session = Session{Since: now}
		}
		want := wantStatus(agent, findings{secret: secretPlan{ready: true}, session: session}, now)
		if !decide(agent.Status, want, session.Connected, now, lastWrite).write {
			continue
		}
		content, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		last = len(content)
		written += last
		lastWrite, agent.Status = now, want
	}
	t.Logf("a status has %d bytes, %d in all", last, written)
	if most := int(span/time.Second) * 32 << 10; written > most || last < 256<<10 {
		t.Errorf("%d bytes in %s, more than %d, of statuses with %d", written, span, most, last)
	}
}

// TestDecideComesBack checks that what is not written now is looked at again.
func TestDecideComesBack(t *testing.T) {
	agent := &v1alpha1.Agent{}
	found := findings{secret: secretPlan{ready: true}, session: connected(nil)}
	agent.Status = wantStatus(agent, found, noon)

	found.session.Counts.Applications++
	want := wantStatus(agent, found, noon.Add(4*time.Second))
	got := decide(agent.Status, want, true, noon.Add(4*time.Second), noon)
	if got.write || got.requeueAfter != 6*time.Second {
		t.Errorf("a new count 4 s after a write: %+v, want another look in 6 s", got)
	}
	found.session.Connected = false
	want = wantStatus(agent, found, noon.Add(400*time.Millisecond))
	got = decide(agent.Status, want, false, noon.Add(400*time.Millisecond), noon)
	if got.write || got.requeueAfter != 600*time.Millisecond {
		t.Errorf("a cut 0.4 s after a write: %+v, want another look in 0.6 s", got)
	}
	got = decide(agent.Status, agent.Status, true, noon.Add(10*time.Second), noon)
	if got.write || got.requeueAfter != 50*time.Second {
		t.Errorf("nothing new after 10 s: %+v, want another look when observedAt is a minute old", got)
	}
	got = decide(agent.Status, agent.Status, true, noon.Add(2*time.Minute), noon)
	if got.write || got.requeueAfter != observedRetry {
		t.Errorf("nothing heard for two minutes: %+v, want another look in %v", got, observedRetry)
	}
}

// TestAClockThatWasAhead checks that a time which a wrong clock wrote does not stand
// until it comes: observedAt is the age that is shown of a spoke, and tokens are handed
// out with it.
func TestAClockThatWasAhead(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		agent := &v1alpha1.Agent{}
		agent.Status.ObservedAt = at(ahead)
		agent.Status.History = &v1alpha1.AgentHistory{ID: "id", ClusterUID: "c1", Tokens: []string{"newest", "before"}}
		session := connected(func(s *Session) { s.ClusterUID, s.History.Stored = "c1", "newest" })
		found := findings{secret: secretPlan{ready: true}, session: session}
		want := wantStatus(agent, found, noon)
		if !want.ObservedAt.Equal(at(0)) {
			t.Errorf("ahead by %v: observedAt is %v, want now", ahead, want.ObservedAt)
		}
		if want.History.Tokens[0] == "newest" {
			t.Errorf("ahead by %v: no token is handed out", ahead)
		}
		if d := decide(agent.Status, want, true, noon, noon.Add(ahead)); !d.write || d.requeueAfter != observedInterval {
			t.Errorf("ahead by %v: %+v, want a write, and another look in %v", ahead, d, observedInterval)
		}
		if d := decide(agent.Status, agent.Status, true, noon, noon); d.requeueAfter != observedInterval {
			t.Errorf("ahead by %v, nothing to write: %+v, want another look in %v", ahead, d, observedInterval)
		}

		// Of an agent that went since it is when it was last heard of.
		found.session.Connected, found.session.ObservedAt = false, noon.Add(-time.Hour)
		if want := wantStatus(agent, found, noon); !want.ObservedAt.Equal(at(-time.Hour)) {
			t.Errorf("ahead by %v, away: observedAt is %v, want when the agent was last heard of", ahead, want.ObservedAt)
		}
	}
}
