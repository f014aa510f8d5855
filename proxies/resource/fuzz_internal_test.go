package resource

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/test/heap"
)

// Anyone who reads the target in another way must come to the same agent: what follows
// the name is not part of it, and no decoding changes it.
func FuzzSplitTarget(f *testing.F) {
	for _, seed := range []string{
		"/agents/edge-1/api/v1/pods?watch=1", "/agents/edge-1", "/agents/edge-1?x=/y", "/agents/edge-1/../edge-2/version", "/agents/edge%2D1/x",
		"/agents//x", "/agents/edge-1%2f..%2fedge-2/x", "//agents/edge-1/x", "/agents/edge-1#/x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var name identity.AgentName
		var rest string
		var err error
		heap.Bound(t, len(target), func() { name, rest, err = splitTarget(target) })
		if err != nil {
			return
		}
		if name.IsZero() || !strings.HasPrefix(rest, "/") {
			t.Fatalf("splitTarget(%q) = %s, %q", target, name, rest)
		}
		if joined := prefix + name.String() + rest; joined != target && joined != strings.Replace(target, prefix+name.String(), prefix+name.String()+"/", 1) {
			t.Fatalf("splitTarget(%q) = %s, %q: something was lost", target, name, rest)
		}
		if _, err := access.Parse(http.MethodGet, rest, nil); err != nil {
			return // refused
		}
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		// As one reads it that decodes and cleans first.
		cleaned := u.JoinPath().Path
		if cleaned != prefix+name.String() && !strings.HasPrefix(cleaned, prefix+name.String()+"/") {
			t.Fatalf("%q is %s to us and %q to others", target, name, cleaned)
		}
	})
}

// A redirect that passes leads to the same agent, however its Location is read.
func FuzzRedirect(f *testing.F) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"/openapi/v3/api/v1?hash=A", "/", "/api/v1/namespaces/web/services/https:shop:/proxy/?x=%2F", "//evil/x", "/\\evil", "http://evil/", "../edge-2",
		"/../edge-2", "/%2e%2e/edge-2", "/.%2e/%2e./x", "/a%2f..%2f..", "?x", "#x", "/x#y", "/\tx", "/a\r\nSet-Cookie: b",
	} {
		f.Add(seed)
	}
	at, err := url.Parse("https://hub:9090/agents/edge-1/api/v1/pods?x=y")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, to string) {
		res := &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {to}}}
		var err error
		heap.Bound(t, len(to), func() { err = redirect(res, name) })
		if err != nil {
			return
		}
		got := res.Header.Get("Location")
		there, err := at.Parse(got)
		if err != nil {
			t.Fatalf("%q becomes %q, which cannot be read: %v", to, got, err)
		}
		cleaned := there.JoinPath().Path
		if there.Scheme != at.Scheme || there.Host != at.Host || there.User != nil || there.Fragment != "" ||
			(cleaned != prefix+"edge-1" && !strings.HasPrefix(cleaned, prefix+"edge-1/")) {
			t.Fatalf("%q leads to %s", to, there)
		}
		if own, path, err := splitTarget(got); err != nil || own != name || path != to {
			t.Fatalf("%q is a call to %s, %q, %v", got, own, path, err)
		}
	})
}

// What a spoke has written of an object is given for the one that is asked for, with the mark, or not at all.
func FuzzLastObject(f *testing.F) {
	const about, mark = `"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"shop","namespace":"web"`, "as of now"
	for _, seed := range []string{
		`{` + about + `}}`, `{` + about + `,"annotations":{"` + LastKnownAnnotation + `":"never"}},"spec":{"replicas":3}}`,
		`{` + about + `,"annotations":{"argocd.argoproj.io/tracking-id":"shop:apps/Deployment:web/shop"}}}`,
		`{` + about + `,"annotations":7}}`, `{` + about + `}} {}`, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"shop"}}`, `[[[]]]`, `null`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	asked, err := access.Parse(http.MethodGet, "/apis/apps/v1/namespaces/web/deployments/shop", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte, tracked bool) {
		var body []byte
		var given bool
		took := heap.Of(func() { body, given = lastObject(raw, passing{request: asked, tracked: tracked}, mark) })
		if most := uint64(64*len(raw) + 256<<10); took > most {
			t.Errorf("%d bytes take %d of heap, want %d at most", len(raw), took, most)
		}
		if !given {
			return
		}
		var o unstructured.Unstructured
		if err := o.UnmarshalJSON(body); err != nil {
			t.Fatalf("what is given of %q cannot be read: %v", raw, err)
		}
		if o.GetKind() != "Deployment" || o.GetName() != "shop" || o.GetNamespace() != "web" || o.GetAnnotations()[LastKnownAnnotation] != mark {
			t.Errorf("of %q it gives %s", raw, body)
		}
	})
}
