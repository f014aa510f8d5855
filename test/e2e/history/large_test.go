//go:build linux

package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// attemptsOf is how many of the agent's connections, and of its attempts, have ended.
func attemptsOf(t *testing.T, r *env.BareAgent) float64 {
	t.Helper()
	n, err := env.Metric(t.Context(), r.Agent.AdminAddress, "argomesh_stream_connects_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// padded is an Application with a value of so many bytes in its spec.
func padded(r *env.BareAgent, name string, bytes int) *unstructured.Unstructured {
	app := r.Application(name)
	app.Object["spec"].(map[string]any)["info"] = []any{map[string]any{"name": "padding", "value": strings.Repeat("x", bytes)}}
	return app
}

// TestHistoryLargeObject puts an Application of 1.4 MiB, and one so large that a copy
// of it no longer fits into an etcd, in front of a thousand small ones, and then a
// status of 1.4 MiB. A transport with a limit of its own breaks on the first, for
// ever, and takes all that waits behind it along; a sender that waits for an answer
// hangs on the second.
func TestHistoryLargeObject(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	// More than either side takes unless told otherwise.
	const most = 3 << 20
	r := w.Register(t, "large", "managed")
	env.Patch(t, w.Hub.Resource(env.Agents, harness.ArgoCDNamespace), r.Name, map[string]any{"spec": map[string]any{"limits": map[string]any{"applicationBytes": most}}})
	r.Settings = harness.Settings{"limits.application_bytes": most}
	r.Start(t)
	// The large ones shall be the oldest, so that they leave first.
	r.Network.Cut()
	env.Eventually(t, "the hub sees the agent go", func() error { return r.Connected(ctx, false) })
	const large = 1400 << 10
	env.Create(t, r.Hub, padded(r, "large", large))
	largest := createLargest(t, r, "largest", large, 1536<<10)
	const small = 1000
	env.CreateAll(t, r.Hub, small, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("small-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)

	r.Network.Mend()
	env.Eventually(t, "the agent is back", func() error { return r.Connected(ctx, true) })
	connects := attemptsOf(t, r)
	env.Eventually(t, "the small ones arrive", func() error {
		got := spoke.Objects()
		for i := range small {
			if got[fmt.Sprint("small-", i)] == nil {
				return fmt.Errorf("small-%d is not there", i)
			}
		}
		return nil
	})
	env.Eventually(t, "the large one arrives, whole", func() error {
		source, copied := hub.Objects()["large"], spoke.Objects()["large"]
		if copied == nil || r.Shown(source, "") != r.Shown(copied, "") {
			return errors.New("it is not there, or another one")
		}
		return nil
	})
	env.Eventually(t, "the largest one is parked, with the reason", func() error { return r.Parked(ctx, "largest", "too large") })
	if spoke.Objects()["largest"] != nil {
		t.Errorf("an object of %d bytes of padding has a copy: the test does not test the limit", largest)
	}

	// A status as large goes the other way, past others.
	if _, err := r.Spoke.Patch(ctx, "small-0", types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"summary":{"images":[%q]}}}`, strings.Repeat("y", large)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	const statuses = 100
	env.Each(t, statuses, func(ctx context.Context, i int) error {
		_, err := r.Spoke.Patch(ctx, fmt.Sprint("small-", i+1), types.MergePatchType, []byte(`{"status":{"health":{"status":"Healthy"}}}`), metav1.PatchOptions{})
		return err
	})
	env.Eventually(t, "the hub shows the statuses", func() error {
		got := hub.Objects()
		if images := fmt.Sprint(got["small-0"].Object["status"]); len(images) < large {
			return fmt.Errorf("the large status has %d bytes", len(images))
		}
		for i := range statuses {
			if health, _, _ := unstructured.NestedString(got[fmt.Sprint("small-", i+1)].Object, "status", "health", "status"); health != "Healthy" {
				return fmt.Errorf("the health of small-%d is %q", i+1, health)
			}
		}
		return nil
	})
	// An object made to fit is no longer parked.
	env.Patch(t, r.Hub, "largest", map[string]any{"spec": map[string]any{"info": nil}})
	env.Eventually(t, "it arrives once it fits", func() error { return r.Agree(hub, spoke) })
	env.Eventually(t, "and is no longer parked", func() error {
		if err := r.Parked(ctx, "largest", ""); err == nil {
			return errors.New("it is parked")
		}
		return nil
	})
	if now := attemptsOf(t, r); now != connects {
		t.Errorf("the agent connected %v times meanwhile", now-connects)
	}
}

// createLargest creates the largest Application that the hub's etcd takes, by up to 8
// bytes, of those with a padding between fits and fails, and returns its padding.
func createLargest(t *testing.T, r *env.BareAgent, name string, fits, fails int) int {
	t.Helper()
	var created bool
	for fails-fits > 8 {
		size := (fits + fails) / 2
		if created {
			if err := r.Hub.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.Hub.Create(t.Context(), padded(r, name, size), metav1.CreateOptions{})
		switch {
		case err == nil:
			created, fits = true, size
		case strings.Contains(err.Error(), "too large"):
			created, fails = false, size
		default:
			t.Fatal(err)
		}
	}
	if !created {
		env.Create(t, r.Hub, padded(r, name, fits))
	}
	return fits
}
