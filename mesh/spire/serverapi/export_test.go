package serverapi

import (
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"

	"github.com/argomesh/argomesh/mesh/spire"
)

// What the tests of the wire need of it.
var (
	ReadEntry   = entryFromWire
	WriteEntry  = entryToWire
	WriteBundle = bundleToWire
)

// The limits of an answer.
const (
	MaxMessageBytes  = maxMessageBytes
	MaxReplyHeap     = maxReplyHeap
	MaxReplyKeyBytes = maxReplyKeyBytes
)

// ReadFederation reads a relationship that is alone in an answer.
func ReadFederation(m *types.FederationRelationship) (spire.Federation, error) {
	return federationFromWire(m, newKeyRoom())
}
