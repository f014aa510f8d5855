package principalconfig

import "testing"

func TestTunnelValidate(t *testing.T) {
	for what, tt := range map[string]struct {
		tunnel Tunnel
		good   bool
	}{
		"the default":            {DefaultTunnel(), true},
		"the least":              {Tunnel{MaxStreams: 1, MaxAgentStreams: 2}, true},
		"no stream":              {Tunnel{MaxStreams: 0, MaxAgentStreams: 2}, false},
		"nothing beside a spare": {Tunnel{MaxStreams: 100, MaxAgentStreams: 1}, false},
	} {
		if err := tt.tunnel.Validate(); (err == nil) != tt.good {
			t.Errorf("%s: Validate() = %v", what, err)
		}
	}
}
