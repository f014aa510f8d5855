package kubeconfig

import (
	"io"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// What has no sense is refused before the hub is asked: here there is none that could be.
func TestRefusedFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ flag, value, want string }{
		{"--duration", "12h1s", "--duration 12h0m1s: use whole seconds from 5m0s to 12h0m0s"},
		{"--duration", "4m59s", "--duration 4m59s: use whole seconds"},
		{"--duration", "1h0.5s", "use whole seconds"},
		{"--timeout", "0s", "--timeout must be more than 0"},
		{"--resource-proxy", "http://hub.example.org:9090", "is not an https URL of a host"},
		{"--resource-proxy", "https://user@hub.example.org", "is not an https URL of a host"},
		{"--resource-proxy", "hub.example.org:9090", "is not an https URL of a host"},
	} {
		cmd := NewCommand(cli.Streams{Out: io.Discard, Err: io.Discard}, cli.NewConnection(io.Discard))
		cmd.SetArgs([]string{"edge-1", tc.flag, tc.value})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.flag, tc.value, err, tc.want)
		}
	}
}
