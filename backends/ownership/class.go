package ownership

import (
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Class says how soon an event is to be written, which is about the object of key.
func (r Rules) Class(e stream.Event, key stream.ResourceKey, current *object.Object,
	asked operations.Requests) budget.Class {
	switch {
	case e.Verb == stream.Delete || Leaving(e) || e.Key.Collection == stream.Commands:
		return budget.First
	case current == nil || !statuses.CarriesStatus(e.Key.Collection):
		return budget.Other
	}
	writes, _ := r.Plan(e, key, current, asked)
	if len(writes) == 0 {
		return budget.First // it is answered and costs nothing
	}
	fields, err := object.Decode(writes[0].Raw)
	if err != nil {
		return budget.Other // what a plan writes decodes
	}
	return statuses.ClassOf(*current, object.Object{Key: key, Fields: fields})
}

// StatusDigest is the one of o, of which content is what is sent in c, a collection that
// carries a status.
func (r Rules) StatusDigest(c stream.Collection, o object.Object, content link.Content) statuses.StatusDigest {
	rest, _ := r.Content(c, statuses.WithoutTimes(o), operations.Requests{})
	return statuses.StatusDigestOf(o, content, rest)
}
