//go:build linux

package agents

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	agentsProxyURL = "https://argomesh-resource-proxy:9090"
	labelType      = "argocd.argoproj.io/secret-type"
	labelAgent     = "argocd-agent.argoproj-labs.io/agent-name"
)

// TestAgents holds the Agent resource, its controller and agentctl against a
// control plane of their own, since it takes the definition and the API server
// away.
func TestAgents(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.AtOnce(t) // two minutes, one thing after the other
	hub, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
		Name: "agents",
		// Else a stopping API server waits a minute for the watches to end.
		ServerArgs: []string{"--shutdown-watch-termination-grace-period=1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := startRegistration(t, hub)
	ctl := agentctl{t: t, harness: h, hub: hub}

	t.Run("agentctl names what is missing", ctl.testBeforeInstallation)
	if err := hub.EnsureNamespace(t.Context(), harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	if r.controller.Synced() {
		t.Error("the controller says it has read Agents that cannot exist yet")
	}
	definition := filepath.Join(harnesstest.Tools(t).Checkout(), "charts", "argomesh-principal", "files", "crds", "argomesh.io_agents.yaml")
	if err := hub.ApplyFiles(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	env.Eventually(r.t, "the controller to find the definition", func() error {
		if !r.controller.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	if t.Failed() {
		return
	}
	t.Run("agentctl", ctl.test)
	t.Run("cluster secret", r.testSecret)
	t.Run("secret conflict", r.testSecretConflict)
	t.Run("spiffe id conflict", r.testIDConflict)
	t.Run("connection", r.testConnection)
	t.Run("history", r.testHistory)
	t.Run("deletions held", r.testHeld)
	t.Run("deletion", r.testDeletion)
	t.Run("orphaning deletion", r.testOrphan)
	t.Run("cascading deletion", r.testCascade)
	t.Run("forced deletion", r.testForce)
	t.Run("agentctl agent delete", func(t *testing.T) { testAgentctlDelete(t, r, ctl) })
	t.Run("agentctl agent accept-deletions", func(t *testing.T) { testAgentctlAccept(t, r, ctl) })
	t.Run("two controllers", r.testTwoControllers)
	t.Run("api server away", r.testOutage)
}

// registration is a running controller and what it works on.
type registration struct {
	t          *testing.T
	hub        *harness.ControlPlane
	agents     dynamic.ResourceInterface
	secrets    dynamic.ResourceInterface
	sessions   *sessionTable
	departures *departureTable
	controller *controller.Controller
	metrics    *prometheus.Registry
	log        *kit.Log
}

func startRegistration(t *testing.T, hub *harness.ControlPlane) *registration {
	t.Helper()
	client, err := dynamic.NewForConfig(hub.REST())
	if err != nil {
		t.Fatal(err)
	}
	r := &registration{
		t: t, hub: hub,
		agents:   hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace),
		secrets:  hub.Resource(corev1.SchemeGroupVersion.WithResource("secrets"), harness.ArgoCDNamespace),
		sessions: newSessionTable(), departures: newDepartureTable(),
		metrics: prometheus.NewRegistry(),
		log:     kit.NewLog(),
	}
	r.controller, err = controller.New(controller.Config{
		Client: client, Namespace: harness.ArgoCDNamespace, ProxyURL: agentsProxyURL,
		Sessions: r.sessions, Teardown: r.departures.depart, Metrics: r.metrics, Log: r.log.Logger().With().Timestamp().Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.log.Show(t)
	t.Cleanup(func() {
		if r.controller.Synced() {
			t.Error("the controller says it is synced after it stopped")
		}
	})
	kit.Background(t, r.controller.Run)
	return r
}

// in returns r for a subtest.
func (r *registration) in(t *testing.T) *registration {
	t.Helper()
	return &registration{
		t: t, hub: r.hub, agents: r.agents, secrets: r.secrets, sessions: r.sessions, departures: r.departures,
		controller: r.controller, metrics: r.metrics, log: r.log,
	}
}

func (r *registration) testSecret(t *testing.T) {
	r = r.in(t)
	r.create("edge-1", func(a *v1alpha1.Agent) {
		a.Spec.Labels = map[string]v1alpha1.LabelValue{"env": "prod", "old": "1"}
	})
	r.condition("edge-1", v1alpha1.ConditionClusterSecretReady, metav1.ConditionTrue, "")
	r.inForce("edge-1")

	got := r.secret("cluster-edge-1")
	labels := map[string]string{labelType: "cluster", labelAgent: "edge-1", "env": "prod", "old": "1"}
	annotations := map[string]string{env.SkipReconcile: "true", "managed-by": "argomesh"}
	data := map[string]string{
		"name": "edge-1", "server": agentsProxyURL + "/agents/edge-1", "config": `{"tlsClientConfig":{"insecure":false}}`,
	}
	if diff := cmp.Diff(labels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(annotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(data, texts(got.Data)); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if len(got.OwnerReferences) > 0 {
		t.Errorf("the Secret has owners %v: garbage collection could delete it before its Applications", got.OwnerReferences)
	}

	// What others do to it: their own fields stay, ours come back.
	r.patchSecret("cluster-edge-1", `{"metadata":{
		"labels":{"team":"blue","env":null,"`+labelAgent+`":"other"},
		"annotations":{"`+env.SkipReconcile+`":null,"managed-by":null}},
		"data":{"shard":"MQ==","server":"aHR0cHM6Ly9lbHNld2hlcmU="}}`)
	labels["team"], data["shard"] = "blue", "1"
	env.Eventually(r.t, "our fields to come back", func() error {
		got := r.secret("cluster-edge-1")
		return errors.Join(differ(labels, got.Labels), differ(annotations, got.Annotations), differ(data, texts(got.Data)))
	})

	// A label that leaves the spec leaves the Secret; that of others stays.
	r.patchAgent("edge-1", `{"spec":{"labels":{"old":null,"tier":"gold"}}}`)
	delete(labels, "old")
	labels["tier"] = "gold"
	env.Eventually(r.t, "the labels of the spec", func() error { return differ(labels, r.secret("cluster-edge-1").Labels) })

	// A Secret that loses the label by which we watch, or is deleted, is made again.
	r.patchSecret("cluster-edge-1", `{"metadata":{"labels":{"`+labelType+`":null}}}`)
	env.Eventually(r.t, "the label of cluster Secrets", func() error { return differ(labels, r.secret("cluster-edge-1").Labels) })
	uid := r.secret("cluster-edge-1").UID
	if err := r.secrets.Delete(t.Context(), "cluster-edge-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(labels, "team")
	env.Eventually(r.t, "a new Secret", func() error {
		s, err := r.getSecret("cluster-edge-1")
		if err != nil {
			return err
		}
		if s.UID == uid {
			return errors.New("it is the old one")
		}
		return differ(labels, s.Labels)
	})
}

func (r *registration) testSecretConflict(t *testing.T) {
	r = r.in(t)
	// One of our name that someone else made, one beside ours with the same server.
	r.createSecret("cluster-taken", nil, map[string]string{"name": "x", "server": "https://x"})
	r.create("taken", nil)
	r.condition("taken", v1alpha1.ConditionClusterSecretConflict, metav1.ConditionTrue, "Secret cluster-taken exists and was not made by Argomesh")
	r.condition("taken", v1alpha1.ConditionClusterSecretReady, metav1.ConditionFalse, "cluster-taken")
	r.condition("taken", v1alpha1.ConditionReady, metav1.ConditionFalse, "cluster-taken")
	before := r.secret("cluster-taken")
	r.patchAgent("taken", `{"spec":{"labels":{"env":"prod"}}}`)
	r.observed("taken")
	if after := r.secret("cluster-taken"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret of somebody else was written:\n%s", cmp.Diff(before, after))
	}

	r.createSecret("beside", map[string]string{labelType: "cluster"}, map[string]string{"name": "y", "server": agentsProxyURL + "/agents/second/"})
	r.create("second", nil)
	r.condition("second", v1alpha1.ConditionClusterSecretConflict, metav1.ConditionTrue, "Secret beside has the server "+agentsProxyURL+"/agents/second of this agent")
	if _, err := r.getSecret("cluster-second"); !apierrors.IsNotFound(err) {
		t.Errorf("get cluster-second: %v; want not found, since Argo CD refuses a cluster with two Secrets", err)
	}
	r.deleteSecret("beside")
	r.condition("second", v1alpha1.ConditionClusterSecretConflict, metav1.ConditionFalse, "")
	r.inForce("second")

	// One that comes after ours is shown, and ours stays.
	ours := r.secret("cluster-second")
	r.createSecret("late", map[string]string{labelType: "cluster", labelAgent: "second"}, map[string]string{"name": "second", "server": "https://z"})
	r.condition("second", v1alpha1.ConditionClusterSecretConflict, metav1.ConditionTrue, "Secret late has the label")
	r.condition("second", v1alpha1.ConditionClusterSecretReady, metav1.ConditionTrue, "")
	if now := r.secret("cluster-second"); now.ResourceVersion != ours.ResourceVersion {
		t.Errorf("our Secret was written:\n%s", cmp.Diff(ours, now))
	}
	r.deleteSecret("late")
	r.inForce("second")

	// Deleting the Agent leaves the Secret of someone else.
	r.delete("taken")
	r.gone("taken")
	if after := r.secret("cluster-taken"); after.UID != before.UID {
		t.Error("the Secret of somebody else was deleted")
	}
}

func (r *registration) testIDConflict(t *testing.T) {
	r = r.in(t)
	const shared = "spiffe://example.org/shared"
	share := func(a *v1alpha1.Agent) { a.Spec.Identity.SPIFFEIDs = append(a.Spec.Identity.SPIFFEIDs, shared) }
	r.create("z-older", share)
	r.inForce("z-older")
	older := r.agent("z-older")
	// Creation times have whole seconds, and the older one by name would be the
	// other.
	env.Eventually(r.t, "the next second", func() error {
		if !time.Now().After(older.CreationTimestamp.Add(time.Second)) {
			return errors.New("not yet")
		}
		return nil
	})
	r.create("a-newer", share)
	r.condition("a-newer", v1alpha1.ConditionConflict, metav1.ConditionTrue, "SPIFFE ID "+shared+" belongs to the older Agent z-older")
	r.condition("a-newer", v1alpha1.ConditionReady, metav1.ConditionFalse, shared)
	r.condition("a-newer", v1alpha1.ConditionClusterSecretReady, metav1.ConditionTrue, "")
	r.condition("z-older", v1alpha1.ConditionConflict, metav1.ConditionFalse, "")

	r.patchAgent("z-older", `{"spec":{"identity":{"spiffeIDs":["spiffe://example.org/z-older"]}}}`)
	r.condition("a-newer", v1alpha1.ConditionConflict, metav1.ConditionFalse, "")
	r.inForce("a-newer")
}

func (r *registration) testConnection(t *testing.T) {
	r = r.in(t)
	r.create("live", nil)
	r.inForce("live")
	r.condition("live", v1alpha1.ConditionConnected, metav1.ConditionFalse, "")
	secret := r.secret("cluster-live")

	start := time.Now().Truncate(time.Second)
	session := controller.Session{
		Connected: true, Replica: "principal-0", Since: start, ObservedAt: start,
		AgentVersion: "v0.1.0", KubernetesVersion: "v1.36.3", SVIDExpiry: start.Add(time.Hour),
		Counts: v1alpha1.AgentCounts{Applications: 3, AppProjects: 1},
		Parked: []v1alpha1.ParkedObject{{
			Kind: "Application", Namespace: "live", Name: "guestbook", Reason: "Invalid",
			Message: "spec.project is missing", Since: metav1.NewTime(start),
		}},
	}
	r.sessions.set(t, "live", session)
	r.condition("live", v1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	at := metav1.NewTime(start)
	want := v1alpha1.AgentStatus{
		ObservedGeneration: 1, Summary: "Connected", Connected: true, Replica: "principal-0", Since: &at, ObservedAt: &at,
		Versions:   v1alpha1.AgentVersions{Agent: "v0.1.0", Kubernetes: "v1.36.3"},
		SVIDExpiry: new(metav1.NewTime(start.Add(time.Hour))),
		Counts:     v1alpha1.AgentCounts{Applications: 3, AppProjects: 1, Parked: 1},
		Parked:     session.Parked,
	}
	got := r.agent("live").Status
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	// An agent that flaps for three seconds costs a write a second, the last state
	// arrives, and the Secret is left alone.
	before := r.statusWrites()
	flaps := 0
	for began := time.Now(); time.Since(began) < 3*time.Second; flaps++ {
		session.Connected, session.Since = flaps%2 == 1, time.Now()
		r.sessions.set(t, "live", session)
	}
	session.Connected, session.Counts.Applications, session.Parked = true, 4, nil
	r.sessions.set(t, "live", session)
	env.Eventually(r.t, "the last state", func() error {
		s := r.agent("live").Status
		if !s.Connected || s.Counts.Applications != 4 || s.Parked != nil {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
	if writes := r.statusWrites() - before; writes > 8 || flaps < 100 {
		t.Errorf("%d flaps cost %v writes of the status, want at most 8", flaps, writes)
	}
	if now := r.secret("cluster-live"); now.ResourceVersion != secret.ResourceVersion {
		t.Errorf("the Secret was written for a connection:\n%s", cmp.Diff(secret, now))
	}

	// A principal that starts again knows nothing of the session.
	r.sessions.remove(t, "live")
	r.condition("live", v1alpha1.ConditionConnected, metav1.ConditionFalse, "")
	s := r.agent("live").Status
	if s.Connected || s.Replica != "" || s.Counts.Applications != 4 || s.Versions != want.Versions || !s.ObservedAt.Equal(&at) {
		t.Errorf("status without a session is %+v, want what was last known of the spoke", s)
	}
	r.inForce("live")
}

func (r *registration) testDeletion(t *testing.T) {
	r = r.in(t)
	r.create("leaving", nil)
	r.inForce("leaving")
	now := time.Now()
	r.sessions.set(t, "leaving", controller.Session{Connected: true, Replica: "principal-0", Since: now, ObservedAt: now})
	r.condition("leaving", v1alpha1.ConditionConnected, metav1.ConditionTrue, "")

	r.delete("leaving")
	r.condition("leaving", v1alpha1.ConditionReady, metav1.ConditionFalse, "waits for its streams to end")
	if _, err := r.getSecret("cluster-leaving"); err != nil {
		t.Errorf("the Secret went before the streams: %v", err)
	}
	r.sessions.remove(t, "leaving")
	r.gone("leaving")
	if _, err := r.getSecret("cluster-leaving"); !apierrors.IsNotFound(err) {
		t.Errorf("get the Secret of a deleted Agent: %v, want not found", err)
	}

	// A Secret without its Agent is only absence, and left alone.
	r.create("forced", nil)
	r.inForce("forced")
	r.sessions.set(t, "forced", controller.Session{Connected: true, Since: now, ObservedAt: now}) // else the controller is faster
	r.condition("forced", v1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	r.delete("forced")
	r.patchAgent("forced", `{"metadata":{"finalizers":null}}`)
	r.gone("forced")
	r.sessions.remove(t, "forced")
	uid := r.secret("cluster-forced").UID
	r.create("forced", nil)
	r.inForce("forced")
	if now := r.secret("cluster-forced").UID; now != uid {
		t.Error("the Secret was made anew for an Agent that came back")
	}
}

func (r *registration) testOutage(t *testing.T) {
	r = r.in(t)
	r.create("patient", nil)
	r.inForce("patient")
	if err := r.hub.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	failures := r.reconciles("error")
	now := time.Now()
	r.sessions.set(t, "patient", controller.Session{Connected: true, Replica: "principal-1", Since: now, ObservedAt: now})
	// A reader whose watch broke off pauses before it asks again. An API server that
	// starts takes connections before it answers them: who asks first then only waits.
	const said = 3 // once for Agents before their definition, and once for each kind in the outage
	env.Eventually(r.t, "failed attempts", func() error {
		got, read := r.reconciles("error")-failures, r.unreadable()
		if got < 3 || read < said {
			return fmt.Errorf("%v so far, and %d times the log says that objects cannot be read", got, read)
		}
		return nil
	})
	if err := r.hub.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.create("after", nil)
	r.inForce("after")
	// A pass that failed is repeated with a pause of its own.
	r.condition("patient", v1alpha1.ConditionConnected, metav1.ConditionTrue, "")
	if got := r.unreadable(); got != said {
		t.Errorf("the log says %d times that objects cannot be read, want %d:\n%s", got, said, r.log)
	}
}

// unreadable returns how often the log says that a kind cannot be read.
func (r *registration) unreadable() int {
	return len(r.log.Find("message", "objects of the hub cannot be read"))
}

// create stores an Agent with a SPIFFE ID of its own.
func (r *registration) create(name string, change func(*v1alpha1.Agent)) {
	r.t.Helper()
	a := &v1alpha1.Agent{}
	a.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	a.Name = name
	a.Spec.Mode = v1alpha1.ModeManaged
	a.Spec.Identity.SPIFFEIDs = []string{"spiffe://example.org/" + name}
	if change != nil {
		change(a)
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.agents.Create(r.t.Context(), &unstructured.Unstructured{Object: m}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registration) agent(name string) *v1alpha1.Agent {
	r.t.Helper()
	a, err := r.getAgent(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *registration) getAgent(name string) (*v1alpha1.Agent, error) {
	raw, err := r.agents.Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	a := &v1alpha1.Agent{}
	return a, runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, a)
}

func (r *registration) delete(name string) {
	r.t.Helper()
	if err := r.agents.Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registration) gone(name string) {
	r.t.Helper()
	env.Eventually(r.t, "the end of Agent "+name, func() error {
		if _, err := r.getAgent(name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get it: %w", err)
		}
		return nil
	})
}

func (r *registration) patchAgent(name, patch string) {
	r.t.Helper()
	if _, err := r.agents.Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// observed waits until the controller has looked at the newest spec.
func (r *registration) observed(name string) {
	r.t.Helper()
	env.Eventually(r.t, "a look at the spec of "+name, func() error {
		a, err := r.getAgent(name)
		if err == nil && a.Status.ObservedGeneration != a.Generation {
			err = fmt.Errorf("observed generation %d of %d", a.Status.ObservedGeneration, a.Generation)
		}
		return err
	})
}

// condition waits for a condition with that text in its message.
func (r *registration) condition(name, kind string, status metav1.ConditionStatus, message string) {
	r.t.Helper()
	env.Eventually(r.t, fmt.Sprintf("condition %s=%s of %s", kind, status, name), func() error {
		a, err := r.getAgent(name)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, kind)
		if c == nil || c.Status != status || !strings.Contains(c.Message, message) || c.ObservedGeneration != a.Generation {
			return fmt.Errorf("generation %d, status %+v", a.Generation, a.Status)
		}
		return nil
	})
}

// inForce waits until the registration is in force: the Agent is ready, or waits for
// nothing but the first agent.
func (r *registration) inForce(name string) {
	r.t.Helper()
	env.Eventually(r.t, "the registration of "+name+" is in force", func() error {
		a, err := r.getAgent(name)
		if err != nil {
			return err
		}
		want := "True AsExpected"
		if a.Status.Versions.Agent == "" && a.Status.ObservedAt == nil && !a.Status.Connected {
			want = "False NeverConnected"
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != a.Generation {
			return fmt.Errorf("generation %d, status %+v, want Ready %s", a.Generation, a.Status, want)
		}
		return nil
	})
}

func (r *registration) createSecret(name string, labels, data map[string]string) {
	r.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	obj.SetName(name)
	obj.SetLabels(labels)
	if err := unstructured.SetNestedStringMap(obj.Object, data, "stringData"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.secrets.Create(r.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registration) secret(name string) *corev1.Secret {
	r.t.Helper()
	s, err := r.getSecret(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *registration) getSecret(name string) (*corev1.Secret, error) {
	raw, err := r.secrets.Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{}
	return s, runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, s)
}

func (r *registration) patchSecret(name, patch string) {
	r.t.Helper()
	if _, err := r.secrets.Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registration) deleteSecret(name string) {
	r.t.Helper()
	if err := r.secrets.Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registration) statusWrites() float64 {
	r.t.Helper()
	return r.counter("argomesh_fleet_status_writes_total", "")
}

func (r *registration) reconciles(result string) float64 {
	r.t.Helper()
	return r.counter("argomesh_fleet_reconciles_total", result)
}

// counter returns the value of a counter with at most one label, zero when it
// was not counted yet.
func (r *registration) counter(name, label string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func texts(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for key, value := range data {
		out[key] = string(value)
	}
	return out
}

func differ(want, got map[string]string) error {
	if maps.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
}

// sessionTable is controller.Sessions for a test to change.
type sessionTable struct {
	mu      sync.Mutex // guards what follows
	now     map[identity.AgentName]controller.Session
	changed map[int]func(identity.AgentName) // of each controller that there was, nil of those that ended
}

func newSessionTable() *sessionTable {
	return &sessionTable{now: map[identity.AgentName]controller.Session{}, changed: map[int]func(identity.AgentName){}}
}

// Session implements controller.Sessions.
func (s *sessionTable) Session(name identity.AgentName) controller.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[name]
}

// Subscribe implements controller.Sessions.
func (s *sessionTable) Subscribe(changed func(identity.AgentName)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := len(s.changed)
	s.changed[id] = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed[id] = nil
	}
}

func (s *sessionTable) set(t *testing.T, agent string, session controller.Session) {
	t.Helper()
	s.change(t, agent, func(name identity.AgentName) { s.now[name] = session })
}

func (s *sessionTable) remove(t *testing.T, agent string) {
	t.Helper()
	s.change(t, agent, func(name identity.AgentName) { delete(s.now, name) })
}

func (s *sessionTable) change(t *testing.T, agent string, do func(identity.AgentName)) {
	t.Helper()
	name, err := identity.ParseAgentName(agent)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	do(name)
	for _, changed := range s.changed {
		if changed != nil {
			changed(name)
		}
	}
}
