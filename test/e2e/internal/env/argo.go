//go:build linux

package env

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const (
	// TrustDomain is that of the hub and its agents.
	TrustDomain = "e2e.argomesh.test"
	// PrincipalID is the SPIFFE ID of the principal.
	PrincipalID = "spiffe://" + TrustDomain + "/argomesh/principal"
	// SvidTTL is short, so that every test runs under rotation.
	SvidTTL = 30 * time.Second

	// Managed is the agent of that mode of an Argo and of a Live.
	Managed = "edge-1"
	// Autonomous is the agent of that mode of an Argo and of a Live.
	Autonomous = "edge-2"
	// Project is the AppProject of the hub for managed agents.
	Project = "fleet"
	// NewPath is a folder of the repository with the guestbook under another name.
	NewPath = "new"
	// SpokeMaxBytes is the largest object that the API server of edge-1 stores.
	SpokeMaxBytes = 512 << 10
)

// Argo is a hub and two spokes with Argo CD: edge-1, managed, and edge-2, autonomous. Each test
// uses Applications of its own names.
type Argo struct {
	Harness           *harness.Harness
	Hub, Edge1, Edge2 *harness.ControlPlane
	HubArgo           *harness.ArgoCD
	EdgeRedis         map[string]*harness.Redis       // of the spokes' Argo CDs, by agent
	Identities        map[string]*harness.WorkloadAPI // by whose they are
	CADir             string
	Principal         *harness.Principal
	Agents            map[string]*harness.Agent
	Repository        *harness.Repository
	Traces            *Traces
}

var argoPool = newSharedPool("argo", 2, StartArgo(Releases{}), (*Argo).info, attachArgo)

// argoInfo describes an Argo to another program.
type argoInfo struct {
	Hub, Edge1, Edge2                               harness.ControlPlaneInfo
	HubArgo                                         harness.ArgoCDInfo
	EdgeRedis                                       map[string]harness.RedisInfo
	Identities                                      map[string]harness.WorkloadAPIInfo
	Principal                                       harness.PrincipalInfo
	Agents                                          map[string]harness.AgentInfo
	CADir, RepositoryURL, TracesAddress, TracesFile string
}

func (w *Argo) info() argoInfo {
	d := argoInfo{
		Hub: w.Hub.Info(), Edge1: w.Edge1.Info(), Edge2: w.Edge2.Info(), HubArgo: w.HubArgo.Info(), Principal: w.Principal.Info(),
		CADir: w.CADir, RepositoryURL: w.Repository.URL, TracesAddress: w.Traces.address, TracesFile: w.Traces.file,
		EdgeRedis: map[string]harness.RedisInfo{}, Identities: map[string]harness.WorkloadAPIInfo{}, Agents: map[string]harness.AgentInfo{},
	}
	for name, redis := range w.EdgeRedis {
		d.EdgeRedis[name] = redis.Info()
	}
	for name, identity := range w.Identities {
		d.Identities[name] = identity.Info()
	}
	for name, agent := range w.Agents {
		d.Agents[name] = agent.Info()
	}
	return d
}

func attachArgo(h *harness.Harness, d argoInfo) (*Argo, error) {
	w := &Argo{
		Harness: h, Principal: harness.AttachPrincipal(d.Principal), CADir: d.CADir,
		Repository: &harness.Repository{URL: d.RepositoryURL}, Traces: &Traces{address: d.TracesAddress, file: d.TracesFile},
		EdgeRedis: map[string]*harness.Redis{}, Identities: map[string]*harness.WorkloadAPI{}, Agents: map[string]*harness.Agent{},
	}
	for name, redis := range d.EdgeRedis {
		w.EdgeRedis[name] = harness.AttachRedis(redis)
	}
	for name, identity := range d.Identities {
		w.Identities[name] = harness.AttachWorkloadAPI(identity)
	}
	for name, agent := range d.Agents {
		w.Agents[name] = harness.AttachAgent(agent)
	}
	var err error
	for at, info := range map[**harness.ControlPlane]harness.ControlPlaneInfo{&w.Hub: d.Hub, &w.Edge1: d.Edge1, &w.Edge2: d.Edge2} {
		if *at, err = h.AttachControlPlane(info); err != nil {
			return nil, err
		}
	}
	w.HubArgo = h.AttachArgoCD(w.Hub, d.HubArgo)
	return w, nil
}

