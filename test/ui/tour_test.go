//go:build linux && ui

package ui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/test/browser"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

var (
	update   = flag.Bool("update", false, "write the times into docs/ui.md")
	pictures = flag.String("pictures", "", "`folder` to write pictures of the pages into")
)

// patience bounds each wait; it decides nothing but when a state never comes.
const patience = 2 * time.Minute

// The agents of the demo, and their Application.
const (
	managed    = "edge-1"
	autonomous = "edge-2"
	refused    = "edge-3"
	app        = "guestbook"
)

var (
	applications = harness.Applications
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	events       = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// tour is a demo, and a page of a browser on it.
type tour struct {
	*testing.T
	dir                    string // of the demo
	link, server, password string
	hub                    *dynamic.DynamicClient
	spokes                 map[string]*dynamic.DynamicClient
	browser                *browser.Browser
	page                   *browser.Page
	rows                   []row
	recording              string // what the demo printed as it started
}

// row is a line of the table.
type row struct {
	what, agent string
	took        time.Duration
}

// TestTour walks through the web interface in the order of its steps: each finds what those
// before it left.
func TestTour(t *testing.T) {
	v := start(t)
	for _, step := range []struct {
		name string
		walk func(*tour)
	}{
		{"sign in", signIn},
		{"look at", lookAtBoth},
		{"terminal", terminals},
		{"secrets and refusals", secrets},
		{"markup of a spoke", markup},
		{"drift and sync", driftAndSync},
		{"scale", scales},
		{"pods are deleted", deletePods},
		{"rollback", rollback},
		{"create and delete by the form", form},
		{"mirror", mirror},
		{"clusters", clusters},
		{"principal killed", principalKilled},
		{"agent stopped", agentStopped},
		{"network cut", networkCut},
		{"many applications", many},
	} {
		if !t.Run(step.name, func(t *testing.T) { inner := v.in(t); step.walk(inner); v.rows = inner.rows }) {
			v.failed(step.name)
		}
	}
	if err := v.report(); err != nil {
		t.Error(err)
	}
}

// in is the tour within a subtest.
func (v *tour) in(t *testing.T) *tour {
	inner := *v
	inner.T = t
	return &inner
}

// failed leaves what the page showed.
func (v *tour) failed(step string) {
	picture, err := v.page.Picture(v.Context())
	if err != nil {
		v.Log(err)
		return
	}
	file := filepath.Join(os.TempDir(), "argomesh-ui-"+strings.ReplaceAll(step, " ", "-")+".png")
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		v.Log(err)
	}
	v.Logf("what the page showed is in %s", file)
}

// start starts a demo and a browser.
func start(t *testing.T) *tour {
	t.Helper()
	if _, err := browser.Find(); err != nil {
		t.Fatal(err)
	}
	h := harnesstest.New(t)
	if _, err := h.Tools().Path("argocd-ui"); err != nil {
		t.Fatal(err)
	}
	v := &tour{T: t, dir: h.Path("demo"), spokes: map[string]*dynamic.DynamicClient{}}
	demo, err := h.Start(t.Context(), harness.Command{
		Name: "demo", Path: filepath.Join(h.Tools().Checkout(), "bin", "demo"), Args: []string{"-ui", "-dir", v.dir}, Dir: h.Tools().Checkout(), Grace: time.Minute,
		Env: []string{"HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var summary []byte
	v.eventually("the demo", func() error {
		if demo.PID() == 0 {
			return harness.Permanent(errors.New(demo.LogTail(30)))
		}
		summary, err = os.ReadFile(filepath.Join(v.dir, "summary.txt"))
		return err
	})
	found := regexp.MustCompile(`Open Argo CD:  (\S+)\n.* (http://[\d.:]+), user admin, password (\S+)`).FindSubmatch(summary)
	if found == nil {
		t.Fatalf("the demo names no link:\n%s", summary)
	}
	v.link, v.server, v.password = string(found[1]), string(found[2]), string(found[3])
	printed, err := os.ReadFile(demo.LogFile())
	v.must(err)
	v.recording, _, _ = strings.Cut(strings.ReplaceAll(string(printed), v.dir, "/tmp/argomesh-demo"), "\nPROCESS")
	v.recording += "\n"
	v.hub = v.client("hub")
	for _, spoke := range []string{managed, autonomous} {
		v.spokes[spoke] = v.client(spoke)
	}
	if v.browser, err = browser.Start(t.Context(), browser.Config{Dir: h.Path("browser")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.browser.Close() }) // it is killed
	v.page = v.newPage()
	return v
}

func (v *tour) newPage() *browser.Page {
	v.Helper()
	page, err := v.browser.NewPage(v.Context())
	v.must(err)
	return page
}

func (v *tour) client(cluster string) *dynamic.DynamicClient {
	v.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(v.dir, cluster+".kubeconfig"))
	v.must(err)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	v.must(err)
	return client
}

func (v *tour) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v *tour) eventually(what string, check func() error) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	v.must(harness.Eventually(ctx, what, check))
}

