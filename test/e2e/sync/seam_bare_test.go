//go:build linux

package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestSeamAdoptSetting lets the owner of a spoke name in the agent's configuration what the
// hub may take over. It comes back when the hub lets go; what is not named is never touched.
func TestSeamAdoptSetting(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Register(t, "adopter", "managed")
	r.Settings = harness.Settings{"policy.adopt": []string{"application/shop-*", "appproject/adopter-shop", "repository/shop-*"}}
	projects, credentials := r.Projects(), w.Spoke.Resource(env.Secrets, r.Namespace)
	hubProjects, hubSecrets := w.HubProjects(), w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace)
	t.Cleanup(func() {
		for _, name := range []string{"adopter-shop", "adopter-other"} {
			_ = hubProjects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) // it may have gone
		}
		_ = hubSecrets.Delete(context.WithoutCancel(ctx), "shop-repo", metav1.DeleteOptions{})
	})
	const own, ours = "own", "ours"
	described := func(name, text string, o *unstructured.Unstructured) *unstructured.Unstructured {
		o.SetName(name)
		o.Object["spec"].(map[string]any)["description"] = text
		return o
	}
	revised := func(name, revision string) *unstructured.Unstructured {
		o := r.Application(name)
		o.Object["spec"].(map[string]any)["source"].(map[string]any)["targetRevision"] = revision
		return o
	}
	unnamed := map[string]*unstructured.Unstructured{
		"other": env.Create(t, r.Spoke, revised("other", own)), "adopter-other": env.Create(t, projects, described("adopter-other", own, env.ProjectNamed("x"))),
	}
	env.Create(t, projects, described("adopter-shop", own, env.ProjectNamed("x")))
	theirs := repositorySecret("shop-repo", "")
	theirs.Object["data"].(map[string]any)["password"] = env.Base64(own)
	env.Create(t, credentials, theirs)
	automated := revised("shop-web", own)
	automated.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{"automated": map[string]any{"prune": true}}
	env.Create(t, r.Spoke, automated)

	for _, name := range []string{"adopter-shop", "adopter-other"} {
		env.Create(t, hubProjects, described(name, ours, projectFor(name, r.Name)))
	}
	env.Create(t, hubSecrets, repositorySecret("shop-repo", "adopter-shop"))
	for _, name := range []string{"shop-web", "other"} {
		env.Create(t, r.Hub, revised(name, ours))
	}
	r.Start(t)
	env.Eventually(t, "what is named becomes the hub's", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Spoke, "shop-web", ours, "spec", "source", "targetRevision"),
			env.FieldIs(ctx, projects, "adopter-shop", ours, "spec", "description"),
			env.FieldIs(ctx, credentials, "shop-repo", env.Base64(env.Password), "data", "password"),
		)
	})
	env.Eventually(t, "what is not named is refused, and says by what it would not be", func() error {
		return errors.Join(
			env.ConditionSays(ctx, r.Hub, "other", "ArgomeshError", "policy.adopt of the spoke does not name application/other"),
			r.Parked(ctx, "adopter-other", "policy.adopt of the spoke does not name appproject/adopter-other"),
		)
	})

	if err := errors.Join(
		r.Hub.Delete(ctx, "shop-web", metav1.DeleteOptions{}), hubSecrets.Delete(ctx, "shop-repo", metav1.DeleteOptions{}),
		hubProjects.Delete(ctx, "adopter-shop", metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "what was found comes back, an Application without automated sync", func() error {
		return errors.Join(
			env.FieldIs(ctx, r.Spoke, "shop-web", own, "spec", "source", "targetRevision"), env.FieldIs(ctx, r.Spoke, "shop-web", nil, "spec", "syncPolicy"),
			env.ConditionSays(ctx, r.Spoke, "shop-web", "ArgomeshReturned", "without automated synchronization"),
			env.FieldIs(ctx, projects, "adopter-shop", own, "spec", "description"),
			env.FieldIs(ctx, credentials, "shop-repo", env.Base64(own), "data", "password"),
		)
	})
	env.Eventually(t, "and nothing is kept of it any more", func() error {
		list, err := credentials.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, secret := range list.Items {
			if strings.HasPrefix(secret.GetName(), "argomesh-found-") {
				return fmt.Errorf("Secret %s is", secret.GetName())
			}
		}
		return nil
	})
	for name, was := range unnamed {
		where := r.Spoke
		if was.GetKind() == "AppProject" {
			where = projects
		}
		if now := env.Get(t, where, name); now.GetResourceVersion() != was.GetResourceVersion() {
			t.Errorf("%s was written: %v", name, now.Object)
		}
	}
}

