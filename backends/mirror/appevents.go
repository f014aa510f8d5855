package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
)

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
	m.do(ctx, func(l *loop) { l.report(uid, e) })
}

// report takes note of an event on the spoke.
func (l *loop) report(uid string, e appevents.Event) {
	if s := l.session; s != nil && !s.peer.ShowsEvents {
		return
	}
	// Whether the hub shows it is found out when it is told, which is not as often.
	if o, there := l.newest(e.Application); there && o.UID == uid {
		l.addEvent(e)
	}
}

func (l *loop) addEvent(e appevents.Event) {
	switch l.tidings.line.Add(e) {
	case appevents.Waits:
	case appevents.Merged:
		l.m.cfg.Metrics.event("merged")
	case appevents.Crowded:
		l.m.cfg.Metrics.event("crowded")
	}
}

// speaksOf reports whether an Application is one of which both sides have something, so that
// what the spoke's Argo CD says of it is for the hub.
func (r Rules) speaksOf(o object) bool {
	return o.label(ignoreSyncKey) != "true" && (r.uidIn(stream.Statuses, o) != "" || r.uidIn(stream.Children, o) != "")
}

// say queues the events that may be told now; called when nothing else is to be sent.
func (l *loop) say() {
	if l.rules.Side != stream.Spoke {
		return
	}
	if !l.session.peer.ShowsEvents {
		l.cutOff(l.tidings.line.Drop()) // from before this connection
		return
	}
	now := time.Now()
	var m stream.ApplicationEvents
	for len(m.Events) < stream.MaxApplicationEvents {
		e, ok := l.tidings.line.Next(now)
		if !ok {
			break
		}
		namespace, ours := l.rules.onWire(e.Application.Namespace)
		if o := l.current(e.Application); o == nil || !ours || !l.rules.speaksOf(*o) {
			l.m.cfg.Metrics.event("unknown")
			continue
		}
		m.Events = append(m.Events, stream.ApplicationEvent{
			Namespace: namespace, Name: e.Application.Name, EventText: e.EventText, Count: e.Count,
			First: now.Sub(e.First), Last: now.Sub(e.Last),
		})
	}
	if len(m.Events) > 0 {
		l.queue = append(l.queue, m)
	}
}

// said counts events that a message told, if it is one that does.
func (l *loop) said(m stream.Message) {
	if told, is := m.(stream.ApplicationEvents); is {
		for range told.Events {
			l.m.cfg.Metrics.event("sent")
		}
	}
}

// partEvents counts the events that go with a connection: on the hub those that wait, since
// the authority by which they came has ended, and on a spoke those that were about to be told.
// What waits on a spoke is told to the next.
func (l *loop) partEvents() {
	for _, m := range l.queue {
		if told, is := m.(stream.ApplicationEvents); is {
			l.cutOff(len(told.Events))
		}
	}
	if l.rules.Side == stream.Hub {
		l.cutOff(l.tidings.line.Drop())
	}
}

// cutOff counts so many events that went with a connection.
func (l *loop) cutOff(events int) {
	for range events {
		l.m.cfg.Metrics.event("cut_off")
	}
}

// hearEvents takes note on the hub of what a spoke's Argo CD says.
func (l *loop) hearEvents(m stream.ApplicationEvents) {
	if l.m.cfg.ShowEvent == nil {
		return
	}
	now := time.Now()
	for _, e := range m.Events {
		key, ours := l.rules.Local(stream.EntryKey{Collection: stream.Statuses, Namespace: e.Namespace, Name: e.Name})
		// More of it is looked at when it is shown, which is not as often.
		if _, there := l.newest(key); !there || !ours {
			l.m.cfg.Metrics.event("unknown")
			continue
		}
		l.addEvent(appevents.Event{
			Application: key, EventText: e.EventText, Count: e.Count, First: now.Add(-e.First), Last: now.Add(-e.Last),
		})
	}
}

// shows reports whether an Application of the hub is one that the agent has: what the hub
// sent, as far as it knows, or what shows one of the spoke's own.
func (l *loop) shows(key stream.ResourceKey) bool {
	o := l.current(key)
	if o == nil || !l.rules.speaksOf(*o) {
		return false
	}
	return l.rules.Mode == stream.Autonomous || l.rules.isChild(*o) || l.link.MayHold(l.rules.entry(stream.Applications, key))
}

// showEvents has an event written on the hub, if it may be: after all else, which is why
// what is over budget drops them, and one at a time.
func (l *loop) showEvents(ctx context.Context) {
	t, now := &l.tidings, time.Now()
	switch {
	case l.rules.Side != stream.Hub || l.session == nil || t.writing || t.line.Len() == 0:
		return
	case closed(l.session.withdrawn):
		l.cutOff(t.line.Drop())
		return
	case !l.account.wake.IsZero():
		l.dropEvents()
		return
	case l.account.line.Len() > 0 || t.line.Due(now).After(now):
		return
	}
	if t.slot.IsZero() {
		if t.slot = now; l.m.cfg.EventRate != nil {
			t.slot = l.m.cfg.EventRate.Reserve(now)
		}
	}
	if t.slot.After(now) {
		return
	}
	e, ok := t.line.Next(now)
	if t.slot = (time.Time{}); !ok {
		return
	}
	about, there := l.newest(e.Application)
	if !there || !l.shows(e.Application) {
		l.m.cfg.Metrics.event("unknown")
		return
	}
	granted := eventBytes + len(e.Message)
	if l.m.cfg.Budget.Spare(now, granted) != budget.OverNothing {
		l.m.cfg.Metrics.event("over_budget")
		l.dropEvents()
		return
	}
	t.writing = true
	about.Raw = nil // it may be large, and nobody asks for it
	l.workers.Go(func() {
		bytes, err := l.m.cfg.ShowEvent(ctx, about, e)
		// When the loop has ended nobody is left to tell.
		_ = l.m.do(ctx, func(l *loop) { l.eventShown(about, granted, bytes, err) })
	})
}

// dropEvents drops what waits since the budget has nothing to spare.
func (l *loop) dropEvents() {
	for range l.tidings.line.Drop() {
		l.m.cfg.Metrics.event("over_budget")
	}
}

// eventShown settles what an event was granted.
func (l *loop) eventShown(about backends.Object, granted, bytes int, err error) {
	l.tidings.writing = false
	result, failure, writes := "shown", "", 1
	if err != nil {
		result, failure, writes = "failed", err.Error(), 0
	}
	l.m.cfg.Budget.Settle(time.Now(), granted, writes, bytes)
	l.m.cfg.Metrics.event(result)
	if failure != "" && l.tidings.failure == "" {
		l.m.cfg.Log.Warn().Err(err).Stringer("resource", about.Key).
			Msg("what the spoke's argo cd says of an application is not shown as an event; the next that fail are only counted")
	}
	l.tidings.failure = failure
}

// eventsDue is when something is to be done about events that wait; zero for not before
// something else happens.
func (l *loop) eventsDue() time.Time {
	t := &l.tidings
	switch {
	case t.line.Len() == 0 || l.session == nil:
		return time.Time{}
	case l.rules.Side == stream.Spoke:
		if len(l.queue) > 0 {
			return time.Time{}
		}
		return t.line.Due(time.Now())
	case t.writing || l.account.line.Len() > 0:
		return time.Time{}
	}
	due := t.line.Due(time.Now())
	if t.slot.After(due) {
		return t.slot
	}
	return due
}
