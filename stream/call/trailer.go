package call

import (
	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// The keys of the trailer in which a principal tells a caller as whom it admitted it.
const (
	agentKey = "argomesh-agent"
	modeKey  = "argomesh-mode"
)

// Trailer returns what tells a caller in the trailer of its call as which agent a it was
// admitted. It is for callers that have proven who they are, and for no one else.
func Trailer(a stream.Agent) metadata.MD {
	return metadata.Pairs(agentKey, a.Name.String(), modeKey, a.Mode.String())
}

// FromTrailer is the inverse of [Trailer], as far as that goes: it returns the name
// and the mode. It returns false when the trailer has none, as that of a principal of an
// older release, or anything but one of each. It is the word of anyone who ended the call,
// to be shown to a person and for nothing else.
func FromTrailer(trailer metadata.MD) (stream.Agent, bool) {
	names, modes := trailer.Get(agentKey), trailer.Get(modeKey)
	if len(names) != 1 || len(modes) != 1 {
		return stream.Agent{}, false
	}
	name, err := identity.ParseAgentName(names[0])
	if err != nil {
		return stream.Agent{}, false
	}
	mode, err := stream.ParseMode(modes[0])
	if err != nil {
		return stream.Agent{}, false
	}
	return stream.Agent{Name: name, Mode: mode}, true
}
