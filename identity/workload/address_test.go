package workload_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity/workload"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestNewChecksTheSocket(t *testing.T) {
	tests := map[string]struct {
		socket string
		want   string // empty: accepted
	}{
		"a unix socket":         {"unix:///run/spire/agent.sock", ""},
		"tcp on loopback":       {"tcp://127.0.0.1:8081", ""},
		"tcp on ipv6 loopback":  {"tcp://[::1]:8081", ""},
		"107 bytes":             {"unix:///" + strings.Repeat("x", 106), ""},
		"empty":                 {"", "is not set"},
		"a bare path":           {"/run/spire/agent.sock", "neither scheme"},
		"a relative path":       {"unix://run/agent.sock", "not an absolute path"},
		"one slash too few":     {"unix:run/agent.sock", "more than scheme and address"},
		"no path":               {"unix://", "not an absolute path"},
		"108 bytes":             {"unix:///" + strings.Repeat("x", 107), "107"},
		"a query":               {"unix:///run/a?x", "more than scheme and address"},
		"a fragment":            {"unix:///run/a#x", "more than scheme and address"},
		"a name":                {"tcp://localhost:8081", "not an IP address and port"},
		"no port":               {"tcp://127.0.0.1", "not an IP address and port"},
		"port zero":             {"tcp://127.0.0.1:0", "not an IP address and port"},
		"a path after the port": {"tcp://127.0.0.1:1/x", "not an IP address and port"},
		"every interface":       {"tcp://0.0.0.0:8081", "not a loopback"},
		"a routable address":    {"tcp://192.0.2.1:8081", "not a loopback"},
		"a user":                {"tcp://me@127.0.0.1:1", "more than scheme and address"},
		"another scheme":        {"https://127.0.0.1:1", "neither scheme"},
		"no uri":                {"unix://\x00", "is not a URI"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := workload.New(workload.Config{Socket: tc.socket, Metrics: prometheus.NewRegistry()})
			if tc.want == "" {
				if err != nil {
					t.Errorf("New() = %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "identity.socket") {
				t.Errorf("New() = %v, want an error about identity.socket that says %q", err, tc.want)
			}
		})
	}
}

func TestNewChecksTheRest(t *testing.T) {
	const socket = "unix:///run/x"
	if _, err := workload.New(workload.Config{Socket: socket}); err == nil {
		t.Error("New() took no registerer")
	}
	_, err := workload.New(workload.Config{
		Socket: socket, Metrics: prometheus.NewRegistry(), SPIFFEID: spiffeid.RequireFromString("spiffe://td.test"),
	})
	if err == nil || !strings.Contains(err.Error(), "identity.spiffe_id") {
		t.Errorf("New() with the ID of a trust domain: %v", err)
	}
	registry := prometheus.NewRegistry()
	for i, want := range []bool{true, false} {
		if _, err := workload.New(workload.Config{Socket: socket, Metrics: registry}); (err == nil) != want {
			t.Errorf("source %d on one registry: %v", i+1, err)
		}
	}
}
