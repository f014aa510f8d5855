//go:build linux

package env

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// Bare is a hub and a spoke with Argo CD's definitions and without its processes: only the
// test and we write, so that each write can be counted.
// The agents of several tests share the spoke, each in a namespace of its own.
type Bare struct {
	Harness    *harness.Harness
	Hub, Spoke *harness.ControlPlane
	Principal  *harness.Principal
	// ByToken and ByHeader are further listeners of the principal, in clear text for
	// what terminates TLS before it, and ByTokenTLS one of tokens with TLS.
	ByToken, ByTokenTLS, ByHeader string
	// CADir holds the authority of TrustDomain, ForeignCADir that of ForeignDomain.
	CADir, ForeignCADir string
	identities          atomic.Int64 // Workload API servers started
}

var barePool = newSharedPool("bare", 1, startBare, (*Bare).info, attachBare)

// bareInfo describes a Bare to another program.
type bareInfo struct {
	Hub, Spoke                                         harness.ControlPlaneInfo
	Principal                                          harness.PrincipalInfo
	ByToken, ByTokenTLS, ByHeader, CADir, ForeignCADir string
}

func (w *Bare) info() bareInfo {
	return bareInfo{
		Hub: w.Hub.Info(), Spoke: w.Spoke.Info(), Principal: w.Principal.Info(),
		ByToken: w.ByToken, ByTokenTLS: w.ByTokenTLS, ByHeader: w.ByHeader, CADir: w.CADir, ForeignCADir: w.ForeignCADir,
	}
}

func attachBare(h *harness.Harness, d bareInfo) (*Bare, error) {
	w := &Bare{
		Harness: h, Principal: harness.AttachPrincipal(d.Principal),
		ByToken: d.ByToken, ByTokenTLS: d.ByTokenTLS, ByHeader: d.ByHeader, CADir: d.CADir, ForeignCADir: d.ForeignCADir,
	}
	var err error
	if w.Hub, err = h.AttachControlPlane(d.Hub); err != nil {
		return nil, err
	}
	w.Spoke, err = h.AttachControlPlane(d.Spoke)
	return w, err
}

// SharedBare is SharedArgo for the environment without Argo CD.
func SharedBare(t *testing.T) *Bare {
	t.Helper()
	shared := barePool.share(t)
	harnesstest.Busy(t, "bare")
	return shared.Get(t)
}

// OwnBare is OwnArgo for the environment without Argo CD.
func OwnBare(t *testing.T) *Bare {
	t.Helper()
	return barePool.TakeAlone(t).Get(t)
}

func startBare(ctx context.Context, h *harness.Harness) (*Bare, error) {
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	return StartBareOn(ctx, h, etcd, etcd)
}

// NewBare is a Bare of which nothing runs.
func NewBare(h *harness.Harness) *Bare {
	return &Bare{Harness: h, CADir: h.Path("ca"), ForeignCADir: h.Path("foreign-ca")}
}

// StartBareOn starts a Bare of which hub and spoke have the etcds given. Nil
// starts one for that side alone.
func StartBareOn(ctx context.Context, h *harness.Harness, hub, spoke *harness.Etcd) (*Bare, error) {
	w, err := StartBareControlPlanes(ctx, h, hub, spoke)
	if err != nil {
		return nil, err
	}
	err = w.StartPrincipal(ctx, "", nil)
	return w, err
}

// StartBareControlPlanes is StartBareOn without a principal.
func StartBareControlPlanes(ctx context.Context, h *harness.Harness, hub, spoke *harness.Etcd) (*Bare, error) {
	w := NewBare(h)
	etcds := map[string]*harness.Etcd{"hub": hub, "spoke": spoke}
	g, gctx := errgroup.WithContext(ctx)
	for name, at := range map[string]**harness.ControlPlane{"hub": &w.Hub, "spoke": &w.Spoke} {
		g.Go(func() (err error) {
			*at, err = StartBareControlPlane(gctx, h, name, etcds[name])
			return err
		})
	}
	return w, g.Wait()
}

// StartPrincipal starts the principal of this checkout, or a program from before, with
// further settings.
func (w *Bare) StartPrincipal(ctx context.Context, program string, more harness.Settings) error {
	identity, err := w.Identify(ctx, PrincipalID, "--federate", ForeignDomain+"="+w.ForeignCADir)
	if err != nil {
		return err
	}
	for _, at := range []*string{&w.ByToken, &w.ByTokenTLS, &w.ByHeader} {
		if *at, err = w.Harness.Address(); err != nil {
			return err
		}
	}
	settings := harness.Settings{"stream.listeners": w.listeners()}
	maps.Copy(settings, more)
	w.Principal, err = w.Harness.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.Hub, WorkloadAPI: identity, Program: program, Settings: settings,
	})
	return err
}

