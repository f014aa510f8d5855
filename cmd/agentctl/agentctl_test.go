package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// agentctl runs one command line without a kubeconfig, so without a hub.
func agentctl(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out, complaint strings.Builder
	err = run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &complaint})
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