// SharedArgo returns the shared environment to a test that leaves others' objects and all
// processes alone. It is called once in a test.
func SharedArgo(t *testing.T) *Argo {
	t.Helper()
	shared := argoPool.share(t)
	harnesstest.Busy(t, "argo")
	return shared.Get(t)
}

// OwnArgo returns an environment that no other test uses, to a test that stops processes
// or takes agents away. It is called once in a test.
func OwnArgo(t *testing.T) *Argo {
	t.Helper()
	return argoPool.TakeAlone(t).Get(t)
}

// Releases are those of what an Argo has that is not ours. Empty means the newest.
type Releases struct {
	ArgoCD     string // of the spokes
	Kubernetes string // of hub and spokes
}

// StartArgo is the start of an environment of some releases.
func StartArgo(of Releases) func(context.Context, *harness.Harness) (*Argo, error) {
	return func(ctx context.Context, h *harness.Harness) (*Argo, error) { return startArgo(ctx, h, of) }
}

func startArgo(ctx context.Context, h *harness.Harness, of Releases) (*Argo, error) {
	w := &Argo{
		Harness: h, Identities: map[string]*harness.WorkloadAPI{}, Agents: map[string]*harness.Agent{}, CADir: h.Path("ca"),
	}
	var err error
	if w.Traces, err = startTraces(ctx, h.Path("traces.jsonl")); err != nil {
		return nil, err
	}
	files := harness.GuestbookFiles()
	for name, content := range harness.GuestbookFiles() {
		files[strings.Replace(name, harness.GuestbookPath, NewPath, 1)] = strings.ReplaceAll(content, "name: guestbook", "name: new-guestbook")
	}
	if w.Repository, err = h.NewRepository(ctx, "repo", files); err != nil {
		return nil, err
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	crds, err := ourDefinitions(h)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		argo := harness.ArgoCDConfig{Server: true, ApplicationNamespaces: []string{"*"}}
		theirs, err := h.ArgoCDDefinitions(argo)
		if err != nil {
			return err
		}
		if w.Hub, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{
			Name: "hub", Release: of.Kubernetes, Etcd: etcd, Manifests: append(crds, theirs...),
			Controllers: []string{"namespace-controller", "garbage-collector-controller"},
		}); err != nil {
			return err
		}
		argo.ControlPlane = w.Hub
		w.HubArgo, err = h.StartArgoCD(gctx, argo)
		return err
	})
	small, err := h.StartEtcd(ctx, "small-etcd", fmt.Sprint("--max-request-bytes=", SpokeMaxBytes))
	if err != nil {
		return nil, err
	}
	w.EdgeRedis = map[string]*harness.Redis{Managed: {}, Autonomous: {}}
	for name, at := range map[string]**harness.ControlPlane{Managed: &w.Edge1, Autonomous: &w.Edge2} {
		redis := w.EdgeRedis[name]
		g.Go(func() (err error) {
			stores := map[string]*harness.Etcd{Managed: small, Autonomous: etcd}
			cfg := harness.ArgoCDConfig{
				Release: of.ArgoCD, Controller: true, DefaultProject: true, ControllerArgs: []string{"--hydrator-enabled"},
			}
			theirs, err := h.ArgoCDDefinitions(cfg)
			if err != nil {
				return err
			}
			if *at, err = h.StartControlPlane(gctx, harness.ControlPlaneConfig{
				Name: name, Release: of.Kubernetes, Etcd: stores[name], Workloads: true, Manifests: theirs,
			}); err != nil {
				return err
			}
			cfg.ControlPlane = *at
			argo, err := h.StartArgoCD(gctx, cfg)
			if err == nil {
				*redis = *argo.Redis
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, name := range []string{"principal", Managed, Autonomous} {
		w.Identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: TrustDomain, CADir: w.CADir, TTL: SvidTTL,
			Entries: []string{SPIFFEID(name)},
		})
		if err != nil {
			return nil, err
		}
	}
	if w.Principal, err = h.StartPrincipal(ctx, harness.PrincipalConfig{
		ControlPlane: w.Hub, WorkloadAPI: w.Identities["principal"], Redis: w.HubArgo.Redis,
		Settings: harness.Settings{"tracing.otlp_endpoint": w.Traces.address, "tracing.insecure": true, "log.level": "debug"},
	}); err != nil {
		return nil, err
	}
	for name, mode := range map[string]string{Managed: "managed", Autonomous: "autonomous"} {
		if _, err := h.Agentctl(ctx, w.Hub, "agent", "create", name, "--mode", mode, "--spiffe-id", SPIFFEID(name), "--wait"); err != nil {
			return nil, err
		}
	}
	if err := w.ApplyProject(ctx); err != nil {
		return nil, err
	}
	for name, at := range map[string]*harness.ControlPlane{Managed: w.Edge1, Autonomous: w.Edge2} {
		mode := map[string]string{Managed: "managed", Autonomous: "autonomous"}[name]
		w.Agents[name], err = h.StartAgent(ctx, harness.AgentConfig{
			Name: name, Mode: mode, ControlPlane: at, WorkloadAPI: w.Identities[name],
			PrincipalAddress: w.Principal.Address, PrincipalIDs: []string{PrincipalID}, Redis: w.EdgeRedis[name],
			Settings: harness.Settings{"tracing.otlp_endpoint": w.Traces.address, "tracing.insecure": true, "log.level": "debug"},
		})
		if err != nil {
			return nil, err
		}
	}
	if err := w.HubArgo.Login(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// SPIFFEID is the identity of an agent, or of the principal.
func SPIFFEID(name string) string {
	if name == "principal" {
		return PrincipalID
	}
	return "spiffe://" + TrustDomain + "/argomesh/agent/" + name
}

// ApplyProject makes Project on the hub.
func (w *Argo) ApplyProject(ctx context.Context) error {
	return w.Hub.ApplyYAML(ctx, []byte(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: `+Project+`
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

// OnHub are the Applications of an agent on the hub.
func (w *Argo) OnHub(agent string) dynamic.ResourceInterface {
	return w.Hub.Resource(harness.Applications, agent)
}

// OnSpoke are the Applications of an agent on its spoke.
func (w *Argo) OnSpoke(agent string) dynamic.ResourceInterface {
	if agent == Managed {
		return w.Edge1.Resource(harness.Applications, harness.ArgoCDNamespace)
	}
	return w.Edge2.Resource(harness.Applications, harness.ArgoCDNamespace)
}

// Secrets are those of Kubernetes.
var Secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// ArgoAPI is a person's session with argocd-server's REST API.
type ArgoAPI struct{ Base, Token string }

// API is a session of the admin with the hub's argocd-server.
func (w *Argo) API(t *testing.T) ArgoAPI {
	t.Helper()
	a := ArgoAPI{Base: "http://" + w.HubArgo.ServerAddress + "/api/v1/"}
	body, err := json.Marshal(map[string]string{"username": "admin", "password": w.HubArgo.AdminPassword})
	if err != nil {
		t.Fatal(err)
	}
	var session struct{ Token string }
	if err := a.Call(t.Context(), http.MethodPost, "session", body, &session); err != nil {
		t.Fatal(err)
	}
	a.Token = session.Token
	return a
}

// Call asks for a path below /api/v1 and decodes the answer; another status than 200 is an error.
func (a ArgoAPI) Call(ctx context.Context, method, path string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, a.Base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.Token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read below
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, content)
	}
	return json.Unmarshal(content, into)
}
