// Package stale says of the Applications of agents that have been away for long that their
// status is what the spoke said last.
package stale

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Config holds what a Marker needs. All of it is required.
type Config struct {
	Store backends.Store
	// Away returns the agents that have been away for long; false while they are not known.
	Away func() (map[identity.AgentName]Absence, bool)
	// Owner returns whose an Application is; false for no one's.
	Owner func(backends.Object) (identity.AgentName, bool)
	// Applications returns all of an agent's, in no order.
	Applications func(identity.AgentName) []backends.Object
	// Link returns the rules of an agent's link, and its budget; false while there is none.
	Link func(identity.AgentName) (ownership.Rules, *budget.Peer, bool)
	// Divisions counts how often other Applications may have become an agent's.
	Divisions func() uint64
	// Wrote is told of each write: whether it says that the agent is away, or says so no
	// more, and its error.
	Wrote func(away bool, err error)
	Log   zerolog.Logger
}

// Marker says of the Applications of agents that have been away for long that their status is
// what the spoke said last, in a condition, which goes when the agent is back. It concerns
// the hub as a whole and no link, is for one principal at a time, and remembers nothing:
// what is to be said follows from the Agents, and what is said from the Applications.
type Marker struct {
	cfg Config

	mu   sync.Mutex // guards plan
	plan *plan
}

const (
	// staleWrites and freshWrites are how many Applications of the hub say in a second that
	// their agent is away, and how many say so no more.
	staleWrites = 20
	freshWrites = 100
	// checkRate is how many are looked at in a second, each way: nearly all are as they
	// should be when a principal begins.
	checkRate = 1000
	// checkInterval is how often it is looked at who is away, and for something to do.
	checkInterval = time.Second
	// passTime is how often all Applications are looked at again: one whose write was
	// refused does not stay as it is.
	passTime = 5 * time.Minute
	// startDelay is how long nothing is said after the begin. An agent that went because
	// the principal did comes back meanwhile.
	startDelay = time.Minute
	// retryTime is how long those of an agent wait after an error.
	retryTime = 5 * time.Second
)

// New starts nothing.
func New(cfg Config) *Marker { return &Marker{cfg: cfg, plan: newPlan()} }

// Waiting counts the agents of which Applications wait to be looked at.
func (s *Marker) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.plan.agents)
}

// Run keeps at it until ctx is done.
func (s *Marker) Run(ctx context.Context) error {
	changed, cancel, synced := keyset.Follow(ctx, s.cfg.Store, stream.Application)
	defer cancel()
	if !synced {
		return nil
	}
	s.mu.Lock()
	s.plan = newPlan() // of an earlier Run nothing is known
	s.mu.Unlock()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.follow(ctx, changed) })
	parts.Go(func() { s.work(ctx, false, freshWrites) })
	parts.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(startDelay):
			s.work(ctx, true, staleWrites)
		}
	})
	return nil
}

// follow has looked at what may not be as it should be.
func (s *Marker) follow(ctx context.Context, changed *keyset.Set[stream.ResourceKey]) {
	tick, pass := time.NewTicker(checkInterval), time.NewTicker(passTime)
	defer tick.Stop()
	defer pass.Stop()
	all, divisions := true, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-pass.C:
			all = true
		case <-tick.C:
			away, known := s.cfg.Away()
			if !known {
				continue
			}
			s.mu.Lock()
			s.plan.see(away)
			s.mu.Unlock()
			for _, key := range changed.Drain() {
				if o, there := s.cfg.Store.Get(key); there {
					s.enqueue(o)
				}
			}
			if now := s.cfg.Divisions(); all || now != divisions {
				all, divisions = false, now
				for _, o := range s.cfg.Store.List(stream.Application, "") {
					s.enqueue(o)
				}
			}
		}
	}
}

// enqueue has an Application looked at, unless that would surely change nothing.
func (s *Marker) enqueue(o backends.Object) {
	name, _ := s.cfg.Owner(o) // the zero name for no one
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, away := s.plan.away[name]; away || mayBe(o) {
		s.plan.add(name, o.Key)
	}
}

// work looks at what waits: of agents that are away, or of the others.
func (s *Marker) work(ctx context.Context, away bool, perSecond int) {
	writes, looks := rate.NewLimiter(rate.Limit(perSecond), 1), rate.NewLimiter(checkRate, batch)
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		name, keys := s.next(away)
		for i, key := range keys {
			if looks.Wait(ctx) != nil {
				return
			}
			if rest := s.mark(ctx, name, key, away, writes); rest > 0 {
				s.mu.Lock()
				s.plan.postpone(name, keys[i:], time.Now().Add(rest))
				s.mu.Unlock()
				break
			}
		}
		if len(keys) > 0 && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Marker) next(away bool) (identity.AgentName, []stream.ResourceKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.next(away, time.Now(), func(name identity.AgentName) []stream.ResourceKey {
		if name.IsZero() {
			return nil
		}
		objects := s.cfg.Applications(name)
		keys := make([]stream.ResourceKey, len(objects))
		for i, o := range objects {
			keys[i] = o.Key
		}
		return keys
	})
}

// mark updates the condition of an Application. It returns how long to wait before the agent's
// Applications are tried again; zero when this one is done. If it changes meanwhile, follow
// looks at it again.
func (s *Marker) mark(ctx context.Context, name identity.AgentName, key stream.ResourceKey, away bool,
	writes *rate.Limiter) (rest time.Duration) {
	o, there := s.cfg.Store.Get(key)
	if !there {
		return 0
	}
	owner, owned := s.cfg.Owner(o)
	s.mu.Lock()
	absence, isAway := s.plan.away[owner]
	s.mu.Unlock()
	if owner != name || isAway != away || !away && !mayBe(o) {
		return 0
	}
	rules, peer, linked := s.link(owner, owned)
	if away && !linked {
		return retryTime
	}
	next, err := condition(rules.Marks, o, absence)
	if err != nil {
		s.cfg.Log.Debug().Err(err).Stringer("resource", key).Msg("Application cannot be decoded")
	}
	if next == nil || writes.Wait(ctx) != nil {
		return 0
	}
	return s.write(ctx, o, next, away, peer)
}

// link is that of the owner of an Application; what is no one's has none.
func (s *Marker) link(owner identity.AgentName, owned bool) (ownership.Rules, *budget.Peer, bool) {
	if !owned {
		return ownership.Rules{}, nil, false
	}
	return s.cfg.Link(owner)
}

// write writes an Application at the expense of its agent's budget, which is nil when no agent
// owns it. It returns what mark does.
func (s *Marker) write(ctx context.Context, o backends.Object, next []byte, away bool,
	peer *budget.Peer) (rest time.Duration) {
	granted := len(next) + o.Managed
	if peer != nil {
		if over, wait := peer.Acquire(time.Now(), granted); over != budget.OverNothing {
			return max(wait, checkInterval)
		}
	}
	wrote, err := s.cfg.Store.Update(ctx, o, next)
	s.cfg.Wrote(away, err)
	if peer != nil {
		writes := 1
		if err != nil {
			writes = 0
		}
		peer.Charge(time.Now(), granted, writes, wrote.Size()) // nothing after an error
	}
	if err == nil || errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound) || ctx.Err() != nil {
		return 0 // follow looks at what changed
	}
	s.cfg.Log.Warn().Err(err).Stringer("resource", o.Key).Bool("away", away).
		Msg("cannot update the condition that says whether the Application's agent is away, retrying")
	if errors.Is(err, stream.ErrRefused) {
		return 0 // until the next pass: it keeps no other waiting
	}
	return retryTime
}
