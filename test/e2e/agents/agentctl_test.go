//go:build linux

package agents

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/harness"
)

// agentctl runs the program against a hub.
type agentctl struct {
	t       *testing.T
	harness *harness.Harness
	hub     *harness.ControlPlane
}

// agentctlCall is one use of the program.
type agentctlCall struct {
	args []string
	env  []string
	// wantErr is part of the one line it complains with; empty for success.
	wantErr string
	// wantOut is what it prints, wantNote part of what it says beside that.
	wantOut  string
	wantNote string
	// talks says that it may say more before it complains.
	talks bool
	// stdin is what a person says to it; nil for no one there.
	stdin *os.File
	// says is told of notes and complaints as they come, if it is not nil.
	says *spoken
}

// spoken is what a program says, while it runs.
type spoken struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write implements io.Writer.
func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String returns what was said so far.
func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (c agentctl) testBeforeInstallation(t *testing.T) {
	c.t = t
	const missing = `does not have the Agent resource: install the principal there with "agentctl hub install"`
	for _, args := range []string{
		"agent list", "agent list -o yaml", "agent get edge-1", "agent get edge-1 -o name", "agent edit edge-1", "agent delete edge-1",
		"agent delete edge-1 --ignore-not-found", "agent create edge-1 --mode managed --trust-domain example.org",
	} {
		c.run(agentctlCall{args: strings.Fields(args), wantErr: missing})
	}
}

func (c agentctl) test(t *testing.T) {
	c.t = t
	t.Run("create", c.testCreate)
	t.Run("show", c.testShow)
	t.Run("edit", c.testEdit)
	t.Run("delete", c.testDelete)
	t.Run("refusals", c.testRefusals)
	t.Run("completion", c.testCompletion)
}

