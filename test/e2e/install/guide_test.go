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

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
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
// commands prints what the guide says. kwok makes the pods ready; of the programs that run in none, the test says
// what the hub would show of them.
func TestGuide(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "helm")
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
	}
}

// guided are the two clusters of the guide.
type guided struct {
	hub, spoke *harness.ControlPlane
	env        []string
	dir        string
	mu         sync.Mutex        // guards bundles
	bundles    map[string][]byte // by trust domain
	extra      string            // flags of an install that a machine without a network needs
}

func newGuide(t *testing.T) *guided {
	t.Helper()
	h := harnesstest.New(t)
	g := &guided{dir: t.TempDir(), bundles: map[string][]byte{}}
	kubeconfig := h.Path("kubeconfig")
	kubelet := h.Path("kubelet.yaml")
	if err := os.WriteFile(kubelet, fmt.Appendf(nil, kubeletOfAll, writeLog(t, h), newAdmin(t).port), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]**harness.ControlPlane{"hub": &g.hub, "edge-1": &g.spoke} {
		c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: name, Workloads: true, Kubelet: kubelet})
		if err != nil {
			t.Fatal(err)
		}
		*at = c
	}
	writeContexts(t, kubeconfig, g.hub, g.spoke)
	noStorage := h.Path("spire.yaml")
	if err := os.WriteFile(noStorage, []byte("server: {storage: {size: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl, err := h.Kubectl(t.Context(), t.TempDir(), kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	g.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir(),
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

// run runs a command, while what no program here does is done beside it: a load balancer gets its address, and
// an agent that is installed connects.
func (g *guided) run(t *testing.T, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.pretend(ctx, t)
	}()
	defer func() { cancel(); <-done }()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -eo pipefail; "+command)
	cmd.Env, cmd.Dir = g.env, g.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
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
	const argocd, address = harness.ArgoCDNamespace, `{"status":{"loadBalancer":{"ingress":[{"hostname":"argomesh.hub.example"}]}}}`
	balance := func(namespace, name string) func() {
		return func() { g.patch(ctx, t, g.hub.Resource(services, namespace), name, address) }
	}
	for td, c := range map[string]*harness.ControlPlane{"hub.example": g.hub, "edge-1.example": g.spoke} {
		// SPIRE writes its bundle.
		when(c, statefulSet, "spire-system", "argomesh-spire-server", func() { g.publish(ctx, t, c, td) })
	}
	when(g.hub, deployments, argocd, charts.Principal, balance(argocd, charts.Principal+"-stream"))
	when(g.hub, statefulSet, "spire-system", "argomesh-spire-server", balance("spire-system", "argomesh-spire-bundle"))
	when(g.spoke, deployments, argocd, charts.Agent, func() {
		g.patch(ctx, t, g.hub.Resource(env.Agents, argocd), "edge-1", connectedStatus)
	})
}

// publish has the bundle of a trust domain be where SPIRE writes it.
func (g *guided) publish(ctx context.Context, t *testing.T, c *harness.ControlPlane, td string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bundles[td] == nil {
		bundle, err := spire.MarshalBundle(spiretest.NewBundle(t, spiffeid.RequireTrustDomainFromString(td)))
		if err != nil {
			t.Error(err)
			return
		}
		g.bundles[td] = bundle
	}
	_, err := c.Resource(env.ConfigMaps, "spire-system").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-spire-bundle"},
		"data": map[string]any{"bundle.spiffe": string(g.bundles[td])},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		t.Error(err)
	}
}

// connectedStatus is what a principal says of an agent with which all is well.
const connectedStatus = `{"status":{"connected":true,"summary":"Connected","since":"2026-11-29T00:00:00Z","versions":{"agent":"v0.1.0"},"conditions":[
{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-11-29T00:00:00Z"},
{"type":"Connected","status":"True","reason":"Connected","message":"","lastTransitionTime":"2026-11-29T00:00:00Z"}]}}`

func (g *guided) patch(ctx context.Context, t *testing.T, where dynamic.ResourceInterface, name, patch string) {
	t.Helper()
	_, err := where.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		t.Error(err)
	}
}
