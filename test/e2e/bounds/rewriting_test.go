//go:build linux

package bounds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestRewritingSpokeIsBound has a spoke rewrite its Applications as fast as its API server
// takes it. The hub's etcd grows by what the Agent's limits admit, the Agent says so, the
// changes of another agent pass, and in the end the hub shows what is newest.
func TestRewritingSpokeIsBound(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	ctx := t.Context()
	w, err := env.StartBareOn(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const (
		objects, size = 8, 100 << 10
		burst, rate   = 1 << 20, 8 << 10
	)
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	honest, loud := w.Connect(t, "honest", "autonomous"), w.Connect(t, "loud", "autonomous")
	env.Patch(t, registry, loud.Name, map[string]any{"spec": map[string]any{"limits": map[string]any{"bytesBurst": burst, "bytesPerSecond": rate}}})
	env.Create(t, honest.Spoke, honest.Application("web"))
	env.Eventually(t, "the honest agent's is shown", func() error {
		_, err := honest.Hub.Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	begin, before := time.Now(), inUse(t, w.Hub)

	load := rewrite(t, loud, objects, size)
	env.Eventually(t, "the Agent says that it is over its budget", func() error {
		return env.ConditionIs(ctx, registry, loud.Name, "OverBudget", "Bytes", "spec.limits.bytesPerSecond")
	})
	env.Eventually(t, "agentctl check finds it", func() error {
		return env.CheckFinds(ctx, w.Harness, w.Hub, harness.ArgoCDNamespace, loud.Name, "Bytes")
	})
	for i := range 3 { // one after the other: each passes while the other spoke rewrites
		want := fmt.Sprint("honest-", i)
		env.Patch(t, honest.Spoke, "web", map[string]any{"spec": map[string]any{"source": map[string]any{"path": want}}})
		env.Eventually(t, "the honest agent's change is shown", func() error {
			return env.FieldIs(ctx, honest.Hub, "web", any(want), "spec", "source", "path")
		})
	}
	if o, err := registry.Get(ctx, honest.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if c := env.ConditionIn(o, "OverBudget"); c["status"] == "True" {
		t.Errorf("the honest agent is told of what it has no part in: %v", c["message"])
	}
	admitted := func() int64 { return int64(burst) + int64(rate*time.Since(begin).Seconds()) + size }
	env.Eventually(t, "the spoke wrote far more than is admitted", func() error {
		if wrote, most := load.wrote(), admitted(); wrote < 4*most {
			return fmt.Errorf("it wrote %d bytes, and %d are admitted", wrote, most)
		}
		return nil
	})
	grown := inUse(t, w.Hub) - before
	load.end(t)
	// A fifth more for etcd itself, and room for what everybody else writes.
	t.Logf("the spoke wrote %d MiB, the hub's etcd grew by %d KiB, %d KiB are admitted", load.wrote()>>20, grown>>10, admitted()>>10)
	if most := admitted()*6/5 + 1<<20; grown > most {
		t.Errorf("the hub's etcd grew by %d bytes, want %d at most", grown, most)
	}

	env.Patch(t, registry, loud.Name, map[string]any{"spec": map[string]any{"limits": nil}})
	for i := range objects {
		env.Eventually(t, "the hub shows what is newest", func() error {
			return env.FieldIs(ctx, loud.Hub, load.name(i), any(load.newest(i)), "spec", "source", "path")
		})
	}
	env.Eventually(t, "agentctl check finds nothing more", func() error {
		return env.CheckFindsNo(ctx, w.Harness, w.Hub, harness.ArgoCDNamespace, loud.Name, "Bytes")
	})
}

// rewriting is a spoke that rewrites some Applications without a pause.
type rewriting struct {
	size int
	last []atomic.Int64 // version of each that the spoke has
	stop context.CancelFunc
	g    errgroup.Group
}

// rewrite makes Applications on the spoke, and rewrites each as fast as the spoke's API
// server takes it, at that size, until the end.
func rewrite(t *testing.T, r *env.BareAgent, objects, size int) *rewriting {
	t.Helper()
	w := &rewriting{size: size, last: make([]atomic.Int64, objects)}
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	t.Cleanup(stop)
	for i := range objects {
		app := r.Application(w.name(i))
		if err := unstructured.SetNestedField(app.Object, w.newest(i), "spec", "source", "path"); err != nil {
			t.Fatal(err)
		}
		env.Create(t, r.Spoke, app)
		w.g.Go(func() error {
			for version := int64(1); ctx.Err() == nil; version++ {
				path := map[string]any{"spec": map[string]any{"source": map[string]any{"path": w.path(version)}}}
				err := env.MergePatch(t.Context(), r.Spoke, w.name(i), path)
				if apierrors.IsTimeout(err) {
					version-- // an API server that has so much to do gives up after 34 s: the same again
					continue
				}
				if err != nil {
					return err
				}
				w.last[i].Store(version)
			}
			return nil
		})
	}
	return w
}

func (w *rewriting) name(i int) string { return fmt.Sprint("app-", i) }

func (w *rewriting) path(version int64) string {
	return fmt.Sprint(version, "-", strings.Repeat("a", w.size))
}

// newest is the path that an Application has on the spoke.
func (w *rewriting) newest(i int) string { return w.path(w.last[i].Load()) }

// wrote is how many bytes the spoke has written.
func (w *rewriting) wrote() int64 {
	n := int64(0)
	for i := range w.last {
		n += w.last[i].Load() * int64(w.size)
	}
	return n
}

func (w *rewriting) end(t *testing.T) {
	t.Helper()
	w.stop()
	if err := w.g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// inUse is bytesInUse for a test that cannot go on without.
func inUse(t *testing.T, c *harness.ControlPlane) int64 {
	t.Helper()
	n, err := bytesInUse(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// bytesInUse is how many bytes of its database a control plane's etcd uses: less than its
// file has.
func bytesInUse(ctx context.Context, c *harness.ControlPlane) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Etcd.URL+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "etcd_mvcc_db_total_size_in_use_in_bytes "); found {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, errors.New("etcd does not say how many bytes it uses")
}
