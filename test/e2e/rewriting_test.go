//go:build linux

package e2e

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	w, err := startQuietOn(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const (
		objects, size = 8, 100 << 10
		burst, rate   = 2 << 20, 32 << 10
	)
	registry := w.hub.Resource(agents, harness.ArgoCDNamespace)
	honest, loud := w.connect(t, "honest", "autonomous"), w.connect(t, "loud", "autonomous")
	patch(t, registry, loud.name, map[string]any{"spec": map[string]any{"limits": map[string]any{"bytesBurst": burst, "bytesPerSecond": rate}}})
	create(t, honest.spoke, honest.application("web"))
	eventually(t, "the honest agent's is shown", func() error {
		_, err := honest.hub.Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	begin, before := time.Now(), inUse(t, w.hub)

	var last [objects]atomic.Int64 // version that the spoke has
	path := func(version int64) string { return fmt.Sprint(version, "-", strings.Repeat("a", size)) }
	rewriting, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	for i := range objects {
		name := fmt.Sprint("app-", i)
		app := loud.application(name)
		if err := unstructured.SetNestedField(app.Object, path(0), "spec", "source", "path"); err != nil {
			t.Fatal(err)
		}
		create(t, loud.spoke, app)
		g.Go(func() error {
			for version := int64(1); rewriting.Err() == nil; version++ {
				if err := mergePatch(ctx, loud.spoke, name, map[string]any{"spec": map[string]any{"source": map[string]any{"path": path(version)}}}); err != nil {
					return err
				}
				last[i].Store(version)
			}
			return nil
		})
	}
	eventually(t, "the Agent says that it is over its budget", func() error {
		return condition(ctx, registry, loud.name, "OverBudget", "Bytes", "spec.limits.bytesPerSecond")
	})
	for i := range 3 { // one after the other: each passes while the other spoke rewrites
		want := fmt.Sprint("honest-", i)
		patch(t, honest.spoke, "web", map[string]any{"spec": map[string]any{"source": map[string]any{"path": want}}})
		eventually(t, "the honest agent's change is shown", func() error {
			return field(ctx, honest.hub, "web", any(want), "spec", "source", "path")
		})
	}
	if o, err := registry.Get(ctx, honest.name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if c := conditionIn(o, "OverBudget"); c["status"] == "True" {
		t.Errorf("the honest agent is told of what it has no part in: %v", c["message"])
	}
	grown := inUse(t, w.hub) - before
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	// A fifth more for etcd itself, and room for what everybody else writes.
	admitted := int64(burst) + int64(rate*time.Since(begin).Seconds()) + size
	wrote := int64(0)
	for i := range last {
		wrote += last[i].Load() * size
	}
	t.Logf("the spoke wrote %d MiB, the hub's etcd grew by %d KiB, %d KiB are admitted", wrote>>20, grown>>10, admitted>>10)
	if most := admitted*6/5 + 1<<20; grown > most {
		t.Errorf("the hub's etcd grew by %d bytes, want %d at most", grown, most)
	}
	if wrote < 2*admitted {
		t.Errorf("the spoke wrote %d bytes, too few to show that %d bound it", wrote, admitted)
	}

	patch(t, registry, loud.name, map[string]any{"spec": map[string]any{"limits": nil}})
	for i := range objects {
		eventually(t, "the hub shows what is newest", func() error {
			return field(ctx, loud.hub, fmt.Sprint("app-", i), any(path(last[i].Load())), "spec", "source", "path")
		})
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
