// Package workload is the bridge from the SPIFFE Workload API to TLS and to calls:
// it holds the X.509-SVID of this process and the bundles of all trust domains it
// may meet, keeps both fresh, and gives gRPC credentials that use whatever is newest
// at each handshake. Where TLS terminates before the peer it fetches and checks JWT-SVIDs.
// Connections that are open stay open when SVID, bundle or the whole authority rotate.
//
// It proves who a peer is. Which agent that is and what it may do is decided by
// the registry in package fleet; the server credentials therefore accept every
// SVID of a known trust domain, while the client credentials ask an
// [identity.Authorizer].
//
//	source, err := workload.New(workload.Config{Socket: "unix:///run/spire/agent.sock", Metrics: registry, Log: log})
//	group.Go(func() error { return source.Run(ctx) })
//	server := grpc.NewServer(grpc.Creds(source.ServerCredentials(log)))
//	conn, err := grpc.NewClient(target,
//		grpc.WithTransportCredentials(source.ClientCredentials(identity.AllowIDs(principal))))
package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
)

var (
	// ErrNotReady says that this process holds no X.509-SVID that is valid now.
	ErrNotReady = errors.New("no valid SVID")
	// ErrNoBundle says that the Workload API gave no bundle for a trust domain,
	// so no one in it can be trusted.
	ErrNoBundle = errors.New("no bundle for the trust domain")
)

// Config holds what a Source needs. Fields without a stated default are required.
type Config struct {
	// Socket is the address of the Workload API: unix:///absolute/path, or
	// tcp://IP:port on loopback. It need not exist yet.
	Socket string
	// SPIFFEID chooses the SVID when the Workload API offers several. Zero
	// means that any ID will do.
	SPIFFEID spiffeid.ID
	// Hint chooses the SVID with that hint. Empty means that any will do. With
	// neither SPIFFEID nor Hint there must be only one SVID; with both it must
	// have both.
	Hint string
	// JWTBundles says that JWT-SVIDs of others are to be checked, so that their
	// bundles are needed.
	JWTBundles bool
	// Metrics is where the source's metrics are registered.
	Metrics prometheus.Registerer
	// Log receives what happens. The zero value discards it.
	Log zerolog.Logger
}

// Source holds the X.509-SVID of this process and the bundles to check peers
// with. It implements x509svid.Source, x509bundle.Source and jwtbundle.Source. All methods may be
// called from several goroutines, before, during and after Run.
type Source struct {
	socket   string
	endpoint endpoint
	id       spiffeid.ID
	hint     string
	needsJWT bool
	metrics  *metrics
	log      zerolog.Logger
	// unusableSampler bounds what a partner can write to our log.
	unusableSampler zerolog.Sampler

	// client is there while Run runs.
	client atomic.Pointer[workloadapi.Client]
	// jwtBundles is never nil, and replaced as a whole.
	jwtBundles atomic.Pointer[jwtbundle.Set]
	// jwtKnown says that the Workload API has sent them, or that it has none to send.
	jwtKnown atomic.Bool

	// current is replaced as a whole, by the watcher of Run and under its lock.
	current atomic.Pointer[current]

	mu sync.Mutex
	// updated is closed, and replaced, when current changes; guarded by mu.
	updated notify.Broadcast
}

// current is what a Source has at one time. It is never changed.
type current struct {
	// svid is the one to use, nil when there is none; it may be over.
	svid *x509svid.SVID
	// bundles is never nil.
	bundles *x509bundle.Set
	// problem says what is wrong with the Workload API, nil when it answers
	// and one of its SVIDs was chosen.
	problem error
	// withdrawn is since when the Workload API says that this process has no such
	// identity, zero when it does not say so.
	withdrawn time.Time
}

