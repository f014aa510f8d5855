//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestHistoryRestoredUnderTheServer takes the hub's etcd back while its API server runs,
// which keeps what it has seen, and goes on with watches. The principal finds out by what it
// writes, before the API server is restarted, and however young the snapshot is. Deletions
// that somebody asks for then are of either history. What nobody asked for stays.
func TestHistoryRestoredUnderTheServer(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "etcdctl", "etcdutl", "kube-apiserver")
	w, err := startQuietOn(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []aRestore{{what: "revisions go back"}, {what: "revisions are bumped", bump: restoreBump}} {
		t.Run(c.what, func(t *testing.T) {
			ctx := t.Context()
			const apps, lost, deleted = 40, 15, 12
			r := w.connect(t, fmt.Sprint("under-", i), "managed")
			r.createApps(t, apps)
			eventually(t, "both sides are equal before", func() error { return r.same(ctx) })
			eventually(t, "the spoke knows the history", func() error { return r.knowsHistory(ctx) })
			snapshot := w.h.Path(fmt.Sprintf("under-%d.db", i))
			if err := w.hub.Etcd.Snapshot(ctx, snapshot); err != nil {
				t.Fatal(err)
			}
			createAll(t, r.hub, lost, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("lost-", i)) })
			// These are there again, and nobody deletes them a second time.
			r.removeAll(t, 0, deleted)
			eventually(t, "both sides are equal after", func() error { return r.same(ctx) })
			seen := record(t, r.spoke)
			lease := w.hub.Resource(leases, harness.ArgoCDNamespace)
			at := get(t, lease, "argomesh-principal").GetResourceVersion()
			eventually(t, "the principal has written something since", func() error {
				if now := get(t, lease, "argomesh-principal").GetResourceVersion(); now == at {
					return fmt.Errorf("its Lease is still of %s", now)
				}
				return nil
			})
			logged := size(t, w.principal.Process)

			if err := w.hub.Etcd.Restore(ctx, snapshot, c.bump); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			eventually(t, "the principal finds out", func() error {
				for _, line := range lines(t, w.principal.Process, logged) {
					if line["agent"] == r.name && strings.HasPrefix(fmt.Sprint(line["message"]), "the history of the agent does not continue") {
						return nil
					}
				}
				return errors.New("it has not said so")
			})
			t.Logf("found out %s after etcd is back", time.Since(began))
			each(t, deleted, func(ctx context.Context, i int) error {
				return harness.Eventually(ctx, "a deletion", func() error {
					return r.hub.Delete(ctx, fmt.Sprint("app-", deleted+i), metav1.DeleteOptions{})
				})
			})
			// The cure that Kubernetes knows: API servers start anew after a restore.
			if err := w.hub.Server.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what was lost is held", func() error {
				for name, writes := range seen.writes() {
					if strings.HasPrefix(name, "lost-") {
						return harness.Permanent(fmt.Errorf("%s on the spoke saw %v", name, writes))
					}
				}
				return r.heldFor(ctx, "HistoryBroken", lost)
			})
			for i := range deleted {
				eventually(t, "what is there again is on the spoke", func() error { return there(ctx, r.spoke, fmt.Sprint("app-", i)) })
			}
		})
	}
}
