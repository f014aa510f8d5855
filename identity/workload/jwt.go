package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
)

// The metadata of a call by which other methods than ours authenticate it.
const (
	authorizationKey = "authorization"
	forwardedKey     = "x-forwarded-client-cert"
)

// bearer is the scheme of authorization by a JWT-SVID.
const bearer = "Bearer"

// PeerFromToken returns who makes the call of ctx, by the JWT-SVID in it, in a
// handler of a server with [Source.TokenServerCredentials], or of one without TLS on
// loopback or a unix socket. Errors wrap [identity.ErrUnauthenticated].
func (s *Source) PeerFromToken(ctx context.Context) (identity.Peer, error) {
	if err := confidential(ctx); err != nil {
		return identity.Peer{}, fmt.Errorf("%w: %w", err, identity.ErrUnauthenticated)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(authorizationKey)
	if len(values) != 1 {
		return identity.Peer{}, fmt.Errorf("the call has %d tokens and must have one: %w", len(values),
			identity.ErrUnauthenticated)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, bearer) {
		return identity.Peer{}, fmt.Errorf("the call's authorization is not of the scheme %s: %w", bearer,
			identity.ErrUnauthenticated)
	}
	return s.PeerOfToken(token)
}

// confidential checks that a token may come the way this call came, and that it is
// the only credential.
func confidential(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("no peer in the call")
	}
	switch info := p.AuthInfo.(type) {
	case authInfo:
		return errors.New("the connection is authenticated by a client certificate, and one method counts")
	case credentials.TLSInfo:
		if len(info.State.PeerCertificates) > 0 {
			return errors.New("the connection has a client certificate, and one method counts")
		}
		return nil
	}
	switch addr := p.Addr.(type) {
	case *net.UnixAddr:
		return nil
	case *net.TCPAddr:
		if addr.IP.IsLoopback() {
			return nil
		}
	}
	return errors.New("a token in clear text comes neither from loopback nor from a unix socket")
}

// PeerOfToken returns whose JWT-SVID for this process token is. It is good for as
// many calls as its owner, or anyone who got hold of it, makes before it expires.
// Errors wrap [identity.ErrUnauthenticated].
func (s *Source) PeerOfToken(token string) (identity.Peer, error) {
	own, err := s.GetX509SVID()
	if err != nil {
		return identity.Peer{}, fmt.Errorf("%w: %w", err, identity.ErrUnauthenticated)
	}
	return s.VerifyToken(token, own.ID.String())
}

// VerifyToken returns whose JWT-SVID token is: one that a trust domain signed whose
// bundle we hold, that has not expired, and that is for each of the audiences. Who
// has no identity of its own trusts no one. Errors wrap
// [identity.ErrUnauthenticated].
func (s *Source) VerifyToken(token string, audiences ...string) (identity.Peer, error) {
	svid, err := s.verify(token, audiences)
	if err != nil {
		return identity.Peer{}, fmt.Errorf("JWT-SVID: %w: %w", err, identity.ErrUnauthenticated)
	}
	return identity.Peer{ID: svid.ID, NotAfter: svid.Expiry, Method: identity.MethodJWT}, nil
}

func (s *Source) verify(token string, audiences []string) (*jwtsvid.SVID, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	switch {
	case len(audiences) == 0:
		return nil, errors.New("no audience to check it for")
	case len(token) > identity.MaxTokenBytes:
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(token), identity.MaxTokenBytes)
	}
	svid, err := jwtsvid.ParseAndValidate(token, s, audiences)
	if err != nil {
		return nil, err
	}
	for _, audience := range audiences {
		if !slices.Contains(svid.Audience, audience) {
			return nil, fmt.Errorf("of %s is for %q, not for %q", svid.ID, svid.Audience, audience)
		}
	}
	if err := identity.CheckID(svid.ID); err != nil {
		return nil, err
	}
	if !time.Now().Before(svid.Expiry) { // the library allows a minute more
		return nil, fmt.Errorf("of %s expired at %s", svid.ID, svid.Expiry.Format(time.RFC3339))
	}
	return svid, nil
}

// GetJWTBundleForTrustDomain returns the keys that sign JWT-SVIDs of td now. The
// error wraps [ErrNoBundle]. The caller does not change what it points to.
func (s *Source) GetJWTBundleForTrustDomain(td spiffeid.TrustDomain) (*jwtbundle.Bundle, error) {
	bundle, ok := s.jwtBundles.Load().Get(td)
	if !ok {
		return nil, noBundle(td)
	}
	return bundle, nil
}

// jwtWatcher takes over the JWT bundles of the Workload API. What is wrong with it
// the other watch reports.
type jwtWatcher struct{ source *Source }

// OnJWTBundlesUpdate takes over a whole new state.
func (w jwtWatcher) OnJWTBundlesUpdate(next *jwtbundle.Set) {
	withoutUnusableJWT(w.source, next)
	w.source.setJWTBundles(next, true)
}

// OnJWTBundlesWatchError logs why there is no news. As with the rest, only the
// answer that this process has no identity takes anything away.
func (w jwtWatcher) OnJWTBundlesWatchError(err error) {
	switch status.Code(err) {
	case codes.Canceled:
	case codes.PermissionDenied:
		w.source.setJWTBundles(jwtbundle.NewSet(), false)
	case codes.Unimplemented: // there will be none
		w.source.jwtKnown.Store(true)
		w.source.notify()
	default:
		w.source.log.Debug().Err(err).Str("socket", w.source.socket).Msg("cannot fetch JWT bundles")
	}
}

// setJWTBundles takes over a whole new state; known says that it is the Workload API's answer for
// this identity.
func (s *Source) setJWTBundles(next *jwtbundle.Set, known bool) {
	before := s.jwtBundles.Swap(next)
	s.jwtKnown.Store(known)
	s.metrics.jwtBundles.Set(float64(next.Len()))
	if !slices.EqualFunc(before.Bundles(), next.Bundles(), (*jwtbundle.Bundle).Equal) {
		s.metrics.jwtBundleUpdates.Inc()
	}
	s.notify()
}
