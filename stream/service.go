package stream

import (
	"fmt"

	"github.com/argomesh/argomesh/identity"
)

// Service is what a hub may reach on a spoke through a tunnel. The zero value is no
// service.
type Service uint8

const (
	// Kubernetes is the spoke's Kubernetes API, as its agent lets it be used.
	Kubernetes Service = iota + 1
	// Redis is the Redis of the spoke's Argo CD.
	Redis
)

// Services lists every service.
func Services() []Service { return []Service{Kubernetes, Redis} }

// ParseService returns an error wrapping identity.ErrInvalid when s is neither
// "kubernetes" nor "redis".
func ParseService(s string) (Service, error) {
	for _, service := range Services() {
		if s == service.String() {
			return service, nil
		}
	}
	return 0, fmt.Errorf("service %s is neither kubernetes nor redis: %w", identity.Quote(s), identity.ErrInvalid)
}

func (s Service) String() string {
	switch s {
	case Kubernetes:
		return "kubernetes"
	case Redis:
		return "redis"
	}
	return ""
}

// MarshalText writes the name of the service; the zero value is empty.
func (s Service) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseService.
func (s *Service) UnmarshalText(text []byte) error {
	parsed, err := ParseService(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
