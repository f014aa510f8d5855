package agentconfig

import "testing"

func TestTunnelValidate(t *testing.T) {
	for what, tt := range map[string]struct {
		tunnel Tunnel
		good   bool
	}{
		"the default":                 {DefaultTunnel(), true},
		"the least":                   {Tunnel{MaxStreams: 2, MinSpares: 1, MaxSpares: 1}, true},
		"no spare stream":             {Tunnel{MaxStreams: 2, MinSpares: 0, MaxSpares: 1}, false},
		"fewer spares than the least": {Tunnel{MaxStreams: 20, MinSpares: 5, MaxSpares: 4}, false},
		"nothing beside spares":       {Tunnel{MaxStreams: 5, MinSpares: 5, MaxSpares: 5}, false},
	} {
		if err := tt.tunnel.Validate(); (err == nil) != tt.good {
			t.Errorf("%s: Validate() = %v", what, err)
		}
	}
}
