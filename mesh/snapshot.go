// Package mesh says what of a hub must be reachable, by whom, and how, in no
// mesh's terms: a [Snapshot]. The packages below it turn one into the objects of
// a product, and none of them knows another.
//
// It leaves to others where a snapshot comes from (the registry, the
// configuration, the token keys) and what is done with it. It does no I/O.
//
//	snapshot := mesh.Snapshot{
//		Self: principalID,
//		ResourceProxy: &mesh.ResourceProxy{
//			Listen: front, Principal: socket,
//			Tokens: mesh.Tokens{Issuer: issuer, Audience: audience, Keys: keys},
//			Agents: map[identity.AgentName]mesh.Agent{edge1: {}},
//		},
//	}
//	err := snapshot.Validate()
package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// MaxKeys is the largest number of token keys: next, current and previous, and some
// more for a rotation that overlaps another.
const MaxKeys = 8

// MaxAgents is the largest number of agents of one snapshot.
const MaxAgents = 20_000

// Snapshot is what must be reachable at one moment. It is a value: anyone who made it
// does not change it afterwards.
type Snapshot struct {
	// Self is the SPIFFE ID as which every front door presents itself.
	Self spiffeid.ID
	// ResourceProxy is live access to the spokes. Nil means that there is none.
	ResourceProxy *ResourceProxy
	// Redis is a front door for the hub's Argo CD to what spokes keep in Redis. Nil means
	// that there is none.
	Redis *Redis
	// Stream is a front door for the agents that terminates their TLS. Nil means that
	// they reach the principal itself.
	Stream *Stream
	// Reach says who reaches the principal through a mesh. Nil means that there is
	// none. [Check] checks it.
	Reach *Reach
}

// ResourceProxy is the front door to the Kubernetes APIs of the spokes: HTTPS, one
// path per agent, and a token that is good for one agent.
type ResourceProxy struct {
	// Listen is where Argo CD connects.
	Listen Address
	// Principal is where the principal beside it takes HTTP/1.1 requests that
	// passed.
	Principal Address
	// Tokens says which tokens are good.
	Tokens Tokens
	// Agents are those that can be reached. The path /agents/<name>/ belongs to
	// exactly one, and only a token whose subject is that name gets there.
	Agents map[identity.AgentName]Agent
	// AgentRate bounds the requests for each agent that begin, of those whose token is good;
	// more get 429 at once. Zero means 10,000 a second.
	AgentRate Rate
	// MaxConnections bounds the open connections of callers; more are closed at
	// once. Zero means 10,000.
	MaxConnections uint32
	// MaxRequests bounds the requests under way to the principal, watches and
	// upgrades included; more get 503 at once. Zero means 10,000.
	MaxRequests uint32
}

// Rate is how much may begin. The zero value stands for a default.
type Rate struct {
	// Count is how much may begin at once, and in each Per.
	Count uint32
	// Per is 50ms or more. Zero means a second.
	Per time.Duration
}

// Agent is one agent as the front door sees it.
type Agent struct {
	// Replica is where the replica of the principal listens that holds the agent.
	// Zero means the principal beside the front door.
	Replica Address
}

// Tokens says which tokens are good: JSON Web Tokens signed with ES256 by one of the
// keys, of this issuer and for this audience, in their time, with an expiry.
type Tokens struct {
	Issuer   string
	Audience string
	// Keys are the public keys. None means that no token is good.
	Keys []Key
	// Leeway is by how much the clocks of those who sign and check may be apart, in
	// whole seconds. Required with keys.
	Leeway time.Duration
}

// Key is a public key for tokens.
type Key struct {
	// ID is the kid of the tokens it verifies, unique among the keys.
	ID string
	// Public is a point on P-256.
	Public *ecdsa.PublicKey
}

// Equal reports whether both are the same key under the same ID.
func (k Key) Equal(other Key) bool {
	return k.ID == other.ID && k.Public != nil && other.Public != nil && k.Public.Equal(other.Public)
}

// Stream is a front door for agents: mutual TLS with any SVID of a trust domain whose
// bundle is held. Who is let in decides the principal, by the certificate that is
// forwarded to it.
type Stream struct {
	// Listen is where agents connect.
	Listen Address
	// Principal is where the principal beside it takes gRPC without TLS and
	// believes the forwarded certificate. It must not be reachable from elsewhere.
	Principal Address
	// Services are the full names of the gRPC services that pass; nothing else does.
	Services []string
	// BehindGateway says that connections come from gateways that have ended the TLS
	// of agents: what they forward goes on, with the certificate of the gateway after
	// it, and the principal decides by the two whom it believes. False drops whatever
	// the other end of a connection says about others.
	BehindGateway bool
	// MaxConnections bounds the open connections of agents; more are closed at
	// once. Zero means 20,000.
	MaxConnections uint32
	// CallRate bounds the gRPC calls that begin on each connection; more are refused at
	// once as UNAVAILABLE. Zero means 200 a second. It does not hold for connections
	// of gateways, which are those of many agents.
	CallRate Rate
}

