package resource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
)

// lastOf is a resource.LastObjects that has one text for whatever is asked for.
type lastOf struct {
	raw   atomic.Pointer[string]
	asked atomic.Int32
}

var lastSeen = time.Date(2026, 11, 25, 18, 57, 20, 0, time.UTC)

func (l *lastOf) Object(_ context.Context, agent identity.AgentName, uid string, r access.Request) ([]byte, time.Time, bool) {
	l.asked.Add(1)
	raw := l.raw.Load()
	if raw == nil || agent.String() != "edge-1" || uid == "" || r.Name == "" {
		return nil, time.Time{}, false
	}
	return []byte(*raw), lastSeen, true
}

// deployment is the text of one.
func deployment(change func(*unstructured.Unstructured)) string {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "shop", "namespace": "web"},
		"spec": map[string]any{"replicas": int64(3)},
	}}
	if change != nil {
		change(o)
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		panic(err)
	}
	return string(text)
}

const (
	lastPath = "/apis/apps/v1/namespaces/web/deployments/shop"
	tracks   = "shop:apps/Deployment:web/shop"
)

// A single GET of an object is answered as the spoke's Argo CD saw it last, marked; nothing
// else is, and no object is taken for another.
func TestLastObject(t *testing.T) {
	tracked := access.Config{Enabled: true, TrackedOnly: true, Rules: everything().Rules}
	for name, tt := range map[string]struct {
		method, path, accept string
		raw                  string // "" means a Deployment as it is asked for
		access               *access.Config
		want                 int
		unasked              bool
	}{
		"as it is":            {want: 200},
		"with a timeout":      {path: lastPath + "?timeout=32s", want: 200},
		"as a Table or plain": {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: 200},
		"as a Table":          {accept: "application/json;as=Table;v=v1;g=meta.k8s.io", want: 503, unasked: true},
		"as protobuf":         {accept: "application/vnd.kubernetes.protobuf", want: 503, unasked: true},
		"of a moment":         {path: lastPath + "?resourceVersion=7", want: 503, unasked: true},
		"its status":          {path: lastPath + "/status", want: 503, unasked: true},
		"a list":              {path: "/apis/apps/v1/namespaces/web/deployments", want: 503, unasked: true},
		"a list of one":       {path: "/apis/apps/v1/namespaces/web/deployments?fieldSelector=metadata.name%3Dshop", want: 503, unasked: true},
		"a write":             {method: http.MethodDelete, want: 503, unasked: true},
		"a Secret":            {path: "/api/v1/namespaces/web/secrets/shop", want: 503, unasked: true},
		"another name":        {raw: deployment(func(o *unstructured.Unstructured) { o.SetName("other") }), want: 503},
		"another namespace":   {raw: deployment(func(o *unstructured.Unstructured) { o.SetNamespace("other") }), want: 503},
		"another kind":        {raw: deployment(func(o *unstructured.Unstructured) { o.SetKind("Secret") }), want: 503},
		"another version":     {raw: deployment(func(o *unstructured.Unstructured) { o.SetAPIVersion("apps/v2") }), want: 503},
		"no object":           {raw: `"text"`, want: 503},
		"nested too deep":     {raw: strings.Repeat("[", 100) + strings.Repeat("]", 100), want: 503},
		"longer than any":     {raw: deployment(nil) + strings.Repeat(" ", 1536<<10), want: 503},
		"tracked": {access: &tracked, raw: deployment(func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{access.TrackingAnnotation: tracks})
		}), want: 200},
		"not tracked":               {access: &tracked, want: 503},
		"what the hub does not let": {access: &access.Config{Enabled: true}, path: "/apis/example.org/v1/namespaces/web/widgets/shop", want: 403, unasked: true},
	} {
		t.Run(name, func(t *testing.T) {
			last := &lastOf{}
			raw := tt.raw
			if raw == "" {
				raw = deployment(nil)
			}
			last.raw.Store(&raw)
			w := start(t, func(http.ResponseWriter, *http.Request) {}, settings{hubAccess: tt.access, hub: func(c *resource.HubConfig) { c.Objects = last }})
			w.setAway(true)
			method, path := tt.method, tt.path
			if method == "" {
				method = http.MethodGet
			}
			if path == "" {
				path = lastPath
			}
			r := w.request(t.Context(), method, path, http.NoBody)
			if tt.accept != "" {
				r.Header.Set("Accept", tt.accept)
			}
			res, body := w.do(r)
			if res.Code != tt.want || (last.asked.Load() == 0) != tt.unasked {
				t.Fatalf("answer %d %s, asked %d times", res.Code, body, last.asked.Load())
			}
			if tt.want != http.StatusOK {
				return
			}
			var o unstructured.Unstructured
			if err := o.UnmarshalJSON([]byte(body)); err != nil {
				t.Fatal(err)
			}
			const mark = "as of 18:57:20 UTC on 2026-11-25: agent edge-1 is away, and this is what its Argo CD saw last"
			if o.GetName() != "shop" || o.GetAnnotations()[resource.LastKnownAnnotation] != mark || res.Header.Get("Cache-Control") != "no-store" ||
				res.Header.Get("Warning") != `299 - "agent edge-1 is away: this is what its Argo CD saw last, of 2026-11-25T18:57:20Z"` {
				t.Errorf("answer %v %s", res.Header, body)
			}
			if record := w.records.wait(t, audit.End, 1)[0]; record.AnsweredBy != audit.ByLastKnown || record.Decision != audit.Allow {
				t.Errorf("record = %+v", record)
			}
		})
	}
}

