package exchange

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/proxies/access"
)

// WriteStatus answers a call for path with status. What its details say about trying
// again is said in Retry-After too, which is what clients heed.
//
// A call for an object is answered as an API server does, by a Status. To discovery a
// refusal or a failure is the sentence alone: client-go does not decode a Status there,
// and shows "unknown" instead of it. What it shows of a 503 is its own sentence in any
// case, so that becomes a 502.
func WriteStatus(w http.ResponseWriter, path string, status *metav1.Status) {
	code, kind := int(status.Code), "application/json"
	body, err := json.Marshal(status)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError) // a Status is always JSON
		return
	}
	if !isObject(path) && (code == http.StatusForbidden || code >= http.StatusInternalServerError) {
		kind, body = "text/plain; charset=utf-8", []byte(status.Message+"\n")
		if code == http.StatusServiceUnavailable {
			code = http.StatusBadGateway
		}
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // the caller is gone when this fails
}

// isObject reports whether path, which may be none that access.Parse reads, is that of
// objects.
func isObject(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return (segments[0] == "api" && len(segments) > 2) || (segments[0] == "apis" && len(segments) > 3)
}

// TooMany is the answer to a call above a limit.
func TooMany(message string) *metav1.Status {
	s := access.Failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message)
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return s
}

// Unauthorized is the answer to a call without a token of an agent.
func Unauthorized() *metav1.Status {
	return access.Failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"argomesh hub: the call has no valid token of an agent")
}

// Forbidden is the answer to a caller who is known, and not for whom it calls.
func Forbidden(why string) *metav1.Status {
	return access.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "argomesh hub: "+why)
}

// BadRequest is the answer to a call whose form is refused.
func BadRequest(err error) *metav1.Status {
	return access.Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, "argomesh: "+err.Error())
}

// slowCaller is the answer to a caller whose body does not come.
func slowCaller() *metav1.Status {
	return access.Failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
		"argomesh: the body of the call did not come in time")
}