// RedisTLS is who terminates the TLS of the hub's Argo CD, and with which certificate.
type RedisTLS string

// The values of [RedisTLS].
const (
	// RedisTLSNone is no TLS: a mesh has its own.
	RedisTLSNone RedisTLS = "none"
	// RedisTLSSVID is the SVID of Snapshot.Self, with its DNS names.
	RedisTLSSVID RedisTLS = "svid"
	// RedisTLSFiles is a certificate in files, of a long-lived authority: Argo CD reads
	// the authorities of its Redis once.
	RedisTLSFiles RedisTLS = "files"
)

// Redis is a front door for the hub's Argo CD: RESP over TCP, passed on as it is.
type Redis struct {
	// Listen is where Argo CD connects.
	Listen Address
	// Principal is where the principal beside it takes RESP without TLS. It must not be
	// reachable from elsewhere.
	Principal Address
	// TLS is required.
	TLS RedisTLS
	// CertificateFile and KeyFile are absolute paths of PEM files, as the front door
	// sees them, for RedisTLSFiles.
	CertificateFile, KeyFile string
	// MaxConnections bounds the open connections; more are closed at once. Zero means
	// 10,000.
	MaxConnections uint32
}

func (r Redis) validate() error {
	var problems []error
	if r.Listen.IsZero() {
		problems = append(problems, errors.New("mesh snapshot: redis: an address to listen on is required"))
	}
	if !r.Principal.IsLocal() {
		problems = append(problems,
			errors.New("mesh snapshot: redis: the principal must be on loopback or a unix socket, since TLS terminates before it"))
	}
	switch r.TLS {
	case RedisTLSNone, RedisTLSSVID:
		if r.CertificateFile != "" || r.KeyFile != "" {
			problems = append(problems, fmt.Errorf("mesh snapshot: redis: files of a certificate, and TLS is %q", r.TLS))
		}
	case RedisTLSFiles:
		if !filepath.IsAbs(r.CertificateFile) || !filepath.IsAbs(r.KeyFile) {
			problems = append(problems, errors.New("mesh snapshot: redis: absolute paths of certificate and key are required"))
		}
	default:
		problems = append(problems, fmt.Errorf("mesh snapshot: redis: TLS %q is not one of none, svid and files", r.TLS))
	}
	return errors.Join(problems...)
}

// Validate reports every problem.
func (s Snapshot) Validate() error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("mesh snapshot: "+format, args...))
	}
	if s.Self.IsZero() || s.Self.Path() == "" {
		problem("self is not the SPIFFE ID of a workload")
	}
	if p := s.ResourceProxy; p != nil {
		if p.Listen.IsZero() || p.Principal.IsZero() {
			problem("resource proxy: an address to listen on and that of the principal are required")
		}
		if len(p.Agents) > MaxAgents {
			problem("resource proxy: %d agents, at most %d are served", len(p.Agents), MaxAgents)
		}
		for name := range p.Agents {
			if name.IsZero() {
				problem("resource proxy: an agent without a name")
			}
		}
		problems = append(problems, p.Tokens.validate())
	}
	if s.Redis != nil {
		problems = append(problems, s.Redis.validate())
	}
	if st := s.Stream; st != nil {
		if st.Listen.IsZero() || len(st.Services) == 0 {
			problem("stream: an address to listen on and the services are required")
		}
		if !st.Principal.IsLocal() {
			problem("stream: the principal must be on loopback or a unix socket, since it believes what is forwarded")
		}
	}
	return errors.Join(problems...)
}

func (t Tokens) validate() error {
	var problems []error
	if len(t.Keys) > 0 && (t.Leeway <= 0 || t.Leeway%time.Second != 0) {
		problems = append(problems, fmt.Errorf("mesh snapshot: tokens: a leeway of %v: whole seconds are required", t.Leeway))
	}
	if t.Issuer == "" || t.Audience == "" {
		problems = append(problems, errors.New("mesh snapshot: tokens: issuer and audience are required"))
	}
	if len(t.Keys) > MaxKeys {
		problems = append(problems, fmt.Errorf("mesh snapshot: tokens: %d keys, at most %d are used", len(t.Keys), MaxKeys))
	}
	seen := make(map[string]bool, len(t.Keys))
	for _, k := range t.Keys {
		switch {
		case k.ID == "":
			problems = append(problems, errors.New("mesh snapshot: tokens: a key without an id"))
		case seen[k.ID]:
			problems = append(problems, fmt.Errorf("mesh snapshot: tokens: two keys with the id %q", k.ID))
		case k.Public == nil || k.Public.Curve != elliptic.P256():
			problems = append(problems, fmt.Errorf("mesh snapshot: tokens: key %q is not of P-256", k.ID))
		}
		seen[k.ID] = true
	}
	return errors.Join(problems...)
}
