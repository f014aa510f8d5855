package mirror

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// StaleConfig holds what a Stale needs. All of it is required.
type StaleConfig struct {
	Store backends.Store
	// Away returns the agents that have been away for long; false while they are not known.
	Away func() (map[identity.AgentName]Absence, bool)
	// Owner returns whose an Application is; false for nobody's.
	Owner func(backends.Object) (identity.AgentName, bool)
	// Applications returns all of an agent's, in no order.
	Applications func(identity.AgentName) []backends.Object
	// Link returns the rules of an agent's link, and its budget; false while there is none.
	Link func(identity.AgentName) (Rules, *budget.Peer, bool)
	// Divisions counts how often other Applications may have become an agent's.
	Divisions func() uint64
	// Wrote is told of each write: whether it says that the agent is away, or says so no
	// more, and its error.
	Wrote func(away bool, err error)
	Log   zerolog.Logger
}

// Stale says of the Applications of agents that have been away for long that their status is
// what the spoke said last, in a condition, which goes when the agent is back. It concerns
// the hub as a whole and no link, is for one principal at a time, and remembers nothing:
// what is to be said follows from the Agents, and what is said from the Applications.
type Stale struct {
	cfg StaleConfig

	mu   sync.Mutex // guards plan
	plan *stalePlan
}

const (
	// staleWrites and freshWrites are how many Applications of the hub say in a second that
	// their agent is away, and how many say so no more.
	staleWrites = 20
	freshWrites = 100
	// staleLooks is how many are looked at in a second, each way: nearly all are as they
	// should be when a principal begins.
	staleLooks = 1000
	// staleTick is how often it is looked at who is away, and for something to do.
	staleTick = time.Second
	// stalePass is how often all Applications are looked at again: one whose write was
	// refused does not stay as it is.
	stalePass = 5 * time.Minute
	// staleSettle is how long nothing is said after the begin. An agent that went because
	// the principal did comes back meanwhile.
	staleSettle = time.Minute
	// staleRetry is how long those of an agent wait after an error.
	staleRetry = 5 * time.Second
)

// NewStale starts nothing.
func NewStale(cfg StaleConfig) *Stale { return &Stale{cfg: cfg, plan: newStalePlan()} }

// Waiting counts the agents of which Applications wait to be looked at.
func (s *Stale) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.plan.shares)
}

// Run keeps at it until ctx is done.
func (s *Stale) Run(ctx context.Context) error {
	changed := newKeySet()
	cancel := s.cfg.Store.Subscribe(func(key stream.ResourceKey) {
		if key.Kind == stream.Application {
			changed.add(key)
		}
	})
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-s.cfg.Store.Synced():
	}
	s.mu.Lock()
	s.plan = newStalePlan() // of an earlier Run nothing is known
	s.mu.Unlock()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.follow(ctx, changed) })
	parts.Go(func() { s.work(ctx, false, freshWrites) })
	parts.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(staleSettle):
			s.work(ctx, true, staleWrites)
		}
	})
	return nil
}

// follow has looked at what may not be as it should be.
func (s *Stale) follow(ctx context.Context, changed *keySet) {
	tick, pass := time.NewTicker(staleTick), time.NewTicker(stalePass)
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
			for _, key := range changed.take() {
				if o, there := s.cfg.Store.Get(key); there {
					s.note(o)
				}
			}
			if now := s.cfg.Divisions(); all || now != divisions {
				all, divisions = false, now
				for _, o := range s.cfg.Store.List(stream.Application, "") {
					s.note(o)
				}
			}
		}
	}
}

// note has an Application looked at, unless that would surely change nothing.
func (s *Stale) note(o backends.Object) {
	name, _ := s.cfg.Owner(o) // the zero name for nobody
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, away := s.plan.away[name]; away || mayBeStale(o) {
		s.plan.add(name, o.Key)
	}
}

