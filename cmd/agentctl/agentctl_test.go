package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// agentctl runs one command line without a kubeconfig, so without a hub.
func agentctl(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out, complaint strings.Builder
	err = run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &complaint})
	return out.String(), complaint.String(), err
}

func TestDryRunNeedsNoHub(t *testing.T) {
	out, _, err := agentctl(t, "agent", "create", "edge-1", "--mode", "autonomous", "-n", "gitops",
		"--spiffe-id", "spiffe://a.example/x", "--spiffe-id", "spiffe://b.example/y",
		"--label", "env=prod", "--label", "example.org/empty=",
		"--dry-run", "client", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
		"metadata": map[string]any{"name": "edge-1", "namespace": "gitops"},
		"spec": map[string]any{
			"mode":           "autonomous",
			"identity":       map[string]any{"spiffeIDs": []any{"spiffe://a.example/x", "spiffe://b.example/y"}},
			"deletionPolicy": "orphan",
			"labels":         map[string]any{"env": "prod", "example.org/empty": ""},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
}

func TestErrorsNameTheCure(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(broken, []byte("contexts: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ args, want string }{
		"no kubeconfig":      {"agent list", "name the hub's with --kubeconfig or the KUBECONFIG environment variable"},
		"empty kubeconfig":   {"agent list --kubeconfig " + empty, "names no cluster: choose another with --kubeconfig"},
		"absent kubeconfig":  {"agent list --kubeconfig /absent", "kubeconfig /absent: no such file or directory: choose another with --kubeconfig"},
		"broken kubeconfig":  {"agent list --kubeconfig " + broken, "choose another with --kubeconfig"},
		"nobody there":       {"agent list --server http://127.0.0.1:1", "check that it runs, or choose another with --kubeconfig or --context"},
		"unknown command":    {"agent remove", `see "agentctl agent --help"`},
		"misspelt command":   {"agents creat", `did you mean "agentctl agent create"?`},
		"unknown flag":       {"agent get x --show", `unknown flag: --show; see "agentctl agent get --help"`},
		"argument too many":  {"agent list x", `unexpected argument "x"`},
		"two ends at once":   {"agent delete a --orphan --force", "none of the others can be"},
		"two agents to edit": {"agent edit a b", "one agent at a time, not 2"},
		"no mode":            {"agent create a --trust-domain b", "managed when Applications are written on the hub"},
		"no identity":        {"agent create a --mode managed", "or give its --trust-domain"},
		"label without =":    {"agent create a --mode managed --trust-domain b --label c", "key=value is expected"},
		"bad label value":    {"agent create a --mode managed --trust-domain b --label c=-", `--label "c=-"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, _, err := agentctl(t, strings.Fields(tt.args)...)
			if err == nil {
				t.Fatalf("it is accepted: %s", out)
			}
			if msg := err.Error(); !strings.Contains(msg, tt.want) || strings.Contains(msg, "\n") {
				t.Errorf("error is\n%s\nwant one line with\n%s", msg, tt.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	err := errors.New("first\n\tsecond\r\x1b[2J\u009bthird, and a blank ")
	if got, want := oneLine(err), "first second [2J third, and a blank "; got != want {
		t.Errorf("oneLine() = %q, want %q", got, want)
	}
}

func TestDiffSpecs(t *testing.T) {
	spec := func(change func(*v1alpha1.AgentSpec)) v1alpha1.AgentSpec {
		s := v1alpha1.AgentSpec{
			Mode:     v1alpha1.ModeManaged,
			Identity: v1alpha1.AgentIdentity{SPIFFEIDs: []string{"spiffe://a/b", "spiffe://a/c"}},
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	tests := map[string]struct {
		have, want v1alpha1.AgentSpec
		diff       []string
	}{
		"the same": {have: spec(nil), want: spec(nil)},
		"defaults and the order of sets are no difference": {
			have: spec(func(s *v1alpha1.AgentSpec) {
				s.DeletionPolicy, s.ChildApplications = v1alpha1.DeletionOrphan, v1alpha1.ChildApplicationsIgnore
				s.ProjectRoles, s.CascadeHold = v1alpha1.ProjectRolesIgnore, new(v1alpha1.DefaultCascadeHold)
			}),
			want: spec(func(s *v1alpha1.AgentSpec) { s.Identity.SPIFFEIDs = []string{"spiffe://a/c", "spiffe://a/b"} }),
		},
		"every field counts": {
			have: spec(func(s *v1alpha1.AgentSpec) {
				s.Suspended = true
				s.Labels = map[string]v1alpha1.LabelValue{"env": "prod", "a.b/c": "d"}
			}),
			want: spec(func(s *v1alpha1.AgentSpec) {
				s.Mode = v1alpha1.ModeAutonomous
				s.Identity.SPIFFEIDs = s.Identity.SPIFFEIDs[:1]
				s.Labels = map[string]v1alpha1.LabelValue{"env": "test"}
			}),
			diff: []string{
				`spec.identity.spiffeIDs is ["spiffe://a/b","spiffe://a/c"], not ["spiffe://a/b"]`,
				`spec.labels.a.b/c is "d", not unset`,
				`spec.labels.env is "prod", not "test"`,
				`spec.mode is "managed", not "autonomous"`,
				`spec.suspended is true, not unset`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := diffSpecs(tt.have, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.diff, got); diff != "" {
				t.Errorf("diffSpecs() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEditorKeepsWhatIsNoComment(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	// An editor with arguments and quotes, as people have them.
	t.Setenv("KUBE_EDITOR", `sed -i -e "s/one two/three/" -e '$a # remark'`)
	file, err := newEditFile("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := file.edit(t.Context(), streams{}, editHeader(fmt.Errorf("line one\nline two")), []byte("a: one two\nb: '# no comment'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "a: three\nb: '# no comment'\n"; string(got) != want {
		t.Errorf("edit() = %q, want %q", got, want)
	}
	raw, err := os.ReadFile(file.path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "# This was refused: line one line two\n") {
		t.Errorf("the editor was not shown why:\n%s", raw)
	}
	if info, err := os.Stat(file.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file has mode %v, %v; want it readable by its owner only", info.Mode(), err)
	}
	file.remove()
	if _, err := os.Stat(file.path); !os.IsNotExist(err) {
		t.Errorf("stat after remove: %v", err)
	}
}

func TestConfirm(t *testing.T) {
	tests := map[string]struct {
		said string
		want bool
		err  error
	}{
		"yes":                     {"yes\n", true, nil},
		"y, without a line's end": {"y", true, nil},
		"in capitals, with space": {" Y \n", true, nil},
		"no":                      {"n\n", false, nil},
		"only return":             {"\n", false, nil},
		"something else":          {"yesterday\ny\n", false, nil},
		"nobody there":            {"", false, errNoAnswer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var asked strings.Builder
			got, err := confirm(streams{in: strings.NewReader(tt.said), err: &asked}, "Really?", "--sure")
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("confirm() = %v, %v, want %v, %v", got, err, tt.want, tt.err)
			}
			if err != nil && !strings.HasSuffix(err.Error(), ": say --sure") {
				t.Errorf("confirm() = %v, which does not name the flag", err)
			}
			if !strings.HasPrefix(asked.String(), "Really? (y/N): ") {
				t.Errorf("it asked %q", asked.String())
			}
		})
	}
}

func TestConsequencesNameWhatToDo(t *testing.T) {
	tests := map[string]struct {
		mode   v1alpha1.AgentMode
		policy v1alpha1.DeletionPolicy
		force  bool
		want   []string
		not    []string
	}{
		"orphan": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionOrphan,
			want: []string{"--all argomesh.io/source- argocd.argoproj.io/source-uid- argocd.argoproj.io/principal-uid-\n", "argocd app delete NAME --cascade=false --core"},
			not:  []string{"Forced"},
		},
		"force": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionOrphan, force: true,
			want: []string{"Forced: the hub did not wait for the spoke", "--cascade=false"},
		},
		"cascade": {
			mode: v1alpha1.ModeManaged, policy: v1alpha1.DeletionCascade,
			want: []string{"with their workloads", "agentctl agent delete edge-1 --force"},
			not:  []string{"kubectl", "stay as they are"},
		},
		"autonomous": {
			mode: v1alpha1.ModeAutonomous, policy: v1alpha1.DeletionOrphan,
			want: []string{"its Applications are its own"},
			not:  []string{"kubectl", "argocd app delete"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{}
			agent.Name, agent.Spec.Mode, agent.Spec.DeletionPolicy = "edge-1", tt.mode, tt.policy
			got := (&deleteCommand{force: tt.force}).consequences(agent)
			for _, part := range tt.want {
				if !strings.Contains(got, part) {
					t.Errorf("it says\n%swant something with\n%s", got, part)
				}
			}
			for _, part := range tt.not {
				if strings.Contains(got, part) {
					t.Errorf("it says\n%swant nothing with\n%s", got, part)
				}
			}
		})
	}
}

func TestDescribeHeld(t *testing.T) {
	agent := &v1alpha1.Agent{}
	agent.Name = "edge-1"
	agent.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{
		ID: "hold-1", Since: metav1.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
		Reason: v1alpha1.HoldTooMany, Message: "12 of 40 Applications would go", Total: 12,
		Objects: []v1alpha1.HeldObject{{Kind: "Application", Namespace: "argocd", Name: "a"}, {Kind: "Cluster", Name: "b"}},
	}
	want := `Agent edge-1 holds back 12 deletions since 2026-11-21T12:00:00Z (TooMany): 12 of 40 Applications would go
ID hold-1
  Application argocd/a
  Cluster b
  and 10 more
`
	if diff := cmp.Diff(want, describeHeld(agent)); diff != "" {
		t.Errorf("describeHeld() (-want +got):\n%s", diff)
	}
	agent.Status.DeletionsHeld.Total, agent.Status.DeletionsHeld.Message = 1, ""
	agent.Status.DeletionsHeld.Objects = agent.Status.DeletionsHeld.Objects[:1]
	want = "Agent edge-1 holds back 1 deletion since 2026-11-21T12:00:00Z (TooMany)\nID hold-1\n  Application argocd/a\n"
	if diff := cmp.Diff(want, describeHeld(agent)); diff != "" {
		t.Errorf("describeHeld() of one (-want +got):\n%s", diff)
	}
}
