package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
)

// appEvents are what the spoke's Argo CD says of its Applications.
type appEvents struct {
	*core
	// tidings are what the spoke's Argo CD said of Applications.
	tidings tidings
}

const (
	// maxUnsaid and maxUnshown are how many events wait on a spoke to be told, and on the
	// hub, of one agent, to be written. Each has less than 2 KiB.
	maxUnsaid  = 1024
	maxUnshown = 64
	// eventBytes is about how many bytes an Event has in etcd beside its message.
	eventBytes = 1 << 10
)

// tidings are the events of Applications that wait.
type tidings struct {
	line *appevents.Line
	// slot is on the hub when the next may be written by the rate of all agents; zero before
	// that was asked. writing says that one is being written.
	slot    time.Time
	writing bool
	failure string // of the last write, empty for none
}

func newTidings(side stream.Side) tidings {
	if side == stream.Hub {
		return tidings{line: appevents.NewLine(maxUnshown)}
	}
	return tidings{line: appevents.NewLine(maxUnsaid)}
}

// Report has the hub told of an event of a spoke's Application, if the object with that UID
// is one that the hub shows, and the hub shows events. It blocks until the link has taken
// note, or ctx is done.
func (m *Mirror) Report(ctx context.Context, uid string, e appevents.Event) {
	m.do(ctx, func(l *loop) { l.events.report(uid, e) })
}

// report takes note of an event on the spoke.
func (ap *appEvents) report(uid string, e appevents.Event) {
	if s := ap.session; s != nil && !s.peer.ShowsEvents {
		return
	}
	// Whether the hub shows it is found out when it is told, which is not as often.
	if o, there := ap.view.Newest(e.Application); there && o.UID == uid {
		ap.add(e)
	}
}

func (ap *appEvents) add(e appevents.Event) {
	switch ap.tidings.line.Add(e) {
	case appevents.Waits:
	case appevents.Merged:
		ap.env.cfg.Metrics.event("merged")
	case appevents.Crowded:
		ap.env.cfg.Metrics.event("crowded")
	}
}

// say queues the events that may be told now; called when nothing else is to be sent.
func (ap *appEvents) say() {
	if ap.rules.Side != stream.Spoke {
		return
	}
	if !ap.session.peer.ShowsEvents {
		ap.cutOff(ap.tidings.line.Drop()) // from before this connection
		return
	}
	now := time.Now()
	var m stream.ApplicationEvents
	for len(m.Events) < stream.MaxApplicationEvents {
		e, ok := ap.tidings.line.Next(now)
		if !ok {
			break
		}
		namespace, ours := ap.rules.OnWire(e.Application.Namespace)
		if o := ap.view.Current(e.Application); o == nil || !ours || !ap.rules.SpeaksOf(*o) {
			ap.env.cfg.Metrics.event("unknown")
			continue
		}
		m.Events = append(m.Events, stream.ApplicationEvent{
			Namespace: namespace, Name: e.Application.Name, EventText: e.EventText, Count: e.Count,
			First: now.Sub(e.First), Last: now.Sub(e.Last),
		})
	}
	if len(m.Events) > 0 {
		ap.session.queue = append(ap.session.queue, m)
	}
}

// said counts events that a message told, if it is one that does.
func (ap *appEvents) said(m stream.Message) {
	if told, is := m.(stream.ApplicationEvents); is {
		for range told.Events {
			ap.env.cfg.Metrics.event("sent")
		}
	}
}

// part counts the events that go with a connection: on the hub those that wait, since
// the authority by which they came has ended, and on a spoke those that were about to be told.
// What waits on a spoke is told to the next.
func (ap *appEvents) part() {
	for _, m := range ap.session.queue {
		if told, is := m.(stream.ApplicationEvents); is {
			ap.cutOff(len(told.Events))
		}
	}
	if ap.rules.Side == stream.Hub {
		ap.cutOff(ap.tidings.line.Drop())
	}
}

// cutOff counts so many events that went with a connection.
func (ap *appEvents) cutOff(events int) {
	for range events {
		ap.env.cfg.Metrics.event("cut_off")
	}
}

