//go:build linux

package install

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/harness/kubelet"
	"github.com/argomesh/argomesh/test/kit"
)

// runningPair are a hub and a spoke whose pods run: package kubelet has principal, agents and Envoy run with what is in
// these pods, and with no setting of the test, and they are ready when these programs say so.
type runningPair struct {
	hub, spoke         *harness.ControlPlane
	hubNode, spokeNode *kubelet.Node
	kubeconfig         string
}

// hubAddress is where the load balancer of the principal is.
const hubAddress = "argomesh.hub.example"

// runSkipped skips a test that cannot have pods run, unless that would hide that nothing was tested.
func runSkipped(t *testing.T) {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "helm", "envoy", "argocd", "redis-server")
	if err := kubelet.Supported(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// newRunningPair has each cluster have Argo CD's definitions, AppProject default, an application controller and the
// resources of SPIRE.
func newRunningPair(t *testing.T) *runningPair {
	t.Helper()
	runSkipped(t)
	h := harnesstest.AtOnce(t) // it mostly waits for pods
	manifests, err := h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	p := &runningPair{kubeconfig: h.Path("kubeconfig")}
	network := &kubelet.Network{}
	sides := map[string]struct {
		td string
		at **harness.ControlPlane
		on **kubelet.Node
	}{"hub": {"hub.example", &p.hub, &p.hubNode}, "edge-1": {"edge.example", &p.spoke, &p.spokeNode}}
	stages := leftToPods(t, h)
	var starts errgroup.Group
	for name, side := range sides {
		starts.Go(func() (err error) {
			*side.at, err = h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
				Name: name, Workloads: true, Controllers: controllersOfPods(), Manifests: manifests,
				Kubelet: stages, KubeletOfPods: true,
			})
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, side := range sides {
		c := *side.at
		for _, namespace := range []string{harness.ArgoCDNamespace, "spire-system"} {
			if err := c.EnsureNamespace(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
		}
		withSPIRE(t, c)
		// As SPIRE's chart has it: what nothing else is registered for.
		env.Patch(t, c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), ""), "spire-default", map[string]any{"spec": map[string]any{"fallback": true}})
		hasDriver(t, c)
		hasController(t, c)
		env.Create(t, c.Resource(harness.AppProjects, harness.ArgoCDNamespace), stockProject())
		*side.on = runPods(t, h, network, c, side.td)
		publishBundle(t, c, authorityOf(t, h, side.td))
	}
	writeContexts(t, p.kubeconfig, p.hub, p.spoke)
	return p
}

// controllersOfPods are those that pods with service accounts need.
func controllersOfPods() []string {
	return append(harness.WorkloadControllers(), "root-ca-certificate-publisher-controller")
}

// podsThatRun are the names of the workloads whose pods do.
var podsThatRun = []string{charts.Principal, charts.Agent, "argocd-redis"}

// leftToPods writes what has kwok leave them, and more, to package kubelet.
func leftToPods(t *testing.T, h *harness.Harness, more ...string) (file string) {
	t.Helper()
	file = h.Path("stages.yaml")
	if err := os.WriteFile(file, kubelet.Stages(append(slices.Clone(podsThatRun), more...)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runPods runs the pods of our programs, of Argo CD's Redis, and more, on a cluster whose SPIRE is of a trust domain.
func runPods(t *testing.T, h *harness.Harness, network *kubelet.Network, c *harness.ControlPlane, td string, more ...string) *kubelet.Node {
	t.Helper()
	programs := map[string]string{}
	for _, name := range []string{"principal", "agent", "agentctl"} {
		path, err := h.Binary(name)
		if err != nil {
			t.Fatal(err)
		}
		programs[name] = path
	}
	for image, name := range map[string]string{"envoy": "envoy", "argocd": "argocd", "argocd-server": "argocd-server", "redis": "redis-server"} {
		path, err := h.Tools().Path(name)
		if err != nil {
			t.Fatal(err)
		}
		programs[image] = path
	}
	node, err := kubelet.New(kubelet.Config{
		Name: c.Name, Harness: h, ControlPlane: c, Namespace: harness.ArgoCDNamespace, Network: network,
		Names: append(slices.Clone(podsThatRun), more...), Programs: programs,
		TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: h.Path("ca-" + td), Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, node.Run)
	return node
}

// authorityOf is that of a trust domain, which signs what runPods hands out.
func authorityOf(t *testing.T, h *harness.Harness, td string) *devworkload.Server {
	t.Helper()
	authority, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: h.Path("ca-" + td)})
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// publishBundle has a cluster show the bundle of its trust domain as the chart argomesh-spire does.
func publishBundle(t *testing.T, c *harness.ControlPlane, authority *devworkload.Server) {
	t.Helper()
	bundle, err := spire.MarshalBundle(authority.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, c.Resource(env.ConfigMaps, "spire-system"), bundleMap(bundle))
}

// stockProject is AppProject default as Argo CD makes it.
func stockProject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}}
}

// installsHub installs the principal, whose load balancer gets its address.
func (p *runningPair) installsHub(t *testing.T) {
	t.Helper()
	must(t, p.kubeconfig, append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--set", "service.type=LoadBalancer")...)
	balance(t, p.hub, hubAddress)
}

// spokeArgs install the agent.
func (p *runningPair) spokeArgs(more ...string) []string {
	return append([]string{"spoke", "install", "edge-1", "--context", "edge-1", "--hub-context", "hub", "--registry", registry,
		"--trust-domain", "edge.example"}, more...)
}

// bad are what agentctl check finds that is a problem, or could not be asked.
func bad(found []finding) []finding {
	return slices.DeleteFunc(found, func(f finding) bool { return f.Level != "problem" && f.Level != "unknown" })
}

// Two commands take two clusters to an agent that is connected and whose Applications travel, by the programs that
// run from what they installed: nothing else says that the agent is connected.
func TestAgentctlInstallRuns(t *testing.T) {
	t.Parallel()
	p := newRunningPair(t)
	p.installsHub(t)
	checksHub := func() {
		t.Helper()
		soon(t, "the hub is as it should be", func() error {
			if found, _ := checked(t, p.kubeconfig, "hub", "--context", "hub"); len(bad(found)) > 0 {
				return fmt.Errorf("found are %+v", bad(found))
			}
			return nil
		})
	}
	checksHub()

	// An address that leads nowhere is found by a pod of the spoke, before anything is written.
	const wrong = "nowhere.hub.example:8443"
	unwritten := revisions(t, p.spoke)
	_, err := agentctl(t, p.kubeconfig, p.spokeArgs("--principal", wrong)...)
	if err == nil || !strings.Contains(err.Error(), "principal "+wrong+" is not reached: ") || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("with a wrong address it says %v", err)
	}
	if diff := cmp.Diff(unwritten, revisions(t, p.spoke)); diff != "" {
		t.Errorf("what was refused changed (-before +after):\n%s", diff)
	}
	// Who goes on is told that the agent is not connected, and check says why.
	out, err := agentctl(t, p.kubeconfig, p.spokeArgs("--set", "config.principal.address="+wrong, "--pre-check=false", "--timeout", "15s")...)
	if err == nil || !strings.Contains(err.Error(), `agent "edge-1" is installed, but not connected after 15s: `) || !strings.Contains(out, "2 of 2 pods are ready") {
		t.Errorf("with a wrong address it says %v\n%s", err, out)
	}
	t.Logf("with a wrong address it says %v", err)
	soon(t, "check says why", func() error {
		found, code := checked(t, p.kubeconfig, "spoke", "--context", "edge-1", "--hub-context", "hub")
		if code != 1 || !slices.ContainsFunc(found, func(f finding) bool {
			return f.Word == "ProgramNotReady" && strings.Contains(f.Says, "nowhere.hub.example")
		}) {
			return fmt.Errorf("found are %+v", found)
		}
		return nil
	})

	out = must(t, p.kubeconfig, p.spokeArgs("--set", "config.principal.address="+hubAddress+":8443", "--timeout", "1m")...)
	if !strings.Contains(out, "principal "+hubAddress+":8443 is reached, and shows a certificate of spiffe://hub.example/argomesh/principal\n") ||
		!strings.Contains(out, "agent edge-1 is connected to the hub") {
		t.Errorf("it says\n%s", out)
	}
	if out := must(t, p.kubeconfig, "status", "--context", "hub", "--wait", "--timeout", "1m"); !strings.Contains(out, "1 of 1 agents are as they should be") {
		t.Errorf("the status is\n%s", out)
	}
	env.Create(t, p.hub.Resource(harness.Applications, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "guestbook"},
		"spec": map[string]any{
			"project": "default", "source": map[string]any{"repoURL": "https://git.example/apps", "path": "guestbook", "targetRevision": "HEAD"},
			"destination": map[string]any{"name": "edge-1", "namespace": "guestbook"},
		},
	}})
	soon(t, "the Application is on the spoke", func() error {
		app, err := p.spoke.Resource(harness.Applications, harness.ArgoCDNamespace).Get(t.Context(), "guestbook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if path, _, _ := unstructured.NestedString(app.Object, "spec", "source", "path"); path != "guestbook" {
			return fmt.Errorf("it is %v", app.Object["spec"])
		}
		return nil
	})
	checksHub()
	soon(t, "the spoke is as it should be", func() error {
		if found, _ := checked(t, p.kubeconfig, "spoke", "--context", "edge-1", "--hub-context", "hub"); len(bad(found)) > 0 {
			return fmt.Errorf("found are %+v", bad(found))
		}
		return nil
	})

	must(t, p.kubeconfig, "spoke", "uninstall", "--context", "edge-1", "--yes")
	soon(t, "no agent runs", func() error {
		if left := p.spokeNode.Processes(); len(left) > 0 {
			return fmt.Errorf("%d pods run", len(left))
		}
		return nil
	})
	soon(t, "the hub says that the agent is away", func() error {
		out, err := agentctl(t, p.kubeconfig, "status", "--context", "hub", "--wait", "--timeout", "2s")
		if err == nil {
			return fmt.Errorf("the status is\n%s", out)
		}
		if !strings.Contains(err.Error(), "agent edge-1") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	if got := len(p.hubNode.Processes()); got != 1 {
		t.Errorf("%d pods run on the hub, want %s alone", got, charts.Principal)
	}
}
