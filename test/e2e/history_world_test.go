//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// quietWorld is a hub and a spoke with Argo CD's definitions and without its
// processes: nobody writes but the test and we, so that each write can be counted.
// The agents of several tests share the spoke, each in a namespace of its own.
type quietWorld struct {
	h          *harness.Harness
	hub, spoke *harness.ControlPlane
	principal  *harness.Principal
	// byToken and byHeader are further listeners of the principal, in clear text for
	// what terminates TLS before it, and byTokenTLS one of tokens with TLS.
	byToken, byTokenTLS, byHeader string
	identities                    atomic.Int64 // Workload API servers started
}

var quiet = newWorlds(1, startQuiet)

// theQuietWorld is what theWorld is, of the quiet world.
func theQuietWorld(t *testing.T) *quietWorld {
	t.Helper()
	shared := quiet.share(t)
	harnesstest.Busy(t, "quiet")
	return shared.get(t)
}

// theQuietWorldAlone is what theWorldAlone is, of the quiet world.
func theQuietWorldAlone(t *testing.T) *quietWorld {
	t.Helper()
	return quiet.takeAlone(t).get(t)
}

func startQuiet(ctx context.Context, h *harness.Harness) (*quietWorld, error) {
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	return startQuietOn(ctx, h, etcd, etcd)
}

// startQuietOn starts a quiet world of which hub and spoke have the etcds given. Nil
// starts one for that side alone.
func startQuietOn(ctx context.Context, h *harness.Harness, hub, spoke *harness.Etcd) (*quietWorld, error) {
	w, err := startQuietControlPlanes(ctx, h, hub, spoke)
	if err != nil {
		return nil, err
	}
	err = w.startPrincipal(ctx, "", nil)
	return w, err
}

// startQuietControlPlanes is startQuietOn without a principal.
func startQuietControlPlanes(ctx context.Context, h *harness.Harness, hub, spoke *harness.Etcd) (*quietWorld, error) {
	w := &quietWorld{h: h}
	etcds := map[string]*harness.Etcd{"hub": hub, "spoke": spoke}
	g, gctx := errgroup.WithContext(ctx)
	for name, at := range map[string]**harness.ControlPlane{"hub": &w.hub, "spoke": &w.spoke} {
		g.Go(func() (err error) {
			*at, err = startQuietControlPlane(gctx, h, name, etcds[name])
			return err
		})
	}
	return w, g.Wait()
}

// startPrincipal starts the principal of this checkout, or a program from before, with
// further settings.
func (w *quietWorld) startPrincipal(ctx context.Context, program string, more harness.Settings) error {
	identity, err := w.identify(ctx, principalID, "--federate", foreignDomain+"="+w.h.Path("foreign-ca"))
	if err != nil {
		return err
	}
	for _, at := range []*string{&w.byToken, &w.byTokenTLS, &w.byHeader} {
		if *at, err = w.h.Address(); err != nil {
			return err
		}
	}
	settings := harness.Settings{"stream.listeners": w.listeners()}
	maps.Copy(settings, more)
	w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.hub, WorkloadAPI: identity, Program: program, Settings: settings,
	})
	return err
}

// startQuietControlPlane starts an API server that knows Argo CD's kinds and ours. A nil
// etcd gives it one of its own.
func startQuietControlPlane(ctx context.Context, h *harness.Harness, name string, etcd *harness.Etcd) (*harness.ControlPlane, error) {
	manifests, err := quietManifests(h)
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

// quietManifests are the definitions of Argo CD's kinds and ours.
func quietManifests(h *harness.Harness) ([]string, error) {
	ours, err := filepath.Glob("../../charts/argomesh-principal/files/crds/*.yaml")
	if err != nil || len(ours) == 0 {
		return nil, fmt.Errorf("our own CRDs are missing: %w", err)
	}
	theirs, err := h.ArgoCDManifests()
	if err != nil {
		return nil, err
	}
	// The largest of all, of no use here.
	theirs = slices.DeleteFunc(theirs, func(file string) bool { return filepath.Base(file) == "applicationset-crd.yaml" })
	return append(ours, theirs...), nil
}

// identify starts a Workload API server for one SPIFFE ID. Its name is short, since
// that of a socket must be.
func (w *quietWorld) identify(ctx context.Context, id string, args ...string) (*harness.WorkloadAPI, error) {
	return w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: fmt.Sprint("spire-", w.identities.Add(1)), TrustDomain: trustDomain, CADir: w.h.Path("ca"), Entries: []string{id}, Args: args,
	})
}

// remote is one agent of a quiet world, behind a network of its own.
type remote struct {
	w       *quietWorld
	name    string
	mode    string
	network *harness.Proxy
	agent   *harness.Agent
	// namespace is that of the agent on the spoke.
	namespace string
	settings  harness.Settings // further ones of the agent
	program   string           // harness.AgentConfig's
	// hub and spoke are its Applications on either side.
	hub, spoke dynamic.ResourceInterface
}

