package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource/mediatype"
	"github.com/argomesh/argomesh/stream/jsonlimit"
)

// LastKnownAnnotation says of an object that it is not of now, and as of when it is.
const LastKnownAnnotation = "argomesh.io/last-known"

const (
	// maxLastObject is the longest object that is given, as an API server's are.
	maxLastObject = 1536 << 10
	// lastObjects is how many are searched for at a time; more calls are answered as if none was
	// known.
	lastObjects = 4
)

var lastObjectLimits = jsonlimit.Limits{Depth: 64, Values: 1 << 16, Elements: 20000}

// asksForObject reports whether a call is for one object as it is, and for nothing else. Of
// Secrets nothing is known that may be given.
func asksForObject(r access.Request, target *url.URL, header http.Header) bool {
	if r.Method != http.MethodGet || r.Verb != "get" || !r.IsResource() || r.Name == "" || r.Subresource != "" ||
		r.Upgrade || !r.Impersonate.IsZero() ||
		r.Group == "" && r.Resource == "secrets" {
		return false
	}
	query, err := url.ParseQuery(target.RawQuery)
	if err != nil {
		return false
	}
	delete(query, "timeout")
	return len(query) == 0 && admitsPlain(header["Accept"])
}

// admitsPlain reports whether an Accept lets an object be plain JSON.
func admitsPlain(lines []string) bool {
	all := strings.Join(lines, ",")
	return all == "" ||
		slices.ContainsFunc(strings.Split(all, ","),
			func(clause string) bool { return slices.Contains(mediatype.Alike, mediatype.Form(clause)) })
}

// serveLast answers a call from what is known of its object without the agent; false when
// that is nothing, or nothing that may be given.
func (c *call) serveLast(w http.ResponseWriter, r *http.Request, p passing, why notAnswered) bool {
	h := c.hub
	if h.cfg.Objects == nil || p.masked != nil || !why.isAbsence() || !asksForObject(p.request, p.target, r.Header) ||
		h.refusals.has(p.name, p.uid, p.request) {
		return false
	}
	select {
	case h.lastObjects <- struct{}{}:
		defer func() { <-h.lastObjects }()
	default:
		h.metrics.Last.WithLabelValues("busy").Inc()
		return false
	}
	raw, at, found := h.cfg.Objects.Object(r.Context(), p.name, p.uid, p.request)
	if !found {
		h.metrics.Last.WithLabelValues("unknown").Inc()
		return false
	}
	body, ok := lastObject(raw, p, fmt.Sprintf("as of %s: agent %s %s, and this is what its Argo CD saw last", at.UTC().
		Format("15:04:05 UTC on 2006-01-02"), p.name, why.warning()))
	if !ok {
		h.metrics.Last.WithLabelValues("refused").Inc()
		return false
	}
	h.metrics.Last.WithLabelValues("served").Inc()
	header := w.Header()
	header.Set("Warning",
		fmt.Sprintf(`299 - "agent %s %s: this is what its Argo CD saw last, of %s"`, p.name, why.warning(), at.UTC().
			Format(time.RFC3339)))
	header.Set("Content-Type", mediatype.Plain)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the caller may have gone
	return true
}

// lastObject returns an object with the mark, if it is the one that is asked for and, where
// only those are given, one that an Application tracks. What a spoke made up is not taken
// for another object.
func lastObject(raw []byte, p passing, mark string) ([]byte, bool) {
	if len(raw) > maxLastObject {
		return nil, false
	}
	if _, err := jsonlimit.Check(raw, lastObjectLimits); err != nil {
		return nil, false
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(raw, &fields); err != nil {
		return nil, false
	}
	o := unstructured.Unstructured{Object: fields}
	if !isAskedFor(&o, p.request) || p.tracked && !isTracked(&o) {
		return nil, false
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[LastKnownAnnotation] = mark
	o.SetAnnotations(annotations)
	body, err := json.Marshal(o.Object)
	return body, err == nil
}

// isAskedFor reports whether an object is the one that a call names.
func isAskedFor(o *unstructured.Unstructured, r access.Request) bool {
	is := o.GroupVersionKind()
	if is.Group != r.Group || is.Version != r.Version || is.Kind == "" || o.GetName() != r.Name ||
		o.GetNamespace() != r.Namespace {
		return false
	}
	plural, singular := meta.UnsafeGuessKindToResource(is)
	return r.Resource == plural.Resource || r.Resource == singular.Resource
}

// isTracked reports whether an Application tracks an object, by the annotation of which it
// is sure what it means.
func isTracked(o *unstructured.Unstructured) bool {
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(),
		Annotations: o.GetAnnotations()}}
	is.SetGroupVersionKind(o.GroupVersionKind())
	return access.Tracks(is, "")
}