// hear takes note on the hub of what a spoke's Argo CD says.
func (ap *appEvents) hear(m stream.ApplicationEvents) {
	if ap.env.cfg.ShowEvent == nil {
		return
	}
	now := time.Now()
	for _, e := range m.Events {
		key, ours := ap.rules.Local(stream.EntryKey{Collection: stream.Statuses, Namespace: e.Namespace, Name: e.Name})
		// More of it is looked at when it is shown, which is not as often.
		if _, there := ap.view.Newest(key); !there || !ours {
			ap.env.cfg.Metrics.event("unknown")
			continue
		}
		ap.add(appevents.Event{
			Application: key, EventText: e.EventText, Count: e.Count, First: now.Add(-e.First), Last: now.Add(-e.Last),
		})
	}
}

// shows reports whether an Application of the hub is one that the agent has: what the hub
// sent, as far as it knows, or what shows one of the spoke's own.
func (ap *appEvents) shows(key stream.ResourceKey) bool {
	o := ap.view.Current(key)
	if o == nil || !ap.rules.SpeaksOf(*o) {
		return false
	}
	return ap.rules.Mode == stream.Autonomous || ap.rules.IsChild(*o) || ap.link.MayHold(ap.rules.Entry(stream.Applications, key))
}

// show has an event written on the hub, if it may be: after all else, which is why
// what is over budget drops them, and one at a time.
func (ap *appEvents) show() {
	t, now := &ap.tidings, time.Now()
	switch {
	case ap.rules.Side != stream.Hub || ap.session == nil || t.writing || t.line.Len() == 0:
		return
	case worker.Closed(ap.session.Withdrawn):
		ap.cutOff(t.line.Drop())
		return
	case ap.jobs.Delayed():
		ap.drop()
		return
	case ap.jobs.Ready() > 0 || t.line.Due(now).After(now):
		return
	}
	if t.slot.IsZero() {
		if t.slot = now; ap.env.cfg.EventRate != nil {
			t.slot = ap.env.cfg.EventRate.Reserve(now)
		}
	}
	if t.slot.After(now) {
		return
	}
	e, ok := t.line.Next(now)
	if t.slot = (time.Time{}); !ok {
		return
	}
	about, there := ap.view.Newest(e.Application)
	if !there || !ap.shows(e.Application) {
		ap.env.cfg.Metrics.event("unknown")
		return
	}
	granted := eventBytes + len(e.Message)
	if ap.env.cfg.Budget.Spare(now, granted) != budget.OverNothing {
		ap.env.cfg.Metrics.event("over_budget")
		ap.drop()
		return
	}
	t.writing = true
	about.Raw = nil // it may be large, and nobody asks for it
	ap.spawn = append(ap.spawn, func(ctx context.Context) {
		bytes, err := ap.env.cfg.ShowEvent(ctx, about, e)
		// When the loop has ended nobody is left to tell.
		_ = ap.env.do(ctx, func() { ap.shown(about, granted, bytes, err) })
	})
}

// drop drops what waits since the budget has nothing to spare.
func (ap *appEvents) drop() {
	for range ap.tidings.line.Drop() {
		ap.env.cfg.Metrics.event("over_budget")
	}
}

// shown settles what an event was granted.
func (ap *appEvents) shown(about backends.Object, granted, bytes int, err error) {
	ap.tidings.writing = false
	result, failure, writes := "shown", "", 1
	if err != nil {
		result, failure, writes = "failed", err.Error(), 0
	}
	ap.env.cfg.Budget.Settle(time.Now(), granted, writes, bytes)
	ap.env.cfg.Metrics.event(result)
	if failure != "" && ap.tidings.failure == "" {
		ap.env.cfg.Log.Warn().Err(err).Stringer("resource", about.Key).
			Msg("what the spoke's argo cd says of an application is not shown as an event; the next that fail are only counted")
	}
	ap.tidings.failure = failure
}

// due is when something is to be done about events that wait; zero for not before
// something else happens.
func (ap *appEvents) due() time.Time {
	t := &ap.tidings
	switch {
	case t.line.Len() == 0 || ap.session == nil:
		return time.Time{}
	case ap.rules.Side == stream.Spoke:
		if len(ap.session.queue) > 0 {
			return time.Time{}
		}
		return t.line.Due(time.Now())
	case t.writing || ap.jobs.Ready() > 0:
		return time.Time{}
	}
	due := t.line.Due(time.Now())
	if t.slot.After(due) {
		return t.slot
	}
	return due
}
