//go:build linux

package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestHistoryRestoredUnderTheServer takes the hub's etcd back while its API server runs,
// which keeps what it has seen, and goes on with watches. The principal finds out by what it
// writes, before the API server is restarted, and however young the snapshot is. Deletions
// that someone asks for then are of either history. What no one asked for stays.
func TestHistoryRestoredUnderTheServer(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "etcdctl", "etcdutl", "kube-apiserver")
	w, err := env.StartBareOn(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []aRestore{{what: "revisions go back"}, {what: "revisions are bumped", bump: restoreBump}} {
		t.Run(c.what, func(t *testing.T) {
			ctx := t.Context()
			const apps, lost, deleted = 40, 15, 12
			r := w.Connect(t, fmt.Sprint("under-", i), "managed")
			createApps(t, r, apps)
			env.Eventually(t, "both sides are equal before", func() error { return same(ctx, r) })
			env.Eventually(t, "the spoke knows the history", func() error { return knowsHistory(ctx, r) })
			snapshot := w.Harness.Path(fmt.Sprintf("under-%d.db", i))
			if err := w.Hub.Etcd.Snapshot(ctx, snapshot); err != nil {
				t.Fatal(err)
			}
			env.CreateAll(t, r.Hub, lost, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("lost-", i)) })
			// These are there again, and no one deletes them a second time.
			removeAll(t, r, 0, deleted)
			env.Eventually(t, "both sides are equal after", func() error { return same(ctx, r) })
			seen := env.Record(t, r.Spoke)
			lease := w.Hub.Resource(env.Leases, harness.ArgoCDNamespace)
			at := env.Get(t, lease, "argomesh-principal").GetResourceVersion()
			env.Eventually(t, "the principal has written something since", func() error {
				if now := env.Get(t, lease, "argomesh-principal").GetResourceVersion(); now == at {
					return fmt.Errorf("its Lease is still of %s", now)
				}
				return nil
			})
			logged := env.FileSize(t, w.Principal.Process)

			if err := w.Hub.Etcd.Restore(ctx, snapshot, c.bump); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			env.Eventually(t, "the principal finds out", func() error {
				for _, line := range env.LogLines(t, w.Principal.Process, logged) {
					if line["agent"] == r.Name && strings.HasPrefix(fmt.Sprint(line["message"]), "the hub's history does not continue for this agent") {
						return nil
					}
				}
				return errors.New("it has not said so")
			})
			t.Logf("found out %s after etcd is back", time.Since(began))
			env.Each(t, deleted, func(ctx context.Context, i int) error {
				return harness.Eventually(ctx, "a deletion", func() error {
					return r.Hub.Delete(ctx, fmt.Sprint("app-", deleted+i), metav1.DeleteOptions{})
				})
			})
			// The cure that Kubernetes knows: API servers start again after a restore.
			if err := w.Hub.Server.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "what was lost is held", func() error {
				for name, writes := range seen.Writes() {
					if strings.HasPrefix(name, "lost-") {
						return harness.Permanent(fmt.Errorf("%s on the spoke saw %v", name, writes))
					}
				}
				return heldFor(ctx, r, "HistoryBroken", lost)
			})
			for i := range deleted {
				env.Eventually(t, "what is there again is on the spoke", func() error { return env.Exists(ctx, r.Spoke, fmt.Sprint("app-", i)) })
			}
		})
	}
}