// StartBareControlPlane starts an API server that knows Argo CD's kinds and ours. A nil
// etcd gives it one of its own.
func StartBareControlPlane(ctx context.Context, h *harness.Harness, name string, etcd *harness.Etcd) (*harness.ControlPlane, error) {
	manifests, err := BareManifests(h)
	if err != nil {
		return nil, err
	}
	c, err := h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: name, Etcd: etcd, Manifests: manifests})
	if err != nil {
		return nil, err
	}
	if err := c.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		return nil, err
	}
	return c, nil
}

// ourDefinitions are those of our own kinds.
func ourDefinitions(h *harness.Harness) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(h.Tools().Checkout(), "charts", "argomesh-principal", "files", "crds", "*.yaml"))
	if err == nil && len(files) == 0 {
		err = errors.New("there are no definitions of our own in the chart of the principal")
	}
	return files, err
}

// BareManifests are the definitions of Argo CD's kinds and ours.
func BareManifests(h *harness.Harness) ([]string, error) {
	ours, err := ourDefinitions(h)
	if err != nil {
		return nil, err
	}
	theirs, err := h.ArgoCDManifests()
	if err != nil {
		return nil, err
	}
	// The largest of all, of no use here.
	theirs = slices.DeleteFunc(theirs, func(file string) bool { return filepath.Base(file) == "applicationset-crd.yaml" })
	return append(ours, theirs...), nil
}

// Identify starts a Workload API server for one SPIFFE ID. Its name is short, since
// that of a socket must be.
func (w *Bare) Identify(ctx context.Context, id string, args ...string) (*harness.WorkloadAPI, error) {
	return w.Harness.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: TrustDomain, CADir: w.CADir, Entries: []string{id}, Args: args,
	})
}

// BareAgent is one agent of a Bare, behind a network of its own.
type BareAgent struct {
	Env     *Bare
	Name    string
	Mode    string
	Network *harness.Proxy
	Agent   *harness.Agent
	// Namespace is that of the agent on the spoke.
	Namespace string
	Settings  harness.Settings // further ones of the agent
	Program   string           // harness.AgentConfig's
	// Hub and spoke are its Applications on either side.
	Hub, Spoke dynamic.ResourceInterface
}

// Connect registers and starts an agent, which ends with the test. Its namespace on
// the spoke has its name.
func (w *Bare) Connect(t *testing.T, name, mode string) *BareAgent {
	t.Helper()
	r := w.Register(t, name, mode)
	r.Start(t)
	return r
}

// Register makes all that an agent needs, and does not start it.
func (w *Bare) Register(t *testing.T, name, mode string) *BareAgent {
	t.Helper()
	r := &BareAgent{
		Env: w, Name: name, Mode: mode, Namespace: name,
		Hub:   w.Hub.Resource(harness.Applications, name),
		Spoke: w.Spoke.Resource(harness.Applications, name),
	}
	ctx := t.Context()
	if err := errors.Join(w.Hub.EnsureNamespace(ctx, name), w.Spoke.EnsureNamespace(ctx, name)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "create", name, "--mode", mode, "--spiffe-id", SPIFFEID(name), "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// So that nothing is written for it while another test counts writes.
		err := w.Hub.Resource(Agents, harness.ArgoCDNamespace).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return r
}

// Settled waits until the agents of other tests, which end with those, have left the hub.
func (w *Bare) Settled(t *testing.T) {
	t.Helper()
	Eventually(t, "agents that leave are gone", func() error {
		list, err := w.Hub.Resource(Agents, harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, a := range list.Items {
			if a.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%s is not", a.GetName())
			}
		}
		return nil
	})
}

// Start returns when the hub shows the agent connected.
func (r *BareAgent) Start(t *testing.T) {
	t.Helper()
	ctx, w := t.Context(), r.Env
	identity, err := w.Identify(ctx, SPIFFEID(r.Name))
	if err != nil {
		t.Fatal(err)
	}
	r.Network = StartNetwork(t, w.Harness, w.Principal.Address)
	settings := harness.Settings{"namespace": r.Namespace}
	maps.Copy(settings, r.Settings)
	if r.Agent, err = w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: r.Name, Mode: r.Mode, ControlPlane: w.Spoke, WorkloadAPI: identity,
		PrincipalAddress: r.Network.Address(), PrincipalIDs: []string{PrincipalID}, Settings: settings, Program: r.Program,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "agent "+r.Name+" is connected", func() error { return r.Connected(t.Context(), true) })
}

