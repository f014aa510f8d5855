package access

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Status is the answer to a refused call, as an API server would give it: code 403,
// reason Forbidden, and a message that names the side and the rule. It is nil when
// the call is allowed.
func (d Decision) Status() *metav1.Status {
	if d.Allowed {
		return nil
	}
	r := d.request
	resource := schema.GroupResource{Group: r.Group, Resource: r.resource()}
	return complete(apierrors.NewForbidden(resource, r.Name, errors.New(d.Message)))
}

// StatusOf is the answer to a call that Parse refused: code 405 for a method, 400
// for all else.
func StatusOf(err error) *metav1.Status {
	if errors.Is(err, ErrMethod) {
		return Failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, err.Error())
	}
	return complete(apierrors.NewBadRequest(err.Error()))
}

// BadGateway is the answer when a spoke was reached and what came back is no answer
// of an API server, or breaks off. Clients of Kubernetes see an internal error.
func BadGateway(message string) *metav1.Status {
	return Failure(http.StatusBadGateway, metav1.StatusReasonInternalError, message)
}

// Unavailable is the answer when a spoke cannot be reached now. When retryAfter,
// rounded up to seconds, is not zero, clients of Kubernetes try a call again by
// themselves after it if the answer carries it as header Retry-After too.
func Unavailable(message string, retryAfter time.Duration) *metav1.Status {
	status := Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	if retryAfter > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32((retryAfter + time.Second - 1) / time.Second)}
	}
	return status
}

// Failure is the answer of who has no other: what Kubernetes' own clients show to their
// users.
func Failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: statusType, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

var statusType = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}

// complete returns the Status of err with kind and version, without which a client
// does not take it for one.
func complete(err *apierrors.StatusError) *metav1.Status {
	status := err.Status()
	status.TypeMeta = statusType
	return &status
}
