package ownership

import (
	"fmt"

	"github.com/argomesh/argomesh/backends/appproject"
	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// newerContent is what an event carries, unless it was read before what is there.
func newerContent(r Rules, e stream.Event, current *object.Object) (map[string]any, *stream.Refusal) {
	data, refusal := object.ContentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	return data, r.Outdated(e, current)
}

// planSpec plans for an Application or an AppProject that is not leaving. data is what the
// event carries.
func planSpec(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	data map[string]any) ([]Write, *stream.Refusal) {
	spec, missing, refusal := admittedSpec(r, e, key, current, data)
	if refusal != nil {
		return nil, refusal
	}
	spec = mapped(r, e.Key, spec)
	dropped, misfit := prune(r, key.Kind, spec)
	if misfit != nil && (current == nil || r.IsCopy(*current)) { // of what is not ours, that it is not counts first
		return nil, misfit
	}
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	desired := func(base object.Object, old record.Record) object.Object {
		o := writeSpec(r, base, old, e, spec, object.Mirrored(labels), object.Mirrored(annotations))
		shorten(r, o, dropped, missing)
		return o
	}
	create := func() Write { return creation(r, desired(object.New(key), record.Record{})) }
	switch {
	case current == nil:
		return []Write{create()}, nil
	case current.Deleting():
		return nil, awaitsDeletion(r, *current)
	case r.OthersCopy(*current) != nil:
		return nil, r.OthersCopy(*current)
	case !r.IsCopy(*current):
		if refusal := adoption(r, *current); refusal != nil {
			return nil, refusal
		}
		if misfit != nil {
			return nil, misfit
		}
		return strictly(adopt(*current, desired(current.Clone(), record.Record{Adopted: current.UID()}))), nil
	case r.Recreates(e, *current, annotations):
		return append(release(r, current), create()), nil
	case unconfirmed(r, *current):
		return []Write{{Op: Confirm}}, nil
	}
	old, _ := record.Of(*current)
	return strictly(update(*current, desired(current.Clone(), old))), nil
}

// admittedSpec is the spec of an event as far as this side takes it, and the paths of what is
// missing from a project that its owner's policy bounds.
func admittedSpec(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	data map[string]any) (spec map[string]any, missing []string, refusal *stream.Refusal) {
	spec, ok := data["spec"].(map[string]any)
	if !ok {
		return nil, nil, stream.Invalid("the event carries no spec")
	}
	if refusal := r.NotOurs(key); refusal != nil {
		return nil, nil, refusal
	}
	switch refusal := refusedHere(r, e.Key, key, spec); {
	case refusal == nil:
	case refusal.Kind == stream.RefusalDenied && hasSameCopy(r, e, current):
		spec, missing = r.Policy.Bounded(e.Key.Name, spec)
	default:
		return nil, nil, refusal
	}
	if e.Key.Collection == stream.Applications {
		if refusal := mayName(r, spec); refusal != nil {
			return nil, nil, refusal
		}
	}
	return spec, missing, refuseDefault(r, key, current)
}

// awaitsDeletion is the answer while an object goes in whose place a copy is to be.
func awaitsDeletion(r Rules, current object.Object) *stream.Refusal {
	message := fmt.Sprintf("the %s is being deleted on the %s; it is created again when it is gone", current.Key.Kind,
		r.Side)
	if r.DeletedLocally(current) {
		message = "someone on the spoke deletes the Application together with its workloads; it is created again when it is gone"
	}
	return &stream.Refusal{Kind: stream.RefusalUnavailable, Message: message}
}

// maxName is the longest name of an object (RFC 1123 subdomain).
const maxName = 253

// refusedHere says why an Application or AppProject cannot be stored on this side,
// whatever there is.
func refusedHere(r Rules, entry stream.EntryKey, key stream.ResourceKey, spec map[string]any) *stream.Refusal {
	if entry.Collection == stream.AppProjects {
		if problem := appproject.PatternProblem(spec); problem != "" {
			return stream.Invalid(problem)
		}
	}
	switch {
	case len(key.Name) > maxName:
		return stream.Invalid(fmt.Sprintf("with the agent's prefix its name on the hub has %d characters, and %d are possible; rename it on the spoke", len(key.Name), maxName))
	case r.Side != stream.Spoke:
		return nil
	case entry.Collection == stream.AppProjects:
		return r.Policy.Admits(entry.Name, spec)
	}
	return r.Policy.Application(spec)
}

// writeSpec puts what the source owns into o, and only that.
func writeSpec(r Rules, o object.Object, old record.Record, e stream.Event, spec, labels,
	annotations map[string]any) object.Object {
	created, history := r.CreatedAt(o, old, e.Revision), r.HistoryOf(o, old)
	if r.Side == stream.Hub && o.Key.Kind == stream.Application {
		appspec.MakeTyped(spec)
	}
	annotations = admittedAnnotations(r.Side, annotations)
	replaceKeys(o, "labels", old.Labels, labels)
	replaceKeys(o, "annotations", old.Annotations, annotations)
	resumeReconciliation(o, old, annotations) // the release, or the deletion, was abandoned
	if field := object.ContentField(o.Key.Kind); field == "data" && len(spec) == 0 {
		delete(o.Fields, field) // as the API server stores it
	} else {
		o.Fields[field] = spec
	}
	o.DropFinalizers(object.IsCascade)
	o.SetAnnotation(object.SourceUIDKey, e.Version.SourceUID)
	if r.Side == stream.Spoke {
		o.SetAnnotation(object.PrincipalUIDKey, r.HubUID)
	} else if r.Hub != "" {
		o.SetAnnotation(object.HubKey, r.Hub)
	}
	rec := record.Record{
		Hash: e.Version.Hash.String(), Revision: e.Revision, Created: created, History: history,
		Labels: object.SortedKeys(labels), Annotations: object.SortedKeys(annotations),
		Child: e.Key.Collection == stream.Children,
		Agent: r.Agent.String(), Adopted: old.Adopted,
	}
	recordShape(r, &rec, e)
	stamp(o, rec)
	return o
}

// recordShape notes in the record of a project's mirror how it came to its shape.
func recordShape(r Rules, rec *record.Record, e stream.Event) {
	if e.Key.Collection != stream.AppProjects || !r.Prefixed() {
		return
	}
	rec.Shaping = appProjects(r).Shaping()
	if r.ProjectRoles {
		data, refusal := object.ContentOf(e, "the event's data")
		if refusal != nil {
			return // Plan has refused it
		}
		spec, _ := data["spec"].(map[string]any)
		_, rec.Lacks = appProjects(r).MirroredRoles(e.Key.Name, spec)
	}
}

// hasSameCopy reports whether an event is about the very content of a project that is there
// already, which then stays within what the policy admits. Only what is new is refused.
func hasSameCopy(r Rules, e stream.Event, current *object.Object) bool {
	if r.Side != stream.Spoke || e.Key.Collection != stream.AppProjects || current == nil || !r.IsCopy(*current) ||
		r.Policy.Kind(policy.KindProject) != nil {
		return false
	}
	rec, _ := record.Of(*current)
	return rec.Hash == e.Version.Hash.String() && r.SourceUID(*current) == e.Version.SourceUID
}

// mapped is the spec of an event as it is stored on this side.
func mapped(r Rules, key stream.EntryKey, spec map[string]any) map[string]any {
	switch {
	case key.Collection == stream.AppProjects && r.Side == stream.Hub:
		return appProjects(r).Mirror(key.Name, spec)
	case key.Collection == stream.AppProjects:
		return spec
	}
	destination, _ := spec["destination"].(map[string]any)
	if destination == nil {
		destination = map[string]any{}
		spec["destination"] = destination
	}
	delete(destination, "server")
	if r.Side == stream.Spoke {
		destination["name"] = object.InClusterName
		appspec.Normalize(spec)
		return spec
	}
	destination["name"] = r.Agent.String()
	project := object.ProjectOf(spec)
	if r.Prefixed() {
		project = r.ProjectPrefix() + project
	}
	spec["project"] = project
	return spec
}

// appProjects are the rules of what becomes of AppProjects.
func appProjects(r Rules) appproject.Rules {
	return appproject.Rules{Map: r.Map, ClusterProject: r.ClusterProject, MirrorsRoles: r.ProjectRoles}
}
