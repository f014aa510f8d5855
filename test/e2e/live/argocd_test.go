//go:build linux

package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// liveArgoEnv is a hub with stock Argo CD, its application controller included, and
// a spoke with Argo CD, whose pods one can work in. The hub's argocd-server has the
// Redis proxy as its Redis.
type liveArgoEnv struct {
	*env.Live
	agent string
	// namespace and project are those of the agent's Applications on the hub.
	namespace, project string
	argo               *env.Argo // the parts that its helpers use
	spoke              *harness.ArgoCD
	session            env.ArgoAPI
	redis, redisCA     string // the Redis proxy, and the file of its authority
}

// How the hub tells whose an Application is.
const (
	byNamespace   = "namespace"
	byDestination = "destination"
)

// startLiveArgo starts one for a test, with the agent managed or autonomous, and either
// mapping.
func startLiveArgo(t *testing.T, agent, mapping string) *liveArgoEnv {
	t.Helper()
	h, ctx := harnesstest.AtOnce(t), t.Context() // it mostly waits
	proxied, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	ca, cert, key, err := h.ServingCertificate("redis-tls") // of an authority that lives long
	if err != nil {
		t.Fatal(err)
	}
	w := &liveArgoEnv{
		Live:  env.NewLive(h),
		agent: agent, namespace: agent, project: env.Project,
		argo: &env.Argo{Harness: h}, redis: proxied, redisCA: ca,
	}
	switch {
	case agent == env.Autonomous: // whose Applications are in its namespace in either case
		w.project = agent + "-default"
	case mapping == byDestination:
		w.namespace = harness.ArgoCDNamespace
	}
	kubelet, err := w.Kubelet(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if w.argo.Repository, err = h.NewRepository(ctx, "repo", harness.GuestbookFiles()); err != nil {
		t.Fatal(err)
	}
	ours, err := filepath.Glob("../../../charts/argomesh-principal/files/crds/*.yaml")
	if err != nil || len(ours) == 0 {
		t.Fatal("our own CRDs are missing", err)
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	var spoke *harness.ControlPlane
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if w.Hub, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{Name: "hub", Etcd: etcd, Manifests: ours}); err != nil {
			return err
		}
		w.argo.HubArgo, err = h.StartArgoCD(gctx, harness.ArgoCDConfig{
			ControlPlane: w.Hub, Server: true, Controller: true, ApplicationNamespaces: []string{"*"},
			ServerRedis: proxied, // where no one is yet
			ServerArgs:  []string{"--redis-use-tls", "--redis-ca-certificate", ca},
		})
		return err
	})
	g.Go(func() (err error) {
		if spoke, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{Name: agent, Etcd: etcd, Workloads: true, Kubelet: kubelet}); err != nil {
			return err
		}
		w.spoke, err = h.StartArgoCD(gctx, harness.ArgoCDConfig{ControlPlane: spoke, Controller: true, DefaultProject: true})
		return err
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	w.Spokes[agent], w.argo.Hub, w.argo.Edge1, w.argo.Edge2 = spoke, w.Hub, spoke, spoke
	w.Redis = map[string]*harness.Redis{agent: w.spoke.Redis}
	identity, err := w.Identify(ctx, env.PrincipalID+",dns=localhost")
	if err != nil {
		t.Fatal(err)
	}
	if w.FrontDoor, err = h.StartFrontDoor(ctx, harness.PrincipalConfig{
		ControlPlane: w.Hub, WorkloadAPI: identity, Redis: w.argo.HubArgo.Redis,
		Settings: harness.Settings{
			"log.level": "debug", "mapping.by": mapping, "envoy.redis": proxied, "envoy.redis_tls": "files", "envoy.redis_certificate": cert, "envoy.redis_key": key,
		},
	}); err != nil {
		t.Fatal(err)
	}
	mode := map[string]string{env.Managed: "managed", env.Autonomous: "autonomous"}[agent]
	if w.Agents[agent], err = w.Register(ctx, agent, mode, spoke, harness.ArgoCDNamespace, env.Everything, env.Everything); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.argo.ApplyProject(ctx), w.argo.HubArgo.Login(ctx)); err != nil {
		t.Fatal(err)
	}
	w.session = w.argo.API(t)
	env.Patch(t, w.Hub.Resource(env.ConfigMaps, harness.ArgoCDNamespace), "argocd-cm", map[string]any{"data": map[string]any{"exec.enabled": "true"}})
	return w
}

