package resource

import (
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notAnswered is why a call got no answer of the spoke, as the predicate of a sentence about the agent.
type notAnswered string

const (
	isRedirect notAnswered = "answered with a redirect to elsewhere"
	isTooMuch  notAnswered = "answered with more than is passed on"
	isGarbled  notAnswered = "answered with what says that it is packed with gzip and cannot be unpacked"
	// of a release before this one
	isClosed notAnswered = "does not serve its Kubernetes API; set access.enabled in the agent's configuration"
	isBusy   notAnswered = "has no connection to spare"
	isSilent notAnswered = "does not answer"
	isAway   notAnswered = "is not connected"
	isLost   notAnswered = "was lost before it answered"
)

// warning is the same for a last known reply, which is served for an agent that is
// busy or does not answer, too: it is no less true then.
func (u notAnswered) warning() string {
	if u == isBusy || u == isSilent {
		return string(u)
	}
	return "is away"
}

// status is the answer to the call.
func (u notAnswered) status(name identity.AgentName) *metav1.Status {
	message := "argomesh hub: agent " + name.String() + " " + string(u)
	if u == isRedirect || u == isTooMuch || u == isGarbled || u == isLost {
		return access.BadGateway(message)
	}
	return access.Unavailable(message, 0)
}

// isAbsence reports whether an agent gave no answer since it could not be asked.
func (u notAnswered) isAbsence() bool {
	return u == isAway || u == isSilent || u == isBusy || u == isLost
}
