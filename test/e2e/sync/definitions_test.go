//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// releases are those of Argo CD that a spoke may have, oldest first, by what of the
// objects of this test each drops. The empty one is the hub's.
var releases = []struct {
	name    string
	dropped map[stream.Kind][]string
}{
	{"v3.2.6", map[stream.Kind][]string{
		stream.Application: {"spec.source.tagPrefix", "spec.sourceHydrator.drySource.helm", "spec.sourceHydrator.syncSource.repoURL"},
		stream.AppProject:  {"spec.clusterResourceWhitelist[].name", "spec.sourceIntegrity", "spec.syncWindows[].syncOverrun"},
	}},
	{"v3.3.19", map[stream.Kind][]string{
		stream.Application: {"spec.source.tagPrefix", "spec.sourceHydrator.syncSource.repoURL"},
		stream.AppProject:  {"spec.sourceIntegrity", "spec.syncWindows[].syncOverrun"},
	}},
	{"v3.4.13", map[stream.Kind][]string{
		stream.Application: {"spec.source.tagPrefix", "spec.sourceHydrator.syncSource.repoURL"},
		stream.AppProject:  {"spec.sourceIntegrity", "spec.syncWindows[].syncOverrun"},
	}},
	{"", map[stream.Kind][]string{}},
}

// definitionsOf are the files of Applications and AppProjects of a release; of the hub's
// if that is empty.
func definitionsOf(t *testing.T, h *harness.Harness, release string) []string {
	t.Helper()
	files, err := h.ArgoCDManifests()
	if release != "" {
		files, err = h.EarlierArgoCDManifests(release)
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "applicationset-crd.yaml" })
}

// newest are objects with fields of the newest release, and one that is of none.
func newest() map[stream.Kind]map[string]any {
	return map[stream.Kind]map[string]any{
		stream.Application: {
			"project": "default", "destination": map[string]any{"name": "in-cluster", "namespace": "web"},
			"source": map[string]any{
				"repoURL": "https://git.example.com/web.git", "path": ".", "tagPrefix": "v",
				"helm": map[string]any{"valuesObject": map[string]any{"any": map[string]any{"thing": []any{map[string]any{"x": "y"}}}}},
			},
			"sourceHydrator": map[string]any{
				"drySource":  map[string]any{"repoURL": "https://git.example.com/dry.git", "path": ".", "targetRevision": "main", "helm": map[string]any{"releaseName": "web"}},
				"syncSource": map[string]any{"targetBranch": "live", "path": "web", "repoURL": "https://git.example.com/wet.git"},
			},
			"syncPolicy": map[string]any{"automated": map[string]any{"enabled": false, "prune": true}},
		},
		stream.AppProject: {
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "", "kind": "Namespace", "name": "web"}},
			"syncWindows":              []any{map[string]any{"kind": "allow", "schedule": "* * * * *", "duration": "1h", "applications": []any{"*"}, "syncOverrun": true}},
			"sourceIntegrity": map[string]any{"git": map[string]any{"policies": []any{map[string]any{
				"repos": []any{map[string]any{"url": "*"}}, "gpg": map[string]any{"mode": "strict", "keys": []any{"4AEE18F83AFDEB23"}},
			}}}},
		},
	}
}

var resourcesOf = map[stream.Kind]runtimeschema.GroupVersionResource{
	stream.Application: harness.Applications,
	stream.AppProject:  {Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
}

// TestDefinitionsOfReleases holds what we say of the definitions of each release against
// what a real API server does with them.
func TestDefinitionsOfReleases(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	client, err := dynamic.NewForConfig(w.Spoke.REST())
	if err != nil {
		t.Fatal(err)
	}
	watched := watchDefinitions(t, client)
	for _, release := range releases {
		files := definitionsOf(t, w.Harness, release.name)
		if err := w.Spoke.ApplyFiles(ctx, files...); err != nil {
			t.Fatal(err)
		}
		for kind, spec := range newest() {
			object := map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": string(kind),
				"metadata": map[string]any{"name": "whole", "namespace": harness.ArgoCDNamespace}, "spec": spec,
			}
			where := w.Spoke.Resource(resourcesOf[kind], harness.ArgoCDNamespace)
			tryOut := func(validation string) (*unstructured.Unstructured, error) {
				o := (&unstructured.Unstructured{Object: object}).DeepCopy()
				return where.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: validation})
			}
			kept := (&unstructured.Unstructured{Object: object}).DeepCopy()
			var dropped []string
			for _, d := range schemaOf(t, files, kind).Prune(kept.Object) {
				dropped = append(dropped, d.Path())
			}
			slices.Sort(dropped)
			if diff := cmp.Diff(release.dropped[kind], dropped); diff != "" {
				t.Errorf("%s drops of an %s (-want +got):\n%s", release.name, kind, diff)
			}
			env.Eventually(t, fmt.Sprintf("the API server serves %s of %q as we say", kind, release.name), func() error {
				o, err := tryOut(metav1.FieldValidationIgnore)
				if err != nil {
					return err
				}
				if diff := cmp.Diff(kept.Object["spec"], o.Object["spec"]); diff != "" {
					return fmt.Errorf("it keeps (-ours +theirs):\n%s", diff)
				}
				_, err = tryOut(metav1.FieldValidationStrict)
				switch refused := apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "unknown field"); {
				case err != nil && !refused:
					return err
				case refused != (len(dropped) > 0):
					return fmt.Errorf("a strict write: %w", err)
				}
				if id := schemaOf(t, files, kind).ID(); watched.Schema(kind) == nil || watched.Schema(kind).ID() != id {
					return errors.New("its definition was not seen")
				}
				return nil
			})
		}
	}
}

