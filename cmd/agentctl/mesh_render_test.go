package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/golden"
)

var (
	meshConfig = filepath.Join("testdata", "mesh", "gateway.in.yaml")
	meshAgents = filepath.Join("testdata", "mesh", "agents.yaml")
)

func TestMeshRenderGolden(t *testing.T) {
	for _, what := range []string{"istio", "istio-spoke", "istio-values", "spire"} {
		t.Run(what, func(t *testing.T) {
			got, _, err := agentctl(t, "mesh", "render", what, "--config", meshConfig, "-f", meshAgents)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", "mesh", "gateway."+what+".yaml"), got)
		})
	}
}

// A suspended agent is registered, and admitted nowhere.
func TestMeshRenderLeavesOutSuspendedAgents(t *testing.T) {
	got, _, err := agentctl(t, "mesh", "render", "istio", "--config", meshConfig, "-f", meshAgents)
	if err != nil {
		t.Fatal(err)
	}
	for agent, want := range map[string]bool{"edge-1": true, "edge-3": false} {
		if strings.Contains(got, "hub.test/argomesh/agent/"+agent) != want {
			t.Errorf("%s: admitted is %t, want %t", agent, !want, want)
		}
	}
}

func TestMeshRenderRefuses(t *testing.T) {
	config := func(t *testing.T, from, to string) string {
		t.Helper()
		raw, err := os.ReadFile(meshConfig)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), from) {
			t.Fatalf("%s does not have %q", meshConfig, from)
		}
		file := filepath.Join(t.TempDir(), "principal.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(raw), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for title, tt := range map[string]struct{ from, to, want string }{
		"a promise that cannot be kept": {"  exposure: gateway\n  method: header", "  exposure: gateway\n  method: spiffe-x509", "choose method header, or exposure passthrough"},
		"no mesh":                       {"  exposure: gateway\n", "", "mesh.exposure is not set"},
		"an alias":                      {"  exposure:", "  trust_domain_aliases: [partner.test]\n  exposure:", "admit its namesakes too"},
		"an unknown key":                {"  exposure:", "  exposures: x\n  exposure:", "exposures"},
		"a misspelt section":            {"mesh:\n", "strem: {}\nmesh:\n", "strem: unknown key, did you mean stream?"},
		"a key of another section":      {"mesh:\n", "limits: {byte_per_second: 1}\nmesh:\n", "did you mean limits.bytes_per_second?"},
		"no address of the hub":         {"  hub: argomesh.hub.test:443\n", "", "is not host:port"},
	} {
		t.Run(title, func(t *testing.T) {
			out, _, err := agentctl(t, "mesh", "render", "istio", "--config", config(t, tt.from, tt.to), "-f", meshAgents)
			if err == nil || !strings.Contains(err.Error(), tt.want) || out != "" {
				t.Errorf("%q, %v, want an error with %q", out, err, tt.want)
			}
		})
	}
	for title, args := range map[string][]string{
		"one of istio, istio-spoke, istio-values or spire is expected": {"mesh", "render"},
		"one of istio and spire is expected":                           {"mesh", "apply", "istio-spoke", "--config", meshConfig},
		"--config is missing":                                          {"mesh", "render", "istio"},
		"are not Kubernetes objects; leave it out":                     {"mesh", "render", "istio-values", "-o", "json", "--config", meshConfig, "-f", meshAgents},
		"is there twice":                                               {"mesh", "render", "istio", "--config", meshConfig, "-f", meshAgents, "-f", meshAgents},
		"no such file":                                                 {"mesh", "render", "istio", "--config", meshConfig, "-f", "testdata/absent.yaml"},
	} {
		t.Run(title, func(t *testing.T) {
			if out, _, err := agentctl(t, args...); err == nil || !strings.Contains(err.Error(), title) || out != "" {
				t.Errorf("%q, %v, want an error with %q", out, err, title)
			}
		})
	}
}
