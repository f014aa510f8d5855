//go:build linux

package install

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// installPage is a page of several ways to install, each under headings of its own.
const installPage = "docs/install.md"

// part is what a page has under a heading.
type part struct {
	heading string
	steps   []step
	files   map[string]map[string]any // YAML by name
	unrun   []step
}

// ofPage is what counts on a page: a heading, why the block that follows is not run, and a block.
var ofPage = regexp.MustCompile("(?s)\n(?:#{1,4} ([^\n]+)|<!-- not run: ([^\n]+) -->|```([^\n]*)\n(.*?)\n```)")

// partsOf are those of a page. Its blocks are of kind console, or YAML that begins with the name of its file.
func partsOf(t *testing.T, page string) (out []*part) {
	t.Helper()
	why := ""
	for _, of := range ofPage.FindAllStringSubmatch("\n"+page, -1) {
		heading, mark, kind, text := of[1], of[2], of[3], of[4]
		switch {
		case heading != "":
			out = append(out, &part{heading: heading, files: map[string]map[string]any{}})
		case mark != "":
			why = mark
			continue
		case kind == "console" && why != "":
			out[len(out)-1].unrun = append(out[len(out)-1].unrun, steps(of[0])...)
		case kind == "console":
			out[len(out)-1].steps = append(out[len(out)-1].steps, steps(of[0])...)
		case kind == "yaml" && strings.HasPrefix(text, "# "):
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
			var values map[string]any
			if err := yaml.Unmarshal([]byte(text), &values); err != nil {
				t.Fatalf("%s of %q: %v", name, out[len(out)-1].heading, err)
			}
			out[len(out)-1].files[name] = values
		default:
			t.Errorf("a block of kind %q under %q: commands are of kind console, and YAML begins with the name of its file", kind, out[len(out)-1].heading)
		}
		why = ""
	}
	return out
}

// wayToInstall is a part of the page that begins with clusters of its own.
type wayToInstall struct {
	headings []string
	begin    func(t *testing.T) *shell
}

// waysToInstall are those of the page.
func waysToInstall() []wayToInstall {
	return []wayToInstall{
		{[]string{"With agentctl", "Is it well?", "Upgrades", "Seeing that it works"}, besidesWhatIsThere},
		{[]string{"On a cluster that has neither"}, onBareClusters},
		{[]string{"In an Istio that is there"}, inIstio},
		{[]string{"As files, for GitOps"}, asFiles},
		{[]string{"1 Without a mesh", "2 Istio that passes TLS through", "3 Istio whose gateway terminates TLS", "Live access"}, byHelm},
	}
}

// Each command of the page prints what the page says, on clusters as the page wants them, or is one of those of which it
// says why not; none is left out.
func TestInstallPage(t *testing.T) {
	t.Parallel()
	runSkipped(t)
	all := partsOf(t, content(t, "..", "..", "..", filepath.FromSlash(installPage)))
	under := map[string]*part{}
	runs, unrun := 0, 0
	for _, p := range all {
		if len(p.steps)+len(p.unrun)+len(p.files) > 0 && under[p.heading] != nil {
			t.Errorf("two parts are called %q", p.heading)
		}
		under[p.heading] = p
		runs, unrun = runs+len(p.steps), unrun+len(p.unrun)
	}
	// A command that is added is to be seen, and one that is not run to be meant.
	const wantRuns, wantUnrun = 31, 2
	if runs != wantRuns || unrun != wantUnrun {
		t.Errorf("%s has %d commands that are run, and %d that are not, want %d and %d", installPage, runs, unrun, wantRuns, wantUnrun)
	}
	seen := map[string]bool{}
	for _, way := range waysToInstall() {
		for _, heading := range way.headings {
			if seen[heading] = true; under[heading] == nil {
				t.Fatalf("%s has no part %q", installPage, heading)
			}
		}
		t.Run(way.headings[0], func(t *testing.T) {
			t.Parallel()
			s := way.begin(t)
			files := map[string]map[string]any{}
			for _, heading := range way.headings {
				s.writes(t, files, under[heading].files)
				for _, step := range under[heading].steps {
					s.does(t, step)
				}
			}
		})
	}
	for _, p := range all {
		if len(p.steps)+len(p.files) > 0 && !seen[p.heading] {
			t.Errorf("no one runs the commands under %q", p.heading)
		}
	}
}