// do does something in the page, or waits for what it shows.
func (v *tour) do(act func(context.Context) error) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	v.must(act(ctx))
}

func (v *tour) open(path string) {
	v.Helper()
	v.do(func(ctx context.Context) error { return v.page.Go(ctx, v.server+path) })
}

func (v *tour) click(place browser.Place) {
	v.Helper()
	v.do(func(ctx context.Context) error { return v.page.WaitClick(ctx, place) })
}

func (v *tour) shows(text string) {
	v.Helper()
	v.do(func(ctx context.Context) error { return v.page.WaitText(ctx, text) })
}

func (v *tour) hides(text string) {
	v.Helper()
	v.do(func(ctx context.Context) error { return v.page.WaitNoText(ctx, text) })
}

func (v *tour) waits(what, expression string) {
	v.Helper()
	v.do(func(ctx context.Context) error { return v.page.Wait(ctx, what, expression) })
}

// timed is a row of the table: from an act until the page shows what came of it.
func (v *tour) timed(what, agent string, act func()) {
	v.Helper()
	begin := time.Now()
	act()
	v.rows = append(v.rows, row{what, agent, time.Since(begin)})
	v.Logf("%s, %s: %s", what, cmp.Or(agent, "-"), time.Since(begin).Round(10*time.Millisecond))
}

// picture writes the page to a file, where pictures are asked for.
func (v *tour) picture(name string) {
	v.Helper()
	if *pictures == "" {
		return
	}
	picture, err := v.page.Picture(v.Context())
	v.must(err)
	v.must(os.MkdirAll(*pictures, 0o755))
	v.must(os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o644))
}

// try has the demo do something to itself.
func (v *tour) try(args ...string) {
	v.Helper()
	out, err := exec.CommandContext(v.Context(), filepath.Join(v.dir, "bin", "try"), args...).CombinedOutput()
	if err != nil {
		v.Fatalf("try %v: %v\n%s", args, err, out)
	}
}

// git runs git as a person does who has no settings.
func (v *tour) git(dir string, args ...string) {
	v.Helper()
	cmd := exec.CommandContext(v.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=tour", "GIT_AUTHOR_EMAIL=tour@argomesh.invalid", "GIT_COMMITTER_NAME=tour", "GIT_COMMITTER_EMAIL=tour@argomesh.invalid")
	if out, err := cmd.CombinedOutput(); err != nil {
		v.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// namespace is that of an agent's Application on the hub.
func namespace(agent string) string {
	if agent == managed {
		return harness.ArgoCDNamespace
	}
	return agent
}

// tree is the page of an agent's Application.
func tree(agent string) string {
	return "/applications/" + namespace(agent) + "/" + app + "?view=tree"
}

// resource is the page of an object of it, with a tab.
func resource(agent, node, tab string) string { return tree(agent) + "&node=" + node + "&tab=" + tab }

// nodes counts the nodes of the tree of a kind.
func nodes(kind string) string {
	return `[...document.querySelectorAll('.application-resource-tree__node-kind')].filter(e => e.innerText.trim().toLowerCase() === '` + strings.ToLower(kind) + `').length`
}

// status says whether the panel above the tree has a text.
func status(text string) string {
	return `[...document.querySelectorAll('.application-status-panel__item-value')].some(e => e.innerText.includes('` + text + `'))`
}

// stale says whether the tree says as of when it is.
const stale = `[...document.querySelectorAll('.application-resource-tree__node-label')].some(e => e.innerText.toLowerCase().includes('as of'))`

// report prints the table, and writes it into docs/ui.md where that is asked for.
func (v *tour) report() error {
	type cells struct{ managed, autonomous, none string }
	table, order := map[string]*cells{}, []string{}
	for _, r := range v.rows {
		c := table[r.what]
		if c == nil {
			c = &cells{}
			table[r.what], order = c, append(order, r.what)
		}
		text := fmt.Sprintf("%.2f s", r.took.Seconds())
		switch r.agent {
		case managed:
			c.managed = text
		case autonomous:
			c.autonomous = text
		default:
			c.none = text
		}
	}
	var b bytes.Buffer
	b.WriteString("| From the act to the pixels | edge-1 | edge-2 | either |\n|---|---|---|---|\n")
	for _, what := range order {
		c := table[what]
		_, _ = fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, c.managed, c.autonomous, c.none)
	}
	v.Log("\n" + b.String())
	if !*update {
		return nil
	}
	return errors.Join(replace("times", "\n"+b.String()+"\n"), replace("recording", "\n```\n"+v.recording+"```\n\n"))
}

// replace writes a part of docs/ui.md, which is between two comments.
func replace(part, text string) error {
	const file = "../../docs/ui.md"
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+part+" -->\n", "<!-- end of "+part+" -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the %s", file, part)
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644)
}
