// Package devworkload is a small SPIFFE Workload API server with its own
// certificate authority, for `make demo` and for tests. It is never linked into
// principal or agent.
//
// It serves, as the SPIFFE standards say, X.509-SVIDs, JWT-SVIDs and bundles
// with streaming updates, and beside them Envoy's secret discovery service under
// the names SPIRE uses (the WIT-SVID profile is optional and answered with
// Unimplemented). SVIDs are renewed at half of their life, and the authority can
// be rotated: the new root is trusted first, signs later, and the old one leaves
// the bundle when the last SVID it signed is over. Servers that share a CA
// directory form one trust domain, and one that knows the directory of another trust
// domain federates with it, live.
//
// What it does not do is attest callers: anyone who can open the socket gets all
// entries of that server. So one server serves one workload, and the socket's
// mode is its only lock.
//
//	server, err := devworkload.New(devworkload.Config{
//		TrustDomain: spiffeid.RequireTrustDomainFromString("hub.test"),
//		Entries:     []devworkload.Entry{{ID: principalID, TTL: 30 * time.Second}},
//		Log:         log,
//	})
//	listener, err := devworkload.Listen(ctx, "/run/user/1000/hub.sock", 0o600)
//	err = server.Run(ctx, listener)
package devworkload

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/argomesh/argomesh/internal/notify"
)

const (
	defaultX509TTL = time.Hour
	defaultJWTTTL  = 5 * time.Minute
	defaultPrepare = 5 * time.Second
	// caPoll is how often a shared CA directory is read.
	caPoll = 500 * time.Millisecond
)

// Config holds what a Server needs. Fields without a stated default are required.
type Config struct {
	// TrustDomain is the one it signs for.
	TrustDomain spiffeid.TrustDomain
	// Entries are handed out in this order; the first is the default identity.
	// None means that every caller is told it has no identity.
	Entries []Entry
	// CADir is where the authorities are kept, in clear text, mode 0600. It is
	// made when absent. Several processes may share it: a rotation by one is
	// seen by the others within a second. Empty means in memory.
	CADir string
	// Federate are other trust domains whose bundles every caller gets too, as they
	// are now. [Server.SetFederated] is for those that have no directory here.
	Federate []Federation
	// AllBundlesName is how Envoy asks for the bundles of all trust domains as one
	// secret, as default_all_bundles_name of SPIRE's agent. ROOTCA, which Istio's proxies
	// ask for, takes that name from the own bundle. Empty means ALL.
	AllBundlesName string
	// X509TTL is the life of X.509-SVIDs of entries without their own, at
	// least 2 s. Zero means 1 h.
	X509TTL time.Duration
	// JWTTTL is the life of JWT-SVIDs. Zero means 5 min, or X509TTL when that
	// is shorter.
	JWTTTL time.Duration
	// Prepare is for how long a new root is trusted before it signs. Zero
	// means 5 s. Less than a second is too short when CADir is shared.
	Prepare time.Duration
	// Log receives what happens. The zero value discards it.
	Log zerolog.Logger
}

// Server is a Workload API server. Its methods may be called at any time, from
// several goroutines, before, during and after Run.
type Server struct {
	trustDomain spiffeid.TrustDomain
	x509TTL     time.Duration
	jwtTTL      time.Duration
	prepare     time.Duration
	shared      bool
	allBundles  string
	log         zerolog.Logger

	// dueChanged tells Run that the time of the next refresh may have changed.
	dueChanged notify.Signal

	// mu guards all below.
	mu        sync.Mutex
	store     *store
	entries   []Entry
	federated map[spiffeid.TrustDomain]*spiffebundle.Bundle
	others    []*store // of other trust domains, which are only read
	unread    error    // why one of others is not as it is now
	issued    map[spiffeid.ID]issued
	snapshot  *snapshot
	// changed is closed, and replaced, when snapshot is.
	changed notify.Broadcast
}