// New checks cfg and registers the metrics. It starts nothing.
func New(cfg Config) (*Source, error) {
	at, err := parseSocket(cfg.Socket)
	if err != nil {
		return nil, err
	}
	if !cfg.SPIFFEID.IsZero() {
		if err := identity.CheckID(cfg.SPIFFEID); err != nil {
			return nil, fmt.Errorf("identity.spiffe_id: %w", err)
		}
	}
	if cfg.Metrics == nil {
		return nil, errors.New("workload: metrics registerer is missing")
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	s := &Source{
		socket:          cfg.Socket,
		endpoint:        at,
		id:              cfg.SPIFFEID,
		hint:            cfg.Hint,
		needsJWT:        cfg.JWTBundles,
		metrics:         m,
		log:             cfg.Log,
		unusableSampler: &zerolog.BurstSampler{Burst: 5, Period: time.Minute},
	}
	s.jwtBundles.Store(jwtbundle.NewSet())
	s.current.Store(&current{bundles: x509bundle.NewSet(), problem: s.describe(problemStarting, nil)})
	return s, nil
}

// Ready returns nil when an X.509-SVID is held that is valid now, also while
// the Workload API is away. Else the error wraps [ErrNotReady], says what is
// awaited and how to help.
func (s *Source) Ready() error {
	_, err := s.GetX509SVID()
	return err
}

// Degraded returns what is wrong with the Workload API although a valid SVID may
// still be held: nil when it answers. It is for the detail of a readiness
// report.
func (s *Source) Degraded() error {
	if problem := s.current.Load().problem; problem != nil {
		return problem
	}
	if s.needsJWT && s.jwtBundles.Load().Len() == 0 {
		return errors.New("the Workload API gave no JWT bundles, so no JWT-SVID can be verified")
	}
	return nil
}

// Withdrawn returns since when the Workload API says that this process does not have
// the identity, or has it no more: it answers, and the answer is no. The zero time
// means that it does not say so; it may be away. An identity that was withdrawn is
// not presented to anyone, and what was opened with it should end.
func (s *Source) Withdrawn() time.Time { return s.current.Load().withdrawn }

// ErrWithdrawn is the cause for which a context of [Source.While] ends.
var ErrWithdrawn = errors.New("the Workload API has withdrawn our identity")

// While returns a context that ends with ctx, and with cause [ErrWithdrawn] when the
// identity has been withdrawn for the time of grace. The caller calls the function when the
// work that the context is for has ended; it owns a goroutine until then.
func (s *Source) While(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	held, end := context.WithCancelCause(ctx)
	go func() {
		over := time.NewTimer(0)
		defer over.Stop()
		for {
			updated := s.Updated()
			over.Stop()
			if since := s.Withdrawn(); !since.IsZero() {
				left := grace - time.Since(since)
				if left <= 0 {
					end(ErrWithdrawn)
					return
				}
				over.Reset(left)
			}
			select {
			case <-held.Done():
				return
			case <-updated:
			case <-over.C:
			}
		}
	}()
	return held, func() { end(nil) }
}

// WaitReady returns nil as soon as Ready does, with [Config.JWTBundles] not before the
// Workload API has told of them: who begins to work then believes whom it should. Else
// the error wraps that of ctx and says what was awaited.
func (s *Source) WaitReady(ctx context.Context) error {
	for {
		updated := s.Updated() // before looking, so that nothing is missed
		err := s.Ready()
		if err == nil && s.needsJWT && !s.jwtKnown.Load() {
			err = errors.New("the Workload API has not said which JWT bundles there are")
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for identity: %w: %w", ctx.Err(), err)
		case <-updated:
		}
	}
}

// WaitID returns the SPIFFE ID of our SVID as soon as there is a good one. The error is that
// of WaitReady.
func (s *Source) WaitID(ctx context.Context) (spiffeid.ID, error) {
	for {
		if err := s.WaitReady(ctx); err != nil {
			return spiffeid.ID{}, err
		}
		if svid, err := s.GetX509SVID(); err == nil { // else it has expired just now
			return svid.ID, nil
		}
	}
}

// Updated returns a channel that is closed when the SVID, the bundles or
// readiness change. It may also be closed when nothing did (the Workload API was
// tried again), so compare what matters. Take the channel before looking at the
// source, then wait, then take the next.
func (s *Source) Updated() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updated.Next()
}

// GetX509SVID returns the X.509-SVID to present now. The error wraps
// [ErrNotReady]. The caller does not change what it points to.
func (s *Source) GetX509SVID() (*x509svid.SVID, error) {
	held := s.current.Load()
	if held.svid == nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, held.problem)
	}
	now := time.Now()
	leaf := held.svid.Certificates[0]
	var problem error
	switch {
	case now.After(leaf.NotAfter):
		problem = fmt.Errorf("SVID of %s expired at %s and the Workload API gave no new one",
			held.svid.ID, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		problem = fmt.Errorf("SVID of %s is valid from %s only: check the clock",
			held.svid.ID, leaf.NotBefore.Format(time.RFC3339))
	default:
		return held.svid, nil
	}
	if held.problem != nil {
		problem = fmt.Errorf("%w: %w", problem, held.problem)
	}
	return nil, fmt.Errorf("%w: %w", ErrNotReady, problem)
}

// Held returns the X.509-SVID that this process has or had last, which may be over, and all bundles; of JWT
// nil where none are needed, or none were told of yet. The caller changes nothing of it.
func (s *Source) Held() (*workloadapi.X509Context, *jwtbundle.Set) {
	held := s.current.Load()
	x := &workloadapi.X509Context{Bundles: held.bundles}
	if held.svid != nil {
		x.SVIDs = []*x509svid.SVID{held.svid}
	}
	if !s.needsJWT || !s.jwtKnown.Load() {
		return x, nil
	}
	return x, s.jwtBundles.Load()
}

// GetX509BundleForTrustDomain returns the roots that speak for td now. The error
// wraps [ErrNoBundle]. The caller does not change what it points to.
func (s *Source) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	bundle, ok := s.current.Load().bundles.Get(td)
	if !ok {
		return nil, noBundle(td)
	}
	return bundle, nil
}

// noBundle says how to mend it.
func noBundle(td spiffeid.TrustDomain) error {
	return fmt.Errorf("%w %[2]s: if it is to be trusted, federate with it (agentctl identity federate %[2]s, and register this workload with --federates-with %[2]s)", ErrNoBundle, td)
}

// set replaces what the source has and tells those who wait.
func (s *Source) set(next *current) {
	s.current.Store(next)
	s.notify()
}

func (s *Source) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updated.Notify()
}
