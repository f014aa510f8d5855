package resource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetes "k8s.io/apimachinery/pkg/version"
	discoveryclient "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/stream"
)

// kinds is an API server with Kubernetes' own kinds and one that is not, in both forms
// of discovery.
func kinds(w http.ResponseWriter, r *http.Request) {
	group := func(name string) apidiscovery.APIGroupDiscovery {
		return apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscovery.APIVersionDiscovery{{
			Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessCurrent,
			Resources: []apidiscovery.APIResourceDiscovery{{
				Resource: "things", ResponseKind: &metav1.GroupVersionKind{Group: name, Version: "v1", Kind: "Thing"},
				Scope: apidiscovery.ScopeNamespace, Verbs: []string{"get"},
			}},
		}}}
	}
	plain := func(name string) metav1.APIGroup {
		v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
		return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
	}
	const allInOne = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	answer := func(kind string, value any) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Etag", `"of the whole"`)
		_ = json.NewEncoder(w).Encode(value)
	}
	aggregated := strings.Contains(r.Header.Get("Accept"), allInOne)
	list := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	switch {
	case r.URL.Path == "/version":
		answer("application/json", kubernetes.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"})
	case r.URL.Path == "/api" && aggregated:
		list.Items = []apidiscovery.APIGroupDiscovery{group("")}
		answer(allInOne, list)
	case r.URL.Path == "/apis" && aggregated:
		list.Items = []apidiscovery.APIGroupDiscovery{group("apps"), group("kafka.strimzi.io")}
		answer(allInOne, list)
	case r.URL.Path == "/api":
		answer("application/json", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		answer("application/json", metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{plain("apps"), plain("kafka.strimzi.io")},
		})
	case r.URL.Path == "/api/v1", r.URL.Path == "/apis/apps/v1", r.URL.Path == "/apis/kafka.strimzi.io/v1":
		answer("application/json", metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"),
			APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Namespaced: true, Verbs: []string{"get"}}},
		})
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// discoverer is client-go's discovery through the hub, with or without all in one
// answer.
func (w *proxyEnv) discoverer(legacy bool) discoveryclient.DiscoveryInterface {
	w.t.Helper()
	client, err := discoveryclient.NewDiscoveryClientForConfig(&rest.Config{
		Host: "http://hub/agents/edge-1", BearerToken: token("edge-1"), Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", w.address)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	client.UseLegacyDiscovery = legacy
	return client
}

// Version and kinds are told whatever access says. Where the spoke's owner shows
// nothing, they are Kubernetes' own, in each form.
func TestDiscoveryWithLiveAccessOff(t *testing.T) {
	on, off := access.Config{Enabled: true}, access.Config{}
	for name, tt := range map[string]struct {
		hub, spoke access.Config
		want       []string
	}{
		"on both sides": {off, off, []string{"apps/v1", "v1"}},
		"on the spoke":  {on, off, []string{"apps/v1", "v1"}},
		"on the hub":    {off, on, []string{"apps/v1", "kafka.strimzi.io/v1", "v1"}},
	} {
		for form, legacy := range map[string]bool{"all in one": false, "one by one": true} {
			t.Run(name+", "+form, func(t *testing.T) {
				store := &memStore{values: map[string][]byte{}}
				w := start(t, kinds, settings{hubAccess: &tt.hub, spokeAccess: &tt.spoke, store: store})
				// One after the other, since of an agent no more than two are taken down at a time.
				ask, kept := w.discoverer(legacy), 3 // /version, /api and /apis
				if _, err := ask.ServerVersion(); err != nil {
					t.Fatal(err)
				}
				if _, err := ask.ServerGroups(); err != nil {
					t.Fatal(err)
				}
				if legacy {
					kept += len(tt.want)
					for _, version := range tt.want {
						if _, err := ask.ServerResourcesForGroupVersion(version); err != nil {
							t.Fatal(err)
						}
					}
				}
				store.wait(t, func(values map[string][]byte) bool { return len(values) == kept })
				for _, away := range []bool{false, true} { // its last known reply tells the same
					w.setAway(away)
					client := w.discoverer(legacy)
					version, err := client.ServerVersion()
					if err != nil || version.GitVersion != "v1.36.0" {
						t.Errorf("away %v: version %v, %v", away, version, err)
					}
					_, resources, err := client.ServerGroupsAndResources()
					if err != nil {
						t.Fatal(err)
					}
					var got []string
					for _, r := range resources {
						got = append(got, r.GroupVersion)
					}
					slices.Sort(got)
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("away %v (-want +got):\n%s", away, diff)
					}
				}
			})
		}
	}
}

// What is said to a caller that is refused is shown by client-go, whatever it asked
// for.
func TestRefusalsReachDiscovery(t *testing.T) {
	off := access.Config{}
	refused := fmt.Errorf("not configured: %w", stream.ErrRefused)
	for name, tt := range map[string]struct {
		with settings
		away bool
		says string
		is   func(error) bool
	}{
		"an agent that is away": {settings{}, true, "argomesh hub: agent edge-1 is not connected", apierrors.IsInternalError},
		"an agent of before": {settings{hub: func(c *resource.HubConfig) {
			c.Dial = func(context.Context, identity.AgentName) (net.Conn, error) { return nil, refused }
		}}, false, "set access.enabled in the agent's configuration", apierrors.IsInternalError},
		"an Agent that is suspended": {settings{hub: func(c *resource.HubConfig) { c.Agents = registry{} }}, false, "agent edge-1 is not registered, or suspended", apierrors.IsForbidden},
		"a kind that is not shown":   {settings{spokeAccess: &off}, false, `refused by the spoke, rule "enabled": live access is disabled; set access.enabled in the agent's configuration`, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, kinds, tt.with)
			w.setAway(tt.away)
			_, err := w.discoverer(true).ServerResourcesForGroupVersion("kafka.strimzi.io/v1")
			if err == nil || !strings.Contains(err.Error(), tt.says) || !tt.is(err) {
				t.Errorf("client-go says %v, want %q", err, tt.says)
			}
			if tt.with.spokeAccess != nil {
				return
			}
			if _, err := w.discoverer(false).ServerVersion(); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("client-go says %v, want %q", err, tt.says)
			}
		})
	}
}