// StartNetwork starts a network to target, which ends with the test.
func StartNetwork(t *testing.T, h *harness.Harness, target string) *harness.Proxy {
	t.Helper()
	network, err := h.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, network.Run)
	return network
}

// Agents are our custom resources.
var Agents = schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}

// Connected is a check of what the hub says of the agent's connection.
func (r *BareAgent) Connected(ctx context.Context, want bool) error {
	return FieldIs(ctx, r.Env.Hub.Resource(Agents, harness.ArgoCDNamespace), r.Name, want, "status", "connected")
}

// Application is an Application for this agent as its owner writes it.
func (r *BareAgent) Application(name string) *unstructured.Unstructured {
	destination := map[string]any{"name": r.Name, "namespace": "default"}
	if r.Mode == "autonomous" {
		destination = map[string]any{"server": "https://kubernetes.default.svc", "namespace": "default"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"project": "default", "destination": destination,
			"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
		},
	}}
}

// Each calls f with 0 to n-1, several at a time.
func Each(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	AtOnce(t, 16, n, f)
}

// AtOnce calls f with 0 to n-1, so many at a time.
func AtOnce(t *testing.T, limit, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// CreateAll creates the Applications that build returns for 0 to n-1.
func CreateAll(t *testing.T, where dynamic.ResourceInterface, n int, build func(i int) *unstructured.Unstructured) {
	t.Helper()
	Each(t, n, func(ctx context.Context, i int) error {
		_, err := where.Create(ctx, build(i), metav1.CreateOptions{})
		return err
	})
}

// SourceUID is annotated on a copy.
const SourceUID = "argocd.argoproj.io/source-uid"

// Agree is a check that the copies of the source are all there, that there are no
// others, and that each shows its source's spec, labels and annotations.
func (r *BareAgent) Agree(source, copies *Recorder) error {
	return r.Equal(source.Objects(), copies.Objects())
}

// Equal is Agree for objects by their names.
func (r *BareAgent) Equal(source, copies map[string]*unstructured.Unstructured) error {
	want, got := map[string]string{}, map[string]string{}
	for name, o := range source {
		want[name] = string(o.GetUID()) + " " + r.Shown(o, r.projectPrefix())
	}
	for name, o := range copies {
		if uid := o.GetAnnotations()[SourceUID]; uid != "" {
			got[name] = uid + " " + r.Shown(o, "")
		}
	}
	var differ []string
	for name := range want {
		if want[name] != got[name] {
			differ = append(differ, fmt.Sprintf("%s: the source is %q, the copy %q", name, want[name], got[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			differ = append(differ, name+": the copy has no source")
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return fmt.Errorf("%d of %d differ: %s", len(differ), len(want), strings.Join(differ[:min(len(differ), 3)], "; "))
}

// projectPrefix is what the copies' projects begin with.
func (r *BareAgent) projectPrefix() string {
	if r.Mode == "autonomous" {
		return r.Name + "-"
	}
	return ""
}

// Shown is what both sides of the link must show of an Application, whose project
// gets a prefix.
func (r *BareAgent) Shown(o *unstructured.Unstructured, prefix string) string {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	delete(spec, "destination") // in each side's own terms
	spec["project"] = prefix + fmt.Sprint(spec["project"])
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "argomesh.io/") || strings.HasPrefix(key, "argocd.argoproj.io/")
	})
	return fmt.Sprint(spec, o.GetLabels(), annotations)
}

// Projects are an autonomous agent's on the spoke; on the hub they are among those
// of all agents.
func (r *BareAgent) Projects() dynamic.ResourceInterface {
	return r.Env.Spoke.Resource(harness.AppProjects, r.Namespace)
}

// HubProjects are the AppProjects of the hub.
func (w *Bare) HubProjects() dynamic.ResourceInterface {
	return w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
}

// ProjectNamed is an AppProject of an autonomous spoke.
func ProjectNamed(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"sourceRepos":  []any{"*"},
			"destinations": []any{map[string]any{"server": "https://kubernetes.default.svc", "namespace": "*"}},
		},
	}}
}

