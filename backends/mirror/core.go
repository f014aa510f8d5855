package mirror

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends/jobs"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// shared is what all parts of the loop share. Each part has state of its own, which it alone
// changes but for its beginning and end with a session. A part knows the parts below it, by
// name; what concerns those above it, or all, is a method of [whole].
type shared struct {
	env      env
	rules    ownership.Rules
	link     *link.Link
	view     *view.View
	jobs     *jobs.Queue // waiting or under way
	session  *session    // nil while there is none
	known    historyState
	presence *presence.Presence      // of the agent
	spawn    []func(context.Context) // to be run beside the loop
	nextLook time.Time               // when something must be looked at that waits for time alone; zero for never
}

// env is what surrounds the parts.
type env struct {
	cfg      *Config
	log      zerolog.Logger // of what may befall thousands of objects at once
	settings *settings
	// do runs f on the goroutine of the loop; false when that has ended or ctx is done.
	do    func(ctx context.Context, f func()) bool
	whole whole
}

// whole is the loop as its parts see it.
type whole interface {
	// observeAgain looks at one object and tells the link what it means. last is the object
	// as it was read before, which it may still be; nil when it was not.
	observeAgain(key stream.ResourceKey, last *object.Object)
	// observed looks at what follows for others from an object that was looked at.
	observed(key stream.ResourceKey)
	// carryOut feeds the link and carries out what it asks for.
	carryOut(in link.Input)
	// end ends the session.
	end(goodbye stream.GoodbyeReason, cause error)
	// breach ends the session since the peer broke the protocol.
	breach(v stream.Violation)
	// follow draws the conclusions of the check of that number for all parts, before
	// the link is told.
	follow(number uint64, j HistoryCheck)
	// catchUp looks at all that the cache has come to show.
	catchUp()
}

// observe looks at one object and tells the link what it means.
func (c *shared) observe(key stream.ResourceKey) { c.env.whole.observeAgain(key, nil) }

// observeEach looks at objects.
func (c *shared) observeEach(keys []stream.ResourceKey) {
	for _, key := range keys {
		c.observe(key)
	}
}

// observeAll looks at objects, and at what follows from them for others.
func (c *shared) observeAll(keys []stream.ResourceKey) {
	for _, key := range keys {
		c.observe(key)
		c.env.whole.observed(key)
	}
}

// scheduleLook sees to it that what waits for time alone is looked at by t at the latest.
func (c *shared) scheduleLook(t time.Time) {
	if c.nextLook.IsZero() || t.Before(c.nextLook) {
		c.nextLook = t
	}
}

// step feeds the link and carries out what it asks for.
func (c *shared) step(in link.Input) { c.env.whole.carryOut(in) }

// counts reports whether an entry is one whose end is counted.
func (c *shared) counts(entry stream.EntryKey) bool {
	return entry.Collection == stream.Applications && c.rules.Side == stream.Hub && c.rules.Mode == stream.Managed
}

// background runs f beside the loop for as long as s lasts, and what it returns on
// the loop, if s is still the session by then.
func (c *shared) background(s *session, f func(context.Context) func()) {
	c.spawn = append(c.spawn, func(ctx context.Context) {
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-s.Detached:
				cancel()
			case <-over:
			}
		}()
		then := f(life)
		if then == nil {
			return
		}
		// When the loop has ended no one is left to tell.
		_ = c.env.do(ctx, func() {
			if c.session == s {
				then()
			}
		})
	})
}

// named reports whether revisions of now can be told from those of another history.
// Where no one checks histories, there is but one.
func (c *shared) named() bool { return c.rules.HistoryID != "" || c.env.cfg.History == nil }
