package ownership

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/record"
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
	r := Rules{Marks: copies.Marks{Map: mapping.Map{Side: side, Mode: mode, Agent: agent, Namespace: "argocd"}}}
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
		allowed := policy.Default()
		allowed.Adopt, r.Adopt, r.Policy = r.Adopt, nil, &allowed
		r.Projects = hubProjects(r)
	}
	return r
}

// hubProjects are the AppProjects of a spoke on which each that someone asks for is the
// hub's.
func hubProjects(r Rules) func(string) *object.Object {
	return func(name string) *object.Object {
		fields, _ := object.Decode(object.Encode(m{"metadata": m{
			"namespace": r.Namespace, "name": name,
			"annotations": m{object.SourceUIDKey: "project-1", object.PrincipalUIDKey: r.HubUID, object.RecordKey: string(object.Encode(record.Record{Agent: r.Agent.String()}))},
		}}))
		return &object.Object{Key: stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}, Fields: fields}
	}
}

func appKey(r Rules) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: r.LocalNamespaces()[0], Name: "guestbook"}
}

func projectKey(r Rules, name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}
}

// stored returns what a store holds after it carried out the last write with
// content of a plan, as someone may then have changed it.
func stored(t testing.TB, key stream.ResourceKey, writes []Write, change func(object.Object)) object.Object {
	t.Helper()
	var o object.Object
	for _, w := range writes {
		if w.Op != Create && w.Op != Update {
			continue
		}
		fields, err := object.Decode(w.Raw)
		if err != nil {
			t.Fatal(err)
		}
		o = object.Object{Key: key, Fields: fields}
	}
	if o.Fields == nil {
		t.Fatal("the plan writes nothing")
	}
	if o.UID() == "" {
		o.Ensure("metadata")["uid"] = "copy-1"
	}
	o.Ensure("metadata")["resourceVersion"] = "70"
	if change != nil {
		change(o)
	}
	return o
}

// hard are the requests of an Application that carries a hard refresh of that id;
// none for an empty one.
func hard(id string) operations.Requests {
	if id == "" {
		return operations.Requests{}
	}
	return operations.Requests{operations.Refresh: {Type: "hard", ID: id}}
}

// copyOf returns the copy that an event makes where there was nothing.
func copyOf(t testing.TB, r Rules, e stream.Event, change func(object.Object)) object.Object {
	t.Helper()
	key, ok := r.Local(e.Key)
	if !ok {
		t.Fatalf("%s is not local", e.Key)
	}
	writes, refusal := r.Plan(e, key, nil, operations.Requests{})
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
	fields, err := object.Decode(w.Raw)
	if err != nil {
		t.Fatal(err)
	}
	o := object.Object{Key: key, Fields: fields}
	rec, _ := record.Of(o)
	v.Releasing, v.Leaving, v.SourceLabels, v.Created, v.Revision = rec.Releasing, rec.Leaving, rec.Labels, rec.Created, rec.Revision
	v.Labels = o.Child("metadata", "labels")
	v.Annotations, _ = object.Clone(o.Child("metadata", "annotations")).(m)
	delete(v.Annotations, object.RecordKey)
	v.Finalizers = o.Finalizers()
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
