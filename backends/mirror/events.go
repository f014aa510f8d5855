package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/eventrelay"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
)

// appEvents are what the spoke's Argo CD says of its Applications.
type appEvents struct {
	*shared
	relay *eventrelay.Relay
}

// observe takes note of an event on the spoke.
func (ap *appEvents) observe(uid string, e appevents.Event) {
	if s := ap.session; s != nil && !s.peer.ShowsEvents {
		return
	}
	// Whether the hub shows it is found out when it is told, which is not as often.
	if o, there := ap.view.Newest(e.Application); there && o.UID == uid {
		ap.relay.Add(e)
	}
}

// queueEvents queues the events that may be told now; called when nothing else is to be sent.
func (ap *appEvents) queueEvents() {
	if ap.rules.Side != stream.Spoke || ap.relay.Len() == 0 {
		return
	}
	if !ap.session.peer.ShowsEvents {
		ap.relay.Drop() // from before this connection
		return
	}
	m := ap.relay.Next(time.Now(), func(app stream.ResourceKey) (string, bool) {
		namespace, ours := ap.rules.OnWire(app.Namespace)
		o := ap.view.Current(app)
		return namespace, o != nil && ours && ap.rules.OnBothSides(*o)
	})
	if len(m.Events) > 0 {
		ap.session.queue = append(ap.session.queue, m)
	}
}

// markDisconnected counts the events that go with a connection: on the hub those that wait, since
// the authority by which they came has ended, and on a spoke those that were about to be told.
// What waits on a spoke is told to the next.
func (ap *appEvents) markDisconnected() {
	for _, m := range ap.session.queue {
		ap.relay.Lost(m)
	}
	if ap.rules.Side == stream.Hub {
		ap.relay.Drop()
	}
}

// receive takes note on the hub of what a spoke's Argo CD says.
func (ap *appEvents) receive(m stream.ApplicationEvents) {
	if ap.env.cfg.ShowEvent == nil {
		return
	}
	now := time.Now()
	for _, e := range m.Events {
		key, ours := ap.rules.Local(stream.EntryKey{Collection: stream.Statuses, Namespace: e.Namespace, Name: e.Name})
		// More of it is looked at when it is shown, which is not as often.
		if _, there := ap.view.Newest(key); !there || !ours {
			ap.relay.Unknown()
			continue
		}
		ap.relay.Add(appevents.Event{
			Application: key, EventText: e.EventText, Count: e.Count, First: now.Add(-e.First), Last: now.Add(-e.Last),
		})
	}
}

// shows reports whether an Application of the hub is one that the agent has: what the hub
// sent, as far as it knows, or what shows one of the spoke's own.
func (ap *appEvents) shows(key stream.ResourceKey) bool {
	o := ap.view.Current(key)
	if o == nil || !ap.rules.OnBothSides(*o) {
		return false
	}
	return ap.rules.Mode == stream.Autonomous || ap.rules.IsChild(*o) ||
		ap.link.MayStore(ap.rules.Entry(stream.Applications, key))
}

// show has an event written on the hub, if one may be.
func (ap *appEvents) show() {
	switch {
	case ap.rules.Side != stream.Hub || ap.session == nil || ap.relay.Len() == 0:
		return
	case worker.Closed(ap.session.Withdrawn):
		ap.relay.Drop()
		return
	}
	w, ok := ap.relay.BeginWrite(time.Now(), ap.jobs.Delayed(), ap.jobs.Ready() > 0, ap.shows)
	if !ok {
		return
	}
	about, _ := ap.view.Newest(w.Event.Application)
	about.Raw = nil // it may be large, and no one asks for it
	ap.spawn = append(ap.spawn, func(ctx context.Context) {
		bytes, err := ap.env.cfg.ShowEvent(ctx, about, w.Event)
		// When the loop has ended no one is left to tell.
		_ = ap.env.do(ctx, func() { ap.relay.Written(time.Now(), w, about, bytes, err) })
	})
}

// due is when something is to be done about events that wait; zero for not before
// something else happens.
func (ap *appEvents) due() time.Time {
	switch {
	case ap.session == nil || ap.relay.Len() == 0:
		return time.Time{}
	case ap.rules.Side == stream.Spoke:
		return ap.relay.Due(time.Now(), len(ap.session.queue) > 0)
	}
	return ap.relay.Due(time.Now(), ap.jobs.Ready() > 0)
}
