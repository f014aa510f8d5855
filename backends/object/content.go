package object

import (
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

// contentLimits bound what is decoded of a peer. An object of 1.5 MiB, as much as etcd
// holds by default, of an Application with thousands of resources takes 12 MiB.
var contentLimits = jsonlimit.Limits{Depth: 128, Heap: 16 << 20}

// ContentOf decodes what an event carries, once it is known what that takes. An event
// without content is one that there was no room for. What says for people what it is.
func ContentOf(e stream.Event, what string) (map[string]any, *stream.Refusal) {
	if e.Data == nil {
		return nil, &stream.Refusal{Kind: stream.RefusalUnavailable,
			Message: "there is no memory for it now; it is tried again"}
	}
	if _, err := jsonlimit.Check(e.Data, contentLimits); err != nil {
		return nil, stream.Invalid(what + ": " + err.Error())
	}
	data, err := Decode(e.Data)
	if err != nil {
		return nil, stream.Invalid(what + " is not a JSON object")
	}
	return data, nil
}

// Weigh is how much memory a worker takes for a task, in bytes: content is decoded to be
// compared, changed, and once more to be written; the object that is there is decoded,
// and comes back from the API server. What cannot be decoded takes nothing.
func Weigh(current *backends.Object, events map[stream.EntryKey]stream.Event) int64 {
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
