package principalconfig

import (
	"errors"
	"time"

	"github.com/argomesh/argomesh/mesh/spire/serverapi"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// SPIRE is the SPIRE server to which bundles of other trust domains are pushed. Key:
// spire. The principal's identity must be an administrator of that server, so this is
// off unless someone asks for it.
type SPIRE struct {
	Server  string        `koanf:"server" help:"API of the SPIRE server of our trust domain, unix:///path or host:port, to which bundles of other trust domains are pushed; our SVID must be one of its administrators; empty for none"`
	Bundles string        `koanf:"bundles" help:"folder of the bundles to push: SPIFFE bundle documents, <trust domain>.json"`
	Every   time.Duration `koanf:"every" help:"how often to look whether a bundle has to be pushed"`
}

// minPushEvery is the shortest SPIRE.Every.
const minPushEvery = time.Second

// DefaultSPIRE pushes nothing.
func DefaultSPIRE() SPIRE { return SPIRE{Every: time.Minute} }

// Validate reports every problem.
func (s SPIRE) Validate() error {
	var problems []error
	if s.Server != "" {
		if _, _, err := serverapi.ParseAddress(s.Server); err != nil {
			problems = append(problems, config.Invalid("server", "%v", err))
		}
	}
	if (s.Server == "") != (s.Bundles == "") {
		problems = append(problems, config.Invalid("server", "and spire.bundles go together: set both, or neither"))
	}
	if s.Every < minPushEvery {
		problems = append(problems, config.Invalid("every", "%v is too often: use %v or more", s.Every, minPushEvery))
	}
	return errors.Join(problems...)
}
