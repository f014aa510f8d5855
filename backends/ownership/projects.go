package ownership

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// projectContent is what a source sends of an AppProject: the hub's is narrowed to the agent.
func projectContent(r Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	if r.Side == stream.Spoke {
		return canonical(o, o.Fields["spec"]), false
	}
	if !r.Shares(o.Key.Name) {
		return nil, false
	}
	spec, matches := appProjects(r).ForSpoke(o)
	if !matches {
		return nil, false
	}
	return canonical(o, spec), false
}

// planProject plans for the copy, or mirror, of an AppProject.
func planProject(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return planGone(r, e, current)
	}
	data, refusal := newerContent(r, e, current)
	if refusal != nil {
		return nil, refusal
	}
	return planSpec(r, e, key, current, data)
}

// updateBounds is the write by which a copy of a project keeps what the policy admits;
// false when it has nothing else.
func updateBounds(r Rules, current object.Object) ([]byte, bool) {
	if r.Side != stream.Spoke || r.Mode != stream.Managed || current.Key.Kind != stream.AppProject || current.Deleting() ||
		!record.Has(current) {
		return nil, false
	}
	// Of which hub it is makes no difference, and is not known before the first connection.
	rec, _ := record.Of(current)
	if rec.Agent != "" && rec.Agent != r.Agent.String() || rec.Child {
		return nil, false
	}
	bounded, missing := r.Policy.Bounded(current.Key.Name, current.Child("spec"))
	if len(missing) == 0 {
		return nil, false
	}
	agreed := rec.Wrote == stream.HashOf(owned(current, rec)).String()
	next := current.Clone()
	next.Fields["spec"] = bounded
	recordMissing(r, &rec, missing)
	if agreed {
		stamp(next, rec)
	} else {
		next.SetAnnotation(object.RecordKey, string(object.Encode(rec))) // what someone changed beside stays to be seen
	}
	return object.Encode(next.Fields), true
}

// Closed is the content of an AppProject of the hub that permits a spoke no destination.
func (r Rules) Closed(o object.Object) link.Content {
	content := link.Content{Revision: o.Revision()}
	if content.Version.SourceUID = r.UIDIn(stream.AppProjects, o); content.Version.SourceUID == "" ||
		o.Label(object.IgnoreSyncKey) == "true" || record.IsForeign(o) {
		return link.Content{}
	}
	spec := map[string]any{"destinations": []any{}}
	for _, field := range []string{
		"description", "sourceRepos", "clusterResourceWhitelist", "clusterResourceBlacklist", "namespaceResourceWhitelist",
		"namespaceResourceBlacklist",
	} {
		if value, has := o.Child("spec")[field]; has {
			spec[field] = value
		}
	}
	content.Data = object.Encode(canonical(o, spec))
	content.Version.Hash = stream.HashOf(content.Data)
	return content
}
