//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

const (
	trustDomain = "bench.argomesh.test"
	principalID = "spiffe://" + trustDomain + "/argomesh/principal"
	// edge is the agent of an environment with a spoke.
	edge = "edge-1"
	// stopTimeout bounds an ordered stop of all processes.
	stopTimeout = time.Minute
)

func agentID(name string) string { return "spiffe://" + trustDomain + "/argomesh/agent/" + name }

// benchEnv is a hub and, unless it is for simulated agents, a spoke with its agent: real
// API servers and etcds, our real binaries, no Argo CD controllers.
type benchEnv struct {
	h         *harness.Harness
	hub       *harness.ControlPlane
	spoke     *harness.ControlPlane
	principal *harness.Principal
	agent     *harness.Agent
	network   *network // between the two
	// envoy is the one beside the principal, of startRedisDoor or startFrontDoor.
	envoy *harness.Sidecar
	// redisDoor is where the hub's Argo CD has its Redis behind it, of startRedisDoor,
	// and door live access, of startFrontDoor; nil without.
	redisDoor string
	door      *harness.FrontDoor
	caDir     string
	// serverMemory is bench.serverMemory, or its default.
	serverMemory string
	mapping      mappedBy
	// onHub and onSpoke are the agent's Applications, through clients without a limit
	// of their own.
	onHub, onSpoke dynamic.ResourceInterface
}

// startBenchEnv starts everything; one that could not be started is stopped.
func startBenchEnv(ctx context.Context, b *bench, withSpoke bool) (*benchEnv, error) {
	return startBenchEnvWith(ctx, b, withSpoke, startPrincipal)
}

// startBenchEnvWith is startBenchEnv with another way to start the principal.
func startBenchEnvWith(ctx context.Context, b *bench, withSpoke bool, principal func(context.Context, *benchEnv) error) (_ *benchEnv, err error) {
	tools, err := toolset.Open()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "argomesh-bench-") // short: unix sockets are below it
	if err != nil {
		return nil, err
	}
	w := &benchEnv{caDir: filepath.Join(dir, "ca"), serverMemory: cmp.Or(b.serverMemory, "2GiB"), mapping: cmp.Or(b.mapping, byNamespace)}
	if w.h, err = harness.New(harness.Config{Dir: dir, Tools: tools}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx, true))
		}
	}()
	b.say("starting API servers")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := w.startHub(gctx); err != nil {
			return err
		}
		return principal(gctx, w)
	})
	if withSpoke {
		g.Go(func() error { return w.startSpoke(gctx) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if withSpoke {
		if err := w.startAgent(ctx); err != nil {
			return nil, err
		}
	}
	return w, w.h.CheckLoopback()
}

// close stops everything. It leaves the folder with the logs when something failed.
func (w *benchEnv) close(ctx context.Context, failed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := w.h.Close(ctx)
	if w.network != nil {
		err = errors.Join(err, w.network.close())
	}
	if err != nil || failed {
		return errors.Join(err, fmt.Errorf("the logs are in %s", w.h.Path("logs")))
	}
	return os.RemoveAll(w.h.Path())
}

// startControlPlane starts one that knows Argo CD's kinds.
func (w *benchEnv) startControlPlane(ctx context.Context, name string, manifests ...string) (*harness.ControlPlane, error) {
	argocd, err := w.h.ArgoCDManifests()
	if err != nil {
		return nil, err
	}
	c, err := w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Name: name, Manifests: append(argocd, manifests...), ServerMemory: w.serverMemory,
	})
	if err != nil {
		return nil, err
	}
	if err := c.EnsureNamespace(ctx, harness.ArgoCDNamespace); err != nil {
		return nil, err
	}
	return c, nil
}

