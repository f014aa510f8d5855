package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func peer(t testing.TB, id string) identity.Peer {
	t.Helper()
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		t.Fatal(err)
	}
	return identity.Peer{ID: parsed, NotAfter: time.Now().Add(time.Hour), Method: identity.MethodX509}
}

// deleting returns an Agent that is being deleted.
func deleting(name string, mode v1alpha1.AgentMode, policy v1alpha1.DeletionPolicy) v1alpha1.Agent {
	a := agent(name, 0, "/"+name)
	a.Spec.Mode, a.Spec.DeletionPolicy = mode, policy
	a.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_500, 0)}
	return a
}

func TestAdmit(t *testing.T) {
	suspended, leaving, nobody := agent("suspended", 0, "/suspended"), agent("leaving", 0, "/leaving"), agent("nobody", 0)
	suspended.Spec.Suspended = true
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_500, 0)}
	one := agent("one", 0, "/one", "/shared", "/leaving-later")
	one.Spec.Mode = v1alpha1.ModeManaged
	two := agent("two", 1, "/two", "/shared", "/suspended")
	two.Spec.Mode = v1alpha1.ModeAutonomous
	// Those whose deletion cascades, and those whose does not though they say so.
	cascading := deleting("cascading", v1alpha1.ModeManaged, v1alpha1.DeletionCascade)
	orphaning := deleting("orphaning", v1alpha1.ModeManaged, v1alpha1.DeletionOrphan)
	impossible := deleting("impossible", v1alpha1.ModeAutonomous, v1alpha1.DeletionCascade)
	paused := deleting("paused", v1alpha1.ModeManaged, v1alpha1.DeletionCascade)
	paused.Spec.Suspended = true
	var r fleet.Registry
	r.Set([]v1alpha1.Agent{two, suspended, one, leaving, nobody, cascading, orphaning, impossible, paused})

	tests := map[string]struct {
		id   string
		name string // of the agent; empty: denied
		mode stream.Mode
		says string // to us
	}{
		"its ID":                              {"spiffe://example.org/one", "one", stream.Managed, ""},
		"another agent":                       {"spiffe://example.org/two", "two", stream.Autonomous, ""},
		"an ID of two stays with the older":   {"spiffe://example.org/shared", "one", stream.Managed, ""},
		"its path in another trust domain":    {"spiffe://example.com/one", "", 0, "is not in"},
		"a longer path":                       {"spiffe://example.org/one/more", "", 0, "is not in"},
		"a shorter path":                      {"spiffe://example.org/on", "", 0, "is not in"},
		"other letters":                       {"spiffe://example.org/One", "", 0, "is not in"},
		"no path":                             {"spiffe://example.org", "", 0, "is not in"},
		"suspended, though a newer claims it": {"spiffe://example.org/suspended", "", 0, "suspended"},
		"being deleted":                       {"spiffe://example.org/leaving", "", 0, "being deleted"},
		"being deleted with cascade":          {"spiffe://example.org/cascading", "cascading", stream.Managed, ""},
		"being deleted without cascade":       {"spiffe://example.org/orphaning", "", 0, "being deleted"},
		"autonomous, which never cascades":    {"spiffe://example.org/impossible", "", 0, "being deleted"},
		"suspended in the midst of a cascade": {"spiffe://example.org/paused", "", 0, "suspended"},
		"the ID of an agent's name":           {"spiffe://example.org/argomesh/agent/nobody", "", 0, "is not in"},
	}
	for name, tt := range tests {
		got, err := r.Admit(peer(t, tt.id))
		if tt.name == "" {
			if !errors.Is(err, identity.ErrDenied) || !strings.Contains(err.Error(), tt.says) || got != (stream.Agent{}) {
				t.Errorf("%s: Admit(%s) = %v, %v, want %q of kind %q", name, tt.id, got, err, tt.says, identity.ErrDenied)
			}
			continue
		}
		if err != nil || got.Name.String() != tt.name || got.Mode != tt.mode {
			t.Errorf("%s: Admit(%s) = %v, %v, want %s, %s", name, tt.id, got, err, tt.name, tt.mode)
		}
	}
	if _, err := r.Admit(identity.Peer{}); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() of nobody = %v, want an error of kind %q", err, identity.ErrDenied)
	}
}

