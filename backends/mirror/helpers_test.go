package mirror

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// m is generic JSON.
type m = map[string]any

const testServer = "https://proxy:9090/agents/edge-1"

func ruleSet(t testing.TB, side stream.Side, mode stream.Mode) Rules {
	t.Helper()
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	r := Rules{Side: side, Mode: mode, Agent: agent, Namespace: "argocd"}
	if side == stream.Hub {
		r.ClusterServer = testServer
	} else {
		r.HubUID = "hub-1"
	}
	return r
}

// adopting are the rules of a side whose owner lets everything be adopted.
func adopting(r Rules) Rules {
	r.Adopt = []string{"*/*"}
	if r.Side == stream.Spoke {
		policy := DefaultPolicy()
		policy.Adopt, r.Adopt, r.Policy = r.Adopt, nil, &policy
		r.projects = hubProjects(r)
	}
	return r
}

// hubProjects are the AppProjects of a spoke on which each that somebody asks for is the
// hub's.
func hubProjects(r Rules) func(string) *object {
	return func(name string) *object {
		fields, _ := decode(encode(m{"metadata": m{
			"namespace": r.Namespace, "name": name,
			"annotations": m{sourceUIDKey: "project-1", principalUIDKey: r.HubUID, recordKey: string(encode(record{Agent: r.Agent.String()}))},
		}}))
		return &object{key: stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}, fields: fields}
	}
}

// makeObject returns an object with the metadata and the other fields given,
// with the form that decoded JSON has.
func makeObject(t testing.TB, key stream.ResourceKey, meta, rest m) object {
	t.Helper()
	metadata := m{"namespace": key.Namespace, "name": key.Name, "uid": "uid-1", "resourceVersion": "7"}
	for name, value := range meta {
		metadata[name] = value
	}
	fields := m{"apiVersion": "argoproj.io/v1alpha1", "kind": string(key.Kind), "metadata": metadata}
	for name, value := range rest {
		fields[name] = value
	}
	decoded, err := decode(encode(fields))
	if err != nil {
		t.Fatal(err)
	}
	return object{key: key, fields: decoded}
}

func appKey(r Rules) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: r.namespaces()[0], Name: "guestbook"}
}

func projectKey(r Rules, name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}
}

// makeEvent returns an event that asks for data.
func makeEvent(c stream.Collection, uid string, revision uint64, data m) stream.Event {
	e := stream.Event{
		ID: "c.1", Key: stream.EntryKey{Collection: c, Name: "guestbook"}, Verb: stream.Apply, Revision: revision,
		Data: encode(data),
	}
	e.Version = stream.Version{SourceUID: uid, Hash: stream.HashOf(e.Data)}
	return e
}

// removal returns the event that says that there is nothing.
func removal(c stream.Collection) stream.Event {
	return stream.Event{ID: "c.1", Key: stream.EntryKey{Collection: c, Name: "guestbook"}, Verb: stream.Delete}
}

// stored returns what a store holds after it carried out the last write with
// content of a plan, as someone may then have changed it.
func stored(t testing.TB, key stream.ResourceKey, writes []Write, change func(object)) object {
	t.Helper()
	var o object
	for _, w := range writes {
		if w.Op != Create && w.Op != Update {
			continue
		}
		fields, err := decode(w.Raw)
		if err != nil {
			t.Fatal(err)
		}
		o = object{key: key, fields: fields}
	}
	if o.fields == nil {
		t.Fatal("the plan writes nothing")
	}
	if o.uid() == "" {
		o.ensure("metadata")["uid"] = "copy-1"
	}
	o.ensure("metadata")["resourceVersion"] = "70"
	if change != nil {
		change(o)
	}
	return o
}

// hard are the requests of an Application that carries a hard refresh of that id;
// none for an empty one.
func hard(id string) Requests {
	if id == "" {
		return Requests{}
	}
	return Requests{refresh: {Type: "hard", ID: id}}
}

// copyOf returns the copy that an event makes where there was nothing.
func copyOf(t testing.TB, r Rules, e stream.Event, change func(object)) object {
	t.Helper()
	key, ok := r.Local(e.Key)
	if !ok {
		t.Fatalf("%s is not local", e.Key)
	}
	writes, refusal := r.Plan(e, key, nil, Requests{})
	if refusal != nil {
		t.Fatalf("Plan() = %+v", refusal)
	}
	return stored(t, key, writes, change)
}

// view is what a test compares of a write.
type view struct {
	Op                  Op
	Labels, Annotations m // less our record
	Finalizers          []string
	Spec                any
	Operation, Status   any
	// Of the record.
	Releasing, Leaving bool
	SourceLabels       []string
	Created, Revision  uint64
}

func viewOf(t testing.TB, key stream.ResourceKey, w Write) view {
	t.Helper()
	v := view{Op: w.Op}
	if w.Op != Create && w.Op != Update {
		return v
	}
	fields, err := decode(w.Raw)
	if err != nil {
		t.Fatal(err)
	}
	o := object{key: key, fields: fields}
	rec, _ := recordOf(o)
	v.Releasing, v.Leaving, v.SourceLabels, v.Created, v.Revision = rec.Releasing, rec.Leaving, rec.Labels, rec.Created, rec.Revision
	v.Labels = o.child("metadata", "labels")
	v.Annotations, _ = clone(o.child("metadata", "annotations")).(m)
	delete(v.Annotations, recordKey)
	v.Finalizers = o.finalizers()
	v.Spec, v.Operation, v.Status = fields["spec"], fields["operation"], fields["status"]
	return v
}

func viewsOf(t testing.TB, key stream.ResourceKey, writes []Write) []view {
	t.Helper()
	var out []view
	for _, w := range writes {
		out = append(out, viewOf(t, key, w))
	}
	return out
}

// refusalText is what a test compares of a refusal.
func refusalText(r *stream.Refusal) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", r.Kind, r.Message)
}