// New checks cfg, reads or makes the authorities and signs the first SVIDs. It
// starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.TrustDomain.IsZero() {
		return nil, errors.New("devworkload: trust domain is missing")
	}
	if cfg.X509TTL == 0 {
		cfg.X509TTL = defaultX509TTL
	}
	if cfg.JWTTTL == 0 {
		cfg.JWTTTL = min(defaultJWTTTL, cfg.X509TTL)
	}
	if cfg.Prepare == 0 {
		cfg.Prepare = defaultPrepare
	}
	if cfg.X509TTL < minTTL || cfg.JWTTTL < minTTL {
		return nil, fmt.Errorf("devworkload: ttl of svids must be at least %s", minTTL)
	}
	if cfg.Prepare < 0 {
		return nil, errors.New("devworkload: time to prepare a root must not be negative")
	}
	if err := checkEntries(cfg.TrustDomain, cfg.Entries); err != nil {
		return nil, fmt.Errorf("devworkload: %w", err)
	}
	others, err := openFederation(cfg.TrustDomain, cfg.Federate)
	if err != nil {
		return nil, fmt.Errorf("devworkload: %w", err)
	}
	store, err := openStore(cfg.TrustDomain, cfg.CADir, time.Now())
	if err != nil {
		return nil, fmt.Errorf("devworkload: %w", err)
	}
	s := &Server{
		trustDomain: cfg.TrustDomain,
		x509TTL:     cfg.X509TTL,
		jwtTTL:      cfg.JWTTTL,
		prepare:     cfg.Prepare,
		shared:      cfg.CADir != "" || len(others) > 0,
		allBundles:  cmp.Or(cfg.AllBundlesName, secretAllBundles),
		log:         cfg.Log.With().Stringer("trust_domain", cfg.TrustDomain).Logger(),
		dueChanged:  notify.NewSignal(),
		store:       store,
		others:      others,
		federated:   make(map[spiffeid.TrustDomain]*spiffebundle.Bundle),
		issued:      make(map[spiffeid.ID]issued),
	}
	if err := s.SetEntries(cfg.Entries); err != nil {
		return nil, err
	}
	return s, nil
}

// SetEntries replaces the identities handed out. Callers are told at once; with
// no entries left, their streams end with PermissionDenied. The server keeps
// what it had when it returns an error.
func (s *Server) SetEntries(entries []Entry) error {
	if err := checkEntries(s.trustDomain, entries); err != nil {
		return fmt.Errorf("devworkload: %w", err)
	}
	longest := s.jwtTTL
	for _, e := range entries {
		longest = max(longest, s.ttl(e))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.store.update(func(g generations) (generations, bool, error) {
		g, changed := g.withLongestTTL(longest)
		return g, changed, nil
	})
	if err != nil {
		return fmt.Errorf("devworkload: %w", err)
	}
	old := s.entries
	s.entries = slices.Clone(entries)
	if err := s.refreshNow(); err != nil {
		s.entries = old
		return fmt.Errorf("devworkload: %w", err)
	}
	return nil
}

// SetFederated replaces the bundles of other trust domains that every caller
// gets beside its own. Pass [Server.Bundle] of another server for each.
func (s *Server) SetFederated(bundles ...*spiffebundle.Bundle) error {
	federated := make(map[spiffeid.TrustDomain]*spiffebundle.Bundle, len(bundles))
	for _, b := range bundles {
		if b.TrustDomain() == s.trustDomain {
			return fmt.Errorf("devworkload: %s is the server's own trust domain", s.trustDomain)
		}
		federated[b.TrustDomain()] = b.Clone()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.federated = federated
	if err := s.refreshNow(); err != nil {
		return fmt.Errorf("devworkload: %w", err)
	}
	return nil
}

// Bundle returns the present roots and JWT keys of the server's trust domain.
func (s *Server) Bundle() *spiffebundle.Bundle {
	current, _ := s.current()
	return current.own.Clone()
}

// RotateCA makes a new authority. When it returns, the new root is in the bundle
// and callers are being told; it begins to sign after Config.Prepare, and all
// SVIDs are then renewed; the old root leaves the bundle when the longest SVID
// it can have signed is over. Rotations that overlap follow each other.
func (s *Server) RotateCA() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.store.update(func(g generations) (generations, bool, error) {
		g, err := g.rotated(time.Now(), s.prepare)
		return g, true, err
	})
	if err != nil {
		return fmt.Errorf("devworkload: rotate: %w", err)
	}
	if err := s.refreshNow(); err != nil {
		return fmt.Errorf("devworkload: rotate: %w", err)
	}
	s.log.Info().Msg("new root prepared")
	return nil
}

// refreshWhenDue refreshes whenever something falls due, until ctx is done.
func (s *Server) refreshWhenDue(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var lastProblem string
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dueChanged:
		case <-timer.C:
		}
		s.mu.Lock()
		next, err := s.refresh(time.Now())
		err = errors.Join(err, s.unread)
		s.mu.Unlock()
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != "" && problem != lastProblem {
			s.log.Warn().Err(err).Msg("keeping the current SVIDs and bundles")
		}
		lastProblem = problem
		wait := time.Until(next)
		if err != nil || s.shared {
			wait = min(wait, caPoll)
		}
		timer.Reset(wait)
	}
}

