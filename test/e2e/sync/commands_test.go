//go:build linux

package sync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Paths in the repository of commander.
const (
	// quickPath is synced at once.
	quickPath = "quick"
)

var (
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	applicationSets = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
)

// commander presses the buttons of the hub's argocd-server.
type commander struct {
	*env.Argo
	t          *testing.T
	repository *harness.Repository
	token      string
}

func newCommander(t *testing.T, w *env.Argo) *commander {
	t.Helper()
	c := &commander{Argo: w, t: t}
	configMap := func(text string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: " + text + "}\n"
	}
	var err error
	c.repository, err = c.Harness.NewRepository(t.Context(), "repo-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), map[string]string{
		quickPath + "/configmap.yaml":    configMap("one"),
		env.SlowPath + "/configmap.yaml": configMap("one"),
		env.SlowPath + "/hook.yaml": `apiVersion: v1
kind: Pod
metadata:
  name: ` + env.HookPod + `
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  restartPolicy: Never
  nodeSelector: {nowhere: "true"} # so nobody runs it
  containers:
  - {name: hold, image: "registry.invalid/hold:1"}
`,
	})
	if err != nil {
		t.Fatal(err)
	}
	var session struct{ Token string }
	c.do(http.MethodPost, "/api/v1/session", nil, map[string]any{"username": "admin", "password": c.HubArgo.AdminPassword}, &session)
	c.token = session.Token
	return c
}

// call asks argocd-server's HTTP API.
func (c *commander) call(method, path string, query url.Values, body, into any) error {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.HubArgo.ServerAddress+path+"?"+query.Encode(), content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("argocd-server: %s %s: %s: %s", method, path, resp.Status, raw)
	case into != nil:
		return json.Unmarshal(raw, into)
	}
	return nil
}

func (c *commander) do(method, path string, query url.Values, body, into any) {
	c.t.Helper()
	if err := c.call(method, path, query, body, into); err != nil {
		c.t.Fatal(err)
	}
}

// sync asks for a sync as a person does who sees the Application: argocd-server has it and
// its project from caches, which lag after an API server was away.
func (c *commander) sync(agent, name string, options map[string]any) {
	c.t.Helper()
	env.Eventually(c.t, "argocd-server shows "+name, func() error {
		return c.call(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {agent}}, nil, nil)
	})
	body := map[string]any{"name": name, "appNamespace": agent}
	for key, value := range options {
		body[key] = value
	}
	c.do(http.MethodPost, "/api/v1/applications/"+name+"/sync", nil, body, nil)
}

func (c *commander) terminate(agent, name string) {
	c.t.Helper()
	c.do(http.MethodDelete, "/api/v1/applications/"+name+"/operation", url.Values{"appNamespace": {agent}}, nil, nil)
}

// app is an Application of the commander's repository, on the side that owns it.
func (c *commander) app(agent, name, path string) *unstructured.Unstructured {
	c.t.Helper()
	// Argo CD does not wait for what pods need in a namespace that it has just made.
	if err := c.cluster(agent).EnsureNamespace(c.t.Context(), name); err != nil {
		c.t.Fatal(err)
	}
	env.Eventually(c.t, "the service account of pods in "+name, func() error {
		_, err := c.cluster(agent).Resource(serviceAccounts, name).Get(c.t.Context(), "default", metav1.GetOptions{})
		return err
	})
	namespace, destination := agent, agent
	if agent == env.Autonomous {
		namespace, destination = harness.ArgoCDNamespace, ""
	}
	app := c.Plain(name, namespace, destination)
	app.Object["spec"].(map[string]any)["source"] = map[string]any{"repoURL": c.repository.URL, "path": path, "targetRevision": harness.Branch}
	return app
}

func (c *commander) owner(agent string) dynamic.ResourceInterface {
	if agent == env.Autonomous {
		return c.OnSpoke(agent)
	}
	return c.OnHub(agent)
}

// start creates an Application and waits until the hub shows what the spoke's
// controller says of it.
func (c *commander) start(agent string, app *unstructured.Unstructured) {
	c.t.Helper()
	env.Create(c.t, c.owner(agent), app)
	c.remove(agent, app.GetName())
	env.Eventually(c.t, "the hub shows that "+app.GetName()+" is out of sync", func() error {
		return env.FieldIs(c.t.Context(), c.OnHub(agent), app.GetName(), "OutOfSync", "status", "sync", "status")
	})
}

