//go:build linux

package mistakes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/harness"
)

// kin is a hub of its own, with Applications of spokes that it is to show.
type kin struct {
	*testing.T
	w         *env.Bare
	in        string // namespace of its Argo CD
	principal *harness.Principal
}

// newKin starts its principal.
func newKin(t *testing.T, in, mapping string) kin {
	t.Helper()
	w := env.SharedBare(t)
	if err := w.Hub.EnsureNamespace(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return kin{t, w, in, w.MappedPrincipal(t, in, harness.Settings{"mapping.by": mapping})}
}

func (k kin) registry() dynamic.ResourceInterface { return k.w.Hub.Resource(env.Agents, k.in) }

func (k kin) onHub(namespace string) dynamic.ResourceInterface {
	return k.w.Hub.Resource(harness.Applications, namespace)
}

func (k kin) onSpoke(namespace string) dynamic.ResourceInterface {
	return k.w.Spoke.Resource(harness.Applications, namespace)
}

// shows sets whether the hub shows child applications of an agent.
func (k kin) shows(name, value string) {
	k.Helper()
	env.Patch(k.T, k.registry(), name, mistake.Merged("spec.childApplications", value))
}

// child makes one on a spoke, of a project.
func (k kin) child(namespace, name, project string) {
	k.Helper()
	o := aimedAt("in-cluster", name)
	o.Object["spec"].(map[string]any)["project"] = project
	env.Create(k.T, k.onSpoke(namespace), o)
	k.Cleanup(func() {
		o, err := k.onSpoke(namespace).Get(k.T.Context(), name, metav1.GetOptions{})
		if err == nil && (o.GetDeletionTimestamp() != nil || o.GetAnnotations()[env.SourceUID] != "") {
			k.Errorf("the child %s was touched: %v", name, o)
		}
	})
}

// says waits for condition ChildApplications of an Agent, and returns it as a scene, whose
// cure follows the text.
func (k kin) says(name, reason string, texts ...string) *mistake.Scene {
	k.Helper()
	s := &mistake.Scene{T: k.T}
	env.Eventually(k.T, fmt.Sprintf("condition of %s: %s %q", name, reason, texts), func() error {
		if err := env.ConditionIs(k.Context(), k.registry(), name, "ChildApplications", reason, ""); err != nil {
			return err
		}
		text, _, err := inCondition(s, k.registry(), name, "ChildApplications")
		for _, part := range texts {
			if !strings.Contains(text, part) {
				err = errors.Join(err, fmt.Errorf("it says %q", text))
			}
		}
		s.Said = text
		return err
	})
	return s
}

// quiet waits until an Agent has the condition no more.
func (k kin) quiet(name string) {
	k.Helper()
	env.Eventually(k.T, "the condition of "+name+" goes", func() error {
		o, err := k.registry().Get(k.Context(), name, metav1.GetOptions{})
		if err == nil && env.ConditionIn(o, "ChildApplications") != nil {
			err = fmt.Errorf("it says %v", env.ConditionIn(o, "ChildApplications"))
		}
		return err
	})
}

// TestChildApplicationsCures: what condition ChildApplications says helps, and it goes.
func TestChildApplicationsCures(t *testing.T) {
	t.Parallel()
	k := newKin(t, "kin", "destination")
	ctx := t.Context()
	t.Run("hidden", func(t *testing.T) {
		k, name := kin{t, k.w, k.in, k.principal}, "kin-1"
		closed := env.ProjectNamed("kin-closed")
		env.Create(t, k.w.Hub.Resource(harness.AppProjects, k.in), closed)
		k.w.MappedAgent(t, k.in, name, k.principal, harness.Settings{"mapping.namespaces": []string{"kin-team"}})
		if err := k.w.Spoke.EnsureNamespace(ctx, "kin-team"); err != nil {
			t.Fatal(err)
		}
		k.child(name, "seen", "kin-closed")
		k.child("kin-team", "apart", "default")
		k.shows(name, "mirror")
		env.Eventually(t, "the child is shown", func() error { return env.Exists(ctx, k.onHub(name), "seen") })

		s := k.says(name, "NotShownByArgoCD", "does not name kin-1", "kin-team/apart", "kin-closed")
		env.Create(t, k.w.Hub.Resource(env.ConfigMaps, k.in), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": s.Find(`in ConfigMap (\S+) of the hub`)},
			"data": map[string]any{s.Find(`^(\S+) in ConfigMap`): s.Find(`does not name (\S+), where`)},
		}})
		env.Eventually(t, "the ConfigMap helps", func() error {
			if text, _, err := inCondition(s, k.registry(), name, "ChildApplications"); err != nil || strings.Contains(text, "does not name") {
				return errors.Join(err, errors.New(text))
			}
			return nil
		})
		s = k.says(name, "NotShownByArgoCD", "argocd-server shows no child applications of projects")
		env.Patch(t, k.w.Hub.Resource(harness.AppProjects, k.in), s.Find(`of AppProject ([a-z-]+)`), mistake.Merged("spec.sourceNamespaces", []any{name}))
		s = k.says(name, "ChildrenElsewhere", "kin-team/apart")
		s.Find("move them there")
		if err := k.onSpoke("kin-team").Delete(ctx, "apart", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		k.child(name, "apart", "default")
		env.Eventually(t, "it is shown, too", func() error { return env.Exists(ctx, k.onHub(name), "apart") })
		// That none is elsewhere the hub takes for true after a quarter of an hour.
		k.shows(name, s.Find(`set spec\.childApplications to (\S+)`))
		k.quiet(name)
	})
	t.Run("of another agent", func(t *testing.T) {
		k, older, name := kin{t, k.w, k.in, k.principal}, "kin-0", "kin-2" // of one second the first by name is the older
		if _, err := k.w.Harness.Agentctl(ctx, k.w.Hub, "--namespace", k.in, "agent", "create", older, "--mode", "autonomous", "--spiffe-id", env.SPIFFEID(older)); err != nil {
			t.Fatal(err)
		}
		mapped := func(namespace string) map[string]any {
			return mistake.Merged("spec.mapping.namespaces", []any{map[string]any{"hub": namespace}})
		}
		k.w.MappedAgent(t, k.in, name, k.principal, harness.Settings{})
		env.Patch(t, k.registry(), older, mapped(name))
		k.child(name, "seen", "default")
		k.shows(name, "mirror")
		s := k.says(name, "ChildNamespaceTaken", "they would be in namespace kin-2 of the hub, which is that of Agent kin-0")
		if err := env.Gone(ctx, k.onHub(name), "seen"); err != nil {
			t.Error(err)
		}
		// The table of reasons: name another namespace for the other Agent.
		env.Patch(t, k.registry(), s.Find(`that of Agent ([^;]+);`), mapped("kin-0-apps"))
		env.Eventually(t, "the child is shown", func() error { return env.Exists(ctx, k.onHub(name), "seen") })
		k.says(name, "NotShownByArgoCD", "does not name kin-2") // it is in the way no more
	})
	t.Run("of Argo CD", func(t *testing.T) {
		k := kin{t, k.w, k.in, k.principal}
		const other = "kin-renamed"
		create := func(name string) {
			if _, err := k.w.Harness.Agentctl(ctx, k.w.Hub, "--namespace", k.in, "agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(name)); err != nil {
				t.Fatal(err)
			}
		}
		create(k.in)
		k.shows(k.in, "mirror")
		s := k.says(k.in, "ChildNamespaceTaken", "which is that of the hub's Argo CD")
		s.Find("register the agent under another name")
		create(other)
		k.shows(other, "mirror")
		k.says(other, "NotShownByArgoCD", "does not name "+other) // so its namespace is its own
		k.shows(k.in, s.Find(`set spec\.childApplications to (\S+)`))
		k.quiet(k.in)
	})
}