// NeverHeld fails the test if the Agent ever showed held deletions since the record of
// Agents began.
func (r *BareAgent) NeverHeld(t *testing.T, agents *Recorder) {
	t.Helper()
	for _, event := range agents.History(r.Name) {
		if held, found, _ := unstructured.NestedMap(event.Object.(*unstructured.Unstructured).Object, "status", "deletionsHeld"); found {
			t.Errorf("the Agent showed deletions as held: %v", held)
			return
		}
	}
}

// MappedPrincipal starts the principal of an Argo CD in a namespace of the hub, which ends
// with the test.
func (w *Bare) MappedPrincipal(t *testing.T, namespace string, settings harness.Settings) *harness.Principal {
	t.Helper()
	return w.MappedPrincipalNamed(t, "principal-"+namespace, namespace, settings)
}

// MappedPrincipalNamed is MappedPrincipal for one of several in a namespace.
func (w *Bare) MappedPrincipalNamed(t *testing.T, name, namespace string, settings harness.Settings) *harness.Principal {
	t.Helper()
	ctx := t.Context()
	spire, err := w.Identify(ctx, PrincipalID)
	if err != nil {
		t.Fatal(err)
	}
	settings["namespace"] = namespace
	principal, err := w.Harness.StartPrincipal(ctx, harness.PrincipalConfig{
		Name: name, ControlPlane: w.Hub, WorkloadAPI: spire, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := principal.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return principal
}

// MappedAgent starts an agent of such a principal. Its namespace on the spoke has its name.
func (w *Bare) MappedAgent(t *testing.T, namespace, name string, principal *harness.Principal, settings harness.Settings) *harness.Agent {
	t.Helper()
	ctx := t.Context()
	spire, err := w.Identify(ctx, SPIFFEID(name))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Spoke.EnsureNamespace(ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", SPIFFEID(name), "--wait", "--namespace", namespace); err != nil {
		t.Fatal(err)
	}
	settings["namespace"] = name
	a, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: name, Mode: "managed", ControlPlane: w.Spoke, WorkloadAPI: spire,
		PrincipalAddress: principal.Address, PrincipalIDs: []string{PrincipalID}, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "agent "+name+" is connected", func() error {
		return FieldIs(ctx, w.Hub.Resource(Agents, namespace), name, true, "status", "connected")
	})
	return a
}

// Parked is a check that the Agent names an object among the parked ones, with a
// message that says a text.
func (r *BareAgent) Parked(ctx context.Context, name, text string) error {
	a, err := r.Env.Hub.Resource(Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["name"] == name && strings.Contains(fmt.Sprint(m["message"]), text) {
			return nil
		}
	}
	return fmt.Errorf("%s is not among the parked: %v", name, list)
}

// StartBy starts the agent of r at an address, with settings of a method, and returns
// when the hub shows it connected.
func (r *BareAgent) StartBy(t *testing.T, address string, settings harness.Settings, identityArgs ...string) {
	t.Helper()
	ctx, w := t.Context(), r.Env
	identity, err := w.Identify(ctx, SPIFFEID(r.Name), identityArgs...)
	if err != nil {
		t.Fatal(err)
	}
	all := harness.Settings{"namespace": r.Namespace, "log.level": "debug"}
	maps.Copy(all, settings)
	if r.Agent, err = w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: r.Name, Mode: r.Mode, ControlPlane: w.Spoke, WorkloadAPI: identity,
		PrincipalAddress: address, PrincipalIDs: []string{PrincipalID}, Settings: all,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "agent "+r.Name+" is connected", func() error { return r.Connected(t.Context(), true) })
}

// Said counts the log lines of the agent with a message.
func (r *BareAgent) Said(t *testing.T, message string) (n int) {
	t.Helper()
	for _, line := range LogLines(t, r.Agent.Process, 0) {
		if line["message"] == message {
			n++
		}
	}
	return n
}

// ForeignDomain is a trust domain with which the principal of a Bare federates.
const ForeignDomain = "foreign.argomesh.test"

// GatewayID is a gateway that the principal of a Bare trusts.
const GatewayID = "spiffe://" + TrustDomain + "/ns/ingress/sa/gateway"

// listeners is the key stream.listeners of the principal.
func (w *Bare) listeners() []map[string]any {
	return []map[string]any{
		{"listen": w.ByToken, "method": identity.MethodJWT, "plaintext": true},
		{"listen": w.ByTokenTLS, "method": identity.MethodJWT},
		{"listen": w.ByHeader, "method": identity.MethodHeader, "header": map[string]any{"trusted_proxies": []string{GatewayID}}},
	}
}
