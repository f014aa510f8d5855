package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// The deletion of an Agent: what cmd/principal and fleet/controller do around
// departures.Teardown. With the policy orphan the link ends, and the hub lets go. With cascade
// the hub's Applications of the agent go with their workloads while the link goes on under
// rules of its own; then it ends, too. The principal's processes start again with each of
// these steps, as their links do.

// departTime is how often a principal looks for what is left to do.
const departTime = time.Second

// departure is how far the deletion of an Agent is. Its methods may be called concurrently.
type departure struct {
	mu      sync.Mutex // guards what follows
	began   time.Time  // by the hub's API server, in whole seconds; zero for never
	cascade bool
	retired bool // nothing is left for the link to do
	over    bool // the Agent is gone
}

func (d *departure) now() (began time.Time, cascades, linked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.began, d.cascade && !d.retired, d.began.IsZero() || d.cascade && !d.retired
}

// begin reports whether that is news.
func (d *departure) begin(at time.Time, cascade bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.began.IsZero() {
		return false
	}
	d.began, d.cascade = at, cascade
	return true
}

func (d *departure) retire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired = true
}

// end reports whether that is news.
func (d *departure) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := !d.over
	d.over = true
	return news
}

// linked reports whether there is to be a link with an agent.
func (s *spoke) linked() bool {
	_, _, linked := s.departure.now()
	return linked
}

// depart is kubectl delete agent.
func (w *Fleet) depart(s *spoke, c Command) {
	cascade := c.Cascade && s.Mode == stream.Managed
	now := ahead(&w.hub.apiClock).UTC().Truncate(time.Second)
	if !s.departure.begin(now, cascade) {
		return
	}
	w.journal.add(Entry{Place: s.Name, Note: Departs, On: cascade, Deleted: now.Format(time.RFC3339)})
	w.relink(s)
}

// relink has the principal's processes see what became of an Agent.
func (w *Fleet) relink(s *spoke) {
	s.cut()
	for _, p := range w.hub.living() {
		p.die()
	}
}

// departing reports whether an Agent is being deleted, or was.
func (w *Fleet) departing() bool {
	return slices.ContainsFunc(w.trace.Agents, func(a Agent) bool {
		began, _, _ := w.spokes[a.Name].departure.now()
		return !began.IsZero()
	})
}

// departs carries out the deletion of an agent's Agent, for as long as the process lives.
// It begins when what processes before it asked for has happened: a role goes to another
// with a Lease that expired.
func (p *process) departs(s *spoke, cfg mirror.Config) {
	if !pause(p.ctx, holdTime) {
		return
	}
	d := departures.Teardown{Store: cfg.Store, Rules: cfg.Rules}
	for pause(p.ctx, departTime) {
		p.await()
		began, cascades, _ := s.departure.now()
		if cascades {
			if waits, err := d.Cascade(p.ctx, began); err == nil && waits == "" {
				s.departure.retire()
				p.fleet.relink(s)
				return
			}
			continue
		}
		if waits, err := d.Orphan(p.ctx); err == nil && waits == "" {
			if s.departure.end() {
				p.fleet.journal.add(Entry{Place: s.Name, Note: Departed})
			}
			return
		}
	}
}
