package ownership

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// What a spoke's annotations ask of the notifications controller, or of Image Updater, those
// of the hub do not do for it.
func TestDeputiesOfTheHubAreNotTheSpokes(t *testing.T) {
	const note = "note"
	asked := m{
		note: "n",
		"notifications.argoproj.io/subscribe.on-deployed.email":         "victim@example.org",
		"notifications.argoproj.io/subscriptions":                       "- trigger: [on-deployed]",
		"on-deployed.recipients.argocd-notifications.argoproj.io":       "email:victim@example.org",
		"recipients.argocd-notifications.argoproj.io":                   "email:victim@example.org",
		"argocd-image-updater.argoproj.io/image-list":                   "a=evil.example/a",
		"argocd-image-updater.argoproj.io/a.pull-secret":                "secret:argocd/argocd-secret#admin.password",
		"argocd-image-updater.argoproj.io.example.org/of-somebody-else": "x",
	}
	kept := []string{"argocd-image-updater.argoproj.io.example.org/of-somebody-else", note}
	children := ruleSet(t, stream.Hub, stream.Managed)
	children.Children = true
	autonomous := ruleSet(t, stream.Hub, stream.Autonomous)
	app := m{"project": "default", "destination": m{"server": object.InClusterServer, "namespace": "web"}}
	for name, test := range map[string]struct {
		rules      Rules
		collection stream.Collection
		key        stream.ResourceKey
		data       m
		want       []string
	}{
		"an Application of an autonomous spoke": {autonomous, stream.Applications, appKey(autonomous), m{"spec": app}, kept},
		"an AppProject of one": {
			autonomous, stream.AppProjects, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "edge-1-guestbook"},
			m{"spec": m{"sourceRepos": []any{"*"}}}, kept,
		},
		"a child of a managed spoke": {children, stream.Children, appKey(children), m{"spec": app, "status": m{}}, kept},
		"on the spoke they are of the Application": {
			ruleSet(t, stream.Spoke, stream.Managed), stream.Applications, appKey(ruleSet(t, stream.Spoke, stream.Managed)), m{"spec": app}, object.SortedKeys(asked),
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.data["annotations"], test.data["labels"] = asked, m{}
			rules := test.rules
			if rules.Side == stream.Spoke {
				rules.Projects = hubProjects(rules)
			}
			event := objecttest.Apply(test.collection, "uid-1", 1, test.data)
			writes, refusal := rules.Plan(event, test.key, nil, operations.Requests{})
			if refusal != nil || len(writes) != 1 {
				t.Fatalf("Plan() = %d writes, %v", len(writes), refusal)
			}
			got := stored(t, test.key, writes, nil)
			rec, _ := record.Of(got)
			if diff := cmp.Diff(test.want, rec.Annotations); diff != "" {
				t.Errorf("annotations (-want +got)\n%s", diff)
			}
			for key := range asked {
				_, there := got.Child("metadata", "annotations")[key]
				if want := slices.Contains(test.want, key); there != want {
					t.Errorf("annotation %s is there: %t", key, there)
				}
			}
			if held := rules.Stored(test.collection, got, nil); held != event.Version {
				t.Errorf("Held() = %v, want %v", held, event.Version)
			}
		})
	}
}

// A mirror of before has them, until it is written again.
func TestDeputiesOfBefore(t *testing.T) {
	const key = "notifications.argoproj.io/subscriptions"
	rules := ruleSet(t, stream.Hub, stream.Autonomous)
	event := objecttest.Apply(stream.Applications, "uid-1", 1, m{
		"labels": m{}, "annotations": m{key: "x"}, "spec": m{"project": "default", "destination": m{"server": object.InClusterServer}},
	})
	writes, refusal := rules.Plan(event, appKey(rules), nil, operations.Requests{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	before := stored(t, appKey(rules), writes, func(o object.Object) {
		rec, _ := record.Of(o)
		rec.Annotations = []string{key}
		o.SetAnnotation(key, "x")
		stamp(o, rec)
	})
	if held := rules.Stored(stream.Applications, before, nil); held == event.Version {
		t.Error("it counts as held, so it is not sent again")
	}
	if writes, refusal = rules.Plan(event, appKey(rules), &before, operations.Requests{}); refusal != nil {
		t.Fatal(refusal)
	}
	after := stored(t, appKey(rules), writes, nil)
	if after.Annotation(key) != "" {
		t.Error("it is still there")
	}
	if held := rules.Stored(stream.Applications, after, nil); held != event.Version {
		t.Errorf("Held() = %v, want %v", held, event.Version)
	}
	// What the hub's people ask for themselves stays.
	asked := stored(t, appKey(rules), writes, func(o object.Object) { o.SetAnnotation(key, "theirs") })
	if held := rules.Stored(stream.Applications, asked, nil); held != event.Version {
		t.Errorf("with one of the hub's Held() = %v, want %v", held, event.Version)
	}
}
