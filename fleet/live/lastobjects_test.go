package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/stream"
)

// Which Applications have an object follows from their status, of those of the agent alone,
// and a call finds them by the plural of their kind.
func TestLastObjectIndex(t *testing.T) {
	o := &Resolver{Namespace: "argocd"}
	application := func(namespace, name, resources string) backends.Object {
		return backends.Object{Key: stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}, Raw: []byte(`{"status":{"resources":[` + resources + `]}}`)}
	}
	const shop = `{"group":"apps","kind":"Deployment","namespace":"web","name":"shop"},{"kind":"Service","namespace":"web","name":"shop","health":{}}`
	mine := func(i appkey.Instance) bool { return i.Name != "another" }
	index := indexOf([]backends.Object{
		application("edge-1", "shop", shop), application("argocd", "copy", shop), application("edge-2", "another", shop),
		{Key: stream.ResourceKey{Name: "broken"}, Raw: []byte("{")},
	}, o.instance, mine)
	got := holdersOf(index[objectName{"apps", "web", "shop"}], access.Request{Group: "apps", Version: "v1", Resource: "deployments"})
	want := []holder{{"Deployment", appkey.Instance{Namespace: "edge-1", Name: "shop"}}, {"Deployment", appkey.Instance{Name: "copy"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(holder{})); diff != "" {
		t.Error(diff)
	}
	if got := holdersOf(index[objectName{"", "web", "shop"}], access.Request{Version: "v1", Resource: "pods"}); len(got) > 0 {
		t.Errorf("a Pod is held by %v", got)
	}
	var many strings.Builder
	for i := range maxIndexed {
		_, _ = fmt.Fprintf(&many, `{"kind":"ConfigMap","namespace":"web","name":"c%d"},`, i)
	}
	index = indexOf([]backends.Object{application("edge-1", "shop", many.String()+`{"kind":"ConfigMap","namespace":"web","name":"beyond"}`)}, o.instance, mine)
	if len(index) != maxIndexed || index[objectName{"", "web", "beyond"}] != nil {
		t.Errorf("%d objects are indexed", len(index))
	}
}
