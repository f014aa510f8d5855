package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxTarget is the longest request target that Parse reads, in bytes. It has room
// for an exec with a long command.
const MaxTarget = 64 << 10

// maxUserAgent is how much of a User-Agent a Request keeps, in bytes.
const maxUserAgent = 256

var (
	// ErrMalformed is wrapped by the errors of Parse: the call has no meaning on
	// which two readers are sure to agree, so no one is asked whether it is allowed.
	ErrMalformed = errors.New("malformed request")
	// ErrMethod is wrapped, beside ErrMalformed, when the method is none of
	// Kubernetes'.
	ErrMethod = errors.New("method not supported")
)

// Request is what one call asks of a Kubernetes API server, by the words of its
// own authorizers. The zero value is no call.
type Request struct {
	// Method is the HTTP method, in upper case.
	Method string
	// Path is the decoded path, without the query.
	Path string
	// Verb is get, list, watch, create, update, patch, delete, deletecollection or
	// proxy; of a non-resource path it is the method in lower case.
	Verb string
	// Resource and what follows are empty for a non-resource path. Group is also
	// empty for the core group, Namespace for what has none, and Name where the call
	// names no object. A list or watch with field selector metadata.name names one.
	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	// FieldSelector and LabelSelector are as given, of a list, watch or
	// deletecollection.
	FieldSelector, LabelSelector string
	// Apply says that the call is a server-side apply, which makes the object when
	// there is none.
	Apply bool
	// Upgrade says that the call asks for another protocol than HTTP on its connection.
	Upgrade bool
	// Impersonate is whom the caller wants to be; its zero value means no one else.
	Impersonate Impersonation
	// UserAgent is what the caller says it is, at most 256 bytes, in printable ASCII.
	UserAgent string
}

// Impersonation is what the Impersonate-* headers of a call say.
type Impersonation struct {
	User, UID string
	// Groups says that groups are given, and Extra that extra fields are. Nothing
	// allows those, so what they say is not kept.
	Groups, Extra bool
}

// IsZero reports whether there are no such headers.
func (i Impersonation) IsZero() bool { return i == Impersonation{} }

// IsResource reports whether the call is about objects, not about a path such as
// /version or discovery.
func (r Request) IsResource() bool { return r.Resource != "" }

// IsProxy reports whether the call is for what listens behind an object.
func (r Request) IsProxy() bool { return r.Subresource == verbProxy || r.Verb == verbProxy }

// GroupVersionResource names the resource, without the subresource.
func (r Request) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// String says what is asked in one line, for logs: "get apps/deployments/scale
// web/shop", or "get /version". It holds no query.
func (r Request) String() string {
	if !r.IsResource() {
		return r.Verb + " " + r.Path
	}
	var out strings.Builder
	out.WriteString(r.Verb + " ")
	if r.Group != "" {
		out.WriteString(r.Group + "/")
	}
	out.WriteString(r.resource())
	switch {
	case r.Namespace != "" && r.Name != "":
		out.WriteString(" " + r.Namespace + "/" + r.Name)
	case r.Namespace != "":
		out.WriteString(" " + r.Namespace + "/")
	case r.Name != "":
		out.WriteString(" " + r.Name)
	}
	return out.String()
}

// resource is the resource with its subresource, as RBAC writes it.
func (r Request) resource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// The words of Kubernetes' paths.
const (
	prefixCore        = "api"
	prefixGrouped     = "apis"
	segmentNamespaces = "namespaces"
	verbProxy         = "proxy"
	verbWatch         = "watch"
)

