//go:build linux

package bounds

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestARestartGivesNoNewBurst has a spoke use up its bytes, and then restarts the
// principal: what the spoke may still write is the rate, and not another burst.
func TestARestartGivesNoNewBurst(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	ctx := t.Context()
	w, err := env.StartBareOn(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const (
		objects, size = 24, 100 << 10
		burst, rate   = 12 << 20, 16 << 10
	)
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	loud := w.Connect(t, "loud", "autonomous")
	env.Patch(t, registry, loud.Name, map[string]any{"spec": map[string]any{"limits": map[string]any{"bytesBurst": burst, "bytesPerSecond": rate}}})

	begin, before := time.Now(), inUse(t, w.Hub)
	load := rewrite(t, loud, objects, size)
	env.Eventually(t, "the Agent keeps that its bytes are used up", func() error {
		o, err := registry.Get(ctx, loud.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		left, found, err := unstructured.NestedInt64(o.Object, "status", "budget", "bytes")
		if err == nil && (!found || left > burst/4) {
			err = fmt.Errorf("%d bytes are left, %t", left, found)
		}
		return err
	})
	if err := w.Principal.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Principal.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	// With another burst it would first have to write that.
	env.Eventually(t, "the agent is back and has used up what it has", func() error {
		if err := loud.Connected(ctx, true); err != nil {
			return err
		}
		text, err := env.Gauge(ctx, w.Principal.AdminAddress, fmt.Sprintf("argomesh_mirror_budget_bytes{agent=%q}", loud.Name))
		if err != nil {
			return err
		}
		left, err := strconv.ParseFloat(text, 64)
		if err == nil && left > 2*size {
			err = fmt.Errorf("%.0f bytes are left", left)
		}
		return err
	})
	grown, took := inUse(t, w.Hub)-before, time.Since(begin)
	load.end(t)
	// What was used in the last minute before it was killed is not known any more.
	admitted := int64(burst) + int64(rate*(took+time.Minute).Seconds()) + size
	t.Logf("the hub's etcd grew by %d KiB in %s and a restart, %d KiB are admitted", grown>>10, took.Round(time.Second), admitted>>10)
	if most := admitted*6/5 + 1<<20; grown > most {
		t.Errorf("the hub's etcd grew by %d bytes, want %d at most", grown, most)
	}
}
