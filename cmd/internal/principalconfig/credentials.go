package principalconfig

import (
	"errors"
	"time"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/proxies/token"
)

// Credentials are what Argo CD calls the resource proxy with, and knows it by. Key:
// resource_proxy.credentials.
type Credentials struct {
	Enabled    bool          `koanf:"enabled" help:"puts a token, and the authorities to trust, into the cluster Secrets"`
	TokenLife  time.Duration `koanf:"token_life" help:"life of a token; it is renewed at about half of that"`
	KeyLife    time.Duration `koanf:"key_life" help:"how long a key signs tokens before another one does, no shorter than token_life"`
	PersonLife time.Duration `koanf:"person_life" help:"longest life of a token that is made out to a person (agentctl kubeconfig), at most 12h and no longer than token_life; 0 makes out none"`
	CAFile     string        `koanf:"ca_file" help:"PEM file of the authorities of the resource proxy's certificate; empty for the system's, or ca_bundle"`
	CABundle   bool          `koanf:"ca_bundle" help:"take the bundle of our own trust domain from the Workload API instead of ca_file"`
}

// MaxPersonLife is the longest life of a token that is made out to a person, and the default.
const MaxPersonLife = 12 * time.Hour

// DefaultCredentials are off.
func DefaultCredentials() Credentials {
	return Credentials{TokenLife: token.DefaultLife, KeyLife: token.DefaultKeyLife, PersonLife: MaxPersonLife}
}

// Validate reports every problem.
func (c Credentials) Validate() error {
	var problems []error
	if c.TokenLife < token.MinLife || c.TokenLife > token.MaxLife || c.TokenLife%time.Second != 0 {
		problems = append(problems,
			config.Invalid("token_life", "%v is out of range: use whole seconds from %v to %v", c.TokenLife, token.MinLife,
				token.MaxLife))
	}
	if c.KeyLife < c.TokenLife {
		problems = append(problems,
			config.Invalid("key_life", "%v is shorter than token_life, %v: a key must outlive what it signs", c.KeyLife,
				c.TokenLife))
	}
	if c.PersonLife < 0 || c.PersonLife > MaxPersonLife || c.PersonLife > 0 && c.PersonLife < token.MinLife {
		problems = append(problems,
			config.Invalid("person_life", "%v is out of range: use %v to %v, or 0 for no such tokens", c.PersonLife, token.MinLife,
				MaxPersonLife))
	}
	if c.CAFile != "" && c.CABundle {
		problems = append(problems, config.Invalid("ca_bundle", "cannot be given beside ca_file: keep one of them"))
	}
	return errors.Join(problems...)
}
