package workload

import (
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
)

// authInfo is that of a connection whose peer was verified.
type authInfo struct {
	credentials.TLSInfo
	peer identity.Peer
}
