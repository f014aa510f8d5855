//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/harness"
)

const (
	trustDomain = "demo.argomesh.local"
	principalID = "spiffe://" + trustDomain + "/argomesh/principal"

	// The spokes. Applications of the managed one are written on the hub, those of the
	// autonomous one on the spoke.
	managed    = "edge-1"
	autonomous = "edge-2"
	// refused is an agent that the hub refuses, since it runs in another mode than the one
	// that is registered. It has a namespace of the autonomous one's API server.
	refused = "edge-3"

	// application is the name of both Applications, and of the namespace each is
	// deployed to on its spoke.
	application = "guestbook"

	// serverMemory keeps each of the API servers small; they hold few objects.
	serverMemory = "400MiB"
)

// secretFile is a Secret of the Application, whose value stays on the spoke.
const secretFile = "apiVersion: v1\nkind: Secret\nmetadata: {name: guestbook}\nstringData: {password: correct-horse}\n"

// shownBy shows the Application of the managed agent, whose tree is on the spoke.
var shownBy = []string{"app", "resources", application, "--output", "tree=detailed"}

var configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// agentResource is that of the registered agents.
var agentResource = schema.GroupVersionResource{Group: "argomesh.io", Version: "v1alpha1", Resource: "agents"}

// agentID is the SPIFFE ID of an agent.
func agentID(agent string) string { return "spiffe://" + trustDomain + "/argomesh/agent/" + agent }

// site is one control plane with what runs beside it.
type site struct {
	name         string
	controlPlane *harness.ControlPlane
	argocd       *harness.ArgoCD
	workloadAPI  *harness.WorkloadAPI
}

// topology is the whole demo.
type topology struct {
	h        *harness.Harness
	narrator *narrator

	repository *harness.Repository
	etcd       *harness.Etcd
	pods       string // what kwok plays for them
	hub        site
	spokes     map[string]*site   // by agent name
	door       *harness.FrontDoor // the principal with its Envoy
	agents     map[string]*harness.Agent
	networks   map[string]*harness.Proxy         // between an agent and the principal
	background func(func(context.Context) error) // runs something until the demo ends
	ui         bool                              // argocd-server has its web interface
	signIn     *signIn                           // nil without it

	firstSync time.Duration // from the start until the hub's argocd-server showed it
	shown     string        // what argocd app get printed
}

func newTopology(h *harness.Harness, n *narrator, ui bool, background func(func(context.Context) error)) *topology {
	return &topology{
		h: h, narrator: n, ui: ui, background: background,
		hub: site{name: "hub"},
		spokes: map[string]*site{
			managed:    {name: managed},
			autonomous: {name: autonomous},
		},
		agents:   make(map[string]*harness.Agent),
		networks: make(map[string]*harness.Proxy),
	}
}

