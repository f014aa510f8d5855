package mirror

// The requests that a person makes with an annotation on the hub, and that Argo
// CD's controller on the spoke consumes by removing it. Each is an index of
// Requests and requests.
const (
	refresh = iota
	hydrate
)

// requests are the names of a request: in a command, in a status that tells of
// its end, as the annotation on both sides, and as the annotation in which the
// spoke keeps the id of the last one it took.
var requests = [...]struct{ name, done, key, taken string }{
	refresh: {"refresh", "refreshed", refreshKey, refreshedKey},
	hydrate: {"hydrate", "hydrated", hydrateKey, hydratedKey},
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

// of returns the requests that o carries: those known already with their ids, the
// others with a new one.
func (known Requests) of(o object, newID func() string) Requests {
	var asked Requests
	for i, names := range requests {
		kind := o.annotation(names.key)
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

// ask adds to a command what o requests.
func (known Requests) ask(o object, command map[string]any) {
	for i, names := range requests {
		if r := known[i]; r.ID != "" && o.annotation(names.key) == r.Type {
			command[names.name] = map[string]any{"type": r.Type, "id": r.ID}
		}
	}
}

// takeRequests puts the requests of a command that this spoke has not yet taken
// on its Application.
func takeRequests(o object, command map[string]any) {
	for i, names := range requests {
		r, ok := command[names.name].(map[string]any)
		if !ok || stringAt(r, "id") == o.annotation(names.taken) {
			continue
		}
		o.setAnnotation(names.taken, stringAt(r, "id"))
		if consumable(o, i) {
			o.setAnnotation(names.key, stringAt(r, "type"))
		}
	}
}

// consumable reports whether Argo CD will ever consume a request: that to hydrate
// it leaves alone where there is no dry source.
func consumable(o object, request int) bool {
	return request != hydrate || o.child("spec", "sourceHydrator") != nil
}

// tellRequests adds to a status which requests the spoke's controller consumed
// last; none of a kind while one is pending.
func tellRequests(o object, status map[string]any) {
	for i, names := range requests {
		pending := o.annotation(names.key) != "" && consumable(o, i)
		if id := o.annotation(names.taken); id != "" && !pending {
			status[names.done] = id
		}
	}
}

// endRequests removes the requests from o that a status says are consumed.
func (known Requests) endRequests(o object, status map[string]any) {
	for i, names := range requests {
		if r := known[i]; r.ID != "" && status[names.done] == r.ID && o.annotation(names.key) == r.Type {
			delete(o.child("metadata", "annotations"), names.key)
		}
	}
}
