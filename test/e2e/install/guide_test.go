//go:build linux

package install

import (
	"context"
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
	t.Cleanup(g.pretends(t))
	for _, s := range all {
		g.does(t, s)
		if strings.HasPrefix(s.command, "kubectl --context hub apply") {
			soon(t, "the Application of the guide is on the spoke", func() error {
				_, err := g.spoke.Resource(harness.Applications, harness.ArgoCDNamespace).Get(t.Context(), "guestbook", metav1.GetOptions{})
				return err
			})
		}
	}
}

// shell runs the commands of a page.
type shell struct {
	page string // for people
	dir  string // where they run
	env  []string
	// more are flags that commands get here, by a part of the command: what a machine without a network, volumes and the
	// registry of the page needs.
	more map[string]string
}

// newShell is one in which agentctl, kubectl and helm are found, and reach clusters by a kubeconfig.
func newShell(t *testing.T, page, kubeconfig string) *shell {
	t.Helper()
	home, path := t.TempDir(), []string{filepath.Dir(agentctlBinary(t))}
	for _, name := range []string{"kubectl", "helm"} {
		file, err := harnesstest.Tools(t).Path(name)
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, filepath.Dir(file))
	}
	return &shell{page: page, dir: t.TempDir(), env: append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+home,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, // no repositories, plugins or cache of the user
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))}
}

// does runs a command, which has to print what the page says.
func (s *shell) does(t *testing.T, of step) {
	t.Helper()
	command := strings.ReplaceAll(strings.TrimSpace(of.command), "registry.example/argomesh", registry)
	for part, flags := range s.more {
		if strings.Contains(command, part) {
			command += flags
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -eo pipefail; "+command)
	cmd.Env, cmd.Dir = s.env, s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s\n%v\n%s", s.page, command, err, out)
	}
	t.Logf("$ %s%s", of.command, out)
	got := spaces.ReplaceAllString(strings.ReplaceAll(string(out), registry, "registry.example/argomesh"), "  ")
	if !pattern(spaces.ReplaceAllString(of.prints, "  ")).MatchString(got) {
		t.Errorf("%s prints\n%s\nand in %s\n%s", of.command, got, s.page, of.prints)
	}
}

// guided are the two clusters of the guide.
type guided struct {
	*shell
	hub, spoke         *harness.ControlPlane
	hubNode, spokeNode *kubelet.Node
	kubeconfig         string
	bundles            map[string][]byte // by trust domain
	brings             []string          // flags that --with needs here
}

func newGuide(t *testing.T) *guided {
	t.Helper()
	h := harnesstest.New(t)
	return newGuideIn(t, h, leftToPods(t, h))
}

// newGuideIn is newGuide with clusters whose kwok has that file, and with more pods that run, as leftToPods has both.
func newGuideIn(t *testing.T, h *harness.Harness, stages string, more ...string) *guided {
	t.Helper()
	g := &guided{bundles: map[string][]byte{}, kubeconfig: h.Path("kubeconfig")}
	network := &kubelet.Network{}
	for td, side := range map[string]struct {
		name string
		at   **harness.ControlPlane
		on   **kubelet.Node
	}{"hub.example": {"hub", &g.hub, &g.hubNode}, "edge-1.example": {"edge-1", &g.spoke, &g.spokeNode}} {
		c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
			Name: side.name, Workloads: true, Controllers: controllersOfPods(), Kubelet: stages, KubeletOfPods: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		*side.at = c
		*side.on = runPods(t, h, network, c, td, more...)
		if g.bundles[td], err = spire.MarshalBundle(authorityOf(t, h, td).Bundle()); err != nil {
			t.Fatal(err)
		}
	}
	writeContexts(t, g.kubeconfig, g.hub, g.spoke)
	noStorage := h.Path("spire.yaml")
	if err := os.WriteFile(noStorage, []byte("server: {storage: {size: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.brings = []string{"--check-images=false", "--manifests", archives(t), "--spire-values", noStorage}
	g.shell = newShell(t, guide, g.kubeconfig)
	g.more = map[string]string{"--with spire,argocd": " " + strings.Join(g.brings, " ")}
	return g
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
		all.Go(func() { whenever(ctx, t, c.Resource(kind, namespace), name, do) })
	}
	const argocd = harness.ArgoCDNamespace
	balance := func(namespace, name, host string) func() {
		return func() {
			hasAddress(ctx, t, g.hub.Resource(services, namespace), name, host)
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

// hasAddress has a Service have an address, if it is there and a load balancer.
func hasAddress(ctx context.Context, t *testing.T, where dynamic.ResourceInterface, name, host string) {
	t.Helper()
	of, err := where.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if kind, _, _ := unstructured.NestedString(of.Object, "spec", "type"); kind != "LoadBalancer" {
			return
		}
		patch := []byte(`{"status":{"loadBalancer":{"ingress":[{"hostname":"` + host + `"}]}}}`)
		_, err = where.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		t.Error(err)
	}
}

// whenever does something each time an object of a name is there or changes, until ctx is done.
func whenever(ctx context.Context, t *testing.T, where dynamic.ResourceInterface, name string, do func()) {
	t.Helper()
	seen, err := where.Watch(ctx, metav1.ListOptions{})
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
}
