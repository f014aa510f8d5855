// Package eventrelay brings what a spoke's Argo CD says of its Applications to Events of
// the hub: what waits on the spoke to be told, and on the hub to be written. It neither
// sends nor writes.
package eventrelay

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/stream"
)

const (
	// maxUnsent and maxUnshown are how many events wait on a spoke to be told, and on the
	// hub, of one agent, to be written. Each has less than 2 KiB.
	maxUnsent  = 1024
	maxUnshown = 64
	// eventBytes is about how many bytes an Event has in etcd beside its message.
	eventBytes = 1 << 10
)

// Config is what a Relay needs. Fields without a stated default are required.
type Config struct {
	Side stream.Side
	// Rate is that of the events of all agents. Nil means that there is none.
	Rate *appevents.Common
	// Budget is what the peer may have us write.
	Budget  *budget.Peer
	Metrics *linkmetrics.Metrics
	Log     zerolog.Logger
}

// Relay has the events of one link that wait. It is of one goroutine.
type Relay struct {
	cfg  Config
	line *appevents.Line
	// slot is on the hub when the next may be written by the rate of all agents; zero before
	// that was asked. writing says that one is being written.
	slot    time.Time
	writing bool
	failure string // of the last write, empty for none
}

// New returns a Relay of which nothing waits.
func New(cfg Config) *Relay {
	most := maxUnsent
	if cfg.Side == stream.Hub {
		most = maxUnshown
	}
	return &Relay{cfg: cfg, line: appevents.NewLine(most)}
}

// Len is how many wait.
func (r *Relay) Len() int { return r.line.Len() }

// Add has an event wait.
func (r *Relay) Add(e appevents.Event) {
	switch r.line.Add(e) {
	case appevents.Waits:
	case appevents.Merged:
		r.cfg.Metrics.Event("merged")
	case appevents.Crowded:
		r.cfg.Metrics.Event("crowded")
	}
}

// Next is the message that a spoke may send now; without events for none. namespace is
// that of an Application on the wire, ours reports whether the hub shows it.
func (r *Relay) Next(now time.Time,
	namespace func(stream.ResourceKey) (wire string, ours bool)) stream.ApplicationEvents {
	var m stream.ApplicationEvents
	for len(m.Events) < stream.MaxApplicationEvents {
		e, ok := r.line.Next(now)
		if !ok {
			break
		}
		wire, ours := namespace(e.Application)
		if !ours {
			r.Unknown()
			continue
		}
		m.Events = append(m.Events, stream.ApplicationEvent{
			Namespace: wire, Name: e.Application.Name, EventText: e.EventText, Count: e.Count,
			First: now.Sub(e.First), Last: now.Sub(e.Last),
		})
	}
	return m
}

// Unknown counts an event of an Application that the hub does not show as the agent's.
func (r *Relay) Unknown() { r.cfg.Metrics.Event("unknown") }

// Sent counts events that a message told, if it is one that does.
func (r *Relay) Sent(m stream.Message) { r.count(m, "sent") }

// Lost counts the events of a message that goes with its connection, if it has some.
func (r *Relay) Lost(m stream.Message) { r.count(m, "cut_off") }

func (r *Relay) count(m stream.Message, result string) {
	if told, is := m.(stream.ApplicationEvents); is {
		for range told.Events {
			r.cfg.Metrics.Event(result)
		}
	}
}

// Drop drops what waits, since its connection has ended.
func (r *Relay) Drop() { r.drop("cut_off") }

func (r *Relay) drop(result string) {
	for range r.line.Drop() {
		r.cfg.Metrics.Event(result)
	}
}

// Write is one event that is to be written, and what of the budget was granted for it.
type Write struct {
	Event   appevents.Event
	granted int
}

// BeginWrite takes the event that is to be written on the hub now, if one is: after all else,
// which is why what is over budget drops them, and one at a time. delayed says that other
// writes wait for the budget, and busy that some wait for a worker; shows reports whether
// an Application is one that the agent has.
func (r *Relay) BeginWrite(now time.Time, delayed, busy bool, shows func(stream.ResourceKey) bool) (w Write, ok bool) {
	switch {
	case r.writing || r.line.Len() == 0:
		return Write{}, false
	case delayed:
		r.drop("over_budget")
		return Write{}, false
	case busy || r.line.Due(now).After(now):
		return Write{}, false
	}
	if r.slot.IsZero() {
		if r.slot = now; r.cfg.Rate != nil {
			r.slot = r.cfg.Rate.Reserve(now)
		}
	}
	if r.slot.After(now) {
		return Write{}, false
	}
	e, ok := r.line.Next(now)
	if r.slot = (time.Time{}); !ok {
		return Write{}, false
	}
	if !shows(e.Application) {
		r.Unknown()
		return Write{}, false
	}
	w = Write{Event: e, granted: eventBytes + len(e.Message)}
	if r.cfg.Budget.AcquireSpare(now, w.granted) != budget.OverNothing {
		r.cfg.Metrics.Event("over_budget")
		r.drop("over_budget")
		return Write{}, false
	}
	r.writing = true
	return w, true
}

// Written charges what was written of an event against what it was granted.
func (r *Relay) Written(now time.Time, w Write, about backends.Object, bytes int, err error) {
	r.writing = false
	result, failure, writes := "shown", "", 1
	if err != nil {
		result, failure, writes = "failed", err.Error(), 0
	}
	r.cfg.Budget.Charge(now, w.granted, writes, bytes)
	r.cfg.Metrics.Event(result)
	if failure != "" && r.failure == "" {
		r.cfg.Log.Warn().Err(err).Stringer("resource", about.Key).
			Msg("cannot show an Event of the spoke's Argo CD on the hub; further failures are only counted")
	}
	r.failure = failure
}

// Due is when something is to be done about events that wait; zero for not before something
// else happens. busy is that of BeginWrite, and on a spoke that other messages wait.
func (r *Relay) Due(now time.Time, busy bool) time.Time {
	if busy || r.writing || r.line.Len() == 0 {
		return time.Time{}
	}
	due := r.line.Due(now)
	if r.slot.After(due) {
		return r.slot
	}
	return due
}
