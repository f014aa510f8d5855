//go:build linux

package sync

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// odd are specs that say nothing in a way that Argo CD's controller, or the types of its
// server, write otherwise.
func odd() map[string]func(spec, source map[string]any) {
	in := func(field string, value any) func(spec, source map[string]any) {
		return func(_, source map[string]any) { source[field] = value }
	}
	beside := func(field string, value any) func(spec, source map[string]any) {
		return func(spec, _ map[string]any) { spec[field] = value }
	}
	none := []any{}
	return map[string]func(spec, source map[string]any){
		"helm":           in("helm", map[string]any{}),
		"helm-values":    in("helm", map[string]any{"valuesObject": map[string]any{}, "values": "", "parameters": none, "fileParameters": none, "valueFiles": none}),
		"kustomize":      in("kustomize", map[string]any{"images": none, "patches": none, "components": none, "namePrefix": "", "commonLabels": map[string]any{}}),
		"directory":      in("directory", map[string]any{"recurse": false, "jsonnet": map[string]any{"libs": none, "extVars": none, "tlas": none}}),
		"directory-some": in("directory", map[string]any{"include": "*.yaml", "exclude": "", "jsonnet": map[string]any{"libs": none}}),
		"plugin":         in("plugin", map[string]any{"name": "", "env": none, "parameters": none}),
		"chart":          in("chart", ""),
		"sources":        beside("sources", none),
		"sources-one": func(spec, source map[string]any) {
			delete(spec, "source")
			source["helm"], source["kustomize"] = map[string]any{}, map[string]any{}
			spec["sources"] = []any{source}
		},
		"sync":     beside("syncPolicy", map[string]any{"syncOptions": none, "retry": map[string]any{}, "managedNamespaceMetadata": map[string]any{"labels": map[string]any{}}}),
		"sync-off": beside("syncPolicy", map[string]any{"automated": map[string]any{"enabled": false, "prune": false}, "syncOptions": none}),
		"ignored":  beside("ignoreDifferences", none),
		"info":     beside("info", none),
		"history":  beside("revisionHistoryLimit", int64(0)),
	}
}

// TestSeamNormalForms has real controllers reconcile Applications of all forms again and
// again, and the hub's argocd-server write the objects as its types have them. Once an object
// has been settled nothing but its status is written, on either side: where two disagree about
// a form they undo each other for ever.
func TestSeamNormalForms(t *testing.T) {
	t.Parallel()
	w := env.SharedArgo(t)
	t.Run("of the hub", func(t *testing.T) {
		t.Parallel()
		testNormalForms(t, w, env.Managed, w.OnHub(env.Managed))
	})
	t.Run("of a spoke", func(t *testing.T) {
		t.Parallel()
		testNormalForms(t, w, env.Autonomous, w.OnSpoke(env.Autonomous))
	})
	t.Run("projects of the hub", func(t *testing.T) { testNormalProjects(t, w) })
}