// TestSeamFoundGoesWithItsObject adopts Applications in a namespace that is not the agent's.
// They go with a cascade, and by their owner's hand. Nothing but the agent can remove what it
// kept of them, since the garbage collector knows no owner in another namespace.
func TestSeamFoundGoesWithItsObject(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	const hub, team, agent = "found-hub", "found-team", "found-1"
	for _, where := range []*harness.ControlPlane{w.Hub, w.Spoke} {
		for _, namespace := range []string{hub, team} {
			if err := where.EnsureNamespace(ctx, namespace); err != nil {
				t.Fatal(err)
			}
		}
	}
	principal := w.MappedPrincipal(t, hub, harness.Settings{"mapping.by": "destination", "mapping.namespaces": []string{team}})
	w.MappedAgent(t, hub, agent, principal, harness.Settings{"mapping.namespaces": []string{team}, "policy.adopt": []string{"application/" + team + "/*"}})
	r := &env.BareAgent{Env: w, Name: agent, Mode: "managed"}
	onHub, onSpoke := w.Hub.Resource(harness.Applications, team), w.Spoke.Resource(harness.Applications, team)
	names := []string{"cascaded", "removed", "stays"}
	for _, name := range names {
		own := r.Application(name)
		own.Object["spec"].(map[string]any)["source"].(map[string]any)["targetRevision"] = "own"
		env.Create(t, onSpoke, own)
		ours := r.Application(name)
		ours.SetFinalizers([]string{env.Cascade})
		env.Create(t, onHub, ours)
	}
	kept := func(want int) func() error {
		return func() error {
			list, err := w.Spoke.Resource(env.Secrets, agent).List(ctx, metav1.ListOptions{FieldSelector: "type=argomesh.io/found"})
			if err == nil && len(list.Items) != want {
				err = fmt.Errorf("of %d objects it is kept what was found", len(list.Items))
			}
			return err
		}
	}
	env.Eventually(t, "all are adopted", func() error {
		for _, name := range names {
			if o, err := onSpoke.Get(ctx, name, metav1.GetOptions{}); err != nil || o.GetAnnotations()[env.SourceUID] == "" {
				return errors.Join(err, fmt.Errorf("%s is not", name))
			}
		}
		return kept(len(names))()
	})
	if err := errors.Join(onHub.Delete(ctx, "cascaded", metav1.DeleteOptions{}), onSpoke.Delete(ctx, "removed", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the cascade is passed on", func() error { return deletionBegun(onSpoke.Get(ctx, "cascaded", metav1.GetOptions{})) })
	env.Patch(t, onSpoke, "cascaded", map[string]any{"metadata": map[string]any{"finalizers": nil}}) // as Argo CD does
	env.Eventually(t, "nothing is kept of those that are gone", func() error { return errors.Join(env.Gone(ctx, onHub, "cascaded"), kept(1)()) })
}

// TestSeamUnreadDefinitions takes from an agent the right to read the definitions. It says
// which one it lacks, and writes nothing of which the API server would drop something.
func TestSeamUnreadDefinitions(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	if err := w.Spoke.ApplyFiles(ctx, definitionsOf(t, w.Harness, "v3.2.6")...); err != nil {
		t.Fatal(err)
	}
	r := w.Register(t, "unread", "managed")
	roles := agentRoles(t, w, r)
	const definitions = "customresourcedefinitions"
	var whole, lacking []byte
	for _, o := range roles {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(append(whole, "---\n"...), raw...)
		if o.GetKind() == "ClusterRole" {
			rules := env.Convert[rbacv1.ClusterRole](t, o).Rules
			kept := slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, definitions) })
			if len(kept) != len(rules)-1 {
				t.Fatalf("the role has %d rules, %d of them not about definitions", len(rules), len(kept))
			}
			if raw, err = yaml.Marshal(rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()}, ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}, Rules: kept}); err != nil {
				t.Fatal(err)
			}
		}
		lacking = append(append(lacking, "---\n"...), raw...)
	}
	if err := w.Spoke.ApplyYAML(ctx, lacking); err != nil {
		t.Fatal(err)
	}
	r.Settings = harness.Settings{"kubernetes.kubeconfig": env.AccountConfig(t, w.Harness, w.Spoke, r.Namespace, r.Name)}
	r.Start(t)
	env.Create(t, r.Hub, r.Application("plain"))
	newer := r.Application("newer")
	newer.Object["spec"].(map[string]any)["source"].(map[string]any)["tagPrefix"] = "v"
	env.Create(t, r.Hub, newer)
	env.Eventually(t, "what the spoke knows is there", func() error { return env.Exists(ctx, r.Spoke, "plain") })
	env.Eventually(t, "what it does not know is refused, and named", func() error {
		return env.ConditionSays(ctx, r.Hub, "newer", "ArgomeshError", "spec.source.tagPrefix")
	})
	if err := env.Gone(ctx, r.Spoke, "newer"); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(r.Agent.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"applications.argoproj.io", "appprojects.argoproj.io"} {
		if cure := "grant list and watch on " + definitions + ".apiextensions.k8s.io with resourceName " + name; bytes.Count(log, []byte(cure)) != 1 {
			t.Errorf("the log says %q %d times", cure, bytes.Count(log, []byte(cure)))
		}
	}

	if err := w.Spoke.ApplyYAML(ctx, whole); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "with the right it is applied, and the hub says what the spoke dropped", func() error {
		return errors.Join(env.Exists(ctx, r.Spoke, "newer"), env.ConditionSays(ctx, r.Hub, "newer", "ArgomeshWarning", "spec.source.tagPrefix"))
	})
}