func (c agentctl) testCreate(t *testing.T) {
	c.t = t
	edge := strings.Fields("agent create ctl-1 --mode managed --trust-domain example.org --label env=prod")
	c.run(agentctlCall{args: append(edge, "--dry-run=server"), wantOut: "agent.argomesh.io/ctl-1 created (server dry run)\n"})
	c.run(agentctlCall{args: append(edge, "--wait"), wantOut: "agent.argomesh.io/ctl-1 created\n", wantNote: "Next, on the spoke, with these values in ctl-1.yaml:\n"})
	out, _ := c.run(agentctlCall{args: strings.Fields("agent get ctl-1 -o json"), wantOut: anything})
	var agent v1alpha1.Agent
	if err := json.Unmarshal([]byte(out), &agent); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.AgentSpec{
		Mode:              v1alpha1.ModeManaged,
		Identity:          v1alpha1.AgentIdentity{SPIFFEIDs: []string{"spiffe://example.org/argomesh/agent/ctl-1"}},
		DeletionPolicy:    v1alpha1.DeletionOrphan,
		ChildApplications: v1alpha1.ChildApplicationsIgnore,
		ProjectRoles:      v1alpha1.ProjectRolesIgnore,
		CascadeHold:       new(v1alpha1.DefaultCascadeHold),
		Labels:            map[string]v1alpha1.LabelValue{"env": "prod"},
	}
	if diff := cmp.Diff(want, agent.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(agent.Status.Conditions) == 0 {
		t.Error("create --wait came back before the principal had looked at the Agent")
	}

	c.run(agentctlCall{args: edge, wantOut: "agent.argomesh.io/ctl-1 unchanged\n", wantNote: anything})
	c.run(agentctlCall{
		args: strings.Fields("agent create ctl-1 --mode managed --trust-domain example.org --label env=test"),
		wantErr: `create agent "ctl-1": it exists with other settings: spec.labels.env is "prod", not "test"; ` +
			`change that with "agentctl agent set ctl-1 --trust-domain example.org --label env=test"`,
	})
	c.run(agentctlCall{
		args:    strings.Fields("agent create ctl-1 --mode autonomous --trust-domain example.org --label env=prod"),
		wantErr: `spec.mode is "managed", not "autonomous"; a mode cannot be changed, so "agentctl agent delete ctl-1" comes first`,
	})

	// The order of a set does not matter.
	two := strings.Fields("agent create ctl-2 --mode autonomous --spiffe-id spiffe://a.example/x --spiffe-id spiffe://b.example/y")
	c.run(agentctlCall{args: two, wantOut: "agent.argomesh.io/ctl-2 created\n", wantNote: anything})
	c.run(agentctlCall{
		args:    strings.Fields("agent create ctl-2 --mode autonomous --spiffe-id spiffe://b.example/y --spiffe-id spiffe://a.example/x"),
		wantOut: "agent.argomesh.io/ctl-2 unchanged\n", wantNote: anything,
	})

	// What a dry run prints, the API server takes as it is.
	out, _ = c.run(agentctlCall{args: strings.Fields("agent create ctl-3 --mode managed --trust-domain example.org --dry-run=client -o yaml"), wantOut: anything})
	if err := c.hub.ApplyYAML(t.Context(), []byte(out)); err != nil {
		t.Errorf("apply what --dry-run=client printed: %v", err)
	}
	c.run(agentctlCall{args: strings.Fields("agent create ctl-3 --mode managed --trust-domain example.org"), wantOut: "agent.argomesh.io/ctl-3 unchanged\n", wantNote: anything})

	// What no flag names may be anything; suspend, resume and set change one setting each.
	c.run(agentctlCall{args: strings.Fields("agent set ctl-3 --access read,exec --child-applications mirror"), wantOut: "agent.argomesh.io/ctl-3 set\n"})
	c.run(agentctlCall{args: strings.Fields("agent set ctl-3 --access exec"), wantOut: "agent.argomesh.io/ctl-3 unchanged\n"})
	c.run(agentctlCall{args: strings.Fields("agent create ctl-3 --mode managed --trust-domain example.org"), wantOut: "agent.argomesh.io/ctl-3 unchanged\n", wantNote: "exec: true"})
	c.run(agentctlCall{args: strings.Fields("agent suspend ctl-3"), wantOut: "agent.argomesh.io/ctl-3 suspended\n"})
	c.run(agentctlCall{args: strings.Fields("agent resume ctl-3"), wantOut: "agent.argomesh.io/ctl-3 resumed\n"})
	c.run(agentctlCall{args: strings.Fields("agent set ctl-3 --project-roles mirror"), wantErr: "projectRoles mirror is for mode autonomous"})
	c.run(agentctlCall{args: strings.Fields("agent set ctl-3 --child-applications ignore --access off"), wantOut: "agent.argomesh.io/ctl-3 set\n"})

	// An identity that is taken is no success of --wait.
	c.run(agentctlCall{
		args:    strings.Fields("agent create ctl-4 --mode managed --spiffe-id spiffe://a.example/x --wait"),
		wantErr: `agent "ctl-4" is stored, but not ready: SPIFFE ID spiffe://a.example/x belongs to the older Agent ctl-2`,
	})
	c.run(agentctlCall{args: strings.Fields("agent delete ctl-4"), wantOut: "agent.argomesh.io/ctl-4 deleted\n", wantNote: anything})
}

func (c agentctl) testShow(t *testing.T) {
	c.t = t
	c.run(agentctlCall{args: strings.Fields("agent list -o name"), wantOut: "agent.argomesh.io/ctl-1\nagent.argomesh.io/ctl-2\nagent.argomesh.io/ctl-3\n"})
	c.run(agentctlCall{args: strings.Fields("agent get ctl-3 ctl-1 -o name"), wantOut: "agent.argomesh.io/ctl-3\nagent.argomesh.io/ctl-1\n"})
	c.run(agentctlCall{args: strings.Fields("agent list -n default"), wantNote: "No agents in namespace default.\n"})
	c.run(agentctlCall{args: strings.Fields("agent list -l env=none -o name")})
	c.run(agentctlCall{args: strings.Fields("agent get ctl-1 absent"), wantErr: `get agent "absent": not found in namespace argocd; "agentctl agent list" shows those that exist`})

	out, _ := c.run(agentctlCall{args: strings.Fields("agent list"), wantOut: anything})
	lines := strings.Split(out, "\n")
	if got, want := strings.Fields(lines[0]), strings.Fields("NAME MODE STATUS SINCE READY APPS AGE"); !cmp.Equal(got, want) {
		t.Errorf("columns (-want +got):\n%s", cmp.Diff(want, got))
	}
	if got := strings.Fields(lines[1]); len(got) < 6 || !cmp.Equal(got[:4], []string{"ctl-1", "managed", "Never", "connected"}) || got[5] != "False" {
		t.Errorf("first line of the table is %q", lines[1])
	}
	if len(lines) != 5 { // header, three agents, the end
		t.Errorf("table has %d lines:\n%s", len(lines), out)
	}
	out, _ = c.run(agentctlCall{args: strings.Fields("agent get ctl-2 -o wide --no-headers"), wantOut: anything})
	if !strings.Contains(out, "spiffe://a.example/x") || strings.Contains(out, "NAME") || strings.Count(out, "\n") != 1 {
		t.Errorf("wide line without header:\n%s", out)
	}

	out, _ = c.run(agentctlCall{args: strings.Fields("agent list -o yaml"), wantOut: anything})
	var list v1alpha1.AgentList
	if err := yaml.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 3 {
		t.Errorf("list -o yaml has %d agents, %v", len(list.Items), err)
	}
	if strings.Contains(out, "managedFields") {
		t.Error("the output shows managed fields")
	}
	out, _ = c.run(agentctlCall{args: []string{"version", "-o", "json"}, wantOut: anything})
	var version map[string]string
	if err := json.Unmarshal([]byte(out), &version); err != nil || version["version"] == "" || version["goVersion"] == "" {
		t.Errorf("version is %v, %v", version, err)
	}
}

func (c agentctl) testEdit(t *testing.T) {
	c.t = t
	edit := func(editor string) agentctlCall {
		return agentctlCall{args: strings.Fields("agent edit ctl-1"), env: []string{"KUBE_EDITOR=" + editor}}
	}
	with := func(editor string, wantErr string) agentctlCall {
		c := edit(editor)
		c.wantErr = wantErr
		return c
	}
	done := edit(`sed -i "s/env: prod$/env: test/"`)
	done.wantOut = "agent.argomesh.io/ctl-1 edited\n"
	c.run(done)
	unchanged := edit("true")
	unchanged.wantNote = "Edit cancelled, no changes made.\n"
	c.run(unchanged)
	emptied := edit("truncate -s 0")
	emptied.wantNote = "Edit cancelled, no changes made.\n"
	c.run(emptied)
	// An editor that leaves a refused text as it is ends it, and the text stays.
	c.run(with(`sed -i "s/mode: managed$/mode: autonomous/"`, "spec.mode: Invalid value: \"autonomous\": mode cannot be changed"))
	c.run(with(`sed -i "s/env: test$/env: test test/"`, "spec.labels.env: Invalid value"))
	c.run(with(`sed -i "s/^  mode:/  moode:/"`, `unknown field "spec.moode"`))
	c.run(with(`sed -i "s/^spec:$/spec: [/"`, "yaml: line"))
	c.run(with(`false`, `editor "false": exit status 1`))
	left, err := filepath.Glob(filepath.Join(c.temp(), "agentctl-ctl-1-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 5 {
		t.Errorf("%d files are left, want one for each failure: %q", len(left), left)
	}
	// A change by someone else while the editor is open is not overwritten.
	kubectl := "agentctl=" + c.binary() + `; KUBE_EDITOR='sed -i "s/env: test$/env: theirs/"' $agentctl --kubeconfig ` +
		c.hub.Kubeconfig + ` agent edit ctl-1 >/dev/null && sed -i "s/env: test$/env: ours/"`
	c.run(with(kubectl, "it was changed on the hub meanwhile"))
	out, _ := c.run(agentctlCall{args: strings.Fields("agent get ctl-1 -o yaml"), wantOut: anything})
	if !strings.Contains(out, "env: theirs") {
		t.Errorf("the change of somebody else is lost:\n%s", out)
	}
}

func (c agentctl) testDelete(t *testing.T) {
	c.t = t
	// One that is not there hides no other.
	for _, format := range []string{"-o name", "--no-headers"} {
		out, _ := c.run(agentctlCall{args: strings.Fields("agent get ctl-3 nobody ctl-1 " + format), wantErr: `get agent "nobody": not found`})
		if !strings.Contains(out, "ctl-3") || !strings.Contains(out, "ctl-1") {
			t.Errorf("the others are not shown with %s:\n%s", format, out)
		}
	}
	out, note := c.run(agentctlCall{args: strings.Fields("agent delete ctl-3 nobody ctl-1"), wantErr: `delete agent "nobody": not found`, talks: true})
	c.check("output of delete", "agent.argomesh.io/ctl-3 deleted\nagent.argomesh.io/ctl-1 deleted\n", out, true)
	c.check("note of delete", "argocd app delete NAME --cascade=false", note, false)
	c.run(agentctlCall{args: strings.Fields("agent delete ctl-2 -o name"), wantOut: "agent.argomesh.io/ctl-2\n", wantNote: "its Applications are its own"})
	c.run(agentctlCall{args: strings.Fields("agent list"), wantNote: "No agents in namespace argocd.\n"}) // delete waits
	c.run(agentctlCall{args: strings.Fields("agent delete ctl-2"), wantErr: `delete agent "ctl-2": not found`})
	c.run(agentctlCall{args: strings.Fields("agent delete ctl-2 --ignore-not-found")})
}

func (c agentctl) testRefusals(t *testing.T) {
	c.t = t
	config := c.kubeconfig()
	broken := c.harness.Path("broken.kubeconfig")
	if err := os.WriteFile(broken, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ args, want string }{
		"unknown command":         {"agent lst", `unknown command "agentctl agent lst"; did you mean "agentctl agent list"?`},
		"unknown flag":            {"agent list --wide", `unknown flag: --wide; see "agentctl agent list --help"`},
		"unknown output":          {"agent list -o xml", "one of wide, json, yaml, name, jsonpath=TEMPLATE, "},
		"no name":                 {"agent create", "the name of an agent is missing"},
		"bad name":                {"agent create Edge --mode managed --trust-domain example.org", `the name of the agent: agent name "Edge"`},
		"reserved name":           {"agent create in-cluster --mode managed --trust-domain example.org", "metadata.name must not be in-cluster"},
		"no mode":                 {"agent create e --trust-domain example.org", "--mode is missing"},
		"bad mode":                {"agent create e --mode remote", "one of managed or autonomous is expected"},
		"no identity":             {"agent create e --mode managed", "--spiffe-id is missing"},
		"two kinds of identity":   {"agent create e --mode managed --trust-domain a --spiffe-id spiffe://a/b", "give one of them"},
		"bad identity":            {"agent create e --mode managed --spiffe-id https://a/b", "--spiffe-id: spiffe id"},
		"bad trust domain":        {"agent create e --mode managed --trust-domain A", `--trust-domain "A"`},
		"bad label":               {"agent create e --mode managed --trust-domain a --label x", "key=value is expected"},
		"label of ours":           {"agent create e --mode managed --trust-domain a --label " + labelType + "=x", "are set by Argomesh"},
		"wait for a dry run":      {"agent create e --mode managed --trust-domain a --dry-run=server --wait", "--wait: nothing happens"},
		"no namespace":            {"agent create e --mode managed --trust-domain a -n nowhere", "namespace nowhere does not exist on the hub"},
		"bad selector":            {"agent list -l a(b", "--selector"},
		"bad timeout":             {"agent list --request-timeout soon", `--request-timeout "soon"`},
		"no such kubeconfig":      {"agent list --kubeconfig /absent/config", "kubeconfig /absent/config: no such file or directory"},
		"broken kubeconfig":       {"agent list --kubeconfig " + broken, "kubeconfig: error loading config file"},
		"no such context":         {"agent list --context absent", `context "absent" does not exist`},
		"no rights":               {"agent list --kubeconfig " + config + " --context nobody", "cannot list resource"},
		"wrong credentials":       {"agent list --kubeconfig " + config + " --context stranger", "does not accept the credentials"},
		"nobody there":            {"agent list --kubeconfig " + config + " --context nowhere", "cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused"},
		"principal does not care": {"agent create idle -n default --mode managed --trust-domain a --wait --timeout 1s", "check that the principal runs in namespace default"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c.t = t
			c.run(agentctlCall{args: strings.Fields(tt.args), wantErr: tt.want})
		})
	}
}

func (c agentctl) testCompletion(t *testing.T) {
	c.t = t
	c.run(agentctlCall{args: strings.Fields("agent create tab-1 --mode managed --trust-domain example.org"), wantOut: "agent.argomesh.io/tab-1 created\n", wantNote: anything})
	c.run(agentctlCall{args: strings.Fields("agent create tab-2 --mode managed --trust-domain example.org"), wantOut: "agent.argomesh.io/tab-2 created\n", wantNote: anything})
	for args, want := range map[string]string{
		"agent get |":             "tab-1\ntab-2\n",
		"agent get tab-1 |":       "tab-2\n",
		"agent edit tab-1 |":      "",
		"agent create e --mode |": "managed\nautonomous\n",
		"agent list -o |":         "wide\njson\nyaml\nname\njsonpath=TEMPLATE\njsonpath-as-json=TEMPLATE\njsonpath-file=FILE\ngo-template=TEMPLATE\ngo-template-file=FILE\ncustom-columns=COLUMNS\ncustom-columns-file=FILE\n",
	} {
		words := strings.Fields(strings.ReplaceAll(args, "|", ""))
		words = append(append([]string{"__complete"}, words...), "")
		c.run(agentctlCall{args: words, wantOut: want + ":4\n", wantNote: anything})
	}
	c.run(agentctlCall{args: strings.Fields("agent delete tab-1 tab-2"), wantOut: "agent.argomesh.io/tab-1 deleted\nagent.argomesh.io/tab-2 deleted\n", wantNote: anything})
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		c.run(agentctlCall{args: []string{"completion", shell}, wantOut: anything})
	}
}

