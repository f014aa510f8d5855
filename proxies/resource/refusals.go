package resource

import (
	"net/http"
	"sync"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
)

const (
	// maxRefusals is the number of places of one agent that are remembered. Of one that
	// refuses more nothing is given any more while it is away.
	maxRefusals = 256
	// maxRefusedNames is the number of objects of one agent that are remembered. Of a place
	// where more are refused nothing is given any more.
	maxRefusedNames = 256
)

// refusals remembers what the owners of spokes did not let be read when it was last asked
// for, by the agent's rules or by what its account may do, since no one can ask them while
// their agent is away. It is lost with the process.
type refusals struct {
	mu sync.Mutex // guards of
	of map[identity.AgentName]*refused
}

// refused is what is remembered of one agent.
type refused struct {
	uid string // of the Agent
	// closed says that it served no Kubernetes API when it was last asked, and full that it
	// refused more than is remembered.
	closed, full bool
	places       map[refusedObjects]*refusedAt
	names        int // of all places
}

// refusedObjects is what a refusal is about: the objects of a kind, in a namespace.
type refusedObjects struct{ group, resource, namespace string }

// refusedAt is what is remembered of a place.
type refusedAt struct {
	// last says that what was asked for last was refused, so that others there may be, too;
	// many that more were refused than are remembered.
	last, many bool
	// names are those of the objects that were refused when they were asked for last: rules
	// can be about names, or about what an Application tracks.
	names map[string]struct{}
}

func placeOf(r access.Request) refusedObjects {
	return refusedObjects{r.Group, r.Resource, r.Namespace}
}

// at returns what is remembered of an agent, which is made if need be. It is called with
// mu locked.
func (r *refusals) at(agent identity.AgentName, uid string) *refused {
	found := r.of[agent]
	if found == nil || found.uid != uid {
		found = &refused{uid: uid, places: map[refusedObjects]*refusedAt{}}
		if r.of == nil {
			r.of = map[identity.AgentName]*refused{}
		}
		r.of[agent] = found
	}
	return found
}

// close notes that an agent serves no Kubernetes API.
func (r *refusals) close(agent identity.AgentName, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(agent, uid).closed = true
}

// noteAnswer notes what an answer with a status says of what the spoke's owner lets be read.
// A failure, of the agent or of its API server, says nothing. The record has who answered.
func (r *refusals) noteAnswer(p passing, record *audit.Record, status int) {
	ofServer := record.AnsweredBy == audit.ByAPIServer
	denied := record.DecidedBy == audit.Spoke || ofServer && status == http.StatusForbidden
	if denied || ofServer {
		said := denied || status < http.StatusInternalServerError && status != http.StatusUnauthorized &&
			status != http.StatusTooManyRequests
		r.record(p.name, p.uid, p.request, said, denied)
	}
}

// record notes an answer, and whether it said that something was refused, or was not.
func (r *refusals) record(agent identity.AgentName, uid string, request access.Request, said, denied bool) {
	if !request.IsResource() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !denied && r.of[agent] == nil {
		return
	}
	of := r.at(agent, uid)
	of.closed = false
	// What someone else may read, who is impersonated, says nothing of the agent's account.
	if !said || request.Verb != "get" || request.Subresource != "" || !request.Impersonate.IsZero() {
		return
	}
	if denied {
		of.refuse(placeOf(request), request.Name)
	} else {
		of.admit(placeOf(request), request.Name)
	}
}

// refuse notes that an object was refused.
func (of *refused) refuse(where refusedObjects, name string) {
	at := of.places[where]
	if at == nil {
		if len(of.places) >= maxRefusals {
			of.full = true
			return
		}
		at = &refusedAt{names: map[string]struct{}{}}
		of.places[where] = at
	}
	at.last = true
	if _, known := at.names[name]; known {
		return
	}
	if of.names >= maxRefusedNames {
		at.many = true
		return
	}
	at.names[name] = struct{}{}
	of.names++
}

// admit notes that an object was not refused. Others there still are that were refused by
// their names.
func (of *refused) admit(where refusedObjects, name string) {
	at := of.places[where]
	if at == nil {
		return
	}
	at.last = false
	if _, known := at.names[name]; known {
		delete(at.names, name)
		of.names--
	}
	if len(at.names) == 0 && !at.many {
		delete(of.places, where)
	}
}

// has reports whether nothing may be given of what a call asks for.
func (r *refusals) has(agent identity.AgentName, uid string, request access.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of[agent]
	if of == nil || of.uid != uid {
		return false
	}
	if of.closed || of.full {
		return true
	}
	at := of.places[placeOf(request)]
	if at == nil {
		return false
	}
	_, found := at.names[request.Name]
	return found || at.last || at.many
}