func (w *benchEnv) startHub(ctx context.Context) error {
	ours, err := filepath.Glob(filepath.Join(w.h.Tools().Checkout(), "charts", "argomesh-principal", "files", "crds", "*.yaml"))
	if err != nil || len(ours) == 0 {
		return fmt.Errorf("our own CRDs are missing: %w", err)
	}
	if w.hub, err = w.startControlPlane(ctx, "hub", ours...); err != nil {
		return err
	}
	return w.hub.ApplyYAML(ctx, []byte(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: `+project+`
  namespace: argocd
spec:
  sourceRepos: ["*"]
  sourceNamespaces: ["*"]
  destinations:
  - {name: "*", namespace: "*"}
`))
}

func startPrincipal(ctx context.Context, w *benchEnv) error { return startPrincipalWith(ctx, w, nil) }

// startPrincipalWith is startPrincipal with more settings.
func startPrincipalWith(ctx context.Context, w *benchEnv, settings harness.Settings) error {
	identity, err := w.identity(ctx, "principal", principalID)
	if err != nil {
		return err
	}
	w.principal, err = w.h.StartPrincipal(ctx, w.principalConfig(identity, settings))
	return err
}

// principalConfig is that of the principal of an environment, with more settings.
func (w *benchEnv) principalConfig(identity *harness.WorkloadAPI, more harness.Settings) harness.PrincipalConfig {
	settings := harness.Settings{"mapping.by": string(w.mapping)}
	maps.Copy(settings, more)
	return harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: identity, Settings: settings}
}

// startFrontDoor starts a principal with live access, and the Envoy beside it.
func startFrontDoor(ctx context.Context, w *benchEnv) error {
	identity, err := w.identity(ctx, "principal", principalID+",dns=localhost") // by which callers know Envoy
	if err != nil {
		return err
	}
	if w.door, err = w.h.StartFrontDoor(ctx, w.principalConfig(identity, nil)); err != nil {
		return err
	}
	w.principal, w.envoy = w.door.Principal, w.door.Envoy
	return nil
}

func (w *benchEnv) startSpoke(ctx context.Context) (err error) {
	w.spoke, err = w.startControlPlane(ctx, "spoke")
	return err
}

func (w *benchEnv) identity(ctx context.Context, name, id string) (*harness.WorkloadAPI, error) {
	return w.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: "spire-" + name, TrustDomain: trustDomain, CADir: w.caDir, Entries: []string{id},
	})
}

func (w *benchEnv) startAgent(ctx context.Context) (err error) {
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", edge, "--mode", "managed", "--spiffe-id", agentID(edge), "--wait"); err != nil {
		return err
	}
	if w.onHub, err = unlimited(w.hub, w.mapping.namespace(edge)); err != nil {
		return err
	}
	if w.onSpoke, err = unlimited(w.spoke, harness.ArgoCDNamespace); err != nil {
		return err
	}
	// The principal makes it, too; anyone who is first.
	if err := w.hub.EnsureNamespace(ctx, edge); err != nil {
		return err
	}
	if w.network, err = startNetwork(ctx, w.principal.Address); err != nil {
		return err
	}
	identity, err := w.identity(ctx, edge, agentID(edge))
	if err != nil {
		return err
	}
	cfg := harness.AgentConfig{
		Name: edge, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: identity,
		PrincipalAddress: w.network.Address(), PrincipalIDs: []string{principalID},
	}
	if w.door != nil {
		cfg.Settings = harness.Settings{"access.enabled": true, "live_access.calls_per_second": 1_000_000}
		agents := w.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace)
		if err := merge(ctx, agents, edge, map[string]any{"spec": map[string]any{"access": map[string]any{"enabled": true}}}); err != nil {
			return err
		}
	}
	w.agent, err = w.h.StartAgent(ctx, cfg)
	return err
}

// unlimited returns the Applications of a namespace through a client that does not
// slow itself down.
func unlimited(c *harness.ControlPlane, namespace string) (dynamic.ResourceInterface, error) {
	config := c.REST()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.Resource(harness.Applications).Namespace(namespace), nil
}

// processes are those whose use is reported.
func (w *benchEnv) processes() []subject {
	all := []subject{{"principal", w.principal.PID}}
	if w.envoy != nil {
		all = append(all, subject{"envoy", w.envoy.PID})
	}
	if w.agent != nil {
		all = append(all, subject{"agent", w.agent.PID})
	}
	for _, c := range []*harness.ControlPlane{w.hub, w.spoke} {
		if c != nil {
			all = append(all, subject{c.Name + " kube-apiserver", c.Server.PID}, subject{c.Name + " etcd", c.Etcd.PID})
		}
	}
	return append(all, self("load"))
}

// views opens a view of each side.
func (w *benchEnv) views(ctx context.Context) (hub, spoke *view, err error) {
	if hub, err = openView(ctx, w.onHub); err != nil {
		return nil, nil, err
	}
	if spoke, err = openView(ctx, w.onSpoke); err != nil {
		hub.close()
		return nil, nil, err
	}
	return hub, spoke, nil
}

// compare returns an error when the sides differ.
func (w *benchEnv) compare(ctx context.Context) error {
	hub, err := listed(ctx, w.onHub)
	if err != nil {
		return err
	}
	spoke, err := listed(ctx, w.onSpoke)
	if err != nil {
		return err
	}
	return lost(differences(hub, spoke))
}

// listed asks an API server for all Applications, by name.
func listed(ctx context.Context, where dynamic.ResourceInterface) (map[string]map[string]any, error) {
	list, err := where.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]map[string]any, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].GetName()] = list.Items[i].Object
	}
	return out, nil
}

// counter reads the sum of the series, of a counter or a gauge, that carry the labels.
func counter(ctx context.Context, admin, name string, labels map[string]string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // only read from
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", admin, err)
	}
	sum := 0.0
series:
	for _, m := range families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if want, asked := labels[l.GetName()]; asked && want != l.GetValue() {
				continue series
			}
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() // it has one of them
	}
	return sum, nil
}
