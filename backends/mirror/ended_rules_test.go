package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// webProject is an AppProject of a spoke.
func webProject(t *testing.T, destinations ...any) *object {
	t.Helper()
	o := makeObject(t, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, nil, m{"spec": m{"destinations": destinations}})
	return &o
}

// TestPermitsNone says when an AppProject is known to permit none of the resources of an
// Application.
func TestPermitsNone(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	here := m{"name": inClusterName, "server": inClusterServer, "namespace": "web"}
	deployment := m{"kind": "Deployment", "namespace": "web", "name": "a"}
	role := m{"kind": "ClusterRole", "name": "a"}
	for name, test := range map[string]struct {
		project   *object
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
		"all but this cluster":               {webProject(t, m{"server": "!" + inClusterServer, "namespace": "*"}, m{"server": "*", "namespace": "*"}), []any{deployment}, true},
		"all but its namespace":              {webProject(t, m{"server": inClusterServer, "namespace": "!web"}, m{"server": "*", "namespace": "*"}), []any{deployment}, true},
		"all but another":                    {webProject(t, m{"server": inClusterServer, "namespace": "!other"}), []any{deployment}, false},
		"nothing is there":                   {webProject(t), nil, false},
		"nothing is there but in git":        {webProject(t), []any{m{"namespace": "web", "health": m{"status": "Missing"}}}, false},
		"no namespace, and none is admitted": {webProject(t), []any{role}, true},
		"no namespace, and some are admitted": {func() *object {
			o := webProject(t)
			o.ensure("spec")["clusterResourceWhitelist"] = []any{m{"group": "*", "kind": "*"}}
			return o
		}(), []any{deployment, role}, false},
	} {
		t.Run(name, func(t *testing.T) {
			app := makeObject(t, appKey(spoke), nil, m{"spec": m{"project": "web"}, "status": m{"resources": test.resources}})
			if got := permitsNone(test.project, app); got != test.want {
				t.Errorf("permitsNone() = %t, want %t", got, test.want)
			}
		})
	}
}

