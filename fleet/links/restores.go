package links

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/internal/notify"
)

// Restores counts how often this process saw the hub's API server go back to an earlier
// state, whatever showed that. What a spoke has may be from what was lost, so the past with
// every agent is in question. Its methods may be called concurrently.
type Restores struct {
	log zerolog.Logger
	// signal has a value when there is another one.
	signal notify.Signal

	mu    sync.Mutex // guards what follows
	seen  int
	since time.Time
}

// NewRestores returns those of a process that saw none yet.
func NewRestores(log zerolog.Logger) *Restores {
	return &Restores{log: log, signal: notify.NewSignal()}
}

// Written is lease.Config.Restored. Writes show it at once, and an API server that outlived
// the restore of its etcd goes on showing what was before.
func (r *Restores) Written(since time.Time) { r.record("a write", since) }

// Listed is kube.Config.Restored.
func (r *Restores) Listed() { r.record("a list", time.Time{}) }

func (r *Restores) record(by string, since time.Time) {
	r.mu.Lock()
	r.seen++
	if since.After(r.since) {
		r.since = since
	}
	r.mu.Unlock()
	r.log.Warn().Str("by", by).
		Msg("the hub's API server shows an earlier state: it was restored; nothing is removed from spokes until each agent's history is checked")
	r.signal.Notify()
}

// count is how many there were.
func (r *Restores) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// before is a time before the last one, from which on lists may be believed; zero for
// any.
func (r *Restores) before() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}