// remove takes an Application away at the end of the test, and lets go of its hook.
func (c *commander) remove(agent, name string) {
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), env.Patience)
		defer cancel()
		if err := c.owner(agent).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			c.t.Error(err)
		}
	})
}

func (c *commander) cluster(agent string) *harness.ControlPlane {
	if agent == env.Autonomous {
		return c.Edge2
	}
	return c.Edge1
}

// letGo ends the hook of an operation as a kubelet would.
func (c *commander) letGo(agent, name string) {
	c.t.Helper()
	_, err := c.cluster(agent).Resource(env.Pods, name).Patch(c.t.Context(), env.HookPod, types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		c.t.Fatal(err)
	}
}

// state is an Application's operationState on one side; empty when it has none.
func (c *commander) state(where dynamic.ResourceInterface, name string) (phase, message string, app *unstructured.Unstructured) {
	c.t.Helper()
	app = env.Get(c.t, where, name)
	phase, _, _ = unstructured.NestedString(app.Object, "status", "operationState", "phase")
	message, _, _ = unstructured.NestedString(app.Object, "status", "operationState", "message")
	return phase, message, app
}

// holds waits until an operation stands in the hook on the spoke, and the hub shows
// that it runs.
func (c *commander) holds(agent, name string) {
	c.t.Helper()
	env.Eventually(c.t, "the operation of "+name+" holds in its hook", func() error {
		if _, err := c.cluster(agent).Resource(env.Pods, name).Get(c.t.Context(), env.HookPod, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, where := range []dynamic.ResourceInterface{c.OnSpoke(agent), c.OnHub(agent)} {
			phase, message, _ := c.state(where, name)
			if phase != "Running" || !strings.Contains(message, env.HookPod) {
				return fmt.Errorf("it is %s: %s", phase, message)
			}
		}
		return nil
	})
}

// shows waits until the hub shows the end of an operation.
func (c *commander) shows(agent, name, phase, message string) {
	c.t.Helper()
	env.Eventually(c.t, fmt.Sprintf("the hub shows %s as %s: %s", name, phase, message), func() error {
		p, m, app := c.state(c.OnHub(agent), name)
		if p != phase || !strings.Contains(m, message) || app.Object["operation"] != nil {
			return fmt.Errorf("it shows %s: %s, operation %v", p, m, app.Object["operation"])
		}
		return nil
	})
}

// ran checks how often an Application was synced on its spoke.
func (c *commander) ran(agent, name string, times int) {
	c.t.Helper()
	history, _, _ := unstructured.NestedSlice(env.Get(c.t, c.OnSpoke(agent), name).Object, "status", "history")
	if len(history) != times {
		c.t.Errorf("%s was synced %d times, not %d: %v", name, len(history), times, history)
	}
}

// taken are the commands that the spoke remembers.
func (c *commander) taken(agent, name string) []string {
	c.t.Helper()
	var ids []string
	if text := env.Get(c.t, c.OnSpoke(agent), name).GetAnnotations()["argomesh.io/commands"]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			c.t.Fatal(err)
		}
	}
	return ids
}

