// Package header says who a caller is by what a proxy in front of us wrote into
// the header x-forwarded-client-cert, and when that is to be believed. It is for a
// principal whose TLS terminates in a proxy of its own pod: Envoy, or the sidecar of a
// mesh. The proxy proves who its client is; this package reads it, exactly, and
// refuses what could be read in two ways.
//
// Who could connect to us without the proxy could write what he likes, so calls are
// taken from loopback and unix sockets only. Which SPIFFE IDs belong to which agent
// is decided by the registry in package fleet.
//
//	h, err := header.New(header.Config{TrustedProxies: []spiffeid.ID{gateway}})
//	peer, err := h.Peer(ctx)
package header

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
)

// Name is the name of the header, as gRPC metadata has it.
const Name = "x-forwarded-client-cert"

// Config says what to believe. The zero value believes only a proxy that the agent
// itself is connected to, and only with the agent's certificate.
type Config struct {
	// TrustedProxies are the SPIFFE IDs of gateways between the agent and our own
	// proxy. What they say of their client counts; of everyone else only what our
	// own proxy says of him. Our own proxy is not one of them: it is anyone who can
	// connect to us.
	TrustedProxies []spiffeid.ID
	// MaxAge is for how long to believe what comes without a certificate, from the
	// call on. Zero means that it is refused.
	MaxAge time.Duration
}

// Header reads who a caller is. Its methods may be called concurrently.
type Header struct {
	proxies map[string]bool
	maxAge  time.Duration
}

// New checks cfg.
func New(cfg Config) (*Header, error) {
	h := &Header{proxies: make(map[string]bool, len(cfg.TrustedProxies)), maxAge: cfg.MaxAge}
	var problems []error
	for _, id := range cfg.TrustedProxies {
		if err := identity.CheckID(id); err != nil {
			problems = append(problems, fmt.Errorf("trusted proxy: %w", err))
		}
		h.proxies[id.String()] = true
	}
	if cfg.MaxAge < 0 {
		problems = append(problems, fmt.Errorf("max age %s is negative: %w", cfg.MaxAge, identity.ErrInvalid))
	}
	return h, errors.Join(problems...)
}

// Peer returns who makes the call of ctx, in a handler of a gRPC server. Errors
// wrap [identity.ErrUnauthenticated].
func (h *Header) Peer(ctx context.Context) (identity.Peer, error) {
	who, err := h.fromContext(ctx)
	if err != nil {
		return identity.Peer{}, fmt.Errorf("%s: %w: %w", Name, err, identity.ErrUnauthenticated)
	}
	return who, nil
}

func (h *Header) fromContext(ctx context.Context) (identity.Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || !local(p.Addr) {
		return identity.Peer{}, errors.New("the call comes neither from loopback nor from a unix socket")
	}
	if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
		return identity.Peer{}, errors.New("the call also carries a client certificate, and one method counts")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("authorization")) > 0 {
		return identity.Peer{}, errors.New("the call also carries a token, and one method counts")
	}
	values := md.Get(Name)
	if len(values) == 0 {
		return identity.Peer{}, identity.ErrHeaderMissing
	}
	return h.parse(strings.Join(values, ",")) // several lines are one list, in their order
}

// local reports whether only a process of this machine, or pod, can have this
// address.
func local(addr net.Addr) bool {
	switch addr := addr.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return addr.IP.IsLoopback()
	}
	return false
}

// parse returns whom a header is about.
func (h *Header) parse(text string) (identity.Peer, error) {
	elements, err := parse(text)
	if err != nil {
		return identity.Peer{}, err
	}
	// The last element is our own proxy's. As long as its client is a gateway that is
	// trusted, the element before is that gateway's. What comes before the first
	// client that is not is nothing but a claim of that client.
	for _, e := range slices.Backward(elements) {
		if uris := e.all("uri"); len(uris) == 1 && h.proxies[uris[0]] {
			continue
		}
		return h.peer(e)
	}
	return identity.Peer{}, errors.New("all elements are about trusted proxies, none about who called them")
}

// peer returns whom an element is about.
func (h *Header) peer(e element) (identity.Peer, error) {
	uris := e.all("uri")
	if len(uris) != 1 {
		return identity.Peer{}, fmt.Errorf("the client's certificate has %d URIs, an SVID has one", len(uris))
	}
	id, err := identity.ParseID(uris[0])
	if err != nil {
		return identity.Peer{}, err
	}
	who := identity.Peer{ID: id, Method: identity.MethodHeader}
	cert := e.first("cert")
	if cert == "" {
		if h.maxAge == 0 {
			return identity.Peer{},
				fmt.Errorf("the element of %s has no Cert, which says until when it counts: have the proxy forward it, or set max_age", id)
		}
		who.NotAfter = time.Now().Add(h.maxAge)
		return who, nil
	}
	leaf, err := parseCert(cert)
	if err != nil {
		return identity.Peer{}, fmt.Errorf("Cert of %s: %w", id, err)
	}
	if err := agree(leaf, id, e.first("hash")); err != nil {
		return identity.Peer{}, fmt.Errorf("Cert of %s: %w", id, err)
	}
	if now := time.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return identity.Peer{}, fmt.Errorf("Cert of %s: valid from %s to %s only", id, leaf.NotBefore.Format(time.RFC3339),
			leaf.NotAfter.Format(time.RFC3339))
	}
	who.NotAfter = leaf.NotAfter
	return who, nil
}
