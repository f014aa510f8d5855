package mapping

import (
	"testing"

	"github.com/argomesh/argomesh/identity"
)

// An Application is the agent's by its name or its server, slashes at the end or not; no
// server of slashes alone is anybody's, least of all that of an agent without one.
func TestIsDestination(t *testing.T) {
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	const server = "https://proxy/agents/edge-1"
	for _, tt := range []struct {
		of, name, server string
		want             bool
	}{
		{server, "", server, true},
		{server, "", server + "//", true},
		{server, "", server + "0", false},
		{server, "edge-1", "", true},
		{server, "edge-1", server, false}, // Argo CD takes both at once for a mistake
		{server, "edge-2", "", false},
		{server, "", "", false},
		{"", "", "", false},
		{"", "", "/", false},
		{"", "", "//", false},
	} {
		r := Map{Agent: agent, ClusterServer: tt.of}
		if got := r.isDestination(tt.name, tt.server); got != tt.want {
			t.Errorf("isDestination(%q, %q) of an agent with server %q = %t", tt.name, tt.server, tt.of, got)
		}
	}
}
