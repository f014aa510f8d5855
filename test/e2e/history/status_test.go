//go:build linux

package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// TestHistoryManyStatuses changes the status of each of 500 Applications, in make test
// 100, 20 times at a round trip of 100 ms. What sends one change and waits for its
// answer needs a quarter of an hour for the 500; what queues every change writes 10,000
// times.
func TestHistoryManyStatuses(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	r := w.Connect(t, "busy", "managed")
	const applications, changes = busyApplications, 20
	env.CreateAll(t, r.Hub, applications, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "both sides are equal", func() error { return r.Agree(hub, spoke) })
	hub.CaughtUp(t, r.Hub)
	seen := env.Record(t, r.Hub)

	const oneWay = 50 * time.Millisecond
	r.Network.Delay(oneWay)
	// Few at once, so that the changes of one follow each other faster than a round
	// trip.
	var took [applications]time.Duration
	env.AtOnce(t, 4, applications, func(ctx context.Context, i int) error {
		start := time.Now()
		defer func() { took[i] = time.Since(start) }()
		for n := range changes {
			status := fmt.Sprintf(`{"status":{"health":{"status":"Progressing"},"sync":{"status":"Synced","revision":"%d"},"summary":{"images":["example.com/%d:%d"]}}}`, n, i, n)
			if _, err := r.Spoke.Patch(ctx, fmt.Sprint("app-", i), types.MergePatchType, []byte(status), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	spoke.CaughtUp(t, r.Spoke)
	env.Eventually(t, "the hub shows the final statuses", func() error {
		got := hub.Objects()
		for name, o := range spoke.Objects() {
			if want, is := fmt.Sprint(o.Object["status"]), fmt.Sprint(got[name].Object["status"]); want != is {
				return fmt.Errorf("%s: the spoke has %s, the hub shows %s", name, want, is)
			}
		}
		return nil
	})
	seen.CaughtUp(t, r.Hub)
	// One write of an object is on its way at a time. So there is one for each round trip
	// that the changes of an object took, one at their start, one after their end, and one
	// because the agent may see the last change later than it saw the first.
	total, most := 0, 0
	for _, d := range took {
		most += min(changes, int(d/(2*oneWay))+3)
	}
	for name, writes := range seen.Writes() {
		total += len(writes)
		if len(writes) > changes {
			t.Errorf("%s was written %d times for %d changes", name, len(writes), changes)
		}
	}
	t.Logf("%d changes were %d writes on the hub, of %d possible", applications*changes, total, most)
	if total > most {
		t.Errorf("%d changes were %d writes on the hub, want at most %d", applications*changes, total, most)
	}
}
