package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
