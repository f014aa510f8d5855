package operations

import "github.com/argomesh/argomesh/backends/object"

// Refresh and Hydrate are the requests that a person makes with an annotation on the hub, and that Argo
// CD's controller on the spoke consumes by removing it. Each is an index of
// Requests and requests.
const (
	Refresh = iota
	Hydrate
)

// requests are the names of a request: in a command, in a status that tells of
// its end, as the annotation on both sides, and as the annotation in which the
// spoke keeps the id of the last one it took.
var requests = [...]struct{ name, done, key, taken string }{
	Refresh: {"refresh", "refreshed", object.RefreshKey, object.RefreshedKey},
	Hydrate: {"hydrate", "hydrated", object.HydrateKey, object.HydratedKey},
}

// Requests are the requests that an Application on the hub carries, with the ids
// they were given; the zero value is none.
type Requests [len(requests)]Request

// Request is one request; the zero value is none.
type Request struct {
	// Type is the value of the annotation: normal or hard.
	Type string
	// ID tells a request from one of the same type that was made later.
	ID string
}

// Of returns the requests that o carries: those known already with their ids, the
// others with a new one.
func (known Requests) Of(o object.Object, newID func() string) Requests {
	var asked Requests
	for i, names := range requests {
		kind := o.Annotation(names.key)
		switch {
		case kind == "":
		case known[i].Type == kind:
			asked[i] = known[i]
		default:
			asked[i] = Request{Type: kind, ID: newID()}
		}
	}
	return asked
}

// Ask adds to a command what o requests.
func (known Requests) Ask(o object.Object, command map[string]any) {
	for i, names := range requests {
		if r := known[i]; r.ID != "" && o.Annotation(names.key) == r.Type {
			command[names.name] = map[string]any{"type": r.Type, "id": r.ID}
		}
	}
}

// ApplyRequests puts the requests of a command that this spoke has not yet taken
// on its Application.
func ApplyRequests(o object.Object, command map[string]any) {
	for i, names := range requests {
		r, ok := command[names.name].(map[string]any)
		if !ok || object.StringAt(r, "id") == o.Annotation(names.taken) {
			continue
		}
		o.SetAnnotation(names.taken, object.StringAt(r, "id"))
		if consumable(o, i) {
			o.SetAnnotation(names.key, object.StringAt(r, "type"))
		}
	}
}

// consumable reports whether Argo CD will ever consume a request: that to hydrate
// it leaves alone where there is no dry source.
func consumable(o object.Object, request int) bool {
	return request != Hydrate || o.Child("spec", "sourceHydrator") != nil
}

// ReportRequests adds to a status which requests the spoke's controller consumed
// last; none of a kind while one is pending.
func ReportRequests(o object.Object, status map[string]any) {
	for i, names := range requests {
		pending := o.Annotation(names.key) != "" && consumable(o, i)
		if id := o.Annotation(names.taken); id != "" && !pending {
			status[names.done] = id
		}
	}
}

// End removes the requests from o that a status says are consumed.
func (known Requests) End(o object.Object, status map[string]any) {
	for i, names := range requests {
		if r := known[i]; r.ID != "" && status[names.done] == r.ID && o.Annotation(names.key) == r.Type {
			delete(o.Child("metadata", "annotations"), names.key)
		}
	}
}