// Stock Argo CD on the hub shows and changes what is on a spoke, by its API and its
// command line.
func TestLiveArgoCD(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd")
	w := startLiveArgo(t, env.Managed, byNamespace)
	ctx := t.Context()
	const name, unopened = "shop", "unopened"
	onHub := w.Hub.Resource(harness.Applications, env.Managed)
	env.Create(t, onHub, w.argo.Guestbook(name, env.Managed, env.Managed))
	env.Create(t, onHub, w.argo.Guestbook(unopened, env.Managed, env.Managed))
	env.Eventually(t, "the Application is healthy on the hub", func() error { return env.Healthy(ctx, onHub, name) })
	app := env.Managed + "/" + name
	cli := func(args ...string) string {
		t.Helper()
		out, err := w.argo.HubArgo.CLI(ctx, append([]string{"app"}, args...)...)
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return out
	}
	onSpoke := w.Spokes[env.Managed].Resource(env.Deployments, name)

	// First, since it is about kinds that no one has asked for either.
	t.Run("what nobody has opened while the agent is away", func(t *testing.T) { w.testUnopened(t, unopened) })
	t.Run("get", func(t *testing.T) {
		w.tree(t, name, node{Kind: "Pod"}) // the CLI shows what is there, and does not wait
		out := cli("get", app, "--output", "tree=detailed")
		for _, want := range []string{"Deployment/guestbook", "ReplicaSet/guestbook-", "Pod/guestbook-", "Service/guestbook"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %s in %s", want, out)
			}
		}
	})
	t.Run("resources", func(t *testing.T) {
		if out := cli("resources", app, "--output", "tree"); !strings.Contains(out, "Pod") || !strings.Contains(out, "ReplicaSet") {
			t.Errorf("they are %s", out)
		}
	})
	t.Run("the tree as it changes", func(t *testing.T) { w.testTreeWatch(t, name, nil) })
	t.Run("the tree while the agent does not answer", func(t *testing.T) { w.testFrozenPage(t, name) })
	t.Run("manifests", func(t *testing.T) {
		if out := cli("manifests", app, "--source", "git"); !strings.Contains(out, "kind: Deployment") {
			t.Errorf("of git: %s", out)
		}
		if out := cli("manifests", app, "--source", "live"); !strings.Contains(out, "kind: Deployment") {
			t.Errorf("of the spoke: %s", out)
		}
	})
	t.Run("diff", func(t *testing.T) {
		if out := cli("diff", app, "--exit-code=false"); strings.Contains(out, "=====") {
			t.Errorf("they differ: %s", out)
		}
	})
	t.Run("logs", func(t *testing.T) {
		text := "said " + rand.Text()
		if err := w.Log.Say(text); err != nil {
			t.Fatal(err)
		}
		if out := cli("logs", app, "--kind", "Pod"); !strings.Contains(out, text) {
			t.Errorf("they are %q", out)
		}
		f := w.follow(t, "app", "logs", app, "--kind", "Pod", "--follow")
		f.Until(t, text)
		next := "said later " + rand.Text()
		if err := w.Log.Say(next); err != nil {
			t.Fatal(err)
		}
		f.Until(t, next)
	})
	t.Run("actions", func(t *testing.T) {
		if out := cli("actions", "list", app, "--kind", "Deployment"); !strings.Contains(out, "restart") {
			t.Errorf("they are %s", out)
		}
		cli("actions", "run", app, "restart", "--kind", "Deployment", "--resource-name", "guestbook")
		env.Eventually(t, "the Deployment was restarted", func() error {
			o, err := onSpoke.Get(ctx, "guestbook", metav1.GetOptions{})
			if err == nil && !strings.Contains(fmt.Sprint(o.Object["spec"]), "kubectl.kubernetes.io/restartedAt") {
				err = errors.New("it was not")
			}
			return err
		})
		w.Recorded(t, env.Managed, map[string]any{"verb": "patch", "resource": "deployments", "status": 200, "decision": "allow"})
		w.rolledOut(t, name) // the tests that follow look at what is there
	})
	t.Run("get-resource", func(t *testing.T) {
		if out := cli("get-resource", app, "--kind", "Deployment", "--resource-name", "guestbook", "-o", "yaml"); !strings.Contains(out, "restartedAt") {
			t.Errorf("it is %s", out)
		}
	})
	t.Run("patch-resource", func(t *testing.T) {
		cli("patch-resource", app, "--kind", "ConfigMap", "--resource-name", "guestbook",
			"--patch", `{"metadata":{"annotations":{"by":"a-person"}}}`, "--patch-type", "application/merge-patch+json")
		o := env.Get(t, w.Spokes[env.Managed].Resource(env.ConfigMaps, name), "guestbook")
		if o.GetAnnotations()["by"] != "a-person" {
			t.Errorf("its annotations are %v", o.GetAnnotations())
		}
	})
	t.Run("events", func(t *testing.T) { w.testEvents(t, name) })
	t.Run("terminal", func(t *testing.T) { w.testTerminal(t, name) })
	t.Run("delete-resource", func(t *testing.T) {
		service := w.Spokes[env.Managed].Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}, name)
		before := env.Get(t, service, "guestbook").GetUID()
		cli("delete-resource", app, "--kind", "Service", "--resource-name", "guestbook")
		env.Eventually(t, "the Service was deleted", func() error { // and may be there again, since the Application heals itself
			o, err := service.Get(ctx, "guestbook", metav1.GetOptions{})
			if err == nil && o.GetUID() == before {
				return errors.New("it is the same")
			}
			return nil
		})
		w.Recorded(t, env.Managed, map[string]any{"verb": "delete", "resource": "services", "decision": "allow"})
	})
	t.Run("agentctl connectivity test", w.testConnectivity)
	t.Run("masked Secrets", func(t *testing.T) { w.testMaskedSecret(t, name) })
	t.Run("the hub's controller stays away", func(t *testing.T) {
		found, err := w.Audited(env.Managed, func(r map[string]any) bool {
			return strings.HasPrefix(fmt.Sprint(r["user_agent"]), "argocd-application-controller/")
		})
		if err != nil || len(found) > 0 {
			t.Errorf("it made %d calls, such as %v: %v", len(found), found[:min(1, len(found))], err)
		}
	})
	t.Run("with live access off", func(t *testing.T) {
		if err := w.Agents[env.Managed].Allow(ctx, map[string]any{"enabled": false}); err != nil {
			t.Fatal(err)
		}
		// argocd-server asks for version and kinds before it takes it.
		cli("create", env.Managed+"/made", "--repo", w.argo.Repository.URL, "--path", harness.GuestbookPath, "--revision", harness.Branch,
			"--dest-name", env.Managed, "--dest-namespace", "made", "--project", w.project)
		const says = `live access is disabled; set spec.access.enabled of the Agent`
		if out, err := w.argo.HubArgo.CLI(ctx, "app", "get-resource", app, "--kind", "Deployment", "--resource-name", "guestbook"); err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("get-resource says %s, %v", out, err)
		}
	})
}

