// Package cascades counts for all managed agents of a hub how many Applications are asked to go with
// their workloads, and holds those that are too many: Counter. See docs/deletes.md.
package cascades

import (
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/link"
)

// Counter counts for all managed agents of a hub the Applications that are asked to go
// with their workloads, and tells each link which of them wait: see tally. Each Mirror
// of the hub has the same one. Its methods may be called concurrently.
type Counter struct {
	changed func(identity.AgentName)

	mu     sync.Mutex // guards what follows
	tally  tally
	notify map[identity.AgentName]func() // wakes the link of an agent
}

// New returns what counts nothing yet. Changed is called with each agent of
// which State is another; it does not block, and does not call back.
func New(changed func(identity.AgentName)) *Counter {
	return &Counter{changed: changed, tally: newTally(), notify: map[identity.AgentName]func(){}}
}

// Limit says of how many Applications on it may be too many that are asked to go, zero
// for never, and whether they are to go since their Agent does. It is called before the
// Mirror of the agent is made: until that has looked at all that there is, no count is
// complete. Kept is what State last was, which counts for an agent that is not known.
func (c *Counter) Limit(name identity.AgentName, limit int, departing bool, kept State) {
	c.do(func(t *tally) { t.limit(name, limit, departing, kept) })
}

// Forget is called for an agent that has no Mirror any more.
func (c *Counter) Forget(name identity.AgentName) {
	c.do(func(t *tally) {
		t.forget(name)
		delete(c.notify, name)
	})
}

// State is what of an agent must outlive this process; false when it is not known.
func (c *Counter) State(name identity.AgentName) (state State, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.state(name)
}

// do changes the tally, and tells whom that is news for. It is called without mu.
func (c *Counter) do(change func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.tally)
	for name, is := range c.tally.news {
		if !is {
			continue
		}
		c.changed(name)
		if notify := c.notify[name]; notify != nil {
			notify()
		}
	}
	clear(c.tally.news)
}

// Begin begins to count the Applications of an agent from nothing. notify is called whenever its
// admission may be another.
func (c *Counter) Begin(name identity.AgentName, notify func()) {
	c.do(func(t *tally) {
		t.begin(name)
		c.notify[name] = notify
	})
}

// Filled says that all Applications of an agent were noted since begin.
func (c *Counter) Filled(name identity.AgentName, now time.Time) {
	c.do(func(t *tally) { t.filled(name, now) })
}

// Accept says that someone accepted what was asked of an agent so far.
func (c *Counter) Accept(name identity.AgentName) {
	c.do(func(t *tally) { t.accept(name) })
}

// Idle says that nothing of an agent waits any more.
func (c *Counter) Idle(name identity.AgentName) {
	c.do(func(t *tally) { t.idle(name) })
}

// Admission is what the link of an agent is to be told, and when to ask again.
func (c *Counter) Admission(name identity.AgentName, now time.Time) (link.Cascades, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.admission(name, now)
}

// HasLimit reports whether anything of an agent may be held; of one that is not counted,
// as no autonomous one is, nothing.
func (c *Counter) HasLimit(name identity.AgentName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.tally.agents[name]
	return a != nil && a.limit > 0
}

// Counted is an Application of the hub as it was counted before, or is to be.
type Counted struct {
	UID     string // empty for none
	Created time.Time
	Asked   time.Time // when it was asked to go with its workloads; zero when it was not
}

// Count notes what became of an Application. Released says that it no longer counts
// since someone let it go without its workloads. It reports whether someone has
// accepted that it goes.
func (c *Counter) Count(name identity.AgentName, before, after Counted, released bool, now time.Time) (accepted bool) {
	c.do(func(t *tally) {
		a := t.agents[name]
		switch {
		case before.UID == "":
		case before.UID != after.UID:
			t.went(name, before.UID, released, now)
		case before.Asked.IsZero() && !after.Asked.IsZero():
			a.age(now)
			a.remove(before.UID)
		default:
			return
		}
		switch {
		case after.UID == "":
		case after.Asked.IsZero():
			t.came(name, after.UID, after.Created, now)
		default:
			accepted = t.ask(name, after.UID, after.Created, after.Asked, now)
		}
	})
	return accepted
}
