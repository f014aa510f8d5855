package redis

import (
	"context"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
)

// What is no tree is shown as it is, and so is a tree for which there is no time.
func TestMarked(t *testing.T) {
	const tree = `{"nodes":[{"kind":"Service"}]}`
	q, err := quota.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &Hub{cfg: HubConfig{Quota: q}}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tt := range map[string]struct {
		family, value string
		busy, want    bool
	}{
		"a tree":                       {appkey.ResourcesTree, tree, false, true},
		"no tree":                      {appkey.ResourcesTree, "x", false, false},
		"managed resources":            {appkey.ManagedResources, tree, false, false},
		"a tree that nobody waits for": {appkey.ResourcesTree, tree, true, false},
	} {
		ctx, release := t.Context(), func() {}
		if tt.busy {
			ctx = ended
			if release, err = q.Acquire(t.Context(), identity.AgentName{}, quota.Working, quota.PeerWorking); err != nil {
				t.Fatal(err)
			}
		}
		got := h.marked(ctx, owned{key: appkey.Key{Family: tt.family, Format: "1"}}, []byte(tt.value), "as of today")
		release()
		if changed := string(got) != tt.value; changed != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
