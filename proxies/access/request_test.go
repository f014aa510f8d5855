package access_test

import (
	"bufio"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/test/heap"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		method, target string
		header         http.Header
		want           access.Request
	}{
		"the root":              {"GET", "/", nil, access.Request{Verb: "get", Path: "/"}},
		"version":               {"HEAD", "/version?timeout=32s", nil, access.Request{Verb: "head", Path: "/version"}},
		"discovery of a group":  {"GET", "/apis/apps/v1", nil, access.Request{Verb: "get", Path: "/apis/apps/v1"}},
		"discovery of the core": {"GET", "/api/v1/", nil, access.Request{Verb: "get", Path: "/api/v1/"}},
		"list": {"GET", "/api/v1/namespaces/web/pods?labelSelector=a%3Db&limit=500", nil, access.Request{
			Verb: "list", Path: "/api/v1/namespaces/web/pods", Version: "v1", Resource: "pods", Namespace: "web", LabelSelector: "a=b",
		}},
		"watch": {"GET", "/apis/apps/v1/deployments?watch=true", nil, access.Request{
			Verb: "watch", Path: "/apis/apps/v1/deployments", Group: "apps", Version: "v1", Resource: "deployments",
		}},
		"a watch that is none": {"GET", "/apis/apps/v1/deployments?watch=false", nil, access.Request{
			Verb: "list", Path: "/apis/apps/v1/deployments", Group: "apps", Version: "v1", Resource: "deployments",
		}},
		"list of one": {"GET", "/api/v1/namespaces/web/secrets?fieldSelector=metadata.name%3Dkey", nil, access.Request{
			Verb: "list", Path: "/api/v1/namespaces/web/secrets", Version: "v1", Resource: "secrets", Namespace: "web", Name: "key",
			FieldSelector: "metadata.name=key",
		}},
		"get": {"GET", "/apis/apps/v1/namespaces/web/deployments/shop", nil, access.Request{
			Verb: "get", Path: "/apis/apps/v1/namespaces/web/deployments/shop",
			Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", Name: "shop",
		}},
		"a name that is encoded": {"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", nil, access.Request{
			Verb: "get", Path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
			Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Name: "system:node",
		}},
		"a namespace": {"GET", "/api/v1/namespaces/web", nil, access.Request{
			Verb: "get", Path: "/api/v1/namespaces/web", Version: "v1", Resource: "namespaces", Namespace: "web", Name: "web",
		}},
		"finalize of a namespace": {"PUT", "/api/v1/namespaces/web/finalize", nil, access.Request{
			Verb: "update", Path: "/api/v1/namespaces/web/finalize", Version: "v1", Resource: "namespaces", Subresource: "finalize",
			Namespace: "web", Name: "web",
		}},
		"create": {"POST", "/api/v1/namespaces/web/configmaps?fieldManager=x", nil, access.Request{
			Verb: "create", Path: "/api/v1/namespaces/web/configmaps", Version: "v1", Resource: "configmaps", Namespace: "web",
		}},
		"deletecollection": {"DELETE", "/api/v1/namespaces/web/pods?labelSelector=a", nil, access.Request{
			Verb: "deletecollection", Path: "/api/v1/namespaces/web/pods", Version: "v1", Resource: "pods", Namespace: "web", LabelSelector: "a",
		}},
		"log": {"GET", "/api/v1/namespaces/web/pods/p/log?follow=true", nil, access.Request{
			Verb: "get", Path: "/api/v1/namespaces/web/pods/p/log", Version: "v1", Resource: "pods", Subresource: "log", Namespace: "web", Name: "p",
		}},
		"exec over WebSocket": {"GET", "/api/v1/namespaces/web/pods/p/exec?command=sh&command=-c", nil, access.Request{
			Verb: "get", Path: "/api/v1/namespaces/web/pods/p/exec", Version: "v1", Resource: "pods", Subresource: "exec", Namespace: "web", Name: "p",
		}},
		"an upgrade":                  {"GET", "/version", http.Header{"Upgrade": {"websocket"}}, access.Request{Verb: "get", Path: "/version", Upgrade: true}},
		"an upgrade in small letters": {"GET", "/version", http.Header{"upgrade": {"websocket"}}, access.Request{Verb: "get", Path: "/version", Upgrade: true}},
		"proxy to a path": {"GET", "/api/v1/namespaces/web/services/s/proxy/a/b/", nil, access.Request{
			Verb: "get", Path: "/api/v1/namespaces/web/services/s/proxy/a/b/", Version: "v1", Resource: "services", Subresource: "proxy",
			Namespace: "web", Name: "s",
		}},
		"the old form of a watch": {"GET", "/api/v1/watch/namespaces/web/pods/p", nil, access.Request{
			Verb: "watch", Path: "/api/v1/watch/namespaces/web/pods/p", Version: "v1", Resource: "pods", Namespace: "web", Name: "p",
		}},
		"the old form of a proxy": {"POST", "/api/v1/proxy/namespaces/web/services/s/a", nil, access.Request{
			Verb: "proxy", Path: "/api/v1/proxy/namespaces/web/services/s/a", Version: "v1", Resource: "services", Namespace: "web", Name: "s",
		}},
		"server-side apply": {"PATCH", "/api/v1/namespaces/web/configmaps/c?fieldManager=x&force=true",
			http.Header{"Content-Type": {"application/apply-patch+yaml; charset=utf-8"}}, access.Request{
				Verb: "patch", Path: "/api/v1/namespaces/web/configmaps/c", Version: "v1", Resource: "configmaps", Namespace: "web", Name: "c", Apply: true,
			}},
		"impersonation": {"GET", "/version", http.Header{
			"Impersonate-User": {"jane"}, "Impersonate-Group": {"a", "b"}, "Impersonate-Extra-Scopes": {"x"}, "User-Agent": {"kubectl/v1\x01"},
		}, access.Request{
			Verb: "get", Path: "/version", UserAgent: "kubectl/v1?", Impersonate: access.Impersonation{User: "jane", Groups: true, Extra: true},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := access.Parse(tt.method, tt.target, tt.header)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Method = tt.method
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesWhatHasTwoMeanings(t *testing.T) {
	tests := map[string]struct {
		method, target string
		header         http.Header
		want           string
	}{
		"nothing":                      {"GET", "", nil, "not a path"},
		"an absolute URI":              {"GET", "http://kubernetes/api/v1/pods", nil, "not a path"},
		"the server itself":            {"GET", "*", nil, "not a path"},
		"another authority":            {"GET", "//evil/api/v1/pods", nil, "empty segment"},
		"only slashes":                 {"GET", "//", nil, "empty segment"},
		"two slashes at the end":       {"GET", "/api/v1/pods//", nil, "empty segment"},
		"a doubled slash":              {"GET", "/api/v1//secrets", nil, "empty segment"},
		"a dot":                        {"GET", "/api/v1/./secrets", nil, "dot segment"},
		"two dots":                     {"GET", "/agents/a/../b/api", nil, "dot segment"},
		"encoded dots":                 {"GET", "/api/v1/%2e%2E/secrets", nil, "dot segment"},
		"dots at the end":              {"GET", "/api/v1/pods/..", nil, "dot segment"},
		"an encoded slash":             {"GET", "/api/v1/namespaces/web%2fsecrets", nil, "encoded slash"},
		"an upper case encoded slash":  {"GET", "/api/v1/namespaces/web%2Fsecrets", nil, "encoded slash"},
		"a twice encoded slash":        {"GET", "/api/v1/namespaces/web%252fsecrets", nil, "character"},
		"a backslash":                  {"GET", `/api/v1\secrets`, nil, "0x5c"},
		"an encoded backslash":         {"GET", "/api/v1%5csecrets", nil, "character"},
		"an encoded null":              {"GET", "/api/v1/secrets%00", nil, "character"},
		"an encoded line":              {"GET", "/api/v1/secrets%0d%0aHost:x", nil, "character"},
		"what is no text":              {"GET", "/api/v1/secrets/%ff", nil, "character"},
		"half an encoding":             {"GET", "/api/v1/secrets/%2", nil, "cannot be read"},
		"a fragment":                   {"GET", "/api/v1/pods#x", nil, "0x23"},
		"a space":                      {"GET", "/api/v1/pods HTTP/1.1", nil, "0x20"},
		"bytes above ASCII":            {"GET", "/api/v1/p\xc3\xb6ds", nil, "0xc3"},
		"a method of another protocol": {"CONNECT", "/api/v1/pods", nil, "CONNECT"},
		"OPTIONS":                      {"OPTIONS", "/api/v1/pods", nil, "OPTIONS"},
		"a method in lower case":       {"get", "/api/v1/pods", nil, "get"},
		"no method":                    {"", "/api/v1/pods", nil, "method"},
		"a query in two dialects":      {"GET", "/api/v1/pods?watch=0;watch=1", nil, "query"},
		"two watches":                  {"GET", "/api/v1/pods?watch=0&watch=1", nil, "more than one watch"},
		"two selectors":                {"GET", "/api/v1/pods?fieldSelector=metadata.name=a&fieldSelector=metadata.name=b", nil, "more than one fieldSelector"},
		"an option without meaning":    {"GET", "/api/v1/pods?limit=x", nil, "options"},
		"a watch of nothing":           {"GET", "/api/v1/watch", nil, "names no resource"},
		"a watch by another method":    {"POST", "/api/v1/watch/pods", nil, "a watch is a GET"},
		"a long target":                {"GET", "/" + strings.Repeat("a", access.MaxTarget), nil, "bytes"},
		"groups of nobody":             {"GET", "/version", http.Header{"Impersonate-Group": {"system:masters"}}, "without saying whom"},
		"two to be":                    {"GET", "/version", http.Header{"Impersonate-User": {"a", "b"}}, "more or less than one"},
		"two to be, by case":           {"GET", "/version", http.Header{"Impersonate-User": {"a"}, "impersonate-user": {"b"}}, "more or less than one"},
		"an unknown impersonation":     {"GET", "/version", http.Header{"Impersonate-Everything": {"a"}, "Impersonate-User": {"b"}}, "does not know"},
		"two content types": {"PATCH", "/api/v1/namespaces/a/pods/b", http.Header{
			"Content-Type": {"application/json-patch+json", "application/apply-patch+yaml"}}, "more than one Content-Type"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := access.Parse(tt.method, tt.target, tt.header)
			if err == nil {
				t.Fatalf("it is accepted: %+v", got)
			}
			if !errors.Is(err, access.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %q, want one of a malformed request with %q", err, tt.want)
			}
			if code := access.StatusOf(err).Code; (code == http.StatusMethodNotAllowed) != errors.Is(err, access.ErrMethod) {
				t.Errorf("the answer has code %d", code)
			}
		})
	}
}

// A target of the largest size is still read.
func TestParseAtTheLimit(t *testing.T) {
	if _, err := access.Parse("GET", "/"+strings.Repeat("a", access.MaxTarget-1), nil); err != nil {
		t.Error(err)
	}
}

var kubernetes = &request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// FuzzParse holds Parse against the reader of Kubernetes' API server: what Parse
// accepts has the same meaning there.
func FuzzParse(f *testing.F) {
	for _, target := range []string{
		"/", "/version", "/api", "/apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A",
		"/api/v1/pods", "/api/v1/namespaces/web/pods?watch=1", "/api/v1/namespaces/web", "/api/v1/namespaces/web/status",
		"/api/v1/namespaces/web/finalize/x", "/apis/apps/v1/namespaces/web/deployments/shop/scale",
		"/api/v1/watch/namespaces/web/pods/p", "/apis/apps/v1/watch/deployments", "/api/v1/proxy/nodes/n/x", "/api/v1/proxy/namespaces",
		"/api/v1/namespaces/web/services/s:8080/proxy/a/b/", "/api/v1/namespaces/namespaces/namespaces/namespaces",
		"/api/v1/pods?fieldSelector=metadata.name%3Da", "/api/v1/pods?fieldSelector=metadata.name%3D..,spec.x!%3Dy",
		"/api/v1/pods?watch", "/api/v1/pods?watch=False&labelSelector=a", "/api/v1//pods", "/api/v1/%2e%2e/pods", "/api/v1/a%2fb",
		"/apis/watch/v1/watch/pods", "/apis/proxy/proxy/proxy/proxy/proxy", "/api/v1/pods/a/b/c/d/e/f",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "PATCH", "PUT", "HEAD"} {
			f.Add(method, target)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		var got access.Request
		var err error
		heap.Bound(t, len(method)+len(target), func() { got, err = access.Parse(method, target, nil) })
		if err != nil {
			if !errors.Is(err, access.ErrMalformed) {
				t.Errorf("error %q wraps no ErrMalformed", err)
			}
			return
		}
		// As net/http reads it off a connection.
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: kubernetes\r\n\r\n")))
		if err != nil {
			t.Fatalf("%s %q is no HTTP request: %v", method, target, err)
		}
		if r.Host != "kubernetes" || r.RequestURI != target {
			t.Fatalf("%s %q has host %q and target %q", method, target, r.Host, r.RequestURI)
		}
		want, err := kubernetes.NewRequestInfo(r)
		if err != nil {
			t.Fatalf("Kubernetes does not understand %s %q: %v", method, target, err)
		}
		seen := access.Request{
			Method: method, Path: want.Path, Verb: want.Verb,
			Group: want.APIGroup, Version: want.APIVersion, Resource: want.Resource, Subresource: want.Subresource,
			Namespace: want.Namespace, Name: want.Name, FieldSelector: want.FieldSelector, LabelSelector: want.LabelSelector,
		}
		if diff := cmp.Diff(seen, got); diff != "" || want.IsResourceRequest != got.IsResource() {
			t.Errorf("%s %q (-Kubernetes +Parse):\n%s", method, target, diff)
		}
		// Another hop that sends the path it has decoded must not mean something else.
		again, err := access.Parse(method, (&url.URL{Path: got.Path, RawQuery: r.URL.RawQuery}).RequestURI(), nil)
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("%s %q, encoded anew: %v (-first +again):\n%s", method, target, err, diff)
		}
		if strings.ContainsAny(got.String(), "\r\n\x00") {
			t.Errorf("%s %q has control characters in %q", method, target, got)
		}
	})
}
