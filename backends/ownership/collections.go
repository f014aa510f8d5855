package ownership

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// collection is what the rules say of one collection: each has a file of its own, and its
// row in collectionOf.
type collection struct {
	// content is what the source sends of an object, and whether that asks for its end; nil
	// for nothing.
	content func(r Rules, o object.Object, asked operations.Requests) (data map[string]any, leaving bool)
	// plan is Rules.Plan.
	plan func(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
		asked operations.Requests) ([]Write, *stream.Refusal)
}

// collectionOf is the row of a collection; the zero value for one that this release does not
// know, which no frame brings.
func collectionOf(c stream.Collection) collection {
	switch c {
	case stream.Applications:
		return collection{content: applicationContent, plan: planApplication}
	case stream.AppProjects:
		return collection{content: projectContent, plan: planProject}
	case stream.Repositories:
		return collection{content: repositoryContent, plan: planRepository}
	case stream.Trust:
		return collection{content: trustContent, plan: planTrust}
	case stream.Children:
		return collection{content: childContent, plan: planChild}
	case stream.Statuses:
		return collection{content: statusContent, plan: planStatus}
	case stream.Commands:
		return collection{content: commandContent, plan: planCommand}
	}
	return collection{}
}

// Content returns what this side's source sends of o in collection c; false when
// nothing. asked holds the requests that o carries.
func (r Rules) Content(c stream.Collection, o object.Object, asked operations.Requests) (link.Content, bool) {
	if o.Label(object.IgnoreSyncKey) == "true" {
		return link.Content{}, false
	}
	uid := r.UIDIn(c, o)
	if uid == "" {
		return link.Content{}, false // not ours to speak of
	}
	data, leaving := collectionOf(c).content(r, o, asked)
	if data == nil {
		return link.Content{}, false
	}
	content := link.Content{Revision: o.Revision(), Leaving: leaving, Data: object.Encode(data)}
	content.Version = stream.Version{SourceUID: uid, Hash: stream.HashOf(content.Data)}
	return content, true
}

// Plan returns the writes that make the local object what an event says, in
// order: none when it already is, or when it must be left alone. Each write
// stands on the result of the one before; on a conflict the object is read and
// planned again. A refusal beside writes is the answer once they are done.
// current is nil when there is no object. asked holds the requests that current
// carries on the hub.
func (r Rules) Plan(e stream.Event, key stream.ResourceKey, current *object.Object,
	asked operations.Requests) ([]Write, *stream.Refusal) {
	return collectionOf(e.Key.Collection).plan(r, e, key, current, asked)
}
