package ownership

import (
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/stream"
)

// webProject is an AppProject of a spoke.
func webProject(t *testing.T, destinations ...any) *object.Object {
	t.Helper()
	o := objecttest.Object(t, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, nil, m{"spec": m{"destinations": destinations}})
	return &o
}

// TestPermitsNone says when an AppProject is known to permit none of the resources of an
// Application.
func TestPermitsNone(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	here := m{"name": object.InClusterName, "server": object.InClusterServer, "namespace": "web"}
	deployment := m{"kind": "Deployment", "namespace": "web", "name": "a"}
	role := m{"kind": "ClusterRole", "name": "a"}
	for name, test := range map[string]struct {
		project   *object.Object
		resources []any
		want      bool
	}{
		"no project: Argo CD waits":          {nil, []any{deployment}, false},
		"no destination":                     {webProject(t), []any{deployment}, true},
		"its namespace":                      {webProject(t, here), []any{deployment}, false},
		"another namespace":                  {webProject(t, m{"server": "*", "namespace": "other"}), []any{deployment}, true},
		"one of two":                         {webProject(t, here), []any{m{"namespace": "other"}, deployment}, false},
		"another cluster":                    {webProject(t, m{"server": "https://elsewhere", "namespace": "*"}), []any{deployment}, true},
		"any cluster":                        {webProject(t, m{"server": "*", "namespace": "w*"}), []any{deployment}, false},
		"perhaps this one, by another name":  {webProject(t, m{"name": "local", "namespace": "*"}), []any{deployment}, false},
		"all but this cluster":               {webProject(t, m{"server": "!" + object.InClusterServer, "namespace": "*"}, m{"server": "*", "namespace": "*"}), []any{deployment}, true},
		"all but its namespace":              {webProject(t, m{"server": object.InClusterServer, "namespace": "!web"}, m{"server": "*", "namespace": "*"}), []any{deployment}, true},
		"all but another":                    {webProject(t, m{"server": object.InClusterServer, "namespace": "!other"}), []any{deployment}, false},
		"nothing is there":                   {webProject(t), nil, false},
		"nothing is there but in git":        {webProject(t), []any{m{"namespace": "web", "health": m{"status": "Missing"}}}, false},
		"no namespace, and none is admitted": {webProject(t), []any{role}, true},
		"no namespace, and some are admitted": {func() *object.Object {
			o := webProject(t)
			o.Ensure("spec")["clusterResourceWhitelist"] = []any{m{"group": "*", "kind": "*"}}
			return o
		}(), []any{deployment, role}, false},
	} {
		t.Run(name, func(t *testing.T) {
			app := objecttest.Object(t, appKey(spoke), nil, m{"spec": m{"project": "web"}, "status": m{"resources": test.resources}})
			if got := permitsNone(test.project, app); got != test.want {
				t.Errorf("permitsNone() = %t, want %t", got, test.want)
			}
		})
	}
}

