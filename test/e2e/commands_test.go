//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
)

// Paths in the repository of commander.
const (
	// quickPath is synced at once.
	quickPath = "quick"
	// slowPath has a hook before the sync that ends when a test lets it end.
	slowPath = "slow"
	hookPod  = "hold"
)

var (
	pods            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	applicationSets = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
)

// commander presses the buttons of the hub's argocd-server.
type commander struct {
	*world
	t          *testing.T
	repository *harness.Repository
	token      string
}

func newCommander(t *testing.T, w *world) *commander {
	t.Helper()
	c := &commander{world: w, t: t}
	configMap := func(text string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: " + text + "}\n"
	}
	var err error
	c.repository, err = c.h.NewRepository(t.Context(), "repo-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), map[string]string{
		quickPath + "/configmap.yaml": configMap("one"),
		slowPath + "/configmap.yaml":  configMap("one"),
		slowPath + "/hook.yaml": `apiVersion: v1
kind: Pod
metadata:
  name: ` + hookPod + `
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
	c.do(http.MethodPost, "/api/v1/session", nil, map[string]any{"username": "admin", "password": c.hubArgo.AdminPassword}, &session)
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
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.hubArgo.ServerAddress+path+"?"+query.Encode(), content)
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
	eventually(c.t, "argocd-server shows "+name, func() error {
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
	eventually(c.t, "the service account of pods in "+name, func() error {
		_, err := c.cluster(agent).Resource(serviceAccounts, name).Get(c.t.Context(), "default", metav1.GetOptions{})
		return err
	})
	namespace, destination := agent, agent
	if agent == autonomous {
		namespace, destination = harness.ArgoCDNamespace, ""
	}
	app := c.plain(name, namespace, destination)
	app.Object["spec"].(map[string]any)["source"] = map[string]any{"repoURL": c.repository.URL, "path": path, "targetRevision": harness.Branch}
	return app
}

func (c *commander) owner(agent string) dynamic.ResourceInterface {
	if agent == autonomous {
		return c.onSpoke(agent)
	}
	return c.onHub(agent)
}

// start creates an Application and waits until the hub shows what the spoke's
// controller says of it.
func (c *commander) start(agent string, app *unstructured.Unstructured) {
	c.t.Helper()
	create(c.t, c.owner(agent), app)
	c.remove(agent, app.GetName())
	eventually(c.t, "the hub shows that "+app.GetName()+" is out of sync", func() error {
		return field(c.t.Context(), c.onHub(agent), app.GetName(), "OutOfSync", "status", "sync", "status")
	})
}

// remove takes an Application away at the end of the test, and lets go of its hook.
func (c *commander) remove(agent, name string) {
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), patience)
		defer cancel()
		if err := c.owner(agent).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			c.t.Error(err)
		}
	})
}

func (c *commander) cluster(agent string) *harness.ControlPlane {
	if agent == autonomous {
		return c.edge2
	}
	return c.edge1
}

// letGo ends the hook of an operation as a kubelet would.
func (c *commander) letGo(agent, name string) {
	c.t.Helper()
	_, err := c.cluster(agent).Resource(pods, name).Patch(c.t.Context(), hookPod, types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		c.t.Fatal(err)
	}
}

// state is an Application's operationState on one side; empty when it has none.
func (c *commander) state(where dynamic.ResourceInterface, name string) (phase, message string, app *unstructured.Unstructured) {
	c.t.Helper()
	app = get(c.t, where, name)
	phase, _, _ = unstructured.NestedString(app.Object, "status", "operationState", "phase")
	message, _, _ = unstructured.NestedString(app.Object, "status", "operationState", "message")
	return phase, message, app
}

// holds waits until an operation stands in the hook on the spoke, and the hub shows
// that it runs.
func (c *commander) holds(agent, name string) {
	c.t.Helper()
	eventually(c.t, "the operation of "+name+" holds in its hook", func() error {
		if _, err := c.cluster(agent).Resource(pods, name).Get(c.t.Context(), hookPod, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, where := range []dynamic.ResourceInterface{c.onSpoke(agent), c.onHub(agent)} {
			phase, message, _ := c.state(where, name)
			if phase != "Running" || !strings.Contains(message, hookPod) {
				return fmt.Errorf("it is %s: %s", phase, message)
			}
		}
		return nil
	})
}

// shows waits until the hub shows the end of an operation.
func (c *commander) shows(agent, name, phase, message string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the hub shows %s as %s: %s", name, phase, message), func() error {
		p, m, app := c.state(c.onHub(agent), name)
		if p != phase || !strings.Contains(m, message) || app.Object["operation"] != nil {
			return fmt.Errorf("it shows %s: %s, operation %v", p, m, app.Object["operation"])
		}
		return nil
	})
}

// ran checks how often an Application was synced on its spoke.
func (c *commander) ran(agent, name string, times int) {
	c.t.Helper()
	history, _, _ := unstructured.NestedSlice(get(c.t, c.onSpoke(agent), name).Object, "status", "history")
	if len(history) != times {
		c.t.Errorf("%s was synced %d times, not %d: %v", name, len(history), times, history)
	}
}

// taken are the commands that the spoke remembers.
func (c *commander) taken(agent, name string) []string {
	c.t.Helper()
	var ids []string
	if text := get(c.t, c.onSpoke(agent), name).GetAnnotations()["argomesh.io/commands"]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			c.t.Fatal(err)
		}
	}
	return ids
}

// away stops the agent until the function that it returns is called.
func (c *commander) away(agent string) (back func()) {
	c.t.Helper()
	p := c.agents[agent].Process
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
	for _, agent := range []string{managed, autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, theWorld(t))
			const name = "cmd-options"
			c.start(agent, c.app(agent, name, quickPath))
			c.sync(agent, name, map[string]any{
				"prune": true, "syncOptions": map[string]any{"items": []string{"CreateNamespace=true", "ApplyOutOfSyncOnly=true"}},
				"strategy":      map[string]any{"apply": map[string]any{"force": true}},
				"infos":         []any{map[string]any{"name": "Reason", "value": "a test"}},
				"retryStrategy": map[string]any{"limit": 3, "backoff": map[string]any{"duration": "7s"}},
			})
			c.shows(agent, name, "Succeeded", "")
			for side, where := range map[string]dynamic.ResourceInterface{"hub": c.onHub(agent), "spoke": c.onSpoke(agent)} {
				o, _, _ := unstructured.NestedMap(get(t, where, name).Object, "status", "operationState", "operation")
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
			eventually(t, "the second commit runs", func() error {
				return field(t.Context(), c.cluster(agent).Resource(configMaps, name), "commanded", "two", "data", "text")
			})
			c.shows(agent, name, "Succeeded", "")
			eventually(t, "the hub shows both deployments", func() error {
				history, _, err := unstructured.NestedSlice(get(t, c.onHub(agent), name).Object, "status", "history")
				if err == nil && len(history) != 2 {
					err = fmt.Errorf("it shows %d", len(history))
				}
				return err
			})
			history, _, _ := unstructured.NestedSlice(get(t, c.onHub(agent), name).Object, "status", "history")
			first, _ := history[0].(map[string]any)
			c.do(http.MethodPost, "/api/v1/applications/"+name+"/rollback", nil,
				map[string]any{"name": name, "appNamespace": agent, "id": first["id"]}, nil)
			if agent == autonomous {
				// What its Applications sync is the spoke's to say.
				eventually(t, "the rollback is refused", func() error {
					return errors.Join(
						field(t.Context(), c.onHub(agent), name, "Error", "status", "operationState", "phase"),
						field(t.Context(), c.cluster(agent).Resource(configMaps, name), "commanded", "two", "data", "text"),
					)
				})
				c.ran(agent, name, 2)
				return
			}
			eventually(t, "the first commit runs again", func() error {
				return field(t.Context(), c.cluster(agent).Resource(configMaps, name), "commanded", "one", "data", "text")
			})
			c.shows(agent, name, "Succeeded", "")
			c.ran(agent, name, 3)
			if ids := c.taken(agent, name); len(ids) != 3 {
				t.Errorf("the spoke remembers %v", ids)
			}
		})
	}
}

// TestOverrideOfAnAutonomousSpoke: whoever may write the mirrors on the hub brings no
// manifests and no sources of his own to the spoke, which owns its Applications.
func TestOverrideOfAnAutonomousSpoke(t *testing.T) {
	t.Parallel()
	c := newCommander(t, theWorld(t))
	const name, stolen = "cmd-override", "argomesh-e2e-override"
	c.start(autonomous, c.app(autonomous, name, quickPath))
	spec := get(t, c.onSpoke(autonomous), name).Object["spec"]
	manifest := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
		`"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"default"}]}`, stolen)
	for what, sync := range map[string]map[string]any{
		"manifests": {"manifests": []any{manifest}},
		"sources":   {"prune": true, "source": map[string]any{"repoURL": "https://git.invalid/other.git", "path": "."}},
	} {
		patch(t, c.onHub(autonomous), name, map[string]any{"operation": map[string]any{"sync": sync}})
		eventually(t, "the operation ends, and says that it has "+what+" of its own", func() error {
			o, err := c.onHub(autonomous).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			message, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "message")
			if !strings.Contains(message, "an autonomous agent syncs only what the Application on the spoke says") || !strings.Contains(message, what) {
				return fmt.Errorf("it says %q", message)
			}
			return field(t.Context(), c.onHub(autonomous), name, nil, "operation")
		})
	}
	binding := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	if err := errors.Join(gone(t.Context(), c.cluster(autonomous).Resource(binding, ""), stolen), field(t.Context(), c.onSpoke(autonomous), name, spec, "spec")); err != nil {
		t.Error(err)
	}
	c.ran(autonomous, name, 0)
	c.sync(autonomous, name, nil) // what the Application says runs as ever
	c.shows(autonomous, name, "Succeeded", "")
}

