package kube_test

import (
	"net/url"
	"path"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// No request asks for more of a kind than its selectors name, so that a Role need not
// grant more, and nothing else is ever in memory.
func TestOnlyWhatIsSelectedIsAskedFor(t *testing.T) {
	for name, noStream := range map[string]bool{"a server that streams lists": false, "a server that does not": true} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.noStream = noStream
			here := []string{"argocd"}
			s := newStore(t, server.URL, kube.Config{
				Watch: map[stream.Kind][]string{stream.Secret: here, stream.ConfigMap: here},
				Only: map[stream.Kind][]backends.Selector{
					stream.Secret: {{Labels: "type in (a,b)"}}, stream.ConfigMap: {{Name: "one"}, {Name: "two"}},
				},
				Metrics: prometheus.NewRegistry(),
			})
			client, err := metadata.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			census := kube.NewConsistencyChecker(s, client)
			stop := kit.Background(t, s.Run)
			waitSynced(t, s)
			for _, kind := range []stream.Kind{stream.Secret, stream.ConfigMap} {
				if _, err := census.CaughtUp(t.Context(), kind, "argocd"); err != nil {
					t.Error(err)
				}
			}
			stop()
			asked := map[string]int{}
			for _, request := range server.seen() {
				u, err := url.Parse(request)
				if err != nil {
					t.Fatal(err)
				}
				asked[path.Base(u.Path)+" "+u.Query().Get("labelSelector")+u.Query().Get("fieldSelector")]++
			}
			for _, want := range []string{"secrets type in (a,b)", "configmaps metadata.name=one", "configmaps metadata.name=two"} {
				if asked[want] == 0 {
					t.Errorf("%q was not asked for", want)
				}
				delete(asked, want)
			}
			if len(asked) > 0 {
				t.Errorf("more was asked for: %v", asked)
			}
		})
	}
}