// schemaOf reads the schema of a kind from one of files.
func schemaOf(t *testing.T, files []string, kind stream.Kind) *schema.Schema {
	t.Helper()
	name := strings.ToLower(string(kind)) + "-crd.yaml"
	i := slices.IndexFunc(files, func(file string) bool { return filepath.Base(file) == name })
	raw, err := os.ReadFile(files[i])
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = yaml.YAMLToJSON(raw); err != nil {
		t.Fatal(err)
	}
	s, err := schema.Parse(raw, "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// watchDefinitions ends with the test.
func watchDefinitions(t *testing.T, client dynamic.Interface) *kube.Definitions {
	t.Helper()
	d := kube.NewDefinitions(client, zerolog.New(zerolog.NewTestWriter(t)))
	kit.Background(t, d.Run)
	return d
}

// TestOlderSpoke has a spoke with an older Argo CD take what it can, refuse what would
// lose a restraint, and get all with its upgrade.
func TestOlderSpoke(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	if err := w.Spoke.ApplyFiles(ctx, definitionsOf(t, w.Harness, "v3.2.6")...); err != nil {
		t.Fatal(err)
	}
	r := w.Connect(t, "older-1", "managed")
	project := func(name string) *unstructured.Unstructured {
		o := projectFor(name, r.Name)
		t.Cleanup(func() {
			_ = w.HubProjects().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		})
		return o
	}
	plain, named := project("older-plain"), project("older-named")
	named.Object["spec"].(map[string]any)["clusterResourceWhitelist"] = newest()[stream.AppProject]["clusterResourceWhitelist"]
	env.Create(t, w.HubProjects(), plain)
	env.Create(t, w.HubProjects(), named)
	app := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "web"},
		"spec": newest()[stream.Application],
	}}
	app.Object["spec"].(map[string]any)["destination"] = map[string]any{"name": r.Name, "namespace": "web"}
	env.Create(t, r.Hub, app)

	spokeProjects := w.Spoke.Resource(resourcesOf[stream.AppProject], r.Namespace)
	env.Eventually(t, "the plain project is there", func() error {
		_, err := spokeProjects.Get(ctx, "older-plain", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the hub says what the spoke dropped", func() error {
		o, err := r.Hub.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		const want = "spec.source.tagPrefix, spec.sourceHydrator.drySource.helm, spec.sourceHydrator.syncSource.repoURL"
		if status := fmt.Sprint(o.Object["status"]); !strings.Contains(status, "ArgomeshWarning") || !strings.Contains(status, want) {
			return fmt.Errorf("it says %s", status)
		}
		a, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := fmt.Sprint(a.Object["status"])
		for _, part := range []string{"does not know spec.clusterResourceWhitelist[].name", "shortened:[map[kind:Application name:web"} {
			if !strings.Contains(status, part) {
				return fmt.Errorf("the status of the Agent says %s, without %q", status, part)
			}
		}
		return nil
	})
	if err := env.FieldIs(ctx, r.Spoke, "web", map[string]any{"enabled": false, "prune": true}, "spec", "syncPolicy", "automated"); err != nil {
		t.Error(err)
	}
	if err := env.Gone(ctx, spokeProjects, "older-named"); err != nil {
		t.Error(err)
	}

	if err := w.Spoke.ApplyFiles(ctx, definitionsOf(t, w.Harness, "")...); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "with its upgrade the spoke gets all", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Spoke, "web", "v", "spec", "source", "tagPrefix"),
			env.FieldIs(ctx, spokeProjects, "older-named", named.Object["spec"].(map[string]any)["clusterResourceWhitelist"], "spec", "clusterResourceWhitelist"),
		)
	})
	env.Eventually(t, "and the hub has nothing to say any more", func() error {
		o, err := r.Hub.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && strings.Contains(fmt.Sprint(o.Object["status"]), "Argomesh") {
			err = fmt.Errorf("it says %v", o.Object["status"])
		}
		return err
	})
	if n := r.Said(t, "another writer keeps reverting this object; reapplying at most once a minute"); n > 0 {
		t.Errorf("the agent took %d times for a fight that the definitions had changed", n)
	}
}