// refreshNow refreshes after a change, and has Run check again when the next
// refresh is due. The caller holds mu.
func (s *Server) refreshNow() error {
	_, err := s.refresh(time.Now())
	s.dueChanged.Notify()
	return err
}

// refresh brings snapshot up to date and returns when to do so again. After an
// error the rest is up to date as far as possible. The caller holds mu.
func (s *Server) refresh(now time.Time) (next time.Time, err error) {
	problem := s.store.refresh()
	g := s.store.current
	signer := g.signer(now)

	kept := make(map[spiffeid.ID]issued, len(s.entries))
	svids := make([]*x509svid.SVID, 0, len(s.entries))
	next = now.Add(s.x509TTL)
	if change := g.nextChange(now); !change.IsZero() && change.Before(next) {
		next = change
	}
	for _, e := range s.entries {
		have, ok := s.issued[e.ID]
		if !ok || !now.Before(have.renewAt) || !have.signer.Equal(signer.root) || !have.entry.equal(e) {
			have, err = s.issue(e, signer, now)
			if err != nil {
				return now, errors.Join(problem, err)
			}
		}
		kept[e.ID] = have
		svids = append(svids, have.svid)
		if have.renewAt.Before(next) {
			next = have.renewAt
		}
	}
	own, err := g.bundle(now)
	if err != nil {
		return now, errors.Join(problem, err)
	}
	federated, change, unread := s.federatedBundles(now)
	s.unread = unread // nothing of our own fails for it
	if !change.IsZero() && change.Before(next) {
		next = change
	}
	s.issued = kept
	s.publish(svids, own, federated)
	return next, problem
}

// publish replaces the snapshot when something in it is new. The caller holds mu.
func (s *Server) publish(svids []*x509svid.SVID, own *spiffebundle.Bundle, federated []*spiffebundle.Bundle) {
	old := s.snapshot
	if old != nil && slices.Equal(old.svids, svids) && old.own.Equal(own) &&
		slices.EqualFunc(old.federated, federated, (*spiffebundle.Bundle).Equal) {
		return
	}
	fresh := &snapshot{version: 1, svids: svids, own: own, federated: federated, allBundles: s.allBundles}
	if old != nil {
		fresh.version = old.version + 1
	}
	s.snapshot = fresh
	s.changed.Notify()
}

// current returns what callers are told now, and a channel that is closed when
// that is no longer the newest.
func (s *Server) current() (*snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.changed.Next()
}

func (s *Server) currentEntries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries
}

// ttl returns the life of an X.509-SVID of e.
func (s *Server) ttl(e Entry) time.Duration {
	if e.TTL == 0 {
		return s.x509TTL
	}
	return e.TTL
}

// issue signs an X.509-SVID for e.
func (s *Server) issue(e Entry, signer *authority, now time.Time) (issued, error) {
	ttl := s.ttl(e)
	// Certificates count in seconds: rounding up keeps the promised life.
	notAfter := now.Add(ttl + time.Second - 1).Truncate(time.Second)
	cert, err := signer.sign(Leaf{URIs: []string{e.ID.String()}, DNSNames: e.DNSNames, NotAfter: notAfter}, now)
	if err != nil {
		return issued{}, fmt.Errorf("issue svid for %s: %w", e.ID, err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return issued{}, fmt.Errorf("issue svid for %s: %w", e.ID, err)
	}
	svid, err := x509svid.ParseRaw(cert.Certificate[0], key)
	if err != nil {
		return issued{}, fmt.Errorf("issue svid for %s: %w", e.ID, err)
	}
	svid.Hint = e.Hint
	s.log.Debug().Stringer("spiffe_id", e.ID).Time("not_after", svid.Certificates[0].NotAfter).Msg("SVID issued")
	return issued{entry: e, svid: svid, signer: signer.root, renewAt: now.Add(ttl / 2)}, nil
}

// equal tells whether two entries give the same SVID.
func (e Entry) equal(other Entry) bool {
	return e.ID == other.ID && e.Hint == other.Hint && e.TTL == other.TTL && slices.Equal(e.DNSNames, other.DNSNames)
}