// away stops the agent until the function that it returns is called.
func (c *commander) away(agent string) (back func()) {
	c.t.Helper()
	p := c.Agents[agent].Process
	if err := p.Stop(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	back = func() {
		c.t.Helper()
		if err := p.Start(context.WithoutCancel(c.t.Context())); err != nil {
			c.t.Fatal(err)
		}
	}
	c.t.Cleanup(back) // does nothing when it is back
	return back
}

func TestSyncWithOptionsAndRollback(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{env.Managed, env.Autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, env.SharedArgo(t))
			const name = "cmd-options"
			c.start(agent, c.app(agent, name, quickPath))
			c.sync(agent, name, map[string]any{
				"prune": true, "syncOptions": map[string]any{"items": []string{"CreateNamespace=true", "ApplyOutOfSyncOnly=true"}},
				"strategy":      map[string]any{"apply": map[string]any{"force": true}},
				"infos":         []any{map[string]any{"name": "Reason", "value": "a test"}},
				"retryStrategy": map[string]any{"limit": 3, "backoff": map[string]any{"duration": "7s"}},
			})
			c.shows(agent, name, "Succeeded", "")
			for side, where := range map[string]dynamic.ResourceInterface{"hub": c.OnHub(agent), "spoke": c.OnSpoke(agent)} {
				o, _, _ := unstructured.NestedMap(env.Get(t, where, name).Object, "status", "operationState", "operation")
				text := fmt.Sprint(o)
				for _, want := range []string{
					"prune:true", "syncOptions:[CreateNamespace=true ApplyOutOfSyncOnly=true]", "syncStrategy:map[apply:map[force:true]]",
					"map[name:Reason value:a test]", "limit:3", "duration:7s", "initiatedBy:map[username:admin]",
				} {
					if !strings.Contains(text, want) {
						t.Errorf("the operation on the %s has no %q: %s", side, want, text)
					}
				}
			}
			c.ran(agent, name, 1)

			if _, err := c.repository.Commit(t.Context(), "two", map[string]string{
				quickPath + "/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: two}\n",
			}); err != nil {
				t.Fatal(err)
			}
			c.sync(agent, name, nil)
			env.Eventually(t, "the second commit runs", func() error {
				return env.FieldIs(t.Context(), c.cluster(agent).Resource(env.ConfigMaps, name), "commanded", "two", "data", "text")
			})
			c.shows(agent, name, "Succeeded", "")
			env.Eventually(t, "the hub shows both deployments", func() error {
				history, _, err := unstructured.NestedSlice(env.Get(t, c.OnHub(agent), name).Object, "status", "history")
				if err == nil && len(history) != 2 {
					err = fmt.Errorf("it shows %d", len(history))
				}
				return err
			})
			history, _, _ := unstructured.NestedSlice(env.Get(t, c.OnHub(agent), name).Object, "status", "history")
			first, _ := history[0].(map[string]any)
			c.do(http.MethodPost, "/api/v1/applications/"+name+"/rollback", nil,
				map[string]any{"name": name, "appNamespace": agent, "id": first["id"]}, nil)
			if agent == env.Autonomous {
				// What its Applications sync is the spoke's to say.
				env.Eventually(t, "the rollback is refused", func() error {
					return errors.Join(
						env.FieldIs(t.Context(), c.OnHub(agent), name, "Error", "status", "operationState", "phase"),
						env.FieldIs(t.Context(), c.cluster(agent).Resource(env.ConfigMaps, name), "commanded", "two", "data", "text"),
					)
				})
				c.ran(agent, name, 2)
				return
			}
			env.Eventually(t, "the first commit runs again", func() error {
				return env.FieldIs(t.Context(), c.cluster(agent).Resource(env.ConfigMaps, name), "commanded", "one", "data", "text")
			})
			c.shows(agent, name, "Succeeded", "")
			c.ran(agent, name, 3)
			if ids := c.taken(agent, name); len(ids) != 3 {
				t.Errorf("the spoke remembers %v", ids)
			}
		})
	}
}

// TestOverrideOfAnAutonomousSpoke: anyone who may write the mirrors on the hub brings no
// manifests and no sources of his own to the spoke, which owns its Applications.
func TestOverrideOfAnAutonomousSpoke(t *testing.T) {
	t.Parallel()
	c := newCommander(t, env.SharedArgo(t))
	const name, stolen = "cmd-override", "argomesh-e2e-override"
	c.start(env.Autonomous, c.app(env.Autonomous, name, quickPath))
	spec := env.Get(t, c.OnSpoke(env.Autonomous), name).Object["spec"]
	manifest := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
		`"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"default"}]}`, stolen)
	for what, sync := range map[string]map[string]any{
		"manifests": {"manifests": []any{manifest}},
		"sources":   {"prune": true, "source": map[string]any{"repoURL": "https://git.invalid/other.git", "path": "."}},
	} {
		env.Patch(t, c.OnHub(env.Autonomous), name, map[string]any{"operation": map[string]any{"sync": sync}})
		env.Eventually(t, "the operation ends, and says that it has "+what+" of its own", func() error {
			o, err := c.OnHub(env.Autonomous).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			message, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "message")
			if !strings.Contains(message, "an autonomous agent syncs only what the Application on the spoke says") || !strings.Contains(message, what) {
				return fmt.Errorf("it says %q", message)
			}
			return env.FieldIs(t.Context(), c.OnHub(env.Autonomous), name, nil, "operation")
		})
	}
	binding := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	if err := errors.Join(env.Gone(t.Context(), c.cluster(env.Autonomous).Resource(binding, ""), stolen), env.FieldIs(t.Context(), c.OnSpoke(env.Autonomous), name, spec, "spec")); err != nil {
		t.Error(err)
	}
	c.ran(env.Autonomous, name, 0)
	c.sync(env.Autonomous, name, nil) // what the Application says runs as ever
	c.shows(env.Autonomous, name, "Succeeded", "")
}

