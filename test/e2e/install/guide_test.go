//go:build linux

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/harness/kubelet"
)

// guide is a page whose commands a test runs.
const guide = "docs/get-started.md"

// step is a command of a guide, and what it prints, with … for what differs from run to run; a line of only
// that stands for any number of lines.
type step struct{ command, prints string }

// steps are those of a page: in each block of kind console a line that begins with "$ ", with what a backslash or
// a here-document continues, and the lines after it.
func steps(page string) (out []step) {
	const document = "EOF"
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		open, ends := false, ""
		for line := range strings.Lines(block[1]) {
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case is:
				out = append(out, step{command: command})
			case open:
				out[len(out)-1].command += line
			default:
				out[len(out)-1].prints += line
				continue
			}
			if strings.Contains(line, "<<'"+document+"'") {
				ends = document
			}
			if strings.TrimSpace(line) == ends {
				ends = ""
			}
			open = ends != "" || strings.HasSuffix(line, "\\\n")
		}
	}
	return out
}

// pattern is what prints stands for.
func pattern(prints string) *regexp.Regexp {
	var out strings.Builder
	out.WriteString(`^`)
	for line := range strings.Lines(prints) {
		if line == "…\n" {
			out.WriteString(`(?s:.*)`)
			continue
		}
		out.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", `[^\n]*`))
	}
	out.WriteString(`$`)
	return regexp.MustCompile(out.String())
}

// spaces are what a table puts between its columns, which differs with what is in them.
var spaces = regexp.MustCompile(` {2,}`)

// The guide takes two clusters that have nothing to an agent and its first Application, and each of its
// commands prints what the guide says. Principal, agents, Envoy and Redis run from what is installed. Of SPIRE, load
// balancers and the rest of Argo CD, which do not, the test does what the guide needs, and kwok says that they are ready.
func TestGuide(t *testing.T) {
	t.Parallel()
	runSkipped(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(guide)))
	if err != nil {
		t.Fatal(err)
	}
	all := steps(string(page))
	if len(all) < 6 {
		t.Fatalf("%s has %d commands", guide, len(all))
	}
	g := newGuide(t)
	for i, s := range all {
		command := g.local(s.command)
		out, err := g.run(t, command)
		if err != nil {
			t.Fatalf("step %d, %s\n%v\n%s", i+1, command, err, out)
		}
		t.Logf("$ %s%s", s.command, out)
		got := spaces.ReplaceAllString(strings.ReplaceAll(out, registry, "registry.example/argomesh"), "  ")
		if !pattern(spaces.ReplaceAllString(s.prints, "  ")).MatchString(got) {
			t.Errorf("step %d, %s\nprints\n%s\nand in %s\n%s", i+1, s.command, got, guide, s.prints)
		}
		if strings.HasPrefix(s.command, "kubectl --context hub apply") {
			soon(t, "the Application of the guide is on the spoke", func() error {
				_, err := g.spoke.Resource(harness.Applications, harness.ArgoCDNamespace).Get(t.Context(), "guestbook", metav1.GetOptions{})
				return err
			})
		}
	}
}

// guided are the two clusters of the guide.
type guided struct {
	hub, spoke *harness.ControlPlane
	kubeconfig string
	env        []string
	dir        string
	bundles    map[string][]byte // by trust domain
	extra      string            // flags of an install that a machine without a network needs
}