// start returns when both Applications are synced and the hub shows them.
func (t *topology) start(ctx context.Context) error {
	var err error
	files := harness.GuestbookFiles()
	files[shopPath+"/configmap.yaml"], files[harness.GuestbookPath+"/secret.yaml"] = shopFile, secretFile
	if t.repository, err = t.h.NewRepository(ctx, "repository", files); err != nil {
		return err
	}
	if t.etcd, err = t.h.StartEtcd(ctx, "etcd"); err != nil {
		return err
	}
	if t.pods, err = t.writePods(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.startHub(gctx) })
	for _, spoke := range t.spokes {
		g.Go(func() error { return t.startSpoke(gctx, spoke) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := t.startAgents(ctx); err != nil {
		return err
	}
	for name := range t.spokes {
		config, err := t.h.ClusterAccess(ctx, t.hub.controlPlane, name)
		if err != nil {
			return err
		}
		if err := harness.WriteKubeconfig(t.throughHub(name), config); err != nil {
			return err
		}
	}
	if err := t.syncManaged(ctx); err != nil {
		return err
	}
	return t.syncAutonomous(ctx)
}

// startAgents starts those of both spokes and the one that is refused.
func (t *topology) startAgents(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for name, mode := range map[string]string{managed: "managed", autonomous: "autonomous"} {
		agent := new(harness.Agent)
		t.agents[name] = agent
		network, err := t.h.NewProxy(t.door.Address)
		if err != nil {
			return err
		}
		t.networks[name] = network
		t.background(network.Run)
		g.Go(func() error {
			started, err := t.startAgent(ctx, t.spokes[name], mode, network.Address())
			if err == nil {
				*agent = *started
			}
			return err
		})
	}
	t.agents[refused] = new(harness.Agent)
	g.Go(func() error { return t.startRefused(ctx) })
	return g.Wait()
}

// startRefused starts an agent that the hub refuses.
func (t *topology) startRefused(ctx context.Context) error {
	identity, err := t.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: refused + "-workload-api", TrustDomain: trustDomain, CADir: t.h.Path("ca"), Entries: []string{agentID(refused)},
	})
	if err != nil {
		return err
	}
	spoke := t.spokes[autonomous].controlPlane
	if err := spoke.EnsureNamespace(ctx, refused); err != nil {
		return err
	}
	agent, err := t.h.StartAgent(ctx, harness.AgentConfig{
		Name: refused, Mode: "autonomous", ControlPlane: spoke, WorkloadAPI: identity,
		PrincipalAddress: t.door.Address, PrincipalIDs: []string{principalID}, Settings: harness.Settings{"namespace": refused},
	})
	if err != nil {
		return err
	}
	*t.agents[refused] = *agent
	t.narrator.say("agent %s is refused: it is autonomous, and registered as managed", refused)
	return nil
}

// throughHub is the kubeconfig of an agent's Kubernetes API as the hub has it. Its
// token is good for a day.
func (t *topology) throughHub(agent string) string {
	return t.h.Path(agent + "-through-hub.kubeconfig")
}

