package redis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/test/kit"
)

// The live state of an object is found in what was last read of the Application's managed
// resources, for its own agent alone.
func TestLastLive(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", func(c *spoke.Config) { c.Plain = true })
	w.add("b", nil)
	managed := func(agent string) string {
		return strings.TrimSuffix(strings.Replace(tree(agent, "shop"), "resources-tree", "managed-resources", 1), ".gz")
	}
	const text = `[{"group":"apps","kind":"Deployment","namespace":"web","name":"shop","targetState":"null","liveState":"{\"kind\":\"Deployment\"}"},
		{"group":"","kind":"ConfigMap","namespace":"web","name":"gone","liveState":"null"},{"kind":"Service","namespace":"web","name":"shop","liveState":"{}"}]`
	must(t, e.redis.client(t, 3).Set(ctx, managed(""), text, 0).Err())
	shop, deployment := appkey.Instance{Namespace: "a", Name: "shop"}, redis.Object{Group: "apps", Kind: "Deployment", Namespace: "web", Name: "shop"}
	if _, _, ok := w.hub.LastLive(ctx, kit.Agent(t, "a"), "uid-a", shop, deployment); ok {
		t.Error("it is known before anything was read")
	}
	must(t, w.client(3).Get(ctx, managed("a")).Err())
	kit.EventuallyNil(t, "the value to be kept", func() error {
		if w.store.len() == 0 {
			return errors.New("nothing is kept")
		}
		return nil
	})
	for name, tt := range map[string]struct {
		agent, uid string
		of         redis.Object
		want       string
	}{
		"there":            {"a", "uid-a", deployment, `{"kind":"Deployment"}`},
		"of the core":      {"a", "uid-a", redis.Object{Kind: "Service", Namespace: "web", Name: "shop"}, "{}"},
		"not on the spoke": {"a", "uid-a", redis.Object{Kind: "ConfigMap", Namespace: "web", Name: "gone"}, ""},
		"no such":          {"a", "uid-a", redis.Object{Kind: "Service", Namespace: "other", Name: "shop"}, ""},
		"of another agent": {"b", "uid-b", deployment, ""},
		"of an older one":  {"a", "uid-before", deployment, ""},
	} {
		if got, _, ok := w.hub.LastLive(ctx, kit.Agent(t, tt.agent), tt.uid, shop, tt.of); string(got) != tt.want && ok || ok != (tt.want != "") {
			t.Errorf("%s: %s, %t", name, got, ok)
		}
	}
	must(t, w.store.Set(ctx, "uid-a|"+managed("a"), []byte(`[{"kind":`)))
	if got, _, ok := w.hub.LastLive(ctx, kit.Agent(t, "a"), "uid-a", shop, deployment); ok {
		t.Errorf("of what cannot be read: %s", got)
	}
}
