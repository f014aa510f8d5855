package links

import (
	"context"
	"sync"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet/agentwatch"
	"github.com/argomesh/argomesh/stream"
)

// runningLink is the link of one agent, from its registration to its end.
type runningLink struct {
	mirror  *mirror.Mirror
	budget  *budget.Peer
	rules   ownership.Rules
	stop    context.CancelCauseFunc
	done    chan struct{}
	applied *agentwatch.Settings // of the goroutine of Links.Run; nil before the first

	mu      sync.Mutex // guards what follows
	changed func(stream.ResourceKey)
	deleted func(backends.Deletion)
}

// apply hands the link what its Agent says, if that is news.
func (r *runningLink) apply(a v1alpha1.Agent) {
	settings := agentwatch.SettingsOf(a)
	if r.applied != nil && *r.applied == settings {
		return
	}
	r.applied = &settings
	r.budget.Limit(settings.Limits, time.Now())
	r.budget.Lower(settings.Left, time.Now())
	r.mirror.Bound(settings.Bounds)
	r.mirror.Pause(settings.Held)
	r.mirror.Announce(settings.History)
	r.mirror.ShowLink(settings.Link)
	r.mirror.Accept(settings.Accepted)
}

// subscribeDeletions is mirror.Config.Deletions.
func (r *runningLink) subscribeDeletions(deleted func(backends.Deletion)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = deleted
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deleted = nil
	}
}

func (r *runningLink) notifyDeletion(d backends.Deletion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted != nil {
		r.deleted(d)
	}
}

func (r *runningLink) notify(key stream.ResourceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil {
		r.changed(key)
	}
}
