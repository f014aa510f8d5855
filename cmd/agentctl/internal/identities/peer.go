package identities

import (
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// callee is whom to dial, and what is expected there.
type callee struct {
	principal []spiffeid.ID      // whom it may be; empty for anybody
	gateway   []spiffeid.ID      // who may end TLS before it; empty when they are not known by that
	agent     identity.AgentName // for whom it is to take us; zero for whomever
}

// meeting notes whom a handshake met. Its zero value has met nobody.
type meeting struct {
	mu      sync.Mutex // guards what follows
	id      spiffeid.ID
	refused error
}

// authorizer accepts those of accept, or anybody when there is none: what is dialled is
// told nothing.
func (m *meeting) authorizer(accept []spiffeid.ID) identity.Authorizer {
	allow := func(spiffeid.ID) error { return nil }
	if len(accept) > 0 {
		allow = identity.AllowIDs(accept...)
	}
	return func(id spiffeid.ID) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.id, m.refused = id, allow(id)
		return m.refused
	}
}

func (m *meeting) result() (spiffeid.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, m.refused
}
