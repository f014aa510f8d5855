//go:build linux

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const (
	trustDomain = "e2e.argomesh.test"
	principalID = "spiffe://" + trustDomain + "/argomesh/principal"
	// svidTTL is short, so that every test runs under rotation.
	svidTTL = 30 * time.Second

	managed    = "edge-1"
	autonomous = "edge-2"
	// project is the AppProject of the hub for managed agents.
	project = "fleet"
	// newPath is a folder of the repository with the guestbook under another name.
	newPath = "new"
	// spokeMaxBytes is the largest object that the API server of edge-1 stores.
	spokeMaxBytes = 512 << 10
)

// world is what all tests share.
type world struct {
	h                 *harness.Harness
	hub, edge1, edge2 *harness.ControlPlane
	hubArgo           *harness.ArgoCD
	edgeRedis         map[string]*harness.Redis       // of the spokes' Argo CDs, by agent
	identities        map[string]*harness.WorkloadAPI // by whose they are
	caDir             string
	principal         *harness.Principal
	agents            map[string]*harness.Agent
	repository        *harness.Repository
	traces            *collector
}

var argo = newWorlds(2, startWorld(""))

// theWorld returns the shared world to a test that leaves others' objects and all
// processes alone. It is called once in a test.
func theWorld(t *testing.T) *world {
	t.Helper()
	shared := argo.share(t)
	harnesstest.Busy(t, "argo")
	return shared.get(t)
}

// theWorldAlone returns a world that no other test uses, to a test that stops processes
// or takes agents away. It is called once in a test.
func theWorldAlone(t *testing.T) *world {
	t.Helper()
	return argo.takeAlone(t).get(t)
}

// startWorld is the start of a world whose spokes have a release of Argo CD; the hub's, if
// that is empty.
func startWorld(release string) func(context.Context, *harness.Harness) (*world, error) {
	return func(ctx context.Context, h *harness.Harness) (*world, error) { return startWorldOf(ctx, h, release) }
}

func startWorldOf(ctx context.Context, h *harness.Harness, release string) (*world, error) {
	w := &world{
		h: h, identities: map[string]*harness.WorkloadAPI{}, agents: map[string]*harness.Agent{}, caDir: h.Path("ca"),
	}
	var err error
	if w.traces, err = startCollector(); err != nil {
		return nil, err
	}
	files := harness.GuestbookFiles()
	for name, content := range harness.GuestbookFiles() {
		files[strings.Replace(name, harness.GuestbookPath, newPath, 1)] = strings.ReplaceAll(content, "name: guestbook", "name: new-guestbook")
	}
	if w.repository, err = h.NewRepository(ctx, "repo", files); err != nil {
		return nil, err
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	crds, err := filepath.Glob("../../charts/argomesh-principal/files/crds/*.yaml")
	if err != nil || len(crds) == 0 {
		return nil, fmt.Errorf("our own CRDs are missing: %w", err)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if w.hub, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{
			Name: "hub", Etcd: etcd, Manifests: crds, Controllers: []string{"namespace-controller", "garbage-collector-controller"},
		}); err != nil {
			return err
		}
		w.hubArgo, err = h.StartArgoCD(gctx, harness.ArgoCDConfig{
			ControlPlane: w.hub, Server: true, ApplicationNamespaces: []string{"*"},
		})
		return err
	})
	small, err := h.StartEtcd(ctx, "small-etcd", fmt.Sprint("--max-request-bytes=", spokeMaxBytes))
	if err != nil {
		return nil, err
	}
	w.edgeRedis = map[string]*harness.Redis{managed: {}, autonomous: {}}
	for name, at := range map[string]**harness.ControlPlane{managed: &w.edge1, autonomous: &w.edge2} {
		redis := w.edgeRedis[name]
		g.Go(func() (err error) {
			stores := map[string]*harness.Etcd{managed: small, autonomous: etcd}
			if *at, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{Name: name, Etcd: stores[name], Workloads: true}); err != nil {
				return err
			}
			argo, err := h.StartArgoCD(gctx, harness.ArgoCDConfig{
				ControlPlane: *at, Release: release, Controller: true, DefaultProject: true, ControllerArgs: []string{"--hydrator-enabled"},
			})
			if err == nil {
				*redis = *argo.Redis
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, name := range []string{"principal", managed, autonomous} {
		w.identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: trustDomain, CADir: w.caDir, TTL: svidTTL,
			Entries: []string{idOf(name)},
		})
		if err != nil {
			return nil, err
		}
	}
	if w.principal, err = h.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.hub, WorkloadAPI: w.identities["principal"], Redis: w.hubArgo.Redis,
		Settings: harness.Settings{"tracing.otlp_endpoint": w.traces.address, "tracing.insecure": true, "log.level": "debug"},
	}); err != nil {
		return nil, err
	}
	for name, mode := range map[string]string{managed: "managed", autonomous: "autonomous"} {
		if _, err := h.Agentctl(ctx, w.hub, "agent", "create", name, "--mode", mode, "--spiffe-id", idOf(name), "--wait"); err != nil {
			return nil, err
		}
	}
	if err := w.applyProject(ctx); err != nil {
		return nil, err
	}
	for name, at := range map[string]*harness.ControlPlane{managed: w.edge1, autonomous: w.edge2} {
		mode := map[string]string{managed: "managed", autonomous: "autonomous"}[name]
		w.agents[name], err = h.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: mode, ControlPlane: at, WorkloadAPI: w.identities[name],
			PrincipalAddress: w.principal.Address, PrincipalIDs: []string{principalID}, Redis: w.edgeRedis[name],
			Settings: harness.Settings{"tracing.otlp_endpoint": w.traces.address, "tracing.insecure": true, "log.level": "debug"},
		})
		if err != nil {
			return nil, err
		}
	}
	if err := w.hubArgo.Login(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

func idOf(name string) string {
	if name == "principal" {
		return principalID
	}
	return "spiffe://" + trustDomain + "/argomesh/agent/" + name
}

func (w *world) applyProject(ctx context.Context) error {
	return w.hub.ApplyYAML(ctx, []byte(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: `+project+`
  namespace: argocd
spec:
  sourceRepos: ["*"]
  sourceNamespaces: ["edge-*"]
  destinations:
  - {name: "edge-*", namespace: "*"}
  clusterResourceWhitelist:
  - {group: "*", kind: "*"}
`))
}

// applications returns the Applications of an agent on one side.
func (w *world) onHub(agent string) dynamic.ResourceInterface {
	return w.hub.Resource(harness.Applications, agent)
}

func (w *world) onSpoke(agent string) dynamic.ResourceInterface {
	if agent == managed {
		return w.edge1.Resource(harness.Applications, harness.ArgoCDNamespace)
	}
	return w.edge2.Resource(harness.Applications, harness.ArgoCDNamespace)
}
