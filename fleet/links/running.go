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

// tellAgent tells the link what its Agent says, if that is news.
func (r *runningLink) tellAgent(a v1alpha1.Agent) {
	says := agentwatch.SettingsOf(a)
	if r.applied != nil && *r.applied == says {
		return
	}
	r.applied = &says
	r.budget.Limit(says.Limits, time.Now())
	r.budget.Lower(says.Left, time.Now())
	r.mirror.Bound(says.Bounds)
	r.mirror.Pause(says.Held)
	r.mirror.Announce(says.History)
	r.mirror.ShowLink(says.Link)
	r.mirror.Accept(says.Accepted)
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

func (r *runningLink) tellDeletion(d backends.Deletion) {
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