func TestTerminateOnTheHub(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{managed, autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, theWorld(t))
			const name = "cmd-terminated"
			c.start(agent, c.app(agent, name, slowPath))
			c.sync(agent, name, map[string]any{"retryStrategy": map[string]any{"limit": 5}})
			c.holds(agent, name)
			c.terminate(agent, name)
			c.shows(agent, name, "Failed", "terminated")
			if phase, message, app := c.state(c.onSpoke(agent), name); phase != "Failed" || app.Object["operation"] != nil {
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
	c := newCommander(t, theWorld(t))
	const name = "cmd-retried"
	if _, err := c.repository.Commit(t.Context(), "broken", map[string]string{
		"broken/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n",
	}); err != nil {
		t.Fatal(err)
	}
	c.start(managed, c.app(managed, name, "broken"))
	c.sync(managed, name, map[string]any{"retryStrategy": map[string]any{"limit": 1, "backoff": map[string]any{"duration": "20s"}}})
	eventually(t, "the hub shows that it will be tried again", func() error {
		phase, message, app := c.state(c.onHub(managed), name)
		if phase != "Running" || !strings.Contains(message, "Retrying attempt #1") || app.Object["operation"] == nil {
			return fmt.Errorf("it shows %s: %s", phase, message)
		}
		return nil
	})
	c.shows(managed, name, "Failed", "retried 1 times")
	if ids := c.taken(managed, name); len(ids) != 1 {
		t.Errorf("the spoke remembers %v", ids)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{managed, autonomous} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := newCommander(t, theWorld(t))
			const name = "cmd-refreshed"
			c.start(agent, c.app(agent, name, quickPath))
			for _, kind := range []string{"normal", "hard"} {
				reconciled := func(where dynamic.ResourceInterface) string {
					at, _, _ := unstructured.NestedString(get(t, where, name).Object, "status", "reconciledAt")
					return at
				}
				before := reconciled(c.onSpoke(agent))
				// argocd-server answers once the annotation is gone from the hub.
				var shown struct {
					Status struct{ ReconciledAt string }
				}
				eventually(t, "a "+kind+" refresh in a later second", func() error {
					c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {agent}, "refresh": {kind}}, nil, &shown)
					if shown.Status.ReconciledAt <= before {
						return fmt.Errorf("reconciled at %s, not after %s", shown.Status.ReconciledAt, before)
					}
					return nil
				})
				eventually(t, "no request is left", func() error {
					for _, where := range []dynamic.ResourceInterface{c.onHub(agent), c.onSpoke(agent)} {
						for key := range get(t, where, name).GetAnnotations() {
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
	c := newCommander(t, theWorld(t))
	const name = "cmd-hydrated"
	app := c.app(managed, name, quickPath)
	spec := app.Object["spec"].(map[string]any)
	delete(spec, "source")
	spec["sourceHydrator"] = map[string]any{
		"drySource":  map[string]any{"repoURL": c.repository.URL, "path": quickPath, "targetRevision": harness.Branch},
		"syncSource": map[string]any{"targetBranch": "hydrated", "path": quickPath},
	}
	create(t, c.onHub(managed), app)
	c.remove(managed, name)
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
	eventually(t, "the first hydration is tried", func() (err error) {
		if first, err = started(c.onHub(managed)); err != nil {
			return err
		}
		return field(t.Context(), c.onHub(managed), name, "Failed", "status", "sourceHydrator", "currentOperation", "phase")
	})
	eventually(t, "a hydration in a later second is pressed, and no request is left", func() error {
		c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {managed}, "refresh": {"hard"}}, nil, nil)
		at, err := started(c.onHub(managed))
		switch annotations := get(t, c.onHub(managed), name).GetAnnotations(); {
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
	c := newCommander(t, theWorldAlone(t))
	const name = "cmd-away"
	c.start(managed, c.app(managed, name, quickPath))
	back := c.away(managed)
	c.sync(managed, name, nil)
	waits := func() {
		t.Helper()
		eventually(t, "the hub shows that it waits", func() error {
			if phase, message, _ := c.state(c.onHub(managed), name); phase != "Running" || message != "waiting for agent "+managed {
				return fmt.Errorf("it shows %s: %s", phase, message)
			}
			return nil
		})
	}
	waits()
	if err := c.call(http.MethodPost, "/api/v1/applications/"+name+"/sync", nil, map[string]any{"name": name, "appNamespace": managed}, nil); err == nil ||
		!strings.Contains(err.Error(), "another operation is already in progress") {
		t.Errorf("a second sync while the first waits: %v", err)
	}
	c.terminate(managed, name)
	c.shows(managed, name, "Error", "terminated before it was sent")
	c.sync(managed, name, nil)
	waits()
	back()
	c.shows(managed, name, "Succeeded", "")
	c.ran(managed, name, 1)
	if ids := c.taken(managed, name); len(ids) != 1 {
		t.Errorf("the spoke took %v", ids)
	}
}

// TestCommandSurvivesKills kills agent and principal, again and again, while a
// command is on its way, runs, and is terminated.
func TestCommandSurvivesKills(t *testing.T) {
	t.Parallel()
	c, ctx := newCommander(t, theWorldAlone(t)), t.Context()
	kill := func() {
		t.Helper()
		for _, p := range []*harness.Process{c.agents[managed].Process, c.principal.Process} {
			if err := killAndStart(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	const name = "cmd-killed"
	c.start(managed, c.app(managed, name, slowPath))
	c.sync(managed, name, nil)
	kill()
	c.holds(managed, name)
	kill()
	c.letGo(managed, name)
	c.shows(managed, name, "Succeeded", "")
	c.ran(managed, name, 1)
	if ids := c.taken(managed, name); len(ids) != 1 {
		t.Errorf("the spoke took %v", ids)
	}

	c.sync(managed, name, nil)
	c.holds(managed, name)
	back := c.away(managed)
	c.terminate(managed, name)
	if err := killAndStart(ctx, c.principal.Process); err != nil {
		t.Fatal(err)
	}
	if phase, _, app := c.state(c.onHub(managed), name); phase != "Terminating" || app.Object["operation"] == nil {
		t.Errorf("while the spoke is away the hub shows %s, operation %v", phase, app.Object["operation"])
	}
	if phase, _, _ := c.state(c.onSpoke(managed), name); phase != "Running" {
		t.Errorf("on the spoke it is %s", phase)
	}
	back()
	kill()
	c.shows(managed, name, "Failed", "terminated")
	c.ran(managed, name, 1)
}

// TestAutomatedSyncIsShown looks at an operation that the spoke's controller started,
// takes its agent away, and terminates it from the hub.
func TestAutomatedSyncIsShown(t *testing.T) {
	t.Parallel()
	c := newCommander(t, theWorldAlone(t))
	const name = "cmd-automated"
	app := c.app(managed, name, slowPath)
	app.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{
		"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}, "retry": map[string]any{"limit": int64(0)},
	}
	create(t, c.onHub(managed), app)
	c.remove(managed, name)
	c.holds(managed, name)
	shown := func() error {
		operation := get(t, c.onHub(managed), name).Object["operation"]
		if text := fmt.Sprint(operation); !strings.Contains(text, "name:argomesh.io/spoke value:"+managed) || !strings.Contains(text, "automated:true") {
			return fmt.Errorf("the hub shows operation %s", text)
		}
		return nil
	}
	eventually(t, "the hub shows the operation", shown)
	if err := c.call(http.MethodPost, "/api/v1/applications/"+name+"/sync", nil, map[string]any{"name": name, "appNamespace": managed}, nil); err == nil {
		t.Error("argocd-server takes a sync beside it")
	}
	back := c.away(managed)
	eventually(t, "a person can press sync, for the operation has left the hub", func() error {
		phase, _, app := c.state(c.onHub(managed), name)
		if phase != "Running" || app.Object["operation"] != nil {
			return fmt.Errorf("the hub shows %s, operation %v", phase, app.Object["operation"])
		}
		return nil
	})
	back()
	eventually(t, "the hub shows the operation again", shown)
	c.terminate(managed, name)
	c.shows(managed, name, "Failed", "terminated")
	if ids := c.taken(managed, name); len(ids) != 0 {
		t.Errorf("it was sent back: the spoke took %v", ids)
	}
	c.ran(managed, name, 0)
}

// TestRollingSyncWhileAway lets an ApplicationSet press sync anew on each of its
// passes while the agent is away: that is one sync.
func TestRollingSyncWhileAway(t *testing.T) {
	t.Parallel()
	c, ctx := newCommander(t, theWorldAlone(t)), t.Context()
	const name = "cmd-rolling"
	if err := c.hubArgo.StartApplicationSets(ctx); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		t.Helper()
		if err := c.hubArgo.ApplicationSets.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	sets := c.hub.Resource(applicationSets, managed)
	spec := c.app(managed, name, quickPath).Object["spec"]
	create(t, sets, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
		"metadata": map[string]any{"name": name, "namespace": managed},
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
			c.onHub(managed).Delete(ctx, name, metav1.DeleteOptions{}), // no controller runs that would
		); err != nil {
			t.Error(err)
		}
	})
	look := func(why string) {
		t.Helper()
		patch(t, c.onHub(managed), name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"look": why}}})
	}
	rolled := func() error {
		list, _, _ := unstructured.NestedSlice(get(t, sets, name).Object, "status", "applicationStatus")
		if len(list) != 1 || list[0].(map[string]any)["status"] != "Healthy" {
			return fmt.Errorf("its status is %v", list)
		}
		return nil
	}
	through := func(text string) {
		t.Helper()
		eventually(t, "the rollout of "+text+" is through", func() error {
			if err := field(ctx, c.cluster(managed).Resource(configMaps, name), "commanded", text, "data", "text"); err != nil {
				return err
			}
			if err := rolled(); err != nil {
				return err
			}
			return healthy(ctx, c.onHub(managed), name)
		})
	}
	eventually(t, "the first rollout is through", func() error {
		if _, err := c.onHub(managed).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		// RollingSync counts no sync of the second in which it asked for it, and may then
		// wait for some change of the Application before it asks again.
		look("again")
		return rolled()
	})
	through("one")
	stop()
	c.shows(managed, name, "Succeeded", "") // what it asked for last
	before := c.taken(managed, name)

	// The hub knows of a new commit, and the agent goes, before the controller looks.
	if _, err := c.repository.Commit(ctx, "two", map[string]string{
		quickPath + "/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: commanded}\ndata: {text: two}\n",
	}); err != nil {
		t.Fatal(err)
	}
	c.do(http.MethodGet, "/api/v1/applications/"+name, url.Values{"appNamespace": {managed}, "refresh": {"hard"}}, nil, nil)
	eventually(t, "the hub shows that it is out of sync", func() error {
		return field(ctx, c.onHub(managed), name, "OutOfSync", "status", "sync", "status")
	})
	back := c.away(managed)
	watch, err := c.onHub(managed).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := c.hubArgo.ApplicationSets.Start(ctx); err != nil {
		t.Fatal(err)
	}
	// The first pass makes an operation, which gets an id. Each further one is brought
	// about by a label, which the controller removes as it writes the operation anew.
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
	limit := time.After(patience)
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
	eventually(t, "the second is over", func() error {
		list, _, _ := unstructured.NestedSlice(get(t, sets, name).Object, "status", "applicationStatus")
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
	taken := c.taken(managed, name)
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
