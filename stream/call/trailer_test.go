package call_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

func TestTrailer(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		want := stream.Agent{Name: name, Mode: mode}
		if got, ok := call.FromTrailer(call.Trailer(want)); !ok || got != want {
			t.Errorf("FromTrailer() = %+v, %t, want %+v", got, ok, want)
		}
	}
	const agent, mode = "argomesh-agent", "argomesh-mode"
	for title, trailer := range map[string]metadata.MD{
		"nothing, as of an older principal": {},
		"no mode":                           metadata.Pairs(agent, "edge-1"),
		"no name":                           metadata.Pairs(mode, "managed"),
		"an empty name":                     metadata.Pairs(agent, "", mode, "managed"),
		"two names":                         metadata.Pairs(agent, "edge-1", agent, "edge-2", mode, "managed"),
		"two modes":                         metadata.Pairs(agent, "edge-1", mode, "managed", mode, "managed"),
		"a name that is none":               metadata.Pairs(agent, "edge\x1b[2J", mode, "managed"),
		"a name that is too long":           metadata.Pairs(agent, strings.Repeat("a", 64), mode, "managed"),
		"a mode that there is not":          metadata.Pairs(agent, "edge-1", mode, "anarchic"),
		"an empty mode":                     metadata.Pairs(agent, "edge-1", mode, ""),
	} {
		if got, ok := call.FromTrailer(trailer); ok || got != (stream.Agent{}) {
			t.Errorf("%s: FromTrailer() = %+v, %t", title, got, ok)
		}
	}
}