func TestTerminateOnTheHub(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{env.Managed, env.Autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, env.SharedArgo(t))
			const name = "cmd-terminated"
			c.start(agent, c.app(agent, name, env.SlowPath))
			c.sync(agent, name, map[string]any{"retryStrategy": map[string]any{"limit": 5}})
			c.holds(agent, name)
			c.terminate(agent, name)
			c.shows(agent, name, "Failed", "terminated")
			if phase, message, app := c.state(c.OnSpoke(agent), name); phase != "Failed" || app.Object["operation"] != nil {
				t.Errorf("the spoke shows %s: %s", phase, message)
			}
			c.ran(agent, name, 0)

			// The next one is not touched by it.
			c.sync(agent, name, nil)
			c.holds(agent, name)
			c.letGo(agent, name)
			c.shows(agent, name, "Succeeded", "")
			c.ran(agent, name, 1)
		})
	}
}

func TestRetriesAreShown(t *testing.T) {
	t.Parallel()
	c := newCommander(t, env.SharedArgo(t))
	const name = "cmd-retried"
	if _, err := c.repository.Commit(t.Context(), "broken", map[string]string{
		"broken/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n",
	}); err != nil {
		t.Fatal(err)
	}
	c.start(env.Managed, c.app(env.Managed, name, "broken"))
	c.sync(env.Managed, name, map[string]any{"retryStrategy": map[string]any{"limit": 1, "backoff": map[string]any{"duration": "20s"}}})
	env.Eventually(t, "the hub shows that it will be tried again", func() error {
		phase, message, app := c.state(c.OnHub(env.Managed), name)
		if phase != "Running" || !strings.Contains(message, "Retrying attempt #1") || app.Object["operation"] == nil {
			return fmt.Errorf("it shows %s: %s", phase, message)
		}
		return nil
	})
	c.shows(env.Managed, name, "Failed", "retried 1 times")
	if ids := c.taken(env.Managed, name); len(ids) != 1 {
		t.Errorf("the spoke remembers %v", ids)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{env.Managed, env.Autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, env.SharedArgo(t))
			const name = "cmd-refreshed"
			c.start(agent, c.app(agent, name, quickPath))
			for _, kind := range []string{"normal", "hard"} {
				reconciled := func(where dynamic.ResourceInterface) string {
					at, _, _ := unstructured.NestedString(env.Get(t, where, name).Object, "status", "reconciledAt")
					return at
				}
				before := reconciled(c.OnSpoke(agent))
				// argocd-server answers once the annotation is gone from the hub.
				var shown struct {
					Status struct{ ReconciledAt string }
				}
				env.Eventually(t, "a "+kind+" refresh in a later second", func() error {
					c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {agent}, "refresh": {kind}}, nil, &shown)
					if shown.Status.ReconciledAt <= before {
						return fmt.Errorf("reconciled at %s, not after %s", shown.Status.ReconciledAt, before)
					}
					return nil
				})
				env.Eventually(t, "no request is left", func() error {
					for _, where := range []dynamic.ResourceInterface{c.OnHub(agent), c.OnSpoke(agent)} {
						for key := range env.Get(t, where, name).GetAnnotations() {
							if key == "argocd.argoproj.io/refresh" || key == "argocd.argoproj.io/hydrate" {
								return fmt.Errorf("%s is there", key)
							}
						}
					}
					return nil
				})
			}
		})
	}
}