// anything accepts every text but none.
const anything = "\x00anything"

// run uses the program and checks what came of it.
func (c agentctl) run(want agentctlCall) (stdout, stderr string) {
	c.t.Helper()
	args := want.args
	if !strings.Contains(strings.Join(args, " "), "--kubeconfig") {
		args = append([]string{"--kubeconfig", c.hub.Kubeconfig}, args...)
		if want.args[0] == "__complete" {
			args = append([]string{"__complete", "--kubeconfig", c.hub.Kubeconfig}, want.args[1:]...)
		}
	}
	cmd := exec.CommandContext(c.t.Context(), c.binary(), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.temp(), "TMPDIR=" + c.temp()}, want.env...)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if want.stdin != nil {
		cmd.Stdin = want.stdin
	}
	if want.says != nil {
		cmd.Stderr = io.MultiWriter(&complaint, want.says)
	}
	err := cmd.Run()
	stdout, stderr = out.String(), complaint.String()
	line := "agentctl " + strings.Join(want.args, " ")
	if want.wantErr == "" {
		if err != nil {
			c.t.Fatalf("%s: %v: %s", line, err, stderr)
		}
		c.check(line+": output", want.wantOut, stdout, true)
		c.check(line+": note", want.wantNote, stderr, false)
		return stdout, stderr
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		c.t.Errorf("%s: %v, want exit code 1", line, err)
	}
	last := stderr
	if want.talks {
		last = stderr[max(0, strings.LastIndex(stderr, "agentctl: ")):]
	}
	if !strings.HasPrefix(last, "agentctl: ") || !strings.Contains(last, want.wantErr) || strings.Count(last, "\n") != 1 {
		c.t.Errorf("%s complains:\n%swant one line with:\n%s", line, stderr, want.wantErr)
	}
	return stdout, stderr
}