// node is a resource of an Application's tree.
type node struct{ Kind, Namespace, Name string }

// tree waits until argocd-server shows the tree of an Application with a resource of
// a kind, with a name unless that is empty, and returns it.
func (w *liveArgoEnv) tree(t *testing.T, name string, with node) []node {
	t.Helper()
	var tree struct{ Nodes []node }
	env.Eventually(t, fmt.Sprintf("the tree of %s has a %s %s", name, with.Kind, with.Name), func() error {
		err := w.session.Call(t.Context(), http.MethodGet, "applications/"+name+"/resource-tree?appNamespace="+w.namespace, nil, &tree)
		if err == nil && !slices.ContainsFunc(tree.Nodes, func(n node) bool { return n.Kind == with.Kind && (with.Name == "" || n.Name == with.Name) }) {
			err = fmt.Errorf("it has %v", tree.Nodes)
		}
		return err
	})
	return tree.Nodes
}

// testEvents shows the events of an object on the spoke.
func (w *liveArgoEnv) testEvents(t *testing.T, name string) []env.Event {
	o := env.Get(t, w.Spokes[w.agent].Resource(env.Deployments, name), "guestbook")
	var list struct{ Items []env.Event }
	if err := w.session.Call(t.Context(), http.MethodGet, w.eventsPath(name, string(o.GetUID())), nil, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 || list.Items[0].Reason != "ScalingReplicaSet" {
		t.Errorf("they are %+v", list)
	}
	return list.Items
}

// eventsPath is that of an Application's Deployment in Argo CD's API.
func (w *liveArgoEnv) eventsPath(name, uid string) string {
	return fmt.Sprintf("applications/%s/events?appNamespace=%s&resourceNamespace=%s&resourceName=guestbook&resourceUID=%s", name, w.namespace, name, uid)
}

// treePath is that of an Application's tree as it changes.
func (w *liveArgoEnv) treePath(name string) string {
	return "stream/applications/" + name + "/resource-tree?appNamespace=" + w.namespace
}

// followTree opens the tree of an Application as the UI does.
func (w *liveArgoEnv) followTree(t *testing.T, name string) *env.Follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.session.Base+w.treePath(name), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.session.Token)
	res, err := http.DefaultClient.Do(req) //nolint:bodyclose // the follower closes it
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	return env.NewFollower(t, "the tree", res.Body, cancel)
}

