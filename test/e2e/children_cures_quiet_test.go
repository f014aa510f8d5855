//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
)

// kin is a hub of its own, with Applications of spokes that it is to show.
type kin struct {
	*testing.T
	w         *quietWorld
	in        string // namespace of its Argo CD
	principal *harness.Principal
}

// newKin starts its principal.
func newKin(t *testing.T, in, mapping string) kin {
	t.Helper()
	w := theQuietWorld(t)
	if err := w.hub.EnsureNamespace(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return kin{t, w, in, w.mappedPrincipal(t, in, harness.Settings{"mapping.by": mapping})}
}

func (k kin) registry() dynamic.ResourceInterface { return k.w.hub.Resource(agents, k.in) }

func (k kin) onHub(namespace string) dynamic.ResourceInterface {
	return k.w.hub.Resource(harness.Applications, namespace)
}

func (k kin) onSpoke(namespace string) dynamic.ResourceInterface {
	return k.w.spoke.Resource(harness.Applications, namespace)
}

// shows sets whether the hub shows child applications of an agent.
func (k kin) shows(name, value string) {
	k.Helper()
	patch(k.T, k.registry(), name, merged("spec.childApplications", value))
}

// child makes one on a spoke, of a project.
func (k kin) child(namespace, name, project string) {
	k.Helper()
	o := aimedAt("in-cluster", name)
	o.Object["spec"].(map[string]any)["project"] = project
	create(k.T, k.onSpoke(namespace), o)
	k.Cleanup(func() {
		o, err := k.onSpoke(namespace).Get(k.T.Context(), name, metav1.GetOptions{})
		if err == nil && (o.GetDeletionTimestamp() != nil || o.GetAnnotations()[sourceUID] != "") {
			k.Errorf("the child %s was touched: %v", name, o)
		}
	})
}

// says waits for condition ChildApplications of an Agent, and returns it as a scene, whose
// cure follows the text.
func (k kin) says(name, reason string, texts ...string) *scene {
	k.Helper()
	s := &scene{T: k.T}
	eventually(k.T, fmt.Sprintf("condition of %s: %s %q", name, reason, texts), func() error {
		if err := condition(k.Context(), k.registry(), name, "ChildApplications", reason, ""); err != nil {
			return err
		}
		text, _, err := inCondition(s, k.registry(), name, "ChildApplications")
		for _, part := range texts {
			if !strings.Contains(text, part) {
				err = errors.Join(err, fmt.Errorf("it says %q", text))
			}
		}
		s.said = text
		return err
	})
	return s
}

// quiet waits until an Agent has the condition no more.
func (k kin) quiet(name string) {
	k.Helper()
	eventually(k.T, "the condition of "+name+" goes", func() error {
		o, err := k.registry().Get(k.Context(), name, metav1.GetOptions{})
		if err == nil && conditionIn(o, "ChildApplications") != nil {
			err = fmt.Errorf("it says %v", conditionIn(o, "ChildApplications"))
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
		closed := projectNamed("kin-closed")
		create(t, k.w.hub.Resource(harness.AppProjects, k.in), closed)
		k.w.mappedAgent(t, k.in, name, k.principal, harness.Settings{"mapping.namespaces": []string{"kin-team"}})
		if err := k.w.spoke.EnsureNamespace(ctx, "kin-team"); err != nil {
			t.Fatal(err)
		}
		k.child(name, "seen", "kin-closed")
		k.child("kin-team", "apart", "default")
		k.shows(name, "mirror")
		eventually(t, "the child is shown", func() error { return there(ctx, k.onHub(name), "seen") })

		s := k.says(name, "NotShownByArgoCD", "does not name kin-1", "kin-team/apart", "kin-closed")
		create(t, k.w.hub.Resource(configMaps, k.in), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": s.find(`in ConfigMap (\S+) of the hub`)},
			"data": map[string]any{s.find(`^(\S+) in ConfigMap`): s.find(`does not name (\S+), where`)},
		}})
		eventually(t, "the ConfigMap helps", func() error {
			if text, _, err := inCondition(s, k.registry(), name, "ChildApplications"); err != nil || strings.Contains(text, "does not name") {
				return errors.Join(err, errors.New(text))
			}
			return nil
		})
		s = k.says(name, "NotShownByArgoCD", "argocd-server shows no child applications of projects")
		patch(t, k.w.hub.Resource(harness.AppProjects, k.in), s.find(`of AppProject ([a-z-]+)`), merged("spec.sourceNamespaces", []any{name}))
		s = k.says(name, "ChildrenElsewhere", "kin-team/apart")
		s.find("move them there")
		if err := k.onSpoke("kin-team").Delete(ctx, "apart", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		k.child(name, "apart", "default")
		eventually(t, "it is shown, too", func() error { return there(ctx, k.onHub(name), "apart") })
		// That none is elsewhere the hub takes for true after a quarter of an hour.
		k.shows(name, s.find(`set spec\.childApplications to (\S+)`))
		k.quiet(name)
	})
	t.Run("of another agent", func(t *testing.T) {
		k, older, name := kin{t, k.w, k.in, k.principal}, "kin-0", "kin-2" // of one second the first by name is the older
		if _, err := k.w.h.Agentctl(ctx, k.w.hub, "--namespace", k.in, "agent", "create", older, "--mode", "autonomous", "--spiffe-id", idOf(older)); err != nil {
			t.Fatal(err)
		}
		mapped := func(namespace string) map[string]any {
			return merged("spec.mapping.namespaces", []any{map[string]any{"hub": namespace}})
		}
		k.w.mappedAgent(t, k.in, name, k.principal, harness.Settings{})
		patch(t, k.registry(), older, mapped(name))
		k.child(name, "seen", "default")
		k.shows(name, "mirror")
		s := k.says(name, "ChildNamespaceTaken", "they would be in namespace kin-2 of the hub, which is that of Agent kin-0")
		if err := gone(ctx, k.onHub(name), "seen"); err != nil {
			t.Error(err)
		}
		// The table of reasons: name another namespace for the other Agent.
		patch(t, k.registry(), s.find(`that of Agent ([^;]+);`), mapped("kin-0-apps"))
		eventually(t, "the child is shown", func() error { return there(ctx, k.onHub(name), "seen") })
		k.says(name, "NotShownByArgoCD", "does not name kin-2") // it is in the way no more
	})
	t.Run("of Argo CD", func(t *testing.T) {
		k := kin{t, k.w, k.in, k.principal}
		const other = "kin-renamed"
		create := func(name string) {
			if _, err := k.w.h.Agentctl(ctx, k.w.hub, "--namespace", k.in, "agent", "create", name, "--mode", "managed", "--spiffe-id", idOf(name)); err != nil {
				t.Fatal(err)
			}
		}
		create(k.in)
		k.shows(k.in, "mirror")
		s := k.says(k.in, "ChildNamespaceTaken", "which is that of the hub's Argo CD")
		s.find("register the agent under another name")
		create(other)
		k.shows(other, "mirror")
		k.says(other, "NotShownByArgoCD", "does not name "+other) // so its namespace is its own
		k.shows(k.in, s.find(`set spec\.childApplications to (\S+)`))
		k.quiet(k.in)
	})
}

// TestSetMappingWithChildren: child applications that the hub shows are in nobody's way, and
// are shown where the other mapping has them.
func TestSetMappingWithChildren(t *testing.T) {
	t.Parallel()
	k := newKin(t, "kin-moves", "destination")
	ctx := t.Context()
	const name, apps = "kin-4", "kin-4-apps"
	k.w.mappedAgent(t, k.in, name, k.principal, harness.Settings{})
	patch(t, k.registry(), name, merged("spec.mapping.namespaces", []any{map[string]any{"hub": apps}}))
	k.child(name, "child", "default")
	create(t, k.onHub(k.in), aimedAt(name, "sent"))
	k.shows(name, "mirror")
	eventually(t, "the child is shown by destination", func() error {
		return errors.Join(there(ctx, k.onHub(name), "child"), there(ctx, k.onSpoke(name), "sent"))
	})
	child := get(t, k.onSpoke(name), "child")

	file := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(file, []byte("namespace: "+k.in+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(to string, args ...string) (string, error) {
		return k.w.h.Agentctl(ctx, k.w.hub, append([]string{"--namespace", k.in, "hub", "set-mapping", to, "--principal-config", file}, args...)...)
	}
	out, err := set("namespace", "--dry-run")
	if err == nil || strings.Contains(out, "child") || !strings.Contains(out, "sent") {
		t.Errorf("a dry run says %s, %v, want that sent would be lost and no word of the child", out, err)
	}
	if err := k.onHub(k.in).Delete(ctx, "sent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Application of the hub is gone", func() error {
		return errors.Join(gone(ctx, k.onHub(k.in), "sent"), gone(ctx, k.onSpoke(name), "sent"))
	})
	if out, err := set("namespace", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "the child is shown by namespace", func() error {
		return errors.Join(there(ctx, k.onHub(apps), "child"), gone(ctx, k.onHub(name), "child"))
	})
	k.quiet(name)
	if out, err := set("destination", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "the child is shown by destination again", func() error {
		return errors.Join(there(ctx, k.onHub(name), "child"), gone(ctx, k.onHub(apps), "child"))
	})
	if now := get(t, k.onSpoke(name), "child"); now.GetUID() != child.GetUID() || now.GetResourceVersion() != child.GetResourceVersion() {
		t.Errorf("the child was touched: it was %v, and is %v", child, now)
	}
}
