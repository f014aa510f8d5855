package kube

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/stream"
)

// verb is a call to the API server. It is a label of metrics.
type verb string

const (
	verbRead   verb = "read"
	verbCreate verb = "create"
	verbUpdate verb = "update"
	verbDelete verb = "delete"
)

// callError is the failure of one call. It wraps its kind, one of stream's, and
// the cause.
type callError struct {
	verb  verb
	key   stream.ResourceKey
	kind  error
	cause error
}

func (e *callError) Error() string {
	return string(e.verb) + " " + e.key.String() + ": " + e.kind.Error() + ": " + statement(e.cause)
}

// Unwrap returns the kind and the cause.
func (e *callError) Unwrap() []error { return []error{e.kind, e.cause} }

// kindOf maps what came of a call to a kind of stream's; nil to nil.
//
// What we cannot place is ErrUnavailable: it is tried again, and nothing is
// concluded from it. So is a 404 that does not name our object: the resource
// itself may be missing, which says nothing of the object.
func kindOf(verb verb, err error) error {
	var content contentError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &content):
		return stream.ErrRefused
	case apierrors.IsNotFound(err):
		return kindOfNotFound(verb, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return stream.ErrConflict
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err), tooLargeForEtcd(err):
		return stream.ErrRefused
	default:
		return stream.ErrUnavailable
	}
}

func kindOfNotFound(verb verb, err error) error {
	details := statusOf(err).Details
	switch {
	case details == nil || details.Name == "" || hasCause(details, metav1.CauseTypeUnexpectedServerResponse):
		return stream.ErrUnavailable
	case verb == verbCreate: // of the namespace
		return stream.ErrRefused
	default:
		return stream.ErrNotFound
	}
}

// tooLargeForEtcd recognises an object that the API server takes and etcd, or
// the API server's client of it, does not: from 1.5 MiB and 2 MiB on. The API
// server passes their text on as an error 500 without a reason, so the text is
// all there is.
func tooLargeForEtcd(err error) bool {
	status := statusOf(err)
	if status.Code != http.StatusInternalServerError || status.Reason != metav1.StatusReasonUnknown {
		return false
	}
	return strings.Contains(status.Message, "etcdserver: request is too large") ||
		strings.Contains(status.Message, "code = ResourceExhausted") &&
			strings.Contains(status.Message, "message larger than max")
}

// statusOf returns the zero status when err did not come from an API server.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

func hasCause(details *metav1.StatusDetails, cause metav1.CauseType) bool {
	for _, c := range details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}

const (
	// maxStatement and maxValue bound, in bytes, what we say of an error and of a
	// refused value in it.
	maxStatement = 1024
	maxValue     = 64
)

// account is how an API server names whom it forbids something.
var account = regexp.MustCompile(`User "[^"]*"`)

// statement says what err is about without the values an API server quotes: a
// refused object may be there from end to end, with what is secret in it.
func statement(err error) string {
	if tooLargeForEtcd(err) {
		return "the object is too large for the API server's etcd: " + shorten(err.Error(), maxValue*4)
	}
	status := statusOf(err)
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return shorten(account.ReplaceAllString(err.Error(), "this process"), maxStatement)
	}
	var parts []string
	said := make(map[string]bool)
	for _, cause := range status.Details.Causes {
		part := withoutValue(cause.Message)
		if cause.Field != "" {
			part = cause.Field + ": " + part
		}
		if !said[part] { // API servers repeat themselves
			said[part] = true
			parts = append(parts, part)
		}
	}
	return shorten(strings.Join(parts, "; "), maxStatement)
}

// withoutValue cuts a long quoted value out of the message of a cause:
// `Invalid value: "…": why`.
func withoutValue(message string) string {
	kind, rest, ok := strings.Cut(message, ": ")
	if !ok {
		return message
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil || len(quoted) <= maxValue {
		return message
	}
	return kind + rest[len(quoted):]
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// contentError is a reason why we do not even ask the API server.
type contentError string

// isExpired reports whether the API server has forgotten a resourceVersion (410).
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