// agentRoles are the objects that agentctl prints for an agent's account, which it makes,
// named for the agent.
func agentRoles(t *testing.T, w *env.Bare, r *env.BareAgent) []*unstructured.Unstructured {
	t.Helper()
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(w.Spoke.REST())
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
	if _, err := client.CoreV1().ServiceAccounts(r.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := w.Harness.Path(r.Name + "-role.yaml")
	if err := os.WriteFile(config, []byte("name: "+r.Name+"\nmode: "+r.Mode+"\nnamespace: "+r.Namespace+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := w.Harness.Agentctl(ctx, w.Spoke, "agent", "role", "--config", config, "--service-account", r.Name)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for part := range strings.SplitSeq(out, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

// TestSeamSeenByDestination deletes the Applications of an agent where all agents have theirs
// in the same namespaces, and takes those of another from it in other ways. The first are
// deletions that were seen, all others are guarded.
func TestSeamSeenByDestination(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	const hub, team, apps = "seen-hub", "seen-team", 30
	for _, namespace := range []string{hub, team} {
		if err := w.Hub.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	principal := w.MappedPrincipal(t, hub, harness.Settings{
		"mapping.by": "destination", "mapping.namespaces": []string{team}, "mapping.selector": "!by-hub",
	})
	registry := w.Hub.Resource(env.Agents, hub)
	where := []dynamic.ResourceInterface{w.Hub.Resource(harness.Applications, hub), w.Hub.Resource(harness.Applications, team)}
	onSpoke := func(agent string) []dynamic.ResourceInterface {
		return []dynamic.ResourceInterface{w.Spoke.Resource(harness.Applications, agent), w.Spoke.Resource(harness.Applications, team)}
	}
	name := func(agent string, i int) string { return fmt.Sprint(agent, "-", i) }
	left := func(agent string) (n int, err error) {
		for _, on := range onSpoke(agent) {
			list, err := on.List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			for _, o := range list.Items {
				if strings.HasPrefix(o.GetName(), agent+"-") {
					n++
				}
			}
		}
		return n, nil
	}
	counts := func(agent string, want int) func() error {
		return func() error {
			n, err := left(agent)
			if err == nil && n != want {
				err = fmt.Errorf("the spoke has %d of %s, want %d", n, agent, want)
			}
			return err
		}
	}
	seen := env.Record(t, registry)
	for _, agent := range []string{"deleted", "relabelled", "moved"} {
		w.MappedAgent(t, hub, agent, principal, harness.Settings{"mapping.namespaces": []string{team}, "mapping.create_namespaces": true})
		r := &env.BareAgent{Env: w, Name: agent, Mode: "managed"}
		for _, at := range where {
			env.CreateAll(t, at, apps, func(i int) *unstructured.Unstructured { return r.Application(name(agent, i)) })
		}
		env.Eventually(t, "the spoke has all of "+agent, counts(agent, 2*apps))
		env.Eventually(t, "the history of "+agent+" has begun", func() error {
			o, err := registry.Get(ctx, agent, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if tokens, _, _ := unstructured.NestedSlice(o.Object, "status", "history", "tokens"); len(tokens) == 0 {
				return fmt.Errorf("status is %v", o.Object["status"])
			}
			return nil
		})
	}
	all := func(agent string, f func(ctx context.Context, at dynamic.ResourceInterface, name string) error) {
		t.Helper()
		for _, at := range where {
			env.Each(t, apps, func(ctx context.Context, i int) error { return f(ctx, at, name(agent, i)) })
		}
	}
	all("deleted", func(ctx context.Context, at dynamic.ResourceInterface, name string) error {
		return at.Delete(ctx, name, metav1.DeleteOptions{})
	})
	all("relabelled", func(ctx context.Context, at dynamic.ResourceInterface, name string) error {
		return env.MergePatch(ctx, at, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"by-hub": ""}}})
	})
	all("moved", func(ctx context.Context, at dynamic.ResourceInterface, name string) error {
		return env.MergePatch(ctx, at, name, map[string]any{"spec": map[string]any{"destination": map[string]any{"name": "elsewhere"}}})
	})
	env.Eventually(t, "what was deleted is gone", counts("deleted", 0))
	for _, agent := range []string{"relabelled", "moved"} {
		env.Eventually(t, "what was "+agent+" is held", func() error {
			o, err := registry.Get(ctx, agent, metav1.GetOptions{})
			if err != nil {
				return err
			}
			held, _, _ := unstructured.NestedMap(o.Object, "status", "deletionsHeld")
			if total, _ := held["total"].(int64); held["reason"] != "TooMany" || total < 2*apps-10 {
				return fmt.Errorf("the Agent shows %v", held)
			}
			return nil
		})
		if n, err := left(agent); err != nil || n < 2*apps-10 {
			t.Errorf("the spoke has %d of %s, %v", n, agent, err)
		}
	}
	seen.CaughtUp(t, registry)
	(&env.BareAgent{Env: w, Name: "deleted"}).NeverHeld(t, seen)
}
