package resource

import (
	"sync"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
)

// maxRefusals bounds what is remembered of one agent. Of one that refuses more nothing is
// given any more while it is away.
const maxRefusals = 256

// refusals remembers what the owners of spokes did not let be read when it was last asked
// for, since nobody can ask them while their agent is away. It is lost with the process.
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
	places       map[place]struct{}
}

// place is what a refusal is about: the objects of a kind, in a namespace.
type place struct{ group, resource, namespace string }

func placeOf(r access.Request) place { return place{r.Group, r.Resource, r.Namespace} }

// at returns what is remembered of an agent, which is made if need be. It is called with
// mu locked.
func (r *refusals) at(agent identity.AgentName, uid string) *refused {
	found := r.of[agent]
	if found == nil || found.uid != uid {
		found = &refused{uid: uid, places: map[place]struct{}{}}
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

// note notes whether the spoke's side refused a call, or its API server answered it.
func (r *refusals) note(agent identity.AgentName, uid string, request access.Request, denied bool) {
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
	if request.Verb != "get" || request.Subresource != "" {
		return
	}
	switch {
	case !denied:
		delete(of.places, placeOf(request))
	case len(of.places) >= maxRefusals:
		of.full = true
	default:
		of.places[placeOf(request)] = struct{}{}
	}
}

// noteAnswer notes what the record says of an answer. A failure of the agent says nothing.
func (r *refusals) noteAnswer(p passing, record *audit.Record) {
	denied := record.DecidedBy == audit.Spoke
	if denied || record.AnsweredBy == audit.ByAPIServer {
		r.note(p.name, p.uid, p.request, denied)
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
	_, found := of.places[placeOf(request)]
	return found || of.closed || of.full
}