// Objects are refused as before, by a Status with the sentence and its cure.
func TestObjectsWithLiveAccessOff(t *testing.T) {
	on, off := access.Config{Enabled: true}, access.Config{}
	for name, tt := range map[string]struct {
		hub, spoke access.Config
		says       string
	}{
		"on the hub":   {off, on, `refused by the hub, rule "enabled": live access is disabled; set spec.access.enabled of the Agent`},
		"on the spoke": {on, off, `refused by the spoke, rule "enabled": live access is disabled; set access.enabled in the agent's configuration`},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, kinds, settings{hubAccess: &tt.hub, spokeAccess: &tt.spoke})
			res, body := w.get("/api/v1/namespaces/web/pods")
			if s := status(t, body); res.Code != 403 || !strings.HasSuffix(s.Message, tt.says) || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("answer %d %s", res.Code, body)
			}
		})
	}
}

// The version that the agent reported is told where its API server does not answer and
// nothing better is known.
func TestVersionThatTheAgentReported(t *testing.T) {
	for reported, want := range map[string]string{
		"v1.36.0":                     `{"major":"1","minor":"36","gitVersion":"v1.36.0"`,
		"v1.31.4+rke2r1":              `{"major":"1","minor":"31","gitVersion":"v1.31.4+rke2r1"`,
		"":                            "",
		"the newest":                  "",
		"v1.36.0\r\nSet-Cookie: a=b":  "",
		"v1.2.3-" + "<script>" + ".x": "",
	} {
		t.Run(reported, func(t *testing.T) {
			w := start(t, kinds, settings{hub: func(c *resource.HubConfig) {
				c.Agents = registry{"edge-1": {UID: "uid-1", Policy: policy(t, access.Hub, access.Config{}), Kubernetes: reported}}
			}})
			w.setAway(true)
			res, body := w.get("/version")
			switch {
			case want == "" && res.Code != 502:
				t.Errorf("answer %d %s", res.Code, body)
			case want != "" && (res.Code != 200 || !strings.HasPrefix(body, want) || !strings.Contains(res.Header.Get("Warning"), "the version it reported")):
				t.Errorf("answer %d %s, %v", res.Code, body, res.Header)
			}
			if res.Header.Get("Set-Cookie") != "" {
				t.Error("the agent wrote a header")
			}
		})
	}
}

// What an open spoke has shown is forgotten once its owner shows it no more, in memory
// and in the store.
func TestKindsThatAreShownNoMoreAreForgotten(t *testing.T) {
	store := &memStore{values: map[string][]byte{}}
	on := access.Config{Enabled: true}
	before := start(t, kinds, settings{store: store, hubAccess: &on})
	const custom = "/apis/kafka.strimzi.io/v1"
	before.get(custom)
	before.get("/apis")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 2 })
	off := access.Config{}
	after := start(t, kinds, settings{store: store, hubAccess: &on, spokeAccess: &off})
	after.get("/version")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 1 })
	after.get("/apis")
	store.wait(t, func(values map[string][]byte) bool { return len(values) == 2 })
	after.setAway(true)
	if res, body := after.get(custom); res.Code != 502 {
		t.Errorf("answer %d %s", res.Code, body)
	}
	if res, body := after.get("/apis"); res.Code != 200 || strings.Contains(body, "kafka") {
		t.Errorf("answer %d %s", res.Code, body)
	}
}

// An API server that says of its groups what cannot be read shows none of them.
func TestGroupsThatCannotBeRead(t *testing.T) {
	off := access.Config{}
	for name, tt := range map[string]struct {
		code int
		body string
		want int
	}{
		"no JSON":          {200, "kafka", 502},
		"another kind":     {200, `{"kind":"APIResourceList","resources":[{"name":"kafkas"}]}`, 502},
		"far too long":     {200, `{"kind":"APIGroupList","groups":[{"name":"` + strings.Repeat("kafka", 16<<20/5) + `"}]}`, 502},
		"an error":         {403, `{"kind":"Status"}`, 403},
		"at most no group": {200, `{"kind":"APIGroupList","groups":[{"name":"kafka.strimzi.io"}]}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.code)
				_, _ = io.WriteString(w, tt.body)
			}, settings{spokeAccess: &off})
			if res, body := w.get("/apis"); res.Code != tt.want || strings.Contains(body, "kafka") {
				t.Errorf("answer %d %.200s, want %d", res.Code, body, tt.want)
			}
		})
	}
}