// verbOf are the methods of Kubernetes and the verbs of an object.
var verbOf = map[string]string{
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// Parse returns what a call asks for. The target is that of the request line in
// origin form: the path as it was sent, still encoded, with its query. What it
// accepts has the meaning that Kubernetes' own RequestInfo gives it; where the
// segments of a path could be seen in two ways (dot segments, doubled or encoded
// slashes, an absolute URI, a repeated selector) it returns an error that wraps
// ErrMalformed. The header is not kept.
func Parse(method, target string, header http.Header) (Request, error) {
	if _, known := verbOf[method]; !known {
		return Request{}, fmt.Errorf("%w: %w: %q", ErrMalformed, ErrMethod, clip(method, 16))
	}
	u, segments, err := split(target)
	if err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Request{}, fmt.Errorf("%w: its query cannot be read", ErrMalformed)
	}
	r := Request{Method: method, Path: u.Path, Verb: strings.ToLower(method)}
	if err := r.readPath(segments, query); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := r.readHeader(header); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// split reads a request target and returns the decoded segments of its path.
func split(target string) (*url.URL, []string, error) {
	switch {
	case len(target) > MaxTarget:
		return nil, nil, fmt.Errorf("its target has %d bytes, more than %d", len(target), MaxTarget)
	case !strings.HasPrefix(target, "/"):
		return nil, nil, errors.New("its target is not a path")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c > '~' || c == '#' || c == '\\' {
			return nil, nil, fmt.Errorf("its target has byte %#02x, which must be encoded", c)
		}
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, nil, errors.New("its target cannot be read")
	}
	sent, _, _ := strings.Cut(target, "?")
	if strings.Count(sent, "/") != strings.Count(u.Path, "/") {
		return nil, nil, errors.New("its path has an encoded slash")
	}
	if u.Path == "/" {
		return u, nil, nil
	}
	// One slash at the end is as good as none, for Kubernetes too.
	segments := strings.Split(strings.TrimSuffix(u.Path[1:], "/"), "/")
	for _, segment := range segments {
		switch {
		case segment == "":
			return nil, nil, errors.New("its path has an empty segment")
		case segment == "." || segment == "..":
			return nil, nil, errors.New("its path has a dot segment")
		case !utf8.ValidString(segment) || strings.ContainsFunc(segment, confusing):
			return nil, nil, errors.New("its path has a character that no name has")
		}
	}
	return u, segments, nil
}

// confusing reports characters that no name in a path may have, since another
// reader may decode them once more or take them for a separator.
func confusing(c rune) bool { return c == '%' || c == '\\' || unicode.IsControl(c) }

// readPath fills in what path and query say.
func (r *Request) readPath(segments []string, query url.Values) error {
	if len(segments) < 3 || (segments[0] != prefixCore && segments[0] != prefixGrouped) {
		return nil
	}
	rest := segments[1:]
	if segments[0] == prefixGrouped {
		if len(rest) < 3 {
			return nil // /apis/<group>/<version>
		}
		r.Group, rest = rest[0], rest[1:]
	}
	r.Version, rest = rest[0], rest[1:]
	r.Verb = verbOf[r.Method]
	byPath := rest[0] == verbProxy || rest[0] == verbWatch
	if byPath {
		if len(rest) < 2 {
			return errors.New("its path names no resource")
		}
		if rest[0] == verbWatch && r.Verb != "get" {
			return errors.New("a watch is a GET")
		}
		r.Verb, rest = rest[0], rest[1:]
	}
	if rest[0] == segmentNamespaces && len(rest) > 1 {
		r.Namespace = rest[1]
		// A namespace is a resource itself, with two subresources.
		if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	r.Resource = rest[0]
	if len(rest) > 1 {
		r.Name = rest[1]
	}
	if len(rest) > 2 && r.Verb != verbProxy { // the old form has what it proxies behind the name
		r.Subresource = rest[2]
	}
	return r.readQuery(query, byPath)
}

// readQuery fills in what depends on the options of a list.
func (r *Request) readQuery(query url.Values, byPath bool) error {
	if r.Name == "" && r.Verb == "get" {
		var opts internalversion.ListOptions
		if err := internalscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &opts); err != nil {
			return errors.New("its options of a list cannot be read")
		}
		r.Verb = "list"
		if opts.Watch {
			r.Verb = verbWatch
		}
		if opts.FieldSelector != nil {
			if name, found := opts.FieldSelector.RequiresExactMatch(metav1.ObjectNameField); found &&
				len(content.IsPathSegmentName(name)) == 0 {
				if !utf8.ValidString(name) || strings.ContainsFunc(name, confusing) {
					return errors.New("its field selector has a character that no name has")
				}
				r.Name = name
			}
		}
	}
	if r.Name == "" && r.Verb == "delete" {
		r.Verb = "deletecollection"
	}
	if byPath || !slices.Contains([]string{"list", verbWatch, "deletecollection"}, r.Verb) {
		return nil
	}
	for _, name := range []string{"watch", "fieldSelector", "labelSelector"} {
		if len(query[name]) > 1 {
			return fmt.Errorf("it has more than one %s", name)
		}
	}
	r.FieldSelector, r.LabelSelector = query.Get("fieldSelector"), query.Get("labelSelector")
	return nil
}

// applyMediaTypes begin the content type of a server-side apply.
const applyMediaTypes = "application/apply-patch"

// The headers of an impersonation.
const (
	headerImpersonate      = "Impersonate-"
	headerImpersonateUser  = "Impersonate-User"
	headerImpersonateUID   = "Impersonate-Uid"
	headerImpersonateGroup = "Impersonate-Group"
	headerImpersonateExtra = "Impersonate-Extra-"
)

// readHeader fills in what the header says.
func (r *Request) readHeader(header http.Header) error {
	for name, values := range header {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case canonical == "User-Agent" && len(values) > 0:
			r.UserAgent = clip(values[0], maxUserAgent)
		case canonical == "Upgrade":
			r.Upgrade = len(values) > 0
		case canonical == "Content-Type" && r.Verb == "patch":
			if len(values) > 1 {
				return errors.New("it has more than one Content-Type")
			}
			for _, value := range values {
				r.Apply = strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), applyMediaTypes)
			}
		case strings.HasPrefix(canonical, headerImpersonate):
			if err := r.Impersonate.read(canonical, values); err != nil {
				return err
			}
		}
	}
	if !r.Impersonate.IsZero() && r.Impersonate.User == "" {
		return errors.New("it impersonates without saying whom")
	}
	return nil
}

func (i *Impersonation) read(name string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	single := func(into *string) error {
		if len(values) != 1 || values[0] == "" || *into != "" {
			return fmt.Errorf("it has more or less than one %s", name)
		}
		*into = values[0]
		return nil
	}
	switch {
	case name == headerImpersonateUser:
		return single(&i.User)
	case name == headerImpersonateUID:
		return single(&i.UID)
	case name == headerImpersonateGroup:
		i.Groups = true
	case strings.HasPrefix(name, headerImpersonateExtra):
		i.Extra = true
	default:
		return errors.New("it has an Impersonate header that Kubernetes does not know")
	}
	return nil
}

// clip returns at most limit bytes of text, with what is not printable ASCII
// replaced.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
}