// check compares a text: the whole of it, or whether want is in it.
func (c agentctl) check(what, want, got string, whole bool) {
	c.t.Helper()
	switch {
	case want == anything && got == "":
		c.t.Errorf("%s is empty", what)
	case want == anything, want == got:
	case whole, want == "", !strings.Contains(got, want):
		c.t.Errorf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

func (c agentctl) binary() string {
	c.t.Helper()
	path, err := c.harness.Binary("agentctl")
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

// temp is where the program leaves files, apart from those of other runs.
func (c agentctl) temp() string {
	c.t.Helper()
	dir := c.harness.Path("agentctl")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	return dir
}

// kubeconfig returns one with contexts that do not work.
func (c agentctl) kubeconfig() string {
	c.t.Helper()
	config, err := clientcmd.LoadFromFile(c.hub.Kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.AuthInfos["stranger"] = &clientcmdapi.AuthInfo{Token: "wrong"}
	nobody := config.AuthInfos[current.AuthInfo].DeepCopy()
	nobody.Impersonate = "nobody"
	config.AuthInfos["nobody"] = nobody
	for name, user := range map[string]string{"stranger": "stranger", "nobody": "nobody"} {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: current.Cluster, AuthInfo: user}
	}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere", AuthInfo: current.AuthInfo}
	path := c.harness.Path("contexts.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}
