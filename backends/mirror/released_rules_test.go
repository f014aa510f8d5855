package mirror

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// What was released is left alone by all that a hub does to mirrors, as long as it is.
func TestReleasedMirrorsAreTheHubsOwn(t *testing.T) {
	for name, test := range mirrors(t) {
		t.Run(name, func(t *testing.T) {
			r, e := adopting(test.rules), test.event // spec.adopt does not undo it
			mirror := copyOf(t, r, e, nil)
			released := mirror.clone()
			released.setAnnotation(ReleasedKey, "")
			newer := e
			newer.Revision++
			newer.Version.Hash = stream.HashOf([]byte("newer"))
			deletion := removal(e.Key.Collection)
			for what, event := range map[string]stream.Event{"what it showed": e, "a newer state": newer, "its deletion": deletion} {
				writes, refusal := r.Plan(event, released.key, &released, Requests{})
				if len(writes) != 0 {
					t.Errorf("Plan() of %s = %d writes", what, len(writes))
				}
				if refused := refusal != nil && refusal.Kind == stream.RefusalNotOwned; refused != (event.Verb == stream.Apply) {
					t.Errorf("Plan() of %s is refused with %q", what, refusalText(refusal))
				}
			}
			if got := r.Held(e.Key.Collection, released, nil); !got.Absent() {
				t.Errorf("Held() = %v", got)
			}
			earlier := released.clone()
			delete(earlier.child("metadata", "annotations"), hubKey)
			if earlier.child("spec")["info"] = []any{}; r.unmarked(earlier) {
				t.Error("it is marked")
			}
			if _, needed := r.reform(earlier); needed {
				t.Error("its spec is written")
			}
			if r.isOwnMirror(released) || isMirror(released) {
				t.Error("it is a mirror")
			}
			if writes, waits := r.orphan(released); len(writes) != 0 || waits {
				t.Errorf("with its Agent gone: %d writes, waits %t", len(writes), waits)
			}
			strays := Strays{
				Namespace: r.Namespace, Registered: func(identity.AgentName) bool { return true },
				Owner: func(string) identity.AgentName { return identity.AgentName{} }, ProjectOwner: func(string) identity.AgentName { return identity.AgentName{} },
			}
			if writes, _ := strays.plan(released); len(writes) != 0 {
				t.Errorf("in a namespace that is not the agent's any more: %d writes", len(writes))
			}
			if writes, _ := strays.plan(mirror); len(writes) == 0 {
				t.Error("the mirror itself stays in such a namespace: the test says nothing")
			}

			again := released.clone()
			delete(again.child("metadata", "annotations"), ReleasedKey)
			if got := r.Held(e.Key.Collection, again, nil); got != e.Version {
				t.Errorf("Held() once it is a mirror again = %v, want %v", got, e.Version)
			}
			if writes, refusal := r.Plan(deletion, again.key, &again, Requests{}); len(writes) == 0 || refusal != nil {
				t.Errorf("Plan() of its deletion then = %d writes, %v", len(writes), refusal)
			}
		})
	}
}

// Nobody takes a copy from its hub by the annotation, which is a spoke's to write there.
func TestCopiesAreNotReleased(t *testing.T) {
	r, event := ruleSet(t, stream.Spoke, stream.Managed), mirrors(t)["an Application"].event
	copied := copyOf(t, r, event, func(o object) { o.setAnnotation(ReleasedKey, "true") })
	if got := r.Held(stream.Applications, copied, nil); got != event.Version {
		t.Errorf("Held() = %v, want %v", got, event.Version)
	}
	if writes, refusal := r.Plan(removal(stream.Applications), copied.key, &copied, Requests{}); len(writes) == 0 {
		t.Errorf("Plan() of its deletion = %d writes, %v", len(writes), refusal)
	}
}

// A child application that was released is an Application of the hub, which its agent gets.
func TestReleasedChildIsSent(t *testing.T) {
	test := mirrors(t)["a child application"]
	child := copyOf(t, test.rules, test.event, nil)
	if _, sent := test.rules.Content(stream.Applications, child, Requests{}); sent {
		t.Fatal("the mirror is sent")
	}
	child.setAnnotation(ReleasedKey, "true")
	content, sent := test.rules.Content(stream.Applications, child, Requests{})
	if !sent || content.Version.SourceUID != child.uid() {
		t.Errorf("Content() = %+v, %t", content, sent)
	}
	if strings.Contains(string(content.Data), ReleasedKey) {
		t.Errorf("the annotation travels: %s", content.Data)
	}
}

// The AppProject of an autonomous agent is not for others, until it is the hub's own.
func TestReleasedProjectIsShared(t *testing.T) {
	mirror := copyOf(t, mirrors(t)["an AppProject"].rules, mirrors(t)["an AppProject"].event, nil)
	mirror.fields["spec"] = m{"destinations": []any{m{"name": "*", "namespace": "*"}}, "sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}}
	managed := ruleSet(t, stream.Hub, stream.Managed)
	if _, shared := managed.Content(stream.AppProjects, mirror, Requests{}); shared {
		t.Fatal("the mirror is shared")
	}
	mirror.setAnnotation(ReleasedKey, "true")
	if _, shared := managed.Content(stream.AppProjects, mirror, Requests{}); !shared {
		t.Error("the hub's project is not shared")
	}
}

func TestShownBy(t *testing.T) {
	for name, test := range mirrors(t) {
		o := copyOf(t, test.rules, test.event, nil)
		if agent, shown := ShownBy(o.fields); !shown || agent != test.rules.Agent {
			t.Errorf("%s is shown by %v, %t", name, agent, shown)
		}
		o.setAnnotation(ReleasedKey, "true")
		if agent, shown := ShownBy(o.fields); shown {
			t.Errorf("%s that was released is shown by %v", name, agent)
		}
	}
}