// TestHydrate presses refresh for an Application with a dry source. Argo CD's
// hydrator takes the request up; without a commit server it gets no further.
func TestHydrate(t *testing.T) {
	t.Parallel()
	c := newCommander(t, env.SharedArgo(t))
	const name = "cmd-hydrated"
	app := c.app(env.Managed, name, quickPath)
	spec := app.Object["spec"].(map[string]any)
	delete(spec, "source")
	spec["sourceHydrator"] = map[string]any{
		"drySource":  map[string]any{"repoURL": c.repository.URL, "path": quickPath, "targetRevision": harness.Branch},
		"syncSource": map[string]any{"targetBranch": "hydrated", "path": quickPath},
	}
	env.Create(t, c.OnHub(env.Managed), app)
	c.remove(env.Managed, name)
	started := func(where dynamic.ResourceInterface) (string, error) {
		o, err := where.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		at, _, _ := unstructured.NestedString(o.Object, "status", "sourceHydrator", "currentOperation", "startedAt")
		if at == "" {
			err = errors.New("nothing was hydrated")
		}
		return at, err
	}
	var first string
	env.Eventually(t, "the first hydration is tried", func() (err error) {
		if first, err = started(c.OnHub(env.Managed)); err != nil {
			return err
		}
		return env.FieldIs(t.Context(), c.OnHub(env.Managed), name, "Failed", "status", "sourceHydrator", "currentOperation", "phase")
	})
	env.Eventually(t, "a hydration in a later second is pressed, and no request is left", func() error {
		c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {env.Managed}, "refresh": {"hard"}}, nil, nil)
		at, err := started(c.OnHub(env.Managed))
		switch annotations := env.Get(t, c.OnHub(env.Managed), name).GetAnnotations(); {
		case err != nil:
			return err
		case at <= first:
			return fmt.Errorf("the last was at %s", at)
		case annotations["argocd.argoproj.io/hydrate"] != "" || annotations["argocd.argoproj.io/refresh"] != "":
			return fmt.Errorf("a request is left: %v", annotations)
		}
		return nil
	})
}

// TestSyncPressedWhileAway presses sync twice while the agent is away: the first is
// terminated while it still is, the second runs once it is back.
func TestSyncPressedWhileAway(t *testing.T) {
	t.Parallel()
	c := newCommander(t, env.OwnArgo(t))
	const name = "cmd-away"
	c.start(env.Managed, c.app(env.Managed, name, quickPath))
	back := c.away(env.Managed)
	c.sync(env.Managed, name, nil)
	waits := func() {
		t.Helper()
		env.Eventually(t, "the hub shows that it waits", func() error {
			if phase, message, _ := c.state(c.OnHub(env.Managed), name); phase != "Running" || message != "waiting for agent "+env.Managed {
				return fmt.Errorf("it shows %s: %s", phase, message)
			}
			return nil
		})
	}
	waits()
	if err := c.call(http.MethodPost, "/api/v1/applications/"+name+"/sync", nil, map[string]any{"name": name, "appNamespace": env.Managed}, nil); err == nil ||
		!strings.Contains(err.Error(), "another operation is already in progress") {
		t.Errorf("a second sync while the first waits: %v", err)
	}
	c.terminate(env.Managed, name)
	c.shows(env.Managed, name, "Error", "terminated before it was sent")
	c.sync(env.Managed, name, nil)
	waits()
	back()
	c.shows(env.Managed, name, "Succeeded", "")
	c.ran(env.Managed, name, 1)
	if ids := c.taken(env.Managed, name); len(ids) != 1 {
		t.Errorf("the spoke took %v", ids)
	}
}

