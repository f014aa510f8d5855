package principalconfig

import (
	"errors"
	"fmt"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// Stream is where agents connect.
type Stream struct {
	Listen         string     `koanf:"listen" help:"address on which agents connect by method spiffe-x509, mutual TLS; empty for none"`
	MaxConnections int        `koanf:"max_connections" help:"open connections of agents at a time on each listener; more wait to be accepted"`
	Listeners      []Listener `koanf:"listeners" help:"further listeners, each with listen, method (spiffe-x509, spiffe-jwt, header), plaintext, header.trusted_proxies, header.max_age"`
}

// Validate reports every problem.
func (s Stream) Validate() error {
	var problems []error
	if s.Listen != "" {
		problems = append(problems, config.Address("listen", s.Listen))
	} else if len(s.Listeners) == 0 {
		problems = append(problems,
			config.Invalid("listen",
				"is empty, and there are no further listeners: give the address on which agents connect, such as :8443"))
	}
	for i, l := range s.Listeners {
		problems = append(problems, l.validate(fmt.Sprintf("listeners[%d]", i)))
	}
	if s.MaxConnections < 1 {
		problems = append(problems, config.Invalid("max_connections", "%d admits no agent: use 1 or more", s.MaxConnections))
	}
	return errors.Join(problems...)
}

// All returns the listeners of s, with that of the key listen first.
func (s Stream) All() (listeners []Listener, keys []string) {
	if s.Listen != "" {
		listeners = append(listeners, Listener{Listen: s.Listen, Method: identity.MethodX509})
		keys = append(keys, "listen")
	}
	for i, l := range s.Listeners {
		listeners = append(listeners, l)
		keys = append(keys, fmt.Sprintf("listeners[%d]", i))
	}
	return listeners, keys
}

// NeedsTokens reports whether agents may prove themselves by JWT-SVIDs.
func (s Stream) NeedsTokens() bool {
	for _, l := range s.Listeners {
		if l.Method == identity.MethodJWT {
			return true
		}
	}
	return false
}

// Trusts reports whether the listener at an address believes gateways before the
// proxy that connects to it.
func (s Stream) Trusts(at mesh.Address) bool {
	for _, l := range s.Listeners {
		if address, err := mesh.ParseAddress(l.Address()); err == nil && address == at {
			return len(l.Header.TrustedProxies) > 0
		}
	}
	return false
}