// writes writes files of values, each over what a part before has in it: the page says what differs.
func (s *shell) writes(t *testing.T, before, files map[string]map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		before[name] = loader.MergeMaps(before[name], files[name])
		text, err := yaml.Marshal(before[name])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// besidesWhatIsThere are clusters with Argo CD and SPIRE, on which principal, agents and Envoy run.
func besidesWhatIsThere(t *testing.T) *shell {
	t.Helper()
	p := newRunningPair(t)
	kit.Background(t, func(ctx context.Context) error {
		const name = charts.Principal + "-stream"
		of := p.hub.Resource(services, harness.ArgoCDNamespace)
		whenever(ctx, t, of, name, func() { hasAddress(ctx, t, of, name, hubAddress) })
		return nil
	})
	s := newShell(t, installPage, p.kubeconfig)
	s.more = map[string]string{"agentctl hub install --context hub --registry": " --set envoy.image.repository=" + registry + "/envoy"}
	return s
}

func onBareClusters(t *testing.T) *shell {
	t.Helper()
	g := newGuide(t)
	t.Cleanup(g.pretends(t))
	g.page = installPage
	g.more["agentctl hub install"] = " --set envoy.image.repository=" + registry + "/envoy"
	return g.shell
}

// podless is what an install needs on clusters without pods.
const podless = " --no-wait --check-images=false"

// pairAs is a pair without pods whose spoke is called as on the page.
func pairAs(t *testing.T) (*pair, *shell) {
	t.Helper()
	p := newPair(t)
	called(t, p.kubeconfig, "spoke", "edge-1")
	return p, newShell(t, installPage, p.kubeconfig)
}

func inIstio(t *testing.T) *shell {
	t.Helper()
	p, s := pairAs(t)
	for c, trustDomain := range map[*harness.ControlPlane]string{p.hub: "hub.example", p.spoke: "edge.example"} {
		withMesh(t, c)
		tell(t, c, trustDomain)
	}
	s.more = map[string]string{"agentctl hub install": podless, "agentctl spoke install": podless}
	return s
}

func asFiles(t *testing.T) *shell {
	t.Helper()
	p, s := pairAs(t)
	stockArgoCD(t, p.hub)
	s.more = map[string]string{"agentctl hub install": " --check-images=false", "agentctl spoke install": " --check-images=false"}
	return s
}

// byHelm are clusters on which nothing is made by agentctl, with what the values of the page need: Prometheus' resource,
// and Istio's. The charts are in the folder, as in a checkout.
func byHelm(t *testing.T) *shell {
	t.Helper()
	p, s := pairAs(t)
	withMesh(t, p.hub)
	env.Create(t, p.hub.Resource(definitions, ""), serviceMonitors())
	folder, err := filepath.Abs(filepath.Join("..", "..", "..", "charts"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	if err := os.Symlink(folder, filepath.Join(s.dir, "charts")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(programs, yq)); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "PATH="+programs+":"+strings.TrimPrefix(s.env[len(s.env)-1], "PATH="))
	return s
}

// serviceMonitors is the definition of what Prometheus' operator reads.
func serviceMonitors() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "servicemonitors.monitoring.coreos.com"},
		"spec": map[string]any{
			"group": "monitoring.coreos.com", "scope": "Namespaced", "names": map[string]any{"kind": "ServiceMonitor", "plural": "servicemonitors"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
}

// yq is a program that the page uses, and that is not among our tools: this one stands in for it.
const yq = "yq"

// runYQ prints a key of a YAML file, which is all that the page wants of yq.
func runYQ(args []string) error {
	const two = 2
	if len(args) != two {
		return fmt.Errorf("yq: %q: a key and a file are expected", args)
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	out, err := yaml.Marshal(values[strings.TrimPrefix(args[0], ".")])
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

// named is a command of agentctl within the text.
var named = regexp.MustCompile("`(agentctl [^`]+)`")

// Each command of agentctl that the text of the page names is there, with its flags.
func TestInstallPageNamesCommands(t *testing.T) {
	t.Parallel()
	page := ofPage.ReplaceAllString(content(t, "..", "..", "..", filepath.FromSlash(installPage)), "")
	all := named.FindAllStringSubmatch(page, -1)
	if len(all) < 20 {
		t.Errorf("%d commands are named", len(all))
	}
	for _, one := range all {
		words := strings.Fields(one[1])[1:]
		verb := words[:slices.IndexFunc(append(slices.Clone(words), "-"), func(w string) bool { return strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") != "" })]
		help, err := exec.CommandContext(t.Context(), agentctlBinary(t), append(slices.Clone(verb), "--help")...).CombinedOutput()
		usage := "Usage:\n  agentctl " + verb[0] + `\b`
		if len(verb) > 1 { // a command of that, or what it is about
			usage += `( ` + verb[1] + `\b| [\[(])`
		}
		if err != nil || !regexp.MustCompile(usage).Match(help) {
			t.Errorf("%s: %v\n%s", one[1], err, help)
		}
		for _, word := range words {
			if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !strings.Contains(string(help), flag+" ") {
				t.Errorf("%s has no flag %s", one[1], flag)
			}
		}
	}
}
