package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends/jobs"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// core is what all parts of the loop share. Each part has state of its own, which it alone
// changes but for its beginning and end with a session; what a part does for another one is
// a method.
type core struct {
	m       *Mirror
	rules   ownership.Rules
	link    *link.Link
	view    *view.View
	jobs    *jobs.Queue // waiting or under way
	session *session
	spawn   []func(context.Context) // to be run beside the loop
	look    time.Time               // when something must be looked at that waits for time alone; zero for never
	l       *loop                   // for what concerns several parts
}

// observe looks at one object and tells the link what it means.
func (c *core) observe(key stream.ResourceKey) { c.l.observeAgain(key, nil) }

// observeEach looks at objects.
func (c *core) observeEach(keys []stream.ResourceKey) {
	for _, key := range keys {
		c.observe(key)
	}
}

// lookAt sees to it that what waits for time alone is looked at by t at the latest.
func (c *core) lookAt(t time.Time) {
	if c.look.IsZero() || t.Before(c.look) {
		c.look = t
	}
}

// step feeds the link and carries out what it asks for.
func (c *core) step(in link.Input) { c.l.step(in) }

// observeAll looks at objects, and at what follows from them for others.
func (c *core) observeAll(keys []stream.ResourceKey) {
	for _, key := range keys {
		c.observe(key)
		c.l.projects.lookAtGlobals(key)
	}
}