// connect registers and starts an agent, which ends with the test. Its namespace on
// the spoke has its name.
func (w *quietWorld) connect(t *testing.T, name, mode string) *remote {
	t.Helper()
	r := w.register(t, name, mode)
	r.start(t)
	return r
}

// register makes all that an agent needs, and does not start it.
func (w *quietWorld) register(t *testing.T, name, mode string) *remote {
	t.Helper()
	r := &remote{
		w: w, name: name, mode: mode, namespace: name,
		hub:   w.hub.Resource(harness.Applications, name),
		spoke: w.spoke.Resource(harness.Applications, name),
	}
	ctx := t.Context()
	if err := errors.Join(w.hub.EnsureNamespace(ctx, name), w.spoke.EnsureNamespace(ctx, name)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", name, "--mode", mode, "--spiffe-id", idOf(name), "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// So that nothing is written for it while another test counts writes.
		err := w.hub.Resource(agents, harness.ArgoCDNamespace).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return r
}

// settled waits until the agents of other tests, which end with those, have left the hub.
func (w *quietWorld) settled(t *testing.T) {
	t.Helper()
	eventually(t, "agents that leave are gone", func() error {
		list, err := w.hub.Resource(agents, harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{})
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

// start returns when the hub shows the agent connected.
func (r *remote) start(t *testing.T) {
	t.Helper()
	ctx, w := t.Context(), r.w
	identity, err := w.identify(ctx, idOf(r.name))
	if err != nil {
		t.Fatal(err)
	}
	r.network = startNetwork(t, w.h, w.principal.Address)
	settings := harness.Settings{"namespace": r.namespace}
	maps.Copy(settings, r.settings)
	if r.agent, err = w.h.StartAgent(ctx, harness.AgentConfig{
		Name: r.name, Mode: r.mode, ControlPlane: w.spoke, WorkloadAPI: identity,
		PrincipalAddress: r.network.Address(), PrincipalIDs: []string{principalID}, Settings: settings, Program: r.program,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "agent "+r.name+" is connected", func() error { return r.connected(t.Context(), true) })
}

func startNetwork(t *testing.T, h *harness.Harness, target string) *harness.Proxy {
	t.Helper()
	network, err := h.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- network.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return network
}

var agents = schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}

// connected is a check of what the hub says of the agent's connection.
func (r *remote) connected(ctx context.Context, want bool) error {
	return field(ctx, r.w.hub.Resource(agents, harness.ArgoCDNamespace), r.name, want, "status", "connected")
}

// application is an Application for this agent as its owner writes it.
func (r *remote) application(name string) *unstructured.Unstructured {
	destination := map[string]any{"name": r.name, "namespace": "default"}
	if r.mode == "autonomous" {
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

// each calls f with 0 to n-1, several at a time.
func each(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	atOnce(t, 16, n, f)
}

func atOnce(t *testing.T, limit, n int, f func(ctx context.Context, i int) error) {
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

// createAll creates the Applications that build returns for 0 to n-1.
func createAll(t *testing.T, where dynamic.ResourceInterface, n int, build func(i int) *unstructured.Unstructured) {
	t.Helper()
	each(t, n, func(ctx context.Context, i int) error {
		_, err := where.Create(ctx, build(i), metav1.CreateOptions{})
		return err
	})
}

// sourceUID is annotated on a copy.
const sourceUID = "argocd.argoproj.io/source-uid"

// agree is a check that the copies of the source are all there, that there are no
// others, and that each shows its source's spec, labels and annotations.
func (r *remote) agree(source, copies *recorder) error {
	return r.equal(source.objects(), copies.objects())
}

func (r *remote) equal(source, copies map[string]*unstructured.Unstructured) error {
	want, got := map[string]string{}, map[string]string{}
	for name, o := range source {
		want[name] = string(o.GetUID()) + " " + r.shown(o, r.projectPrefix())
	}
	for name, o := range copies {
		if uid := o.GetAnnotations()[sourceUID]; uid != "" {
			got[name] = uid + " " + r.shown(o, "")
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
func (r *remote) projectPrefix() string {
	if r.mode == "autonomous" {
		return r.name + "-"
	}
	return ""
}

// shown is what both sides of the link must show of an Application, whose project
// gets a prefix.
func (r *remote) shown(o *unstructured.Unstructured, prefix string) string {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	delete(spec, "destination") // in each side's own terms
	spec["project"] = prefix + fmt.Sprint(spec["project"])
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "argomesh.io/") || strings.HasPrefix(key, "argocd.argoproj.io/")
	})
	return fmt.Sprint(spec, o.GetLabels(), annotations)
}
