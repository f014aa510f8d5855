package accessrequests

import (
	"fmt"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Reasons of a refusal.
const (
	// ReasonNotGuarded is that no one knows who made the request.
	ReasonNotGuarded = "NotGuarded"
	// ReasonNotAllowed is that the hub's RBAC does not let the person.
	ReasonNotAllowed = "NotAllowed"
	// ReasonNoSuchAgent is that there is no such agent, or that it is suspended or being deleted.
	ReasonNoSuchAgent = "NoSuchAgent"
	// ReasonUnusable is that the request cannot be answered as it is.
	ReasonUnusable = "UnusableRequest"
)

// Facts are what an answer depends on beside the request.
type Facts struct {
	// Guard is why the API server does not say who made a request; nil when it does, since
	// GuardedSince.
	Guard        error
	GuardedSince time.Time
	// Allowed reports whether the hub's authorizer lets the person create agents/access of the
	// Agent; Why is what it says beside.
	Allowed bool
	Why     string
	// Agent is the registered Agent; nil when there is none.
	Agent *v1alpha1.Agent
}

// Refusal is why a request is refused; the zero value says that it is not.
type Refusal struct{ Reason, Message string }

// Decide returns why a request is refused. Who may not ask learns nothing of which agents there are.
func Decide(request *v1alpha1.AccessRequest, f Facts) Refusal {
	name, user := request.Spec.Agent, request.Spec.User.Username
	switch {
	case f.Guard != nil:
		return Refusal{ReasonNotGuarded, fmt.Sprintf(
			"no one vouches for who made this request: ValidatingAdmissionPolicy %s: %v; install the chart of the principal with"+
				" admission.accessRequests, on Kubernetes 1.30 or newer", GuardName(request.Namespace), f.Guard)}
	case request.CreationTimestamp.Time.Before(f.GuardedSince.Add(guardDelay)):
		return Refusal{ReasonNotGuarded, fmt.Sprintf(
			"ValidatingAdmissionPolicy %s may not have been in force when this request was made: make another one in %v",
			GuardName(request.Namespace), guardDelay)}
	case !f.Allowed:
		why := ""
		if f.Why != "" {
			why = ": " + f.Why
		}
		return Refusal{ReasonNotAllowed,
			fmt.Sprintf("%s may not create agents/access of Agent %s in namespace %s%s; a Role with"+
				" apiGroups [argomesh.io], resources [agents/access], resourceNames [%s], verbs [create] lets her", user, name,
				request.Namespace, why, name)}
	case f.Agent == nil:
		return Refusal{ReasonNoSuchAgent,
			fmt.Sprintf("no agent %s is registered; \"agentctl agent list\" shows those that are",
				name)}
	case f.Agent.DeletionTimestamp != nil:
		return Refusal{ReasonNoSuchAgent, fmt.Sprintf("Agent %s is being deleted", name)}
	case f.Agent.Spec.Suspended:
		return Refusal{ReasonNoSuchAgent, fmt.Sprintf("Agent %s is suspended", name)}
	}
	return Refusal{}
}

// LifetimeOf is how long the token of a request is to live: what is asked, at most the longest.
func LifetimeOf(request *v1alpha1.AccessRequest, longest time.Duration) time.Duration {
	seconds := request.Spec.ExpirationSeconds
	if seconds == 0 {
		seconds = v1alpha1.DefaultAccessSeconds
	}
	return min(time.Duration(seconds)*time.Second, longest)
}
