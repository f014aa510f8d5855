package redis

import (
	"context"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

// onlyEdge1 is an OwnerResolver with one agent.
type onlyEdge1 struct{ name identity.AgentName }

func (o onlyEdge1) Owner(i appkey.Instance) (Target, bool, error) {
	if i.Namespace != o.name.String() {
		return Target{}, false, nil
	}
	return Target{Agent: o.name, UID: "u", Instance: appkey.Instance{Name: i.Name}, Known: true}, true, nil
}

func (onlyEdge1) Watch(context.Context, func(appkey.Instance)) {}

// What parses is written as it was, an instance is never more than it says, and what
// an agent is asked for is the same key of its own Application.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{
		"app|managed-resources|edge-1_shop|1.8.3.gz", "app|resources-tree|edge-1_shop|3|1.8.3.gz", "app|resources-tree|a_b_c|1.8.3", "app|resources-tree|shop|1.8.3",
		"app|resources-tree|edge-1_edge-2_shop|1.8.3", "app|resources-tree|edge-10_shop|1.8.3.gz",
	} {
		f.Add(seed)
	}
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		f.Fatal(err)
	}
	c := &caller{hub: &Hub{cfg: HubConfig{Owners: onlyEdge1{name}}}}
	f.Fuzz(func(t *testing.T, text string) {
		var keys []owned
		var other int
		var err error
		heap.Bound(t, len(text), func() { keys, other, err = c.keysOf([]string{text}) })
		if err != nil || len(keys)+other != 1 {
			t.Fatalf("keysOf(%q) = %v, %d, %v", text, keys, other, err)
		}
		k, ok := appkey.ParseKey(text)
		if !ok {
			if len(keys) > 0 {
				t.Errorf("%q is no key, and asked of agent %s", text, keys[0].target.Agent)
			}
			return
		}
		if k.String() != text {
			t.Errorf("ParseKey(%q).String() = %q", text, k)
		}
		if again, ok := appkey.ParseKey(k.String()); !ok || again != k {
			t.Errorf("ParseKey(%q) is %+v the second time", text, again)
		}
		if strings.ContainsAny(text, "\r\n *?[") || strings.ContainsAny(k.Instance.Namespace+k.Instance.Name, "_|") {
			t.Errorf("ParseKey(%q) = %+v", text, k)
		}
		if (len(keys) > 0) != (k.Instance.Namespace == "edge-1") {
			t.Errorf("keysOf(%q) = %v", text, keys)
		}
		if len(keys) == 0 {
			return
		}
		asked, ok := appkey.ParseKey(keys[0].asked())
		if want := (appkey.Key{Family: k.Family, Instance: appkey.Instance{Name: k.Instance.Name}, Shard: k.Shard, Format: k.Format}); !ok || asked != want {
			t.Errorf("for %q the agent is asked %q", text, keys[0].asked())
		}
	})
}