// TestUncascaded says after which last state of a copy its workloads may still be there.
func TestUncascaded(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	made := objecttest.Apply(stream.Applications, "hub-app", 9, m{"spec": m{"project": "web"}})
	leaving := objecttest.Apply(stream.Applications, "hub-app", 15, m{"leaving": []any{object.CascadeFinalizer}, "spec": m{"project": "web"}})
	all := webProject(t, m{"server": "*", "namespace": "*"})
	const hooks, permitted = "neither its workloads nor its delete hooks", "permitted none of its resources"
	for name, test := range map[string]struct {
		project *object.Object
		change  func(object.Object)
		want    string
	}{
		"the cascade was the last to be done": {all, func(object.Object) {}, ""},
		"hooks were":                          {all, func(o object.Object) { o.SetFinalizers([]string{object.PostDeleteFinalizer + "/cleanup"}) }, ""},
		"neither was done":                    {all, func(o object.Object) { o.SetFinalizers([]string{object.CascadeFinalizer, object.PreDeleteFinalizer}) }, hooks},
		"nor those after it": {all, func(o object.Object) {
			o.SetFinalizers([]string{object.PostDeleteFinalizer, object.CascadeFinalizer + "/background"})
		}, hooks},
		"a finalizer of others was there":        {all, func(o object.Object) { o.SetFinalizers([]string{object.CascadeFinalizer, "foreign"}) }, ""},
		"its project permitted nothing":          {webProject(t), func(object.Object) {}, permitted},
		"its project was gone":                   {nil, func(object.Object) {}, ""},
		"it was released":                        {webProject(t), func(o object.Object) { o.SetFinalizers(nil) }, ""},
		"another writer on the spoke deleted it": {webProject(t), func(o object.Object) { o.SetAnnotation(object.RecordKey, `{"hash":"x"}`) }, ""},
		"it was no copy":                         {webProject(t), func(o object.Object) { delete(o.Child("metadata", "annotations"), object.RecordKey) }, ""},
		"it was not being deleted, as it seems":  {webProject(t), func(o object.Object) { delete(o.Child("metadata"), "deletionTimestamp") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := copyOf(t, spoke, made, nil)
			o = stored(t, o.Key, begun(t, spoke, leaving, o), func(o object.Object) {
				o.Ensure("metadata")["deletionTimestamp"] = now
				o.Ensure("status")["resources"] = []any{m{"kind": "Deployment", "namespace": "web", "name": "a"}}
				test.change(o)
			})
			got := Uncascaded(o, test.project)
			if (got == nil) != (test.want == "") || got != nil && (got.Kind != stream.RefusalNotCascaded || !strings.Contains(got.Message, test.want)) {
				t.Errorf("uncascaded() = %s, want %q", refusalText(got), test.want)
			}
		})
	}
}

// TestTendOfWhatDidNotCascade keeps an Application on the hub whose copy did not go as it
// was meant to, until a person decides.
func TestTendOfWhatDidNotCascade(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	o := objecttest.Object(t, appKey(hub), m{"deletionTimestamp": now, "finalizers": []any{object.CascadeFinalizer}}, m{"spec": m{"destination": m{"name": "edge-1"}}})
	tend := func(s LinkState) bool {
		t.Helper()
		s.Now, s.Answers = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), s.Refusal != nil
		raw, needed := hub.PlanHubUpdate(o, s)
		if needed {
			o = stored(t, o.Key, []Write{{Op: Update, Raw: raw}}, nil)
		}
		return needed
	}
	if !tend(LinkState{Refusal: &stream.Refusal{Kind: stream.RefusalNotCascaded, Message: "it is gone"}}) {
		t.Fatal("nothing is shown")
	}
	list := object.Conditions(o.Child("status"))
	const want = "agent edge-1: it is gone. Its workloads may still run: agentctl agent keep-workloads edge-1 guestbook lets the Application go and leaves them; " +
		"to have them deleted, create the Application again after that, and delete it"
	if got, _ := list[0].(m); len(list) != 1 || got["type"] != object.DeletionCondition || got["message"] != want {
		t.Errorf("conditions %v", list)
	}
	for when, s := range map[string]LinkState{
		"the spoke says so again":                {Refusal: &stream.Refusal{Kind: stream.RefusalNotCascaded, Message: "it is gone"}},
		"the spoke was restarted and has none":   {Gone: true},
		"the principal was, and knows no answer": {},
	} {
		if tend(s) {
			t.Errorf("%s: it is changed to %v", when, o.Fields)
		}
	}
	if status := statusOf(o); len(object.Conditions(status)) != 0 {
		t.Errorf("the condition counts as the spoke's: %v", status)
	}
	o.SetFinalizers([]string{object.PostDeleteFinalizer})
	if !tend(LinkState{}) || len(o.Finalizers()) != 0 {
		t.Errorf("a person let it go, and it has finalizers %v", o.Finalizers())
	}
}
