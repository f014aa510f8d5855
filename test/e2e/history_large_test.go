//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/test/harness"
)

// metric returns the sum of a metric's samples on a process's admin server.
func metric(ctx context.Context, admin, name string) (float64, error) {
	_, body, err := fetch(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(body) {
		sample, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if sample, _, _ = strings.Cut(sample, "{"); !ok || sample != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// connects is how many of the agent's connections, and of its attempts, have ended.
func (r *remote) connects(t *testing.T) float64 {
	t.Helper()
	n, err := metric(t.Context(), r.agent.AdminAddress, "argomesh_stream_connects_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// padded is an Application with a value of so many bytes in its spec.
func (r *remote) padded(name string, bytes int) *unstructured.Unstructured {
	app := r.application(name)
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
	w, ctx := theQuietWorld(t), t.Context()
	// More than either side takes unless told otherwise.
	const most = 3 << 20
	r := w.register(t, "large", "managed")
	patch(t, w.hub.Resource(agents, harness.ArgoCDNamespace), r.name, map[string]any{"spec": map[string]any{"limits": map[string]any{"applicationBytes": most}}})
	r.settings = harness.Settings{"limits.application_bytes": most}
	r.start(t)
	// The large ones shall be the oldest, so that they leave first.
	r.network.Cut()
	eventually(t, "the hub sees the agent go", func() error { return r.connected(ctx, false) })
	const large = 1400 << 10
	create(t, r.hub, r.padded("large", large))
	largest := createLargest(t, r, "largest", large, 1536<<10)
	const small = 1000
	createAll(t, r.hub, small, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("small-", i)) })
	hub, spoke := record(t, r.hub), record(t, r.spoke)

	r.network.Mend()
	eventually(t, "the agent is back", func() error { return r.connected(ctx, true) })
	connects := r.connects(t)
	eventually(t, "the small ones arrive", func() error {
		got := spoke.objects()
		for i := range small {
			if got[fmt.Sprint("small-", i)] == nil {
				return fmt.Errorf("small-%d is not there", i)
			}
		}
		return nil
	})
	eventually(t, "the large one arrives, whole", func() error {
		source, copied := hub.objects()["large"], spoke.objects()["large"]
		if copied == nil || r.shown(source, "") != r.shown(copied, "") {
			return errors.New("it is not there, or another one")
		}
		return nil
	})
	eventually(t, "the largest one is parked, with the reason", func() error { return r.parked(ctx, "largest", "too large") })
	if spoke.objects()["largest"] != nil {
		t.Errorf("an object of %d bytes of padding has a copy: the test does not test the limit", largest)
	}

	// A status as large goes the other way, past others.
	if _, err := r.spoke.Patch(ctx, "small-0", types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"summary":{"images":[%q]}}}`, strings.Repeat("y", large)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	const statuses = 100
	each(t, statuses, func(ctx context.Context, i int) error {
		_, err := r.spoke.Patch(ctx, fmt.Sprint("small-", i+1), types.MergePatchType, []byte(`{"status":{"health":{"status":"Healthy"}}}`), metav1.PatchOptions{})
		return err
	})
	eventually(t, "the hub shows the statuses", func() error {
		got := hub.objects()
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
	patch(t, r.hub, "largest", map[string]any{"spec": map[string]any{"info": nil}})
	eventually(t, "it arrives once it fits", func() error { return r.agree(hub, spoke) })
	eventually(t, "and is no longer parked", func() error {
		if err := r.parked(ctx, "largest", ""); err == nil {
			return errors.New("it is parked")
		}
		return nil
	})
	if now := r.connects(t); now != connects {
		t.Errorf("the agent connected %v times meanwhile", now-connects)
	}
}

// createLargest creates the largest Application that the hub's etcd takes, by up to 8
// bytes, of those with a padding between fits and fails, and returns its padding.
func createLargest(t *testing.T, r *remote, name string, fits, fails int) int {
	t.Helper()
	var created bool
	for fails-fits > 8 {
		size := (fits + fails) / 2
		if created {
			if err := r.hub.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.hub.Create(t.Context(), r.padded(name, size), metav1.CreateOptions{})
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
		create(t, r.hub, r.padded(name, fits))
	}
	return fits
}

// parked is a check that the Agent names an object among the parked ones, with a
// message that says a text.
func (r *remote) parked(ctx context.Context, name, text string) error {
	a, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(a.Object, "status", "parked")
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["name"] == name && strings.Contains(fmt.Sprint(m["message"]), text) {
			return nil
		}
	}
	return fmt.Errorf("%s is not among the parked: %v", name, list)
}
