package resource

import (
	"net/http"
	"sync"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
)

const (
	// maxRefusals is the number of kinds in namespaces of one agent that are remembered. Of one
	// that refuses more nothing is served any more while it is away.
	maxRefusals = 256
	// maxRefusedNames is the number of objects of one agent that are remembered. Of a kind in a
	// namespace where more are refused nothing is served any more.
	maxRefusedNames = 256
)

// refusals remembers what the owners of spokes did not let be read when it was last asked
// for, by the agent's rules or by what its account may do, since no one can ask them while
// their agent is away. It is lost with the process.
type refusals struct {
	mu      sync.Mutex // guards byAgent
	byAgent map[identity.AgentName]*refused
}

// refused is what is remembered of one agent.
type refused struct {
	uid string // of the Agent
	// closed says that it served no Kubernetes API when it was last asked, and full that it
	// refused more than is remembered.
	closed, full bool
	objects      map[refusedObjects]*refusedAt
	names        int // of all kinds and namespaces
}

// refusedObjects is what a refusal is about: the objects of a kind, in a namespace.
type refusedObjects struct{ group, resource, namespace string }

// refusedAt is what is remembered of the objects of a kind, in a namespace.
type refusedAt struct {
	// last says that what was asked for last was refused, so that others there may be, too;
	// many that more were refused than are remembered.
	last, many bool
	// names are those of the objects that were refused when they were asked for last: rules
	// can be about names, or about what an Application tracks.
	names map[string]struct{}
}

func objectsOf(r access.Request) refusedObjects {
	return refusedObjects{r.Group, r.Resource, r.Namespace}
}

// ofAgent returns what is remembered of an agent, which is made if need be. It is called with
// mu locked.
func (r *refusals) ofAgent(agent identity.AgentName, uid string) *refused {
	found := r.byAgent[agent]
	if found == nil || found.uid != uid {
		found = &refused{uid: uid, objects: map[refusedObjects]*refusedAt{}}
		if r.byAgent == nil {
			r.byAgent = map[identity.AgentName]*refused{}
		}
		r.byAgent[agent] = found
	}
	return found
}

// close records that an agent serves no Kubernetes API.
func (r *refusals) close(agent identity.AgentName, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ofAgent(agent, uid).closed = true
}

// noteAnswer records what an answer with a status means for what the spoke's owner lets be read.
// A failure, of the agent or of its API server, means nothing. The record has who answered.
func (r *refusals) noteAnswer(p passing, record *audit.Record, status int) {
	ofServer := record.AnsweredBy == audit.ByAPIServer
	denied := record.DecidedBy == audit.Spoke || ofServer && status == http.StatusForbidden
	if denied || ofServer {
		decided := denied || status < http.StatusInternalServerError && status != http.StatusUnauthorized &&
			status != http.StatusTooManyRequests
		r.record(p.name, p.uid, p.request, decided, denied)
	}
}

// record remembers an answer: decided says that something was refused, or was not, and denied which.
func (r *refusals) record(agent identity.AgentName, uid string, request access.Request, decided, denied bool) {
	if !request.IsResource() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !denied && r.byAgent[agent] == nil {
		return
	}
	of := r.ofAgent(agent, uid)
	of.closed = false
	// What someone else may read, who is impersonated, says nothing of the agent's account.
	if !decided || request.Verb != "get" || request.Subresource != "" || !request.Impersonate.IsZero() {
		return
	}
	if denied {
		of.refuse(objectsOf(request), request.Name)
	} else {
		of.admit(objectsOf(request), request.Name)
	}
}

// refuse records that an object was refused.
func (of *refused) refuse(where refusedObjects, name string) {
	at := of.objects[where]
	if at == nil {
		if len(of.objects) >= maxRefusals {
			of.full = true
			return
		}
		at = &refusedAt{names: map[string]struct{}{}}
		of.objects[where] = at
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

// admit records that an object was not refused. Others there still are that were refused by
// their names.
func (of *refused) admit(where refusedObjects, name string) {
	at := of.objects[where]
	if at == nil {
		return
	}
	at.last = false
	if _, known := at.names[name]; known {
		delete(at.names, name)
		of.names--
	}
	if len(at.names) == 0 && !at.many {
		delete(of.objects, where)
	}
}

// has reports whether nothing may be served of what a call asks for.
func (r *refusals) has(agent identity.AgentName, uid string, request access.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byAgent[agent]
	if of == nil || of.uid != uid {
		return false
	}
	if of.closed || of.full {
		return true
	}
	at := of.objects[objectsOf(request)]
	if at == nil {
		return false
	}
	_, found := at.names[request.Name]
	return found || at.last || at.many
}