// TestSetMappingWithChildren: child applications that the hub shows are in no one's way, and
// are shown where the other mapping has them.
func TestSetMappingWithChildren(t *testing.T) {
	t.Parallel()
	k := newKin(t, "kin-moves", "destination")
	ctx := t.Context()
	const name, apps = "kin-4", "kin-4-apps"
	k.w.MappedAgent(t, k.in, name, k.principal, harness.Settings{})
	env.Patch(t, k.registry(), name, mistake.Merged("spec.mapping.namespaces", []any{map[string]any{"hub": apps}}))
	k.child(name, "child", "default")
	env.Create(t, k.onHub(k.in), aimedAt(name, "sent"))
	k.shows(name, "mirror")
	env.Eventually(t, "the child is shown by destination", func() error {
		return errors.Join(env.Exists(ctx, k.onHub(name), "child"), env.Exists(ctx, k.onSpoke(name), "sent"))
	})
	child := env.Get(t, k.onSpoke(name), "child")

	file := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(file, []byte("namespace: "+k.in+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(to string, args ...string) (string, error) {
		return k.w.Harness.Agentctl(ctx, k.w.Hub, append([]string{"--namespace", k.in, "hub", "set-mapping", to, "--principal-config", file}, args...)...)
	}
	out, err := set("namespace", "--dry-run")
	if err == nil || strings.Contains(out, "child") || !strings.Contains(out, "sent") {
		t.Errorf("a dry run says %s, %v, want that sent would be lost and no word of the child", out, err)
	}
	if err := k.onHub(k.in).Delete(ctx, "sent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the Application of the hub is gone", func() error {
		return errors.Join(env.Gone(ctx, k.onHub(k.in), "sent"), env.Gone(ctx, k.onSpoke(name), "sent"))
	})
	if out, err := set("namespace", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env.Eventually(t, "the child is shown by namespace", func() error {
		return errors.Join(env.Exists(ctx, k.onHub(apps), "child"), env.Gone(ctx, k.onHub(name), "child"))
	})
	k.quiet(name)
	if out, err := set("destination", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env.Eventually(t, "the child is shown by destination again", func() error {
		return errors.Join(env.Exists(ctx, k.onHub(name), "child"), env.Gone(ctx, k.onHub(apps), "child"))
	})
	if now := env.Get(t, k.onSpoke(name), "child"); now.GetUID() != child.GetUID() || now.GetResourceVersion() != child.GetResourceVersion() {
		t.Errorf("the child was touched: it was %v, and is %v", child, now)
	}
}