// TestUncascaded says after which last state of a copy its workloads may still be there.
func TestUncascaded(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	made := makeEvent(stream.Applications, "hub-app", 9, m{"spec": m{"project": "web"}})
	leaving := makeEvent(stream.Applications, "hub-app", 15, m{"leaving": []any{cascadeFinalizer}, "spec": m{"project": "web"}})
	all := webProject(t, m{"server": "*", "namespace": "*"})
	const hooks, permitted = "neither its workloads nor its delete hooks", "permitted none of its resources"
	for name, test := range map[string]struct {
		project *object
		change  func(object)
		want    string
	}{
		"the cascade was the last to be done":   {all, func(object) {}, ""},
		"hooks were":                            {all, func(o object) { o.setFinalizers([]string{postDeleteFinalizer + "/cleanup"}) }, ""},
		"neither was done":                      {all, func(o object) { o.setFinalizers([]string{cascadeFinalizer, preDeleteFinalizer}) }, hooks},
		"nor those after it":                    {all, func(o object) { o.setFinalizers([]string{postDeleteFinalizer, cascadeFinalizer + "/background"}) }, hooks},
		"a finalizer of others was there":       {all, func(o object) { o.setFinalizers([]string{cascadeFinalizer, "foreign"}) }, ""},
		"its project permitted nothing":         {webProject(t), func(object) {}, permitted},
		"its project was gone":                  {nil, func(object) {}, ""},
		"it was released":                       {webProject(t), func(o object) { o.setFinalizers(nil) }, ""},
		"somebody on the spoke deleted it":      {webProject(t), func(o object) { o.setAnnotation(recordKey, `{"hash":"x"}`) }, ""},
		"it was no copy":                        {webProject(t), func(o object) { delete(o.child("metadata", "annotations"), recordKey) }, ""},
		"it was not being deleted, as it seems": {webProject(t), func(o object) { delete(o.child("metadata"), "deletionTimestamp") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := copyOf(t, spoke, made, nil)
			o = stored(t, o.key, begun(t, spoke, leaving, o), func(o object) {
				o.ensure("metadata")["deletionTimestamp"] = now
				o.ensure("status")["resources"] = []any{m{"kind": "Deployment", "namespace": "web", "name": "a"}}
				test.change(o)
			})
			got := uncascaded(o, test.project)
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
	o := makeObject(t, appKey(hub), m{"deletionTimestamp": now, "finalizers": []any{cascadeFinalizer}}, m{"spec": m{"destination": m{"name": "edge-1"}}})
	tend := func(s Situation) bool {
		t.Helper()
		s.Now, s.Answers = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), s.Refusal != nil
		raw, needed := hub.Tend(o, s)
		if needed {
			o = stored(t, o.key, []Write{{Op: Update, Raw: raw}}, nil)
		}
		return needed
	}
	if !tend(Situation{Refusal: &stream.Refusal{Kind: stream.RefusalNotCascaded, Message: "it is gone"}}) {
		t.Fatal("nothing is shown")
	}
	list := conditions(o.child("status"))
	const want = "agent edge-1: it is gone. Its workloads may still run: agentctl agent keep-workloads edge-1 guestbook lets the Application go and leaves them; " +
		"to have them deleted, create the Application again after that, and delete it"
	if got, _ := list[0].(m); len(list) != 1 || got["type"] != deletionCondition || got["message"] != want {
		t.Errorf("conditions %v", list)
	}
	for when, s := range map[string]Situation{
		"the spoke says so again":                {Refusal: &stream.Refusal{Kind: stream.RefusalNotCascaded, Message: "it is gone"}},
		"the spoke was restarted and has none":   {Gone: true},
		"the principal was, and knows no answer": {},
	} {
		if tend(s) {
			t.Errorf("%s: it is changed to %v", when, o.fields)
		}
	}
	if status := statusOf(o); len(conditions(status)) != 0 {
		t.Errorf("the condition counts as the spoke's: %v", status)
	}
	o.setFinalizers([]string{postDeleteFinalizer})
	if !tend(Situation{}) || len(o.finalizers()) != 0 {
		t.Errorf("a person let it go, and it has finalizers %v", o.finalizers())
	}
}

// TestEndsHaveALimit: who takes the finalizers of a great many copies away fills no memory.
// What is beyond the limit is counted, and what is remembered stays.
func TestEndsHaveALimit(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	rules := ruleSet(t, stream.Spoke, stream.Managed)
	mirror := &Mirror{cfg: Config{Rules: rules, Metrics: metrics, Store: memory.New(memory.Config{})}, ends: ends{known: map[string]stream.Refusal{}}}
	leaving := makeEvent(stream.Applications, "hub-app", 15, m{"leaving": []any{cascadeFinalizer}, "spec": m{"project": "web"}})
	last := copyOf(t, rules, makeEvent(stream.Applications, "hub-app", 9, m{"spec": m{"project": "web"}}), nil)
	last = stored(t, last.key, begun(t, rules, leaving, last), func(o object) {
		o.ensure("metadata")["deletionTimestamp"] = now
		o.setFinalizers([]string{cascadeFinalizer, postDeleteFinalizer})
	})
	end := func(i int) {
		last.setAnnotation(sourceUIDKey, fmt.Sprint("hub-app-", i))
		mirror.seeEnd(backends.Deletion{Last: backends.Object{Key: last.key, Raw: encode(last.fields)}})
	}
	ended := func(i int) bool {
		return mirror.ended(last.key, stream.Event{Version: stream.Version{SourceUID: fmt.Sprint("hub-app-", i)}}) != nil
	}
	for i := range maxEnds {
		end(i)
	}
	end(0) // it is remembered already
	if got := testutil.ToFloat64(metrics.lostEnds); got != 0 || len(mirror.ends.known) != maxEnds || !ended(maxEnds-1) {
		t.Errorf("at the limit %v are counted, %d remembered", got, len(mirror.ends.known))
	}
	end(maxEnds)
	if got := testutil.ToFloat64(metrics.lostEnds); got != 1 || len(mirror.ends.known) != maxEnds || ended(maxEnds) || !ended(0) {
		t.Errorf("beyond it %v are counted, %d remembered", got, len(mirror.ends.known))
	}
}