// Who forces the deletion of an Agent turns its cascade into an orphaning one:
// that ends its admission at once.
func TestAdmissionFollowsThePolicy(t *testing.T) {
	var r fleet.Registry
	leaving := deleting("leaving", v1alpha1.ModeManaged, v1alpha1.DeletionCascade)
	r.Set([]v1alpha1.Agent{leaving})
	if _, err := r.Admit(peer(t, "spiffe://example.org/leaving")); err != nil {
		t.Errorf("Admit() with cascade = %v", err)
	}
	leaving.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	r.Set([]v1alpha1.Agent{leaving})
	if _, err := r.Admit(peer(t, "spiffe://example.org/leaving")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() with orphan = %v, want an error of kind %q", err, identity.ErrDenied)
	}
}

// What is not in the last Set is gone.
func TestSetReplaces(t *testing.T) {
	var r fleet.Registry
	r.Set([]v1alpha1.Agent{agent("one", 0, "/a"), agent("two", 1, "/a", "/b")})
	if got, err := r.Admit(peer(t, "spiffe://example.org/a")); err != nil || got.Name.String() != "one" {
		t.Errorf("Admit() = %v, %v, want one", got, err)
	}
	r.Set([]v1alpha1.Agent{agent("two", 1, "/a")})
	if got, err := r.Admit(peer(t, "spiffe://example.org/a")); err != nil || got.Name.String() != "two" {
		t.Errorf("Admit() once the older is gone = %v, %v, want two", got, err)
	}
	if _, err := r.Admit(peer(t, "spiffe://example.org/b")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() of an ID that was removed = %v, want an error of kind %q", err, identity.ErrDenied)
	}
	r.Set(nil)
	if _, err := r.Admit(peer(t, "spiffe://example.org/a")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() without Agents = %v, want an error of kind %q", err, identity.ErrDenied)
	}
	if err := r.Ready(); err != nil {
		t.Errorf("Ready() of a hub without Agents = %v", err)
	}
}

// A SPIFFE ID that no Agent has is told to the one that it is probably meant for.
func TestIntended(t *testing.T) {
	var r fleet.Registry
	one, two := agent("one", 0, "/a"), agent("two", 1, "/b")
	one.Status.SPIFFEID = "spiffe://example.org/was"
	r.Set([]v1alpha1.Agent{one, two})
	intended := func() map[string]string {
		got := map[string]string{}
		for _, id := range []string{"spiffe://example.org/was", "spiffe://example.org/is", "spiffe://example.org/argomesh/agent/two", "spiffe://else.test/argomesh/agent/two", "spiffe://example.org/argomesh/agent/two/more", "spiffe://example.org/other"} {
			if name, found := r.Intended(peer(t, id).ID); found {
				got[id] = name.String()
			}
		}
		return got
	}
	want := map[string]string{"spiffe://example.org/was": "one", "spiffe://example.org/argomesh/agent/two": "two"}
	if diff := cmp.Diff(want, intended()); diff != "" {
		t.Errorf("Intended() (-want +got):\n%s", diff)
	}
	one.Status.SPIFFEID = "spiffe://example.org/is"
	r.UpdateStatus(one)
	want = map[string]string{"spiffe://example.org/is": "one", "spiffe://example.org/argomesh/agent/two": "two"}
	if diff := cmp.Diff(want, intended()); diff != "" {
		t.Errorf("Intended() after a newer status (-want +got):\n%s", diff)
	}
}

