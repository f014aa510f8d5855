package mirror

import (
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/jsonlimit"
	"github.com/argomesh/argomesh/stream/quota"
)

// contentLimits bound what is decoded of a peer. An object of 1.5 MiB, as much as etcd
// holds by default, of an Application with thousands of resources takes 12 MiB.
var contentLimits = jsonlimit.Limits{Depth: 128, Heap: 16 << 20}

// contentOf decodes what an event carries, once it is known what that takes. An event
// without content is one that there was no room for. What says for people what it is.
func contentOf(e stream.Event, what string) (map[string]any, *stream.Refusal) {
	if e.Data == nil {
		return nil, &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "there is no memory for it now; it is tried again"}
	}
	if _, err := jsonlimit.Check(e.Data, contentLimits); err != nil {
		return nil, invalid(what + ": " + err.Error())
	}
	data, err := decode(e.Data)
	if err != nil {
		return nil, invalid(what + " is not a JSON object")
	}
	return data, nil
}

// weigh is how much memory a worker takes for a task, in bytes: content is decoded to be
// compared, changed, and once more to be written; the object that is there is decoded,
// and comes back from the API server. What cannot be decoded takes nothing.
func weigh(current *backends.Object, events map[stream.EntryKey]stream.Event) int64 {
	const copies, ofObject = 3, 10
	var bytes int64
	for _, e := range events {
		if count, err := jsonlimit.Check(e.Data, contentLimits); err == nil {
			bytes += copies * (count.Heap + int64(len(e.Data)))
		}
	}
	if current != nil {
		bytes += ofObject * int64(len(current.Raw))
	}
	return bytes
}

// open takes the room in which the content of an event waits for its answer, and returns
// the event without content where there is none: its answer says so, and what comes after
// it does not wait.
func (l *loop) open(e stream.Event) stream.Event {
	if len(e.Data) == 0 {
		return e
	}
	release, ok := l.m.cfg.Quota.Try(l.rules.Agent, quota.Open, int64(len(e.Data)))
	if !ok {
		e.Data = nil
		return e
	}
	l.opened[e.ID] = release
	return e
}

// close gives the room of an event back that is answered.
func (l *loop) close(event string) {
	if release := l.opened[event]; release != nil {
		release()
		delete(l.opened, event)
	}
}

// closeAll gives back the room of all events.
func (l *loop) closeAll() {
	for _, release := range l.opened {
		release()
	}
	l.opened = map[string]func(){}
}
