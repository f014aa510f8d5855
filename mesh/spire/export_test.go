package spire

import "github.com/spiffe/spire-api-sdk/proto/spire/api/types"

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
func ReadFederation(m *types.FederationRelationship) (Federation, error) {
	return federationFromWire(m, newKeyRoom())
}