func TestZeroRegistryAdmitsNobody(t *testing.T) {
	var r fleet.Registry
	if _, err := r.Admit(peer(t, "spiffe://example.org/a")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() = %v, want an error of kind %q", err, identity.ErrDenied)
	}
	if err := r.Ready(); err == nil {
		t.Error("Ready() before Set returns no error")
	}
	if got := r.Agents(); len(got) != 0 {
		t.Errorf("Agents() = %v, want none", got)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestChanged(t *testing.T) {
	var r fleet.Registry
	first, same := r.Changed(), r.Changed()
	if closed(first) || closed(same) {
		t.Error("Changed() is closed before anything changed")
	}
	r.Set(nil)
	if !closed(first) || !closed(same) {
		t.Error("Changed() is open after Set")
	}
	next := r.Changed()
	if closed(next) {
		t.Error("the next Changed() is closed before anything changed")
	}
	r.Set(nil)
	r.Set(nil) // while no one waits
	if !closed(next) {
		t.Error("the next Changed() is open after Set")
	}
}

func TestAgentsLeavesOutTheDeleting(t *testing.T) {
	leaving, suspended := agent("leaving", 0, "/a"), agent("suspended", 0, "/b")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_500, 0)}
	suspended.Spec.Suspended = true
	var r fleet.Registry
	cascading := deleting("cascading", v1alpha1.ModeManaged, v1alpha1.DeletionCascade)
	orphaning := deleting("orphaning", v1alpha1.ModeManaged, v1alpha1.DeletionOrphan)
	impossible := deleting("impossible", v1alpha1.ModeAutonomous, v1alpha1.DeletionCascade)
	r.Set([]v1alpha1.Agent{agent("one", 0, "/c"), leaving, suspended, agent("Not A Name", 0, "/d"), cascading, orphaning, impossible})
	got := map[string]bool{}
	for name := range r.Agents() {
		got[name.String()] = true
	}
	if diff := cmp.Diff(map[string]bool{"one": true, "suspended": true, "cascading": true}, got); diff != "" {
		t.Errorf("Agents() (-want +got):\n%s", diff)
	}
	if _, err := r.Admit(peer(t, "spiffe://example.org/d")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() for an Agent without a name = %v, want an error of kind %q", err, identity.ErrDenied)
	}
}

// Anyone who waits for Changed and then asks never misses the last Set.
func TestConcurrentUse(t *testing.T) {
	const generations = 200
	var r fleet.Registry
	last := peer(t, fmt.Sprintf("spiffe://example.org/%d", generations))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			deadline := time.After(30 * time.Second)
			for {
				changed := r.Changed()
				if _, err := r.Admit(last); err == nil {
					return
				}
				_, _ = r.Ready(), r.Agents()
				select {
				case <-changed:
				case <-deadline:
					t.Error("a change was missed")
					return
				}
			}
		})
	}
	for i := range generations + 1 {
		r.Set([]v1alpha1.Agent{agent("one", 0, fmt.Sprint("/", i))})
	}
	wait.Wait()
}

func TestNote(t *testing.T) {
	var r fleet.Registry
	r.Set([]v1alpha1.Agent{agent("one", 0, "/one"), deleting("leaving", v1alpha1.ModeManaged, v1alpha1.DeletionOrphan)})
	changed := r.Changed()
	newer := agent("one", 0, "/one")
	newer.Status.Replica = "principal-1"
	stranger := agent("stranger", 0, "/stranger")
	r.UpdateStatus(newer)
	r.UpdateStatus(stranger)
	select {
	case <-changed:
		t.Error("Note() wakes whoever waits for another registration")
	default:
	}
	name := func(s string) identity.AgentName {
		n, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if a, known := r.Agent(name("one")); !known || a.Status.Replica != "principal-1" {
		t.Errorf("Agent() = %+v, %t, not what was noted", a.Status, known)
	}
	for _, absent := range []string{"stranger", "leaving", "nobody"} {
		if _, known := r.Agent(name(absent)); known {
			t.Errorf("Agent(%q) is known", absent)
		}
	}
	if _, err := r.Admit(peer(t, "spiffe://example.org/stranger")); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("Admit() of one that was only noted = %v", err)
	}
}

// Whose an Application is can be asked while the status of Agents is noted.
func TestOwnersWhileNoted(t *testing.T) {
	r := fleet.Registry{Mapping: fleet.Mapping{Namespace: "argocd"}}
	one := agent("one", 0, "/one")
	one.Spec.Mode = v1alpha1.ModeManaged
	r.Set([]v1alpha1.Agent{one})
	app := fleet.Placement{Namespace: "one"}
	owner, untaken := r.OwnerOf(), r.Untaken(fleet.Deployer{})
	var noting sync.WaitGroup
	defer noting.Wait()
	noting.Go(func() {
		for range 1000 {
			r.UpdateStatus(one)
		}
	})
	for range 1000 {
		if name, owned := owner(app); !owned || name.String() != "one" || untaken("app", app).Message != "" {
			t.Fatalf("the Application is of %s, and untaken: %+v", name, untaken("app", app))
		}
	}
}