// testNormalForms creates the Applications of an agent at its owner. A sync that is asked for
// on the hub has argocd-server write the whole object.
func testNormalForms(t *testing.T, w *env.Argo, agent string, owner dynamic.ResourceInterface) {
	t.Helper()
	ctx := t.Context()
	names := slices.Sorted(maps.Keys(odd()))
	for i, form := range names {
		name := "normal-" + form
		names[i] = name
		app := w.Plain(name, harness.ArgoCDNamespace, map[string]string{env.Managed: env.Managed}[agent])
		app.SetNamespace("")
		spec := app.Object["spec"].(map[string]any)
		odd()[form](spec, spec["source"].(map[string]any))
		env.Create(t, owner, app)
	}
	sides := map[string]dynamic.ResourceInterface{"on the hub": w.OnHub(agent), "on the spoke": w.OnSpoke(agent)}
	for _, name := range names {
		env.Eventually(t, name+" was looked at, and the hub shows it", func() error {
			o, err := w.OnHub(agent).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if at, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt"); at == "" {
				return fmt.Errorf("the status is %v", o.Object["status"])
			}
			return nil
		})
	}
	still := func(what string, rounds int) {
		t.Helper()
		reconcile(t, w, agent, names)
		records, before := map[string]*env.Recorder{}, map[string]map[string]*unstructured.Unstructured{}
		for side, where := range sides {
			records[side] = env.Record(t, where)
			before[side] = records[side].Objects()
		}
		for range rounds {
			reconcile(t, w, agent, names)
		}
		for side, where := range sides {
			records[side].CaughtUp(t, where)
			for _, name := range names {
				records[side].Stands(t, what+" "+side, before[side][name])
			}
		}
	}
	still("as it was created", 3)
	for _, name := range names {
		if out, err := w.HubArgo.CLI(ctx, "app", "sync", agent+"/"+name, "--dry-run", "--async"); err != nil {
			t.Errorf("argocd app sync %s: %v: %s", name, err, out)
		}
	}
	for _, name := range names {
		env.Eventually(t, "the operation of "+name+" is over", func() error {
			o, err := w.OnHub(agent).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if at, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "finishedAt"); at == "" || o.Object["operation"] != nil {
				return fmt.Errorf("the state is %v", o.Object["status"])
			}
			return nil
		})
	}
	still("as argocd-server has written it", 1)
}

// reconcile has the controller of a spoke look at each Application once more.
func reconcile(t *testing.T, w *env.Argo, agent string, names []string) {
	t.Helper()
	const refresh = "argocd.argoproj.io/refresh"
	for _, name := range names {
		env.Patch(t, w.OnSpoke(agent), name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{refresh: "normal"}}})
	}
	for _, name := range names {
		env.Eventually(t, "the controller looks at "+name, func() error {
			o, err := w.OnSpoke(agent).Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && o.GetAnnotations()[refresh] != "" {
				err = errors.New("it was not refreshed")
			}
			return err
		})
	}
}

// testNormalProjects does the same with AppProjects, of which argocd-server writes the hub's.
func testNormalProjects(t *testing.T, w *env.Argo) {
	t.Parallel()
	ctx, none := t.Context(), []any{}
	hub, spoke := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	forms := map[string]map[string]any{
		"empty": {
			"clusterResourceBlacklist": none, "namespaceResourceBlacklist": none, "namespaceResourceWhitelist": none, "signatureKeys": none, "roles": none,
			"syncWindows": none, "destinationServiceAccounts": none, "description": "",
		},
		"windows": {"syncWindows": []any{
			map[string]any{"kind": "allow", "schedule": "* * * * *", "duration": "1h", "clusters": none, "namespaces": none, "applications": []any{"*"}, "manualSync": false},
		}},
		"orphaned": {"orphanedResources": map[string]any{"ignore": none}},
		"roles":    {"roles": []any{map[string]any{"name": "people", "policies": none, "groups": none, "jwtTokens": none}}},
	}
	for form, more := range forms {
		teamProject(t, w, "normal-"+form, more)
	}
	records := map[dynamic.ResourceInterface]*env.Recorder{hub: env.Record(t, hub), spoke: env.Record(t, spoke)}
	for form := range forms {
		name := "normal-" + form
		if out, err := w.HubArgo.CLI(ctx, "proj", "set", name, "--description", "written"); err != nil {
			t.Errorf("argocd proj set: %v: %s", err, out)
		}
		env.Eventually(t, "what argocd-server has written arrives", func() error { return env.FieldIs(ctx, spoke, name, "written", "spec", "description") })
	}
	// One that is made later has been looked at after all of them.
	teamProject(t, w, "normal-later", nil)
	for where, seen := range records {
		seen.CaughtUp(t, where)
		for form := range forms {
			if writes := seen.Writes()["normal-"+form]; len(writes) != 1 {
				t.Errorf("normal-%s was written %v, want once", form, writes)
			}
		}
	}
}
