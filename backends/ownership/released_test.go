package ownership

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// What was released is left alone by all that a hub does to mirrors, as long as it is.
func TestReleasedMirrorsAreTheHubsOwn(t *testing.T) {
	for name, test := range mirrors(t) {
		t.Run(name, func(t *testing.T) {
			r, e := adopting(test.rules), test.event // spec.adopt does not undo it
			mirror := copyOf(t, r, e, nil)
			released := mirror.Clone()
			released.SetAnnotation(record.ReleasedKey, "")
			newer := e
			newer.Revision++
			newer.Version.Hash = stream.HashOf([]byte("newer"))
			deletion := objecttest.Removal(e.Key.Collection)
			for what, event := range map[string]stream.Event{"what it showed": e, "a newer state": newer, "its deletion": deletion} {
				writes, refusal := r.Plan(event, released.Key, &released, operations.Requests{})
				if len(writes) != 0 {
					t.Errorf("Plan() of %s = %d writes", what, len(writes))
				}
				if refused := refusal != nil && refusal.Kind == stream.RefusalNotOwned; refused != (event.Verb == stream.Apply) {
					t.Errorf("Plan() of %s is refused with %q", what, refusalText(refusal))
				}
			}
			if got := r.Stored(e.Key.Collection, released, nil); !got.Absent() {
				t.Errorf("Held() = %v", got)
			}
			earlier := released.Clone()
			delete(earlier.Child("metadata", "annotations"), object.HubKey)
			if earlier.Child("spec")["info"] = []any{}; r.NamesNoHub(earlier) {
				t.Error("it is marked")
			}
			if _, needed := reform(r, earlier); needed {
				t.Error("its spec is written")
			}
			if r.IsOwnMirror(released) || record.IsMirror(released) {
				t.Error("it is a mirror")
			}
			if writes, waits := r.Orphan(released); len(writes) != 0 || waits {
				t.Errorf("with its Agent gone: %d writes, waits %t", len(writes), waits)
			}

			again := released.Clone()
			delete(again.Child("metadata", "annotations"), record.ReleasedKey)
			if got := r.Stored(e.Key.Collection, again, nil); got != e.Version {
				t.Errorf("Held() once it is a mirror again = %v, want %v", got, e.Version)
			}
			if writes, refusal := r.Plan(deletion, again.Key, &again, operations.Requests{}); len(writes) == 0 || refusal != nil {
				t.Errorf("Plan() of its deletion then = %d writes, %v", len(writes), refusal)
			}
		})
	}
}

// No one takes a copy from its hub by the annotation, which is a spoke's to write there.
func TestCopiesAreNotReleased(t *testing.T) {
	r, event := ruleSet(t, stream.Spoke, stream.Managed), mirrors(t)["an Application"].event
	copied := copyOf(t, r, event, func(o object.Object) { o.SetAnnotation(record.ReleasedKey, "true") })
	if got := r.Stored(stream.Applications, copied, nil); got != event.Version {
		t.Errorf("Held() = %v, want %v", got, event.Version)
	}
	if writes, refusal := r.Plan(objecttest.Removal(stream.Applications), copied.Key, &copied, operations.Requests{}); len(writes) == 0 {
		t.Errorf("Plan() of its deletion = %d writes, %v", len(writes), refusal)
	}
}

// A child application that was released is an Application of the hub, which its agent gets.
func TestReleasedChildIsSent(t *testing.T) {
	test := mirrors(t)["a child application"]
	child := copyOf(t, test.rules, test.event, nil)
	if _, sent := test.rules.Content(stream.Applications, child, operations.Requests{}); sent {
		t.Fatal("the mirror is sent")
	}
	child.SetAnnotation(record.ReleasedKey, "true")
	content, sent := test.rules.Content(stream.Applications, child, operations.Requests{})
	if !sent || content.Version.SourceUID != child.UID() {
		t.Errorf("Content() = %+v, %t", content, sent)
	}
	if strings.Contains(string(content.Data), record.ReleasedKey) {
		t.Errorf("the annotation travels: %s", content.Data)
	}
}

// The AppProject of an autonomous agent is not for others, until it is the hub's own.
func TestReleasedProjectIsShared(t *testing.T) {
	mirror := copyOf(t, mirrors(t)["an AppProject"].rules, mirrors(t)["an AppProject"].event, nil)
	mirror.Fields["spec"] = m{"destinations": []any{m{"name": "*", "namespace": "*"}}, "sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}}
	managed := ruleSet(t, stream.Hub, stream.Managed)
	if _, shared := managed.Content(stream.AppProjects, mirror, operations.Requests{}); shared {
		t.Fatal("the mirror is shared")
	}
	mirror.SetAnnotation(record.ReleasedKey, "true")
	if _, shared := managed.Content(stream.AppProjects, mirror, operations.Requests{}); !shared {
		t.Error("the hub's project is not shared")
	}
}

func TestShownBy(t *testing.T) {
	for name, test := range mirrors(t) {
		o := copyOf(t, test.rules, test.event, nil)
		if agent, shown := record.ShownBy(o.Fields); !shown || agent != test.rules.Agent {
			t.Errorf("%s is shown by %v, %t", name, agent, shown)
		}
		o.SetAnnotation(record.ReleasedKey, "true")
		if agent, shown := record.ShownBy(o.Fields); shown {
			t.Errorf("%s that was released is shown by %v", name, agent)
		}
	}
}