// addChild makes a ConfigMap on the spoke that is in the tree of the Application: it
// belongs to an object of it.
func (w *liveArgoEnv) addChild(t *testing.T, name, child string) {
	t.Helper()
	owner := env.Get(t, w.Spokes[w.agent].Resource(env.Deployments, name), "guestbook")
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": child, "ownerReferences": []any{map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "name": "guestbook", "uid": string(owner.GetUID()),
		}}},
	}}
	if _, err := w.Spokes[w.agent].Resource(env.ConfigMaps, name).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testTreeWatch follows the tree as the UI does: a change on the spoke shows by
// itself, also after a restart of the agent. It returns the tree after the first change.
// Unless then is nil it goes on with that, which gets what makes something in the tree and
// waits until it is shown.
func (w *liveArgoEnv) testTreeWatch(t *testing.T, name string, then func(shows func(child string))) []node {
	ctx, f := t.Context(), w.followTree(t, name)
	shows := func(child string) string {
		t.Helper()
		w.addChild(t, name, child)
		return f.Until(t, `"name":"`+child+`"`)
	}
	var first struct {
		Result struct{ Nodes []node }
	}
	if err := json.Unmarshal([]byte(shows("first-child")), &first); err != nil {
		t.Error(err)
	}
	if err := w.Agents[w.agent].Restart(ctx); err != nil {
		t.Fatal(err)
	}
	shows("second-child")
	if then != nil {
		then(func(child string) { shows(child) })
	}
	if err := w.Agents[w.agent].Reachable(ctx); err != nil { // for the tests that follow
		t.Fatal(err)
	}
	return first.Result.Nodes
}

// follow runs the argocd command line, whose output goes on.
func (w *liveArgoEnv) follow(t *testing.T, args ...string) *env.Follower {
	t.Helper()
	path, err := w.Harness.Tools().Path("argocd")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, append(args, "--config", w.argo.HubArgo.CLIConfig())...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return env.NewFollower(t, "argocd "+strings.Join(args, " "), out, cancel)
}

// guestbooks returns the pods of an Application's Deployment.
func (w *liveArgoEnv) guestbooks(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := w.Spokes[w.agent].Resource(env.Pods, name).List(ctx, metav1.ListOptions{LabelSelector: "app=guestbook"})
	if err != nil {
		return nil, err
	}
	var typed corev1.PodList
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), &typed)
	return typed.Items, err
}

// rolledOut waits until a Deployment has the pods of its newest template, and no others.
func (w *liveArgoEnv) rolledOut(t *testing.T, name string) {
	t.Helper()
	env.Eventually(t, "the rollout is over", func() error {
		raw, err := w.Spokes[w.agent].Resource(env.Deployments, name).Get(t.Context(), "guestbook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		d := env.Convert[appsv1.Deployment](t, raw)
		items, err := w.guestbooks(t.Context(), name)
		if err != nil {
			return err
		}
		want, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want || int32(len(items)) != want {
			return fmt.Errorf("%d pods, generation %d, status %+v", len(items), d.Generation, s)
		}
		return nil
	})
}

// testTerminal works in a pod as the UI does: over argocd-server's WebSocket.
func (w *liveArgoEnv) testTerminal(t *testing.T, name string) (said string) {
	w.rolledOut(t, name)
	items, err := w.guestbooks(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	pod := items[0].Name
	w.tree(t, name, node{Kind: "Pod", Name: pod}) // argocd-server looks for it there
	said = env.TypeInto(t, w.argo.HubArgo.ServerAddress, w.session.Token, url.Values{
		"pod": {pod}, "container": {"guestbook"}, "appName": {name}, "appNamespace": {w.namespace},
		"projectName": {w.project}, "namespace": {name}, "shell": {"sh"},
	})
	w.Recorded(t, w.agent, map[string]any{"resource": "pods", "subresource": "exec", "stage": "open", "decision": "allow"})
	return said
}
