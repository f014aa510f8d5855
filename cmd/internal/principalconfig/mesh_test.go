package principalconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// What agentctl renders a mesh from is a configuration of the principal, and what
// cannot be kept stops it at the start.
func TestMeshConfig(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "agentctl", "testdata", "mesh", "gateway.in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for title, tt := range map[string]struct{ from, to, want string }{
		"good":                            {"", "", ""},
		"no mesh, whatever else is there": {"  exposure: gateway", "  exposure: \"\"", ""},
		"a promise that cannot be kept":   {"  exposure: gateway", "  exposure: gateway\n  policy: open", "mesh.exposure: gateway: mesh: policy open cannot be kept"},
		"no listener":                     {"    method: header", "    method: spiffe-x509", "mesh.method: no listener has method header"},
		"another listener":                {"  stream_upstream: unix:///run/argomesh/stream.sock", "  stream_upstream: unix:///run/other.sock", "is not a listener of method header"},
		"the listener's default":          {"  - listen: unix:///run/argomesh/stream.sock\n    method: header", "  - method: header", ""},
		"the upstream's default":          {"  stream_upstream: unix:///run/argomesh/stream.sock\n", "", ""},
		"a listener on loopback":          {"  stream_upstream: unix:///run/argomesh/stream.sock\n", "  stream_upstream: 127.0.0.1:8444\n", "is not a listener of method header"},
		"a gateway that is not trusted":   {"trusted_proxies: [\"spiffe://hub.test/ns/istio-ingress/sa/istio-ingress\"]", "trusted_proxies: []", "would take the gateway for the agent"},
		"kept by the principal":           {"  exposure: gateway", "  live: {istio: apply, spire: report}\n  exposure: gateway", ""},
		"what YAML takes for a truth":     {"  exposure: gateway", "  live: {istio: on}\n  exposure: gateway", "neither report nor apply"},
		"kept, and no mesh":               {"  exposure: gateway", "  live: {spire: apply}\n  exposure: \"\"", "mesh.live: without mesh.exposure there is nothing to keep"},
		"no address of the hub":           {"  hub: argomesh.hub.test:443", "  hub: argomesh.hub.test", "mesh.hub: \"argomesh.hub.test\" is not host:port"},
	} {
		t.Run(title, func(t *testing.T) {
			text := strings.Replace(string(raw), tt.from, tt.to, 1)
			if tt.from != "" && text == string(raw) {
				t.Fatalf("the configuration does not have %q", tt.from)
			}
			if title == "no listener" { // which has no header either
				text = strings.Replace(text, "    header:\n      trusted_proxies: [\"spiffe://hub.test/ns/istio-ingress/sa/istio-ingress\"]\n", "", 1)
			}
			file := filepath.Join(t.TempDir(), "principal.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(config.Program{Name: "principal", Environ: func() []string { return nil }}, []string{"--config", file}, Default())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Load() = %v, want %q", err, tt.want)
			}
		})
	}
}