// TestCommandSurvivesKills kills agent and principal, again and again, while a
// command is on its way, runs, and is terminated.
func TestCommandSurvivesKills(t *testing.T) {
	t.Parallel()
	c, ctx := newCommander(t, env.OwnArgo(t)), t.Context()
	kill := func() {
		t.Helper()
		for _, p := range []*harness.Process{c.Agents[env.Managed].Process, c.Principal.Process} {
			if err := env.KillAndStart(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	const name = "cmd-killed"
	c.start(env.Managed, c.app(env.Managed, name, env.SlowPath))
	c.sync(env.Managed, name, nil)
	kill()
	c.holds(env.Managed, name)
	kill()
	c.letGo(env.Managed, name)
	c.shows(env.Managed, name, "Succeeded", "")
	c.ran(env.Managed, name, 1)
	if ids := c.taken(env.Managed, name); len(ids) != 1 {
		t.Errorf("the spoke took %v", ids)
	}

	c.sync(env.Managed, name, nil)
	c.holds(env.Managed, name)
	back := c.away(env.Managed)
	c.terminate(env.Managed, name)
	if err := env.KillAndStart(ctx, c.Principal.Process); err != nil {
		t.Fatal(err)
	}
	if phase, _, app := c.state(c.OnHub(env.Managed), name); phase != "Terminating" || app.Object["operation"] == nil {
		t.Errorf("while the spoke is away the hub shows %s, operation %v", phase, app.Object["operation"])
	}
	if phase, _, _ := c.state(c.OnSpoke(env.Managed), name); phase != "Running" {
		t.Errorf("on the spoke it is %s", phase)
	}
	back()
	kill()
	c.shows(env.Managed, name, "Failed", "terminated")
	c.ran(env.Managed, name, 1)
}

// TestAutomatedSyncIsShown looks at an operation that the spoke's controller started,
// takes its agent away, and terminates it from the hub.
func TestAutomatedSyncIsShown(t *testing.T) {
	t.Parallel()
	c := newCommander(t, env.OwnArgo(t))
	const name = "cmd-automated"
	app := c.app(env.Managed, name, env.SlowPath)
	app.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{
		"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}, "retry": map[string]any{"limit": int64(0)},
	}
	env.Create(t, c.OnHub(env.Managed), app)
	c.remove(env.Managed, name)
	c.holds(env.Managed, name)
	shown := func() error {
		operation := env.Get(t, c.OnHub(env.Managed), name).Object["operation"]
		if text := fmt.Sprint(operation); !strings.Contains(text, "name:argomesh.io/spoke value:"+env.Managed) || !strings.Contains(text, "automated:true") {
			return fmt.Errorf("the hub shows operation %s", text)
		}
		return nil
	}
	env.Eventually(t, "the hub shows the operation", shown)
	if err := c.call(http.MethodPost, "/api/v1/applications/"+name+"/sync", nil, map[string]any{"name": name, "appNamespace": env.Managed}, nil); err == nil {
		t.Error("argocd-server takes a sync beside it")
	}
	back := c.away(env.Managed)
	env.Eventually(t, "a person can press sync, for the operation has left the hub", func() error {
		phase, _, app := c.state(c.OnHub(env.Managed), name)
		if phase != "Running" || app.Object["operation"] != nil {
			return fmt.Errorf("the hub shows %s, operation %v", phase, app.Object["operation"])
		}
		return nil
	})
	back()
	env.Eventually(t, "the hub shows the operation again", shown)
	c.terminate(env.Managed, name)
	c.shows(env.Managed, name, "Failed", "terminated")
	if ids := c.taken(env.Managed, name); len(ids) != 0 {
		t.Errorf("it was sent back: the spoke took %v", ids)
	}
	c.ran(env.Managed, name, 0)
}

// TestRollingSyncWhileAway lets an ApplicationSet press sync again on each of its
// passes while the agent is away: that is one sync.
func TestRollingSyncWhileAway(t *testing.T) {
	t.Parallel()
	c, ctx := newCommander(t, env.OwnArgo(t)), t.Context()
	const name = "cmd-rolling"
	if err := c.HubArgo.StartApplicationSets(ctx); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		t.Helper()
		if err := c.HubArgo.ApplicationSets.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	sets := c.Hub.Resource(applicationSets, env.Managed)
	spec := c.app(env.Managed, name, quickPath).Object["spec"]
	env.Create(t, sets, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
		"metadata": map[string]any{"name": name, "namespace": env.Managed},
		"spec": map[string]any{
			"generators": []any{map[string]any{"list": map[string]any{"elements": []any{map[string]any{"name": name}}}}},
			"strategy": map[string]any{"type": "RollingSync", "rollingSync": map[string]any{"steps": []any{
				map[string]any{"matchExpressions": []any{map[string]any{"key": "step", "operator": "In", "values": []any{"one"}}}},
			}}},
			"template": map[string]any{
				"metadata": map[string]any{"name": "{{name}}", "labels": map[string]any{"step": "one"}},
				"spec":     spec,
			},
		},
	}})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(
			sets.Delete(ctx, name, metav1.DeleteOptions{}),
			c.OnHub(env.Managed).Delete(ctx, name, metav1.DeleteOptions{}), // no controller runs that would
		); err != nil {
			t.Error(err)
		}
	})
	look := func(why string) {
		t.Helper()
		env.Patch(t, c.OnHub(env.Managed), name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"look": why}}})
	}
	rolled := func() error {
		list, _, _ := unstructured.NestedSlice(env.Get(t, sets, name).Object, "status", "applicationStatus")
		if len(list) != 1 || list[0].(map[string]any)["status"] != "Healthy" {
			return fmt.Errorf("its status is %v", list)
		}
		return nil
	}
	through := func(text string) {
		t.Helper()
		env.Eventually(t, "the rollout of "+text+" is through", func() error {
			if err := env.FieldIs(ctx, c.cluster(env.Managed).Resource(env.ConfigMaps, name), "commanded", text, "data", "text"); err != nil {
				return err
			}
			if err := rolled(); err != nil {
				return err
			}
			return env.Healthy(ctx, c.OnHub(env.Managed), name)
		})
	}
	env.Eventually(t, "the first rollout is through", func() error {
		if _, err := c.OnHub(env.Managed).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		// RollingSync counts no sync of the second in which it asked for it, and may then
		// wait for some change of the Application before it asks again.
		look("again")
		return rolled()
	})
	through("one")
	stop()
	c.shows(env.Managed, name, "Succeeded", "") // what it asked for last
	before := c.taken(env.Managed, name)

	// The hub knows of a new commit, and the agent goes, before the controller looks.
	if _, err := c.repository.Commit(ctx, "two", map[string]string{
		quickPath + "/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: two}\n",
	}); err != nil {
		t.Fatal(err)
	}
	c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {env.Managed}, "refresh": {"hard"}}, nil, nil)
	env.Eventually(t, "the hub shows that it is out of sync", func() error {
		return env.FieldIs(ctx, c.OnHub(env.Managed), name, "OutOfSync", "status", "sync", "status")
	})
	back := c.away(env.Managed)
	watch, err := c.OnHub(env.Managed).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := c.HubArgo.ApplicationSets.Start(ctx); err != nil {
		t.Fatal(err)
	}
	// The first pass makes an operation, which gets an id. Each further one is brought
	// about by a label, which the controller removes as it writes the operation again.
	// Argo CD 3.5 puts what it wrote into its cache, also over what is newer, and does
	// not see a label then that was set at once; the next one it does.
	var ids []string
	passes, labels, labelled := 0, 0, true
	label := func() {
		labels++
		look(fmt.Sprint("pass-", labels))
	}
	unseen := time.NewTicker(10 * time.Second)
	defer unseen.Stop()
	limit := time.After(env.Patience)
	for passes < 3 {
		select {
		case <-unseen.C:
			label()
		case e := <-watch.ResultChan():
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("the watch ends: %v", e.Object)
			}
			_, found, _ := unstructured.NestedMap(o.Object, "operation")
			command, _, _ := unstructured.NestedMap(o.Object, "status", "operationState", "operation")
			switch id := commandOf(command); {
			case o.GetLabels()["look"] != "":
				labelled = true
			case labelled && found && id != "" && !slices.Contains(before, id):
				if passes, labelled = passes+1, false; !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
				label()
			}
		case <-limit:
			t.Fatalf("%d passes, commands %v", passes, ids)
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d passes made the commands %v", passes, ids)
	}
	// RollingSync does not count a sync of the second in which it asked for it.
	env.Eventually(t, "the second is over", func() error {
		list, _, _ := unstructured.NestedSlice(env.Get(t, sets, name).Object, "status", "applicationStatus")
		asked, err := time.Parse(time.RFC3339, fmt.Sprint(list[0].(map[string]any)["lastTransitionTime"]))
		if err == nil && time.Since(asked) < time.Second {
			err = fmt.Errorf("it asked at %s", asked)
		}
		return err
	})
	back()
	through("two")
	// Argo CD 3.5 itself asks once more in the pass that notes that the sync ran, since
	// that pass decides by the status from before it.
	taken := c.taken(env.Managed, name)
	if n := len(before); len(taken) <= n || len(taken) > n+2 || !slices.Equal(taken[:n+1], append(before, ids...)) {
		t.Errorf("after %d passes the spoke took %v, before that %v, and the hub showed %v", passes, taken, before, ids)
	}
}

// commandOf is the id of a command; empty when an operation has none.
func commandOf(operation map[string]any) string {
	list, _, _ := unstructured.NestedSlice(operation, "info")
	for _, item := range list {
		if m, _ := item.(map[string]any); m["name"] == "argomesh.io/command" {
			return fmt.Sprint(m["value"])
		}
	}
	return ""
}