// startHub starts everything beside the hub, the principal included, and registers
// the agents.
func (t *topology) startHub(ctx context.Context) error {
	crds, err := filepath.Glob(filepath.Join(t.h.Tools().Checkout(), "charts", "argomesh-principal", "files", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	redis, err := t.h.Address()
	if err != nil {
		return err
	}
	err = t.startSite(ctx, &t.hub, principalID+",dns=localhost", harness.ControlPlaneConfig{Manifests: crds, ServerMemory: serverMemory}, harness.ArgoCDConfig{
		Server:                true,
		ApplicationNamespaces: []string{"*"},
		UI:                    t.ui,
		ServerRedis:           redis, // of the principal's Envoy: each spoke's trees, beside the hub's own
	})
	if err != nil {
		return err
	}
	hub := t.hub.controlPlane
	if err := hub.ApplyYAML(ctx, []byte(hubObjects)); err != nil {
		return err
	}
	// Argo CD's terminal is off unless someone switches it on.
	if _, err := hub.Resource(configMapResource, harness.ArgoCDNamespace).Patch(ctx, "argocd-cm", types.MergePatchType,
		[]byte(`{"data":{"exec.enabled":"true"}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	account, err := t.refuseMirrors(ctx)
	if err != nil {
		return err
	}
	if t.door, err = t.h.StartFrontDoor(ctx, harness.PrincipalConfig{
		ControlPlane: hub,
		WorkloadAPI:  t.hub.workloadAPI,
		Redis:        t.hub.argocd.Redis,
		Settings: harness.Settings{
			"projects.share_default": true, "hub.application_controller": false, "envoy.redis": redis,
			"mapping.by":            "", // as a new hub has it: by destination
			"kubernetes.kubeconfig": account,
		},
	}); err != nil {
		return err
	}
	t.narrator.say("principal is ready at %s, its Envoy at %s", t.door.Address, t.door.URL)
	for _, agent := range [][]string{
		{managed, "--mode", "managed", "--spiffe-id", agentID(managed)},
		{autonomous, "--mode", "autonomous", "--spiffe-id", agentID(autonomous)},
		{refused, "--mode", "managed", "--spiffe-id", agentID(refused)},
	} {
		if _, err := t.h.Agentctl(ctx, hub, append([]string{"agent", "create", "--wait"}, agent...)...); err != nil {
			return err
		}
		// Argo CD of the hub sees and changes what is on a spoke, as far as the agent's own
		// configuration lets it.
		if _, err := hub.Resource(agentResource, harness.ArgoCDNamespace).Patch(ctx, agent[0], types.MergePatchType,
			[]byte(`{"spec":{"access":{"enabled":true,"writes":true,"exec":true,"secrets":"masked"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		t.narrator.say("agent %s is registered", agent[0])
	}
	return nil
}

// hubObjects let the hub's Applications be deployed to every spoke.
const hubObjects = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  sourceNamespaces: ["*"]
  destinations: [{name: "*", server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

func (t *topology) startSpoke(ctx context.Context, spoke *site) error {
	return t.startSite(ctx, spoke, agentID(spoke.name), harness.ControlPlaneConfig{Workloads: true, Kubelet: t.pods, ServerMemory: serverMemory}, harness.ArgoCDConfig{
		Controller: true,
		// A managed spoke gets its projects from the hub.
		DefaultProject: spoke.name == autonomous,
	})
}

// startSite starts a control plane, its Argo CD and its Workload API.
func (t *topology) startSite(ctx context.Context, s *site, id string, plane harness.ControlPlaneConfig, argocd harness.ArgoCDConfig) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		s.workloadAPI, err = t.h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name:        s.name + "-workload-api",
			TrustDomain: trustDomain,
			CADir:       t.h.Path("ca"),
			Entries:     []string{id},
		})
		return err
	})
	g.Go(func() (err error) {
		theirs, err := t.h.ArgoCDDefinitions(argocd)
		if err != nil {
			return err
		}
		plane.Name, plane.Etcd, plane.Manifests = s.name, t.etcd, append(plane.Manifests, theirs...)
		if s.controlPlane, err = t.h.StartControlPlane(ctx, plane); err != nil {
			return err
		}
		t.narrator.say("Kubernetes API of %s is ready at %s", s.name, s.controlPlane.URL)
		argocd.ControlPlane = s.controlPlane
		if s.argocd, err = t.h.StartArgoCD(ctx, argocd); err != nil {
			return err
		}
		t.narrator.say("Argo CD of %s is ready", s.name)
		return nil
	})
	return g.Wait()
}

func (t *topology) startAgent(ctx context.Context, spoke *site, mode, principal string) (*harness.Agent, error) {
	agent, err := t.h.StartAgent(ctx, harness.AgentConfig{
		Name:             spoke.name,
		Mode:             mode,
		ControlPlane:     spoke.controlPlane,
		WorkloadAPI:      spoke.workloadAPI,
		PrincipalAddress: principal,
		PrincipalIDs:     []string{principalID},
		Redis:            spoke.argocd.Redis,
		// The hub's project default is the spokes' as well: both sides say so.
		Settings: harness.Settings{
			"access.enabled": true, "access.writes": true, "access.exec": true, "access.secrets": "masked", "redis_proxy.enabled": true,
			"policy.adopt": []string{"appproject/default"},
		},
	})
	if err != nil {
		return nil, err
	}
	t.narrator.say("agent %s is ready", spoke.name)
	return agent, nil
}

// syncManaged creates an Application on the hub and follows it to the spoke and back.
func (t *topology) syncManaged(ctx context.Context) error {
	hub, spoke := t.hub.controlPlane, t.spokes[managed].controlPlane
	if err := hub.Apply(ctx, t.applicationObject(harness.ArgoCDNamespace, map[string]any{"name": managed})); err != nil {
		return err
	}
	t.narrator.say("Application %s is created on the hub, for %s", application, managed)
	if err := t.hub.argocd.Login(ctx); err != nil {
		return err
	}
	if err := waitSynced(ctx, spoke, harness.ArgoCDNamespace, application); err != nil {
		return fmt.Errorf("on %s: %w", managed, err)
	}
	t.narrator.say("Application %s is Synced and Healthy on %s", application, managed)
	if err := waitSynced(ctx, hub, harness.ArgoCDNamespace, application); err != nil {
		return fmt.Errorf("on the hub: %w", err)
	}
	if err := harness.Eventually(ctx, "argocd-server to show "+application, func() error {
		printed, err := t.hub.argocd.CLI(ctx, "app", "get", application, "--output", "json")
		if err != nil {
			return err
		}
		return harness.SyncedAndHealthy(printed)
	}); err != nil {
		return err
	}
	t.firstSync = time.Since(t.narrator.begin)
	t.narrator.say("argocd-server of the hub shows it: first synced Application after %.1fs", t.firstSync.Seconds())
	// The tree comes from the spoke's Redis, a moment after its controller has written it.
	return harness.Eventually(ctx, "argocd-server to show the pods of "+application, func() (err error) {
		t.shown, err = t.hub.argocd.CLI(ctx, shownBy...)
		if err == nil && !strings.Contains(t.shown, " Pod ") {
			err = fmt.Errorf("argocd %s shows none: %s", strings.Join(shownBy, " "), t.shown)
		}
		return err
	})
}

// syncAutonomous creates an Application on the spoke and waits for its mirror.
func (t *topology) syncAutonomous(ctx context.Context) error {
	hub, spoke := t.hub.controlPlane, t.spokes[autonomous].controlPlane
	object := t.applicationObject(harness.ArgoCDNamespace, map[string]any{"server": "https://kubernetes.default.svc"})
	if err := spoke.Apply(ctx, object); err != nil {
		return err
	}
	t.narrator.say("Application %s is created on %s", application, autonomous)
	if err := waitSynced(ctx, hub, autonomous, application); err != nil {
		return fmt.Errorf("mirror on the hub: %w", err)
	}
	t.narrator.say("the hub shows its mirror %s/%s, Synced and Healthy", autonomous, application)
	return nil
}

// applicationObject is the demo's Application, in a namespace, for a destination
// given by name or server.
func (t *topology) applicationObject(namespace string, destination map[string]any) *unstructured.Unstructured {
	destination["namespace"] = application
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "Application",
		"metadata":   map[string]any{"name": application, "namespace": namespace},
		"spec": map[string]any{
			"project": "default",
			"source": map[string]any{
				"repoURL":        t.repository.URL,
				"path":           harness.GuestbookPath,
				"targetRevision": harness.Branch,
			},
			"destination": destination,
			"syncPolicy": map[string]any{
				"automated":   map[string]any{"prune": true, "selfHeal": true},
				"syncOptions": []any{"CreateNamespace=true"},
			},
		},
	}}
}

// waitSynced waits until an Application is Synced and Healthy.
func waitSynced(ctx context.Context, at *harness.ControlPlane, namespace, name string) error {
	applications := at.Resource(harness.Applications, namespace)
	return harness.Eventually(ctx, fmt.Sprintf("Application %s/%s to be Synced and Healthy", namespace, name), func() error {
		app, err := applications.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		synced, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		healthy, _, _ := unstructured.NestedString(app.Object, "status", "health", "status")
		if synced != "Synced" || healthy != "Healthy" {
			conditions, _, _ := unstructured.NestedSlice(app.Object, "status", "conditions")
			return fmt.Errorf("sync status %q, health %q, conditions %v", synced, healthy, conditions)
		}
		return nil
	})
}

// linkPrograms puts the programs a person needs into one folder and returns it.
func (t *topology) linkPrograms() (string, error) {
	dir := t.h.Path("bin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for program, find := range map[string]func(string) (string, error){
		"kubectl":  t.h.Tools().Path,
		"argocd":   t.h.Tools().Path,
		"agentctl": t.h.Binary,
	} {
		path, err := find(program)
		if err != nil {
			return "", err
		}
		if err := os.Symlink(path, filepath.Join(dir, program)); err != nil {
			return "", err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' try -dir '%s' \"$@\"\n", self, t.h.Path())
	return dir, os.WriteFile(filepath.Join(dir, "try"), []byte(script), 0o700)
}
