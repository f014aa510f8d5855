package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/header"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// Listener is one more listener for agents, with its method.
type Listener struct {
	// Listen is host:port or unix:///path. Empty means [meshconfig.StreamSocket] for
	// method header, where no forwarded port leads to it as to loopback.
	Listen string `koanf:"listen" help:"address: host:port or unix:///path; of this pod alone with method header or plaintext. Empty for unix:///run/argomesh/stream.sock with method header"`
	// Method is spiffe-x509 (mutual TLS), spiffe-jwt (TLS ends here or before, agents
	// send a JWT-SVID) or header (a proxy of this pod ends mutual TLS, and says who it
	// was in x-forwarded-client-cert).
	Method string `koanf:"method" help:"spiffe-x509, spiffe-jwt or header"`
	// Plaintext is for spiffe-jwt behind a proxy of this pod: no TLS, on loopback or a
	// unix socket. Method header has none in every case, spiffe-x509 always has.
	Plaintext bool `koanf:"plaintext" help:"no TLS, for spiffe-jwt behind a proxy of this pod"`
	// Header is for method header.
	Header Header `koanf:"header"`
}

// Header says what to believe of x-forwarded-client-cert.
type Header struct {
	// TrustedProxies are the SPIFFE IDs of gateways between the agents and the proxy of
	// this pod. Empty means none.
	TrustedProxies []spiffeid.ID `koanf:"trusted_proxies" help:"SPIFFE IDs of gateways between the agents and the proxy of this pod"`
	// MaxAge is for how long to believe an element without Cert. Zero means that it is
	// refused.
	MaxAge time.Duration `koanf:"max_age" help:"for how long to believe an element without Cert; 0 refuses it"`
}

// address is where the listener listens: what Listen says or stands for.
func (l Listener) address() string {
	if l.Listen == "" && l.Method == identity.MethodHeader {
		return meshconfig.StreamSocket
	}
	return l.Listen
}

// validate reports every problem of the listener under key.
func (l Listener) validate(key string) error {
	var problems []error
	wrong := func(name, format string, args ...any) {
		problems = append(problems, config.Invalid(key+"."+name, format, args...))
	}
	if err := config.Address(key+".listen", l.address()); err != nil {
		problems = append(problems, err)
	} else if (l.Plaintext || l.Method == identity.MethodHeader) && !local(l.address()) {
		wrong("listen", "%q can be reached from other machines, and whoever reaches it could say who he is: use an address of loopback such as 127.0.0.1:8444, or unix:///path", l.Listen)
	}
	switch l.Method {
	case identity.MethodX509, identity.MethodJWT, identity.MethodHeader:
	default:
		wrong("method", "%q is not a method: use %s, %s or %s", l.Method, identity.MethodX509, identity.MethodJWT, identity.MethodHeader)
	}
	if l.Plaintext && l.Method == identity.MethodX509 {
		wrong("plaintext", "leaves nothing to authenticate agents by: remove it, or use another method")
	}
	if l.Method != identity.MethodHeader && (len(l.Header.TrustedProxies) > 0 || l.Header.MaxAge != 0) {
		wrong("header", "is for method %s: remove it, or use that method", identity.MethodHeader)
	}
	for _, id := range l.Header.TrustedProxies {
		if err := identity.CheckID(id); err != nil {
			wrong("header.trusted_proxies", "%v", err)
		}
	}
	if l.Header.MaxAge < 0 || l.Header.MaxAge > 0 && l.Header.MaxAge < minMaxAge {
		wrong("header.max_age", "%s is too short for agents to connect again in time: use %s or more, or 0 to refuse what has no Cert", l.Header.MaxAge, minMaxAge)
	}
	return errors.Join(problems...)
}

// minMaxAge is the shortest Header.MaxAge. An agent connects again at half of it.
const minMaxAge = 30 * time.Second

// local reports whether only processes of this machine, or pod, reach an address
// that package listen can open.
func local(address string) bool {
	network, at, err := listen.Parse(address)
	if err != nil {
		return false
	}
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host) // a name may mean anything
	return err == nil && ip.IsLoopback()
}

// all returns the listeners of s, with that of the key listen first.
func (s Stream) all() (listeners []Listener, keys []string) {
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

// needsTokens reports whether agents may prove themselves by JWT-SVIDs.
func (s Stream) needsTokens() bool {
	for _, l := range s.Listeners {
		if l.Method == identity.MethodJWT {
			return true
		}
	}
	return false
}

// trusts reports whether the listener at an address believes gateways before the
// proxy that connects to it.
func (s Stream) trusts(at mesh.Address) bool {
	for _, l := range s.Listeners {
		if address, err := mesh.ParseAddress(l.address()); err == nil && address == at {
			return len(l.Header.TrustedProxies) > 0
		}
	}
	return false
}

// open opens all listeners, or none.
func (s Stream) open(ctx context.Context, source *workload.Source, log zerolog.Logger) ([]net.Listener, error) {
	var opened []net.Listener
	listeners, keys := s.all()
	for i, l := range listeners {
		one, err := l.open(ctx, "stream."+keys[i], source, log)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		log.Info().Stringer("listener", one.Addr()).Str("method", l.Method).Msg("listening for agents")
		opened = append(opened, one)
	}
	return opened, nil
}

func (l Listener) open(ctx context.Context, key string, source *workload.Source, log zerolog.Logger) (net.Listener, error) {
	method, err := l.method(source, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	opened, err := listen.Open(ctx, key, l.address())
	if err != nil {
		return nil, err
	}
	served, err := method.On(opened)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return served, nil
}

func (l Listener) method(source *workload.Source, log zerolog.Logger) (server.Method, error) {
	switch l.Method {
	case identity.MethodX509:
		return server.Method{Name: l.Method, Credentials: source.ServerCredentials(log), Authenticate: workload.PeerFromContext}, nil
	case identity.MethodJWT:
		m := server.Method{
			Name: l.Method, Credentials: source.TokenServerCredentials(log), Authenticate: source.PeerFromToken,
			Renew: source.PeerOfToken, Prove: prover(source),
		}
		if l.Plaintext {
			m.Credentials = insecure.NewCredentials()
		}
		return m, nil
	}
	said, err := header.New(header.Config{TrustedProxies: l.Header.TrustedProxies, MaxAge: l.Header.MaxAge})
	if err != nil {
		return server.Method{}, err
	}
	return server.Method{
		Name: l.Method, Credentials: insecure.NewCredentials(), Authenticate: said.Peer, Prove: prover(source),
		ProveAgain: true, // which certificate the proxy has seen, and until when it counts, only we know
	}, nil
}

// prover is server.Method.Prove.
func prover(source *workload.Source) func(context.Context, spiffeid.ID, stream.Nonce) (string, error) {
	return func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
		svid, err := source.FetchToken(ctx, to.String(), nonce.Audience())
		if err != nil {
			return "", err
		}
		return svid.Marshal(), nil
	}
}

func closeAll(listeners []net.Listener) error {
	var problems []error
	for _, l := range listeners {
		problems = append(problems, l.Close())
	}
	return errors.Join(problems...)
}