// What the spoke's side refused last is not given while it is away, and so is anything of
// one that serves no Kubernetes API.
func TestLastObjectThatWasRefused(t *testing.T) {
	last, raw := &lastOf{}, deployment(nil)
	last.raw.Store(&raw)
	spoke := everything()
	spoke.Rules = []access.Rule{{Name: "web", Groups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"web"}}}
	w := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, deployment(nil)) },
		settings{spokeAccess: &spoke, hub: func(c *resource.HubConfig) { c.Objects = last }})
	const other = "/apis/apps/v1/namespaces/other/deployments/shop"
	for path, want := range map[string]int{lastPath: 200, other: 403} {
		if res, body := w.get(path); res.Code != want {
			t.Fatalf("%s: %d %s", path, res.Code, body)
		}
	}
	w.setAway(true)
	if res, body := w.get(lastPath); res.Code != 200 {
		t.Errorf("%d %s", res.Code, body)
	}
	there := deployment(func(o *unstructured.Unstructured) { o.SetNamespace("other") })
	last.raw.Store(&there)
	res, body := w.get(other)
	if said := sentence(t, res, body); res.Code != 503 || !strings.Contains(said, "is not connected") {
		t.Errorf("%d %s", res.Code, body)
	}
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || strings.Contains(body, "replicas") {
		t.Errorf("%s: %v", body, err)
	}
}

// What the agent's account may not read is not given while it is away, and neither is what
// its rules refused by the name, whatever else of the kind is let be read; a failure says
// nothing.
func TestLastObjectThatTheAccountMayNotRead(t *testing.T) {
	last, raw := &lastOf{}, deployment(nil)
	last.raw.Store(&raw)
	var status atomic.Int32
	spoke := everything()
	spoke.Rules = []access.Rule{{Name: "names", Groups: []string{"*"}, Resources: []string{"*"}, Names: []string{"shop", "other"}}}
	w := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) },
		settings{spokeAccess: &spoke, hub: func(c *resource.HubConfig) { c.Objects = last }})
	given := func(path string) bool {
		t.Helper()
		name := path[strings.LastIndexByte(path, '/')+1:]
		there := deployment(func(o *unstructured.Unstructured) { o.SetName(name) })
		last.raw.Store(&there)
		w.setAway(true)
		defer w.setAway(false)
		res, body := w.get(path)
		if res.Code != 200 && strings.Contains(body, "replicas") {
			t.Errorf("%s", body)
		}
		return res.Code == 200
	}
	const place = "/apis/apps/v1/namespaces/web/deployments/"
	for _, step := range []struct {
		name         string
		says         int32 // the API server
		shop, secret bool  // what is given afterwards
	}{
		{"shop", 200, true, true}, // no one asked for the other
		{"secret", 200, false, false},
		{"shop", 200, true, false}, // an answer about one is none about the other
		{"shop", 403, false, false},
		{"shop", 500, false, false},
		{"shop", 401, false, false},
		{"shop", 429, false, false},
		{"shop", 404, true, false},
	} {
		status.Store(step.says)
		if res, _ := w.get(place + step.name); step.name == "secret" && res.Code != 403 || step.name == "shop" && res.Code != int(step.says) && step.says != 401 {
			t.Fatalf("%s: %d", step.name, res.Code)
		}
		if shop, secret := given(place+"shop"), given(place+"secret"); shop != step.shop || secret != step.secret {
			t.Errorf("after %d about %s shop is given: %t, secret: %t", step.says, step.name, shop, secret)
		}
	}
	for n := range 300 {
		_, _ = w.get(place + fmt.Sprint("refused-", n))
	}
	status.Store(200)
	if _, _ = w.get(place + "shop"); given(place + "shop") {
		t.Error("something is given where more was refused than is remembered")
	}
	other := strings.Replace(place, "web", "other", 1)
	raw = deployment(func(o *unstructured.Unstructured) { o.SetNamespace("other") })
	last.raw.Store(&raw)
	w.setAway(true)
	if res, body := w.get(other + "shop"); res.Code != 200 {
		t.Errorf("elsewhere: %d %s", res.Code, body)
	}
}
