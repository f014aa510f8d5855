package clusterinfo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/identity"
)

const (
	// refreshInterval is how often an entry is written again though nothing
	// changed: what Redis lost, or someone else wrote, is put right so soon.
	refreshInterval = 5 * time.Second
	// entryInterval is how far apart two writes of one entry are.
	entryInterval = time.Second
	// passInterval is how far apart two looks at all sessions are.
	passInterval = 100 * time.Millisecond
	// startGrace is how long after the start of Run an agent may take to come back
	// before it is shown as not connected.
	startGrace = 5 * time.Second
	// Expiry is how long an entry lives: long enough for a principal to be
	// replaced, short enough that no entry outlives for long those who know better.
	// (Argo CD's own live for ten minutes.)
	Expiry = time.Minute

	writesAtOnce = 8
	callTimeout  = 2 * time.Second
	retryFirst   = 250 * time.Millisecond
	retryMost    = 4 * time.Second
)

// Sessions tells of the registered agents of a hub. It may be called from several
// goroutines at once.
type Sessions interface {
	// Snapshot returns an entry for each registered agent. The caller may keep and
	// change the map.
	Snapshot() map[identity.AgentName]Session
	// Changed returns a channel that is closed when a Session after this call
	// differs. Changes that it misses show at the next look, within 5 s.
	Changed() <-chan struct{}
}

// Store is the Redis of a hub's Argo CD. Its methods may be called concurrently
// and return when ctx is done.
type Store interface {
	// Set writes a value that expires by itself.
	Set(ctx context.Context, key string, value []byte, expiry time.Duration) error
	// Delete removes a key. It is no error when there is none.
	Delete(ctx context.Context, key string) error
}

// WriterConfig holds what a Writer needs. Fields without a stated default are
// required.
type WriterConfig struct {
	Store    Store
	Sessions Sessions
	// Server returns the server by which Argo CD knows the cluster of an agent.
	Server func(identity.AgentName) string
	// Format is how the hub's Argo CD keeps values. Zero means by default.
	Format  Format
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Writer keeps the entries of agents true: within 10 s of a change, whatever
// became of the entries meanwhile, as long as Redis answers.
type Writer struct {
	cfg    WriterConfig
	writes *prometheus.CounterVec
}

// NewWriter checks cfg and registers metrics; it starts nothing.
func NewWriter(cfg WriterConfig) (*Writer, error) {
	if cfg.Store == nil || cfg.Sessions == nil || cfg.Server == nil || cfg.Metrics == nil {
		return nil, errors.New("cluster info writer: store, sessions, server and metrics are required")
	}
	w := &Writer{cfg: cfg, writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_clusterinfo_writes_total",
		Help: "Writes of agents' cluster infos to the hub's Redis, by verb and result.",
	}, []string{"verb", "result"})}
	if err := cfg.Metrics.Register(w.writes); err != nil {
		return nil, fmt.Errorf("register metrics of the cluster info writer: %w", err)
	}
	return w, nil
}

// entry is what a run knows of one agent's entry in Redis.
type entry struct {
	want  view
	value []byte    // want, encoded
	tried time.Time // when it was last written; zero for never
	done  bool      // Redis has want, or nothing if the agent is gone
	gone  bool      // the agent is not registered any more
}

// due is when the entry must be written.
func (e *entry) due() time.Time {
	switch {
	case e.tried.IsZero():
		return time.Time{}
	case e.done:
		return e.tried.Add(refreshInterval)
	}
	return e.tried.Add(entryInterval)
}

// Run keeps the entries until ctx is done, and returns nil then. Entries stay
// behind and expire. It may be called again, but not twice at once.
func (w *Writer) Run(ctx context.Context) error {
	r := &run{
		Writer: w, entries: map[identity.AgentName]*entry{}, graceEnd: time.Now().Add(startGrace),
		outage: outage{log: w.cfg.Log},
	}
	for going := true; going; {
		changed := w.cfg.Sessions.Changed() // before the look, so that no change is missed
		next := r.pass(ctx)
		going = wait(ctx, nil, max(passInterval, r.outage.pause)) && wait(ctx, changed, time.Until(next))
	}
	return nil
}

// run is one Run of a Writer.
type run struct {
	*Writer
	entries  map[identity.AgentName]*entry
	graceEnd time.Time
	outage   outage
}

// pass looks at all sessions and writes what is due, up to the first failure: a
// Redis that fails one write fails the others too. It returns when something will
// be due.
func (r *run) pass(ctx context.Context) time.Time {
	now := time.Now()
	next := now.Add(refreshInterval)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if r.observe(now) {
		sooner(r.graceEnd)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(writesAtOnce)
	tried := false
	for name, e := range r.entries {
		if due := e.due(); due.After(now) {
			sooner(due)
			continue
		}
		if gctx.Err() != nil {
			break // due as before
		}
		tried = true
		g.Go(func() error { return r.write(gctx, name, e) })
	}
	if err := g.Wait(); tried && ctx.Err() == nil {
		r.outage.met(err)
	}
	maps.DeleteFunc(r.entries, func(_ identity.AgentName, e *entry) bool { return e.gone && e.done })
	for _, e := range r.entries {
		sooner(e.due())
	}
	return next
}

// observe takes over what the sessions are now. It reports whether an agent is
// still given time to come back.
func (r *run) observe(now time.Time) (waits bool) {
	sessions := r.cfg.Sessions.Snapshot()
	for name, s := range sessions {
		e := r.entries[name]
		if e == nil {
			if s.Unseen && !s.Connected && now.Before(r.graceEnd) {
				waits = true
				continue
			}
			e = &entry{}
			r.entries[name] = e
		}
		want := viewOf(name, s)
		if e.value == nil || e.gone || want != e.want {
			e.want, e.value, e.gone, e.done = want, r.cfg.Format.encode(want), false, false
		}
	}
	for name, e := range r.entries {
		if _, registered := sessions[name]; !registered && !e.gone {
			e.gone, e.done = true, false
		}
	}
	return waits
}

// write brings one entry to Redis.
func (r *run) write(ctx context.Context, name identity.AgentName, e *entry) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := r.cfg.Format.Key(r.cfg.Server(name))
	verb := "set"
	var err error
	if e.gone {
		verb, err = "delete", r.cfg.Store.Delete(call, key)
	} else {
		err = r.cfg.Store.Set(call, key, e.value, Expiry)
	}
	if err != nil && ctx.Err() != nil {
		return nil // cut short by another failure, or by the end; due as before
	}
	e.tried, e.done = time.Now(), err == nil
	r.writes.WithLabelValues(verb, resultOf(err)).Inc()
	if err != nil {
		return fmt.Errorf("%s cluster info of agent %s: %w", verb, name, err)
	}
	return nil
}