// work looks at what waits: of agents that are away, or of the others.
func (s *Stale) work(ctx context.Context, away bool, perSecond int) {
	writes, looks := rate.NewLimiter(rate.Limit(perSecond), 1), rate.NewLimiter(staleLooks, staleBatch)
	tick := time.NewTicker(staleTick)
	defer tick.Stop()
	for {
		name, keys := s.take(away)
		for i, key := range keys {
			if looks.Wait(ctx) != nil {
				return
			}
			if rest := s.tend(ctx, name, key, away, writes); rest > 0 {
				s.mu.Lock()
				s.plan.rest(name, keys[i:], time.Now().Add(rest))
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

func (s *Stale) take(away bool) (identity.AgentName, []stream.ResourceKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.take(away, time.Now(), func(name identity.AgentName) []stream.ResourceKey {
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

// tend makes an Application say what it should. It returns how long those of the agent
// rest before it is tried again, zero when this one is done: of what changes while it is looked
// at, follow hears.
func (s *Stale) tend(ctx context.Context, name identity.AgentName, key stream.ResourceKey, away bool, writes *rate.Limiter) (rest time.Duration) {
	o, there := s.cfg.Store.Get(key)
	if !there {
		return 0
	}
	owner, owned := s.cfg.Owner(o)
	s.mu.Lock()
	absence, isAway := s.plan.away[owner]
	s.mu.Unlock()
	if owner != name || isAway != away || !away && !mayBeStale(o) {
		return 0
	}
	rules, peer, linked := s.link(owner, owned)
	if away && !linked {
		return staleRetry
	}
	next, err := rules.stale(o, absence)
	if err != nil {
		s.cfg.Log.Debug().Err(err).Stringer("resource", key).Msg("application cannot be read")
	}
	if next == nil || writes.Wait(ctx) != nil {
		return 0
	}
	return s.write(ctx, o, next, away, peer)
}

// link is that of the owner of an Application; what is nobody's has none.
func (s *Stale) link(owner identity.AgentName, owned bool) (Rules, *budget.Peer, bool) {
	if !owned {
		return Rules{}, nil, false
	}
	return s.cfg.Link(owner)
}

// write writes an Application on account of its agent, whose budget is nil for nobody, and
// returns what tend does.
func (s *Stale) write(ctx context.Context, o backends.Object, next []byte, away bool, peer *budget.Peer) (rest time.Duration) {
	granted := len(next) + o.Managed
	if peer != nil {
		if over, wait := peer.Take(time.Now(), granted); over != budget.OverNothing {
			return max(wait, staleTick)
		}
	}
	wrote, err := s.cfg.Store.Update(ctx, o, next)
	s.cfg.Wrote(away, err)
	if peer != nil {
		writes := 1
		if err != nil {
			writes = 0
		}
		peer.Settle(time.Now(), granted, writes, wrote.Size()) // nothing after an error
	}
	if err == nil || errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound) || ctx.Err() != nil {
		return 0 // of what changed, follow hears
	}
	s.cfg.Log.Warn().Err(err).Stringer("resource", o.Key).Bool("away", away).Msg("cannot say of an application whether its agent is away, trying again")
	if errors.Is(err, stream.ErrRefused) {
		return 0 // until the next pass: it keeps no other waiting
	}
	return staleRetry
}

// mayBeStale reports whether an Application may say that its agent is away, at no cost.
func mayBeStale(o backends.Object) bool { return bytes.Contains(o.Raw, []byte(staleCondition)) }

// stale returns an Application that says that its agent is away, or does not say so any more
// for the zero Absence, or where its status did not come from the spoke; nil when it is as
// it should be. The zero Rules are those of nobody.
func (r Rules) stale(o backends.Object, absence Absence) ([]byte, error) {
	current, err := parseObject(o)
	if err != nil {
		return nil, err
	}
	message := absence.Message
	if message != "" && !r.showsSpoke(current) {
		message = ""
	}
	if !setCondition(current, staleCondition, message, absence.Since) {
		return nil, nil
	}
	return encode(current.fields), nil
}

// showsSpoke reports whether the status of an Application of the hub is what the spoke says.
func (r Rules) showsSpoke(o object) bool {
	return r.isChild(o) || r.sourceUID(o) != "" && r.unsendable(o) == "" && o.label(ignoreSyncKey) != "true"
}