func newGuide(t *testing.T) *guided {
	t.Helper()
	h := harnesstest.New(t)
	g := &guided{dir: t.TempDir(), bundles: map[string][]byte{}, kubeconfig: h.Path("kubeconfig")}
	stages := leftToPods(t, h)
	network := &kubelet.Network{}
	for td, side := range map[string]struct {
		name string
		at   **harness.ControlPlane
	}{"hub.example": {"hub", &g.hub}, "edge-1.example": {"edge-1", &g.spoke}} {
		c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
			Name: side.name, Workloads: true, Controllers: controllersOfPods(), Kubelet: stages, KubeletOfPods: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		*side.at = c
		runPods(t, h, network, c, td)
		if g.bundles[td], err = spire.MarshalBundle(authorityOf(t, h, td).Bundle()); err != nil {
			t.Fatal(err)
		}
	}
	writeContexts(t, g.kubeconfig, g.hub, g.spoke)
	noStorage := h.Path("spire.yaml")
	if err := os.WriteFile(noStorage, []byte("server: {storage: {size: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl, err := h.Kubectl(t.Context(), t.TempDir(), g.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	g.env = append(os.Environ(), "KUBECONFIG="+g.kubeconfig, "HOME="+t.TempDir(),
		"PATH="+filepath.Dir(agentctlBinary(t))+":"+filepath.Dir(kubectl.Path)+":"+os.Getenv("PATH"))
	g.extra = fmt.Sprintf(" --check-images=false --manifests %s --spire-values %s", archives(t), noStorage)
	return g
}

// local is a command of the guide as it is run here: by our registry, and without the images of others.
func (g *guided) local(command string) string {
	command = strings.ReplaceAll(strings.TrimSpace(command), "registry.example/argomesh", registry)
	if strings.Contains(command, "--with ") {
		command += g.extra
	}
	return command
}

// run runs a command, while g pretends.
func (g *guided) run(t *testing.T, command string) (string, error) {
	t.Helper()
	defer g.pretends(t)()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -eo pipefail; "+command)
	cmd.Env, cmd.Dir = g.env, g.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pretends has done, until stop is called, what no program here does: a load balancer gets its address, SPIRE publishes
// its bundle, and Argo CD makes its AppProject.
func (g *guided) pretends(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.pretend(ctx, t)
	}()
	return func() { cancel(); <-done }
}

func (g *guided) pretend(ctx context.Context, t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	when := func(c *harness.ControlPlane, kind schema.GroupVersionResource, namespace, name string, do func()) {
		all.Go(func() {
			seen, err := c.Resource(kind, namespace).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			defer seen.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e := <-seen.ResultChan():
					if o, is := e.Object.(metav1.Object); is && e.Type != watch.Deleted && o.GetName() == name {
						do()
					}
				}
			}
		})
	}
	const argocd = harness.ArgoCDNamespace
	balance := func(namespace, name, host string) func() {
		return func() {
			g.patch(ctx, t, g.hub.Resource(services, namespace), name, `{"status":{"loadBalancer":{"ingress":[{"hostname":"`+host+`"}]}}}`)
		}
	}
	for td, c := range map[string]*harness.ControlPlane{"hub.example": g.hub, "edge-1.example": g.spoke} {
		// SPIRE writes its bundle.
		when(c, statefulSet, "spire-system", "argomesh-spire-server", func() {
			create(ctx, t, c.Resource(env.ConfigMaps, "spire-system"), bundleMap(g.bundles[td]))
		})
	}
	when(g.hub, deployments, argocd, charts.Principal, balance(argocd, charts.Principal+"-stream", hubAddress))
	when(g.hub, statefulSet, "spire-system", "argomesh-spire-server", balance("spire-system", "argomesh-spire-bundle", "spire.hub.example"))
	project := func(c *harness.ControlPlane) func() {
		return func() { create(ctx, t, c.Resource(harness.AppProjects, argocd), stockProject()) }
	}
	when(g.hub, deployments, argocd, "argocd-server", project(g.hub))
	when(g.spoke, statefulSet, argocd, "argocd-application-controller", project(g.spoke))
}

// create makes what may be there already, once its kind is there.
func create(ctx context.Context, t *testing.T, where dynamic.ResourceInterface, object *unstructured.Unstructured) {
	t.Helper()
	if _, err := where.Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		t.Error(err)
	}
}

func (g *guided) patch(ctx context.Context, t *testing.T, where dynamic.ResourceInterface, name, patch string) {
	t.Helper()
	_, err := where.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		t.Error(err)
	}
}
