package principalconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// load reads the block stream of a configuration file.
func load(t *testing.T, stream string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "principal.yaml")
	text := "identity: {socket: 'unix:///run/s'}\nstream:\n" + stream
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Program{Name: "principal", Environ: func() []string { return nil }}, []string{"--config", file}, Default())
}

func TestListeners(t *testing.T) {
	cfg, err := load(t, `
  listeners:
  - {listen: "unix:///run/argomesh/stream.sock", method: header, header: {trusted_proxies: ["spiffe://hub.test/gateway"], max_age: 1h}}
  - {listen: "127.0.0.1:8444", method: spiffe-jwt, plaintext: true}
  - {listen: ":8445", method: spiffe-jwt}
  - {listen: ":8446", method: spiffe-x509}
`)
	if err != nil {
		t.Fatal(err)
	}
	all, keys := cfg.Stream.All()
	if len(all) != 5 || all[0].Listen != ":8443" || all[0].Method != identity.MethodX509 || keys[0] != "listen" || keys[4] != "listeners[3]" {
		t.Errorf("All() = %+v, %v", all, keys)
	}
	if proxies := all[1].Header.TrustedProxies; len(proxies) != 1 || proxies[0].String() != "spiffe://hub.test/gateway" {
		t.Errorf("header.trusted_proxies = %v", proxies)
	}
	if !cfg.Stream.NeedsTokens() || (Stream{Listeners: all[:2]}).NeedsTokens() {
		t.Error("NeedsTokens() is wrong")
	}
	if cfg, err := load(t, "  listen: ''\n  listeners: [{listen: ':1', method: spiffe-jwt}]\n"); err != nil {
		t.Error(err)
	} else if all, _ := cfg.Stream.All(); len(all) != 1 {
		t.Errorf("All() = %+v", all)
	}
}

func TestListenerTrustsGateways(t *testing.T) {
	cfg, err := load(t, `
  listeners:
  - {listen: "unix:///run/argomesh/stream.sock", method: header, header: {trusted_proxies: ["spiffe://hub.test/gateway"]}}
  - {listen: "127.0.0.1:8444", method: header}
`)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]bool{"unix:///run/argomesh/stream.sock": true, "127.0.0.1:8444": false, "127.0.0.1:8445": false} {
		address, err := mesh.ParseAddress(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Stream.Trusts(address); got != want {
			t.Errorf("Trusts(%s) = %v, want %v", at, got, want)
		}
	}
	if cfg.Stream.Trusts(mesh.Address{}) {
		t.Error("no address is trusted")
	}
}

// A listener that believes a header is on a unix socket, unless someone says otherwise:
// anyone who may forward ports of the pod reaches loopback.
func TestHeaderListensOnASocketByDefault(t *testing.T) {
	const socket = "unix:///run/argomesh/stream.sock"
	cfg, err := load(t, "  listeners: [{method: header, header: {trusted_proxies: ['spiffe://hub.test/gateway']}}]\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Stream.Listeners[0].Address(); got != socket {
		t.Errorf("it listens on %q, want %q", got, socket)
	}
	at, err := mesh.ParseAddress(socket)
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.Stream.Trusts(at) || cfg.Envoy.StreamUpstream != at {
		t.Errorf("envoy brings agents to %s, of which Trusts() = %v", cfg.Envoy.StreamUpstream, cfg.Stream.Trusts(at))
	}
}

func TestListenersThatAreWrong(t *testing.T) {
	for name, tt := range map[string]struct{ stream, key, why string }{
		"no listener":                     {"  listen: ''\n", "stream.listen", "no further listeners"},
		"no address":                      {"  listeners: [{method: spiffe-jwt}]\n", "stream.listeners[0].listen", "not an address"},
		"no address of a method":          {"  listeners: [{listen: '', method: spiffe-x509}]\n", "stream.listeners[0].listen", "not an address"},
		"no method":                       {"  listeners: [{listen: ':1'}]\n", "stream.listeners[0].method", "is not a method"},
		"another method":                  {"  listeners: [{listen: ':1', method: password}]\n", "stream.listeners[0].method", `"password" is not a method`},
		"an unknown key":                  {"  listeners: [{listen: ':1', method: spiffe-jwt, tls: false}]\n", "stream.listeners", "tls"},
		"plaintext X.509-SVIDs":           {"  listeners: [{listen: '127.0.0.1:1', method: spiffe-x509, plaintext: true}]\n", "stream.listeners[0].plaintext", "nothing to authenticate"},
		"tokens in clear text":            {"  listeners: [{listen: ':1', method: spiffe-jwt, plaintext: true}]\n", "stream.listeners[0].listen", "other machines"},
		"a header for everybody":          {"  listeners: [{listen: '0.0.0.0:1', method: header}]\n", "stream.listeners[0].listen", "other machines"},
		"a header for a name":             {"  listeners: [{listen: 'localhost:1', method: header}]\n", "stream.listeners[0].listen", "other machines"},
		"a header for a routable address": {"  listeners: [{listen: '[2001:db8::1]:1', method: header}]\n", "stream.listeners[0].listen", "other machines"},
		"header settings elsewhere":       {"  listeners: [{listen: ':1', method: spiffe-jwt, header: {max_age: 1h}}]\n", "stream.listeners[0].header", "is for method header"},
		"a short age":                     {"  listeners: [{listen: '127.0.0.1:1', method: header, header: {max_age: 29s}}]\n", "stream.listeners[0].header.max_age", "too short"},
		"a trust domain as a proxy":       {"  listeners: [{listen: '127.0.0.1:1', method: header, header: {trusted_proxies: ['spiffe://hub.test']}}]\n", "stream.listeners[0].header.trusted_proxies", "no path"},
		"a pattern as a proxy":            {"  listeners: [{listen: '127.0.0.1:1', method: header, header: {trusted_proxies: ['spiffe://hub.test/*']}}]\n", "stream.listeners", "trusted_proxies"},
	} {
		if _, err := load(t, tt.stream); err == nil || !strings.Contains(err.Error(), tt.key) || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: Load() = %v, want an error of %s that says %q", name, err, tt.key, tt.why)
		}
	}
}
