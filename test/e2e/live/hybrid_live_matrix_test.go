//go:build linux && matrix

package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestHybridHubShows has a stock Argo CD with an application controller, a cluster of its
// own and one of an agent, and shows trees and live resources of both: of the first from
// the hub's own Redis and the cluster itself, of the second from the spoke.
func TestHybridHubShows(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "argocd", "redis-server")
	w := startLiveArgo(t, env.Managed, byDestination)
	ctx := t.Context()
	env.PushCluster(t, w.Hub, w.Spokes[env.Managed], "pushed") // it is the same Kubernetes cluster
	apps := w.Hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	for name, cluster := range map[string]string{"pushes": "pushed", "pulls": env.Managed} {
		app := w.argo.Guestbook(name, harness.ArgoCDNamespace, cluster)
		app.Object["spec"].(map[string]any)["project"] = "default"
		env.Create(t, apps, app)
	}
	onSpoke := w.Spokes[env.Managed].Resource(harness.Applications, harness.ArgoCDNamespace)
	for _, name := range []string{"pushes", "pulls"} {
		env.Eventually(t, "the hub shows that "+name+" is healthy", func() error { return env.Healthy(ctx, apps, name) })
	}
	if err := errors.Join(env.Exists(ctx, onSpoke, "pulls"), env.Gone(ctx, onSpoke, "pushes")); err != nil {
		t.Error(err)
	}

	// Whose controller wrote a tree is told by where it is.
	hub, spoke := env.RedisClient(t, w.argo.HubArgo.Redis.Address, 3), env.RedisClient(t, w.Redis[env.Managed].Address, 3)
	trees := func(c *goredis.Client, name string) int {
		t.Helper()
		keys, err := c.Keys(ctx, "app|resources-tree|"+name+"|*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	for _, name := range []string{"pushes", "pulls"} {
		w.tree(t, name, node{Kind: "Pod"})
		out, err := w.argo.HubArgo.CLI(ctx, "app", "get", name, "--output", "tree=detailed")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, want := range []string{"Deployment/guestbook", "ReplicaSet/guestbook-", "Pod/guestbook-"} {
			if !strings.Contains(out, want) {
				t.Errorf("the tree of %s lacks %s:\n%s", name, want, out)
			}
		}
		if out, err = w.argo.HubArgo.CLI(ctx, "app", "manifests", name, "--source", "live"); err != nil || !strings.Contains(out, "namespace: "+name) || !strings.Contains(out, "availableReplicas: 2") {
			t.Errorf("the live manifests of %s are %v:\n%s", name, err, out)
		}
		if out, err = w.argo.HubArgo.CLI(ctx, "app", "get-resource", name, "--kind", "Deployment", "--resource-name", "guestbook", "--output", "yaml"); err != nil || !strings.Contains(out, "namespace: "+name) {
			t.Errorf("the live Deployment of %s is %v:\n%s", name, err, out)
		}
	}
	for name, want := range map[string][2]int{"pushes": {1, 0}, "pulls": {0, 1}} {
		if got := [2]int{trees(hub, name), trees(spoke, name)}; got != want {
			t.Errorf("of %s there are %d trees in the hub's Redis and %d in the spoke's, want %d and %d", name, got[0], got[1], want[0], want[1])
		}
	}
	// Live calls for the agent's Application pass through the proxy, and no others do.
	w.Recorded(t, env.Managed, map[string]any{"namespace": "pulls", "resource": "deployments", "verb": "get"})
	passed, err := w.Audited(env.Managed, func(record map[string]any) bool { return strings.Contains(fmt.Sprint(record), "pushes") })
	if err != nil || len(passed) > 0 {
		t.Errorf("calls for the hub's own Application passed through the proxy: %v, %v", passed, err)
	}

	// The hub's controller heals what is its own, and leaves the other to the spoke's.
	for _, name := range []string{"pushes", "pulls"} {
		env.Patch(t, w.Spokes[env.Managed].Resource(env.Deployments, name), "guestbook", map[string]any{"spec": map[string]any{"replicas": 0}})
		env.Eventually(t, name+" is healed", func() error {
			return env.FieldIs(ctx, w.Spokes[env.Managed].Resource(env.Deployments, name), "guestbook", int64(2), "spec", "replicas")
		})
	}
	if err := apps.Delete(ctx, "pushes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the hub's own is gone", func() error { return env.Gone(ctx, apps, "pushes") })
	env.Eventually(t, "the other is healthy", func() error { return env.Healthy(ctx, apps, "pulls") })
	if err := env.Exists(ctx, onSpoke, "pulls"); err != nil {
		t.Error(err)
	}
}
