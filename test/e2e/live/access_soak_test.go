//go:build linux && soak

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	// soakWatch is how long one watch is kept open, unless SOAK_DURATION says otherwise,
	// soakConnections the number of connections meanwhile, and soakCallers of how many
	// callers at a time.
	soakWatch       = time.Hour
	soakConnections = 10_000
	soakCallers     = 1_000
	// soakEvery is between two changes that the watch shows.
	soakEvery = 10 * time.Second
	// soakRest is how long all may take to be back at the start, when no one calls.
	// Spare streams are given up by half every 30 s, kept connections after 30 s.
	soakRest = 10 * time.Minute
	// soakSpares are the spare streams of both agents at rest, and a few.
	soakSpares = 8
	// soakGrowth is how much more there may be in the end than at the start.
	soakGrowth = 1.05
)

// soakDuration is soakWatch, or what the environment says.
func soakDuration(t *testing.T) time.Duration {
	t.Helper()
	text, set := os.LookupEnv("SOAK_DURATION")
	if !set {
		return soakWatch
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("SOAK_DURATION is %q: use a duration such as 5m", text)
	}
	return d
}

// TestSoakLiveAccess holds a watch for an hour, in which many callers come and go, and
// then finds principal and agent as they were before.
func TestSoakLiveAccess(t *testing.T) {
	duration := soakDuration(t)
	w := env.OwnLive(t)
	a := w.Agents[env.Managed]
	c := a.Caller(t)
	// What is kept for good is made by the first calls, and is no growth, nor is what an
	// allocator keeps for as many again.
	crowd(t, c, soakCallers, soakConnections)
	resting(t, w, a, nil)
	before := usage(t, w, a)
	t.Logf("before: %v", before)

	u := open(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		crowd(t, c, soakCallers, soakConnections)
	}()
	again := time.NewTicker(soakEvery)
	defer again.Stop()
	for ctx.Err() == nil {
		u.flow(t)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	<-done
	u.end(t)
	resting(t, w, a, before)
	t.Logf("after: %v", usage(t, w, a))
}

// end ends what is under way.
func (u *underWay) end(t *testing.T) {
	t.Helper()
	for _, watch := range u.watches {
		watch.Close()
		watch.beside.Close()
	}
	u.log.Close()
	u.exec.Close()
}

// crowd makes calls, each on a connection of its own, some at a time.
func crowd(t *testing.T, c *env.Caller, callers, connections int) {
	t.Helper()
	var left, failed atomic.Int64
	left.Store(int64(connections))
	g, ctx := errgroup.WithContext(t.Context())
	for range callers {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				r, err := env.FetchOne(ctx, c.Config, "/api/v1/namespaces/default/pods/"+env.LivePod)
				if err == nil && r.Status != http.StatusOK {
					err = fmt.Errorf("%d %s", r.Status, r.Body)
				}
				if err != nil {
					failed.Add(1)
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Errorf("%d callers failed, one with: %v", failed.Load(), err)
	}
}

// used is what a process has. Memory is in bytes, without what files are behind, which
// grows with how much of the program has run.
type used struct{ goroutines, descriptors, memory float64 }

func usage(t *testing.T, w *env.Live, a *env.LiveAgent) map[string]used {
	t.Helper()
	all := map[string]used{}
	for admin, p := range map[string]*harness.Process{w.FrontDoor.AdminAddress: w.FrontDoor.Process, a.AdminAddress: a.Process} {
		goroutines, err := env.Metric(t.Context(), admin, "go_goroutines")
		if err != nil {
			t.Fatal(err)
		}
		memory, err := p.Anonymous()
		if err != nil {
			t.Fatal(err)
		}
		all[p.Name()] = used{goroutines, descriptors(t, p), float64(memory)}
	}
	memory, err := w.FrontDoor.Envoy.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	all[w.FrontDoor.Envoy.Name()] = used{0, descriptors(t, w.FrontDoor.Envoy.Process), float64(memory)}
	return all
}

func descriptors(t *testing.T, p *harness.Process) float64 {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(entries))
}

// resting waits until no call is under way and, where want is given, all processes
// have no more than that and soakGrowth.
func resting(t *testing.T, w *env.Live, a *env.LiveAgent, want map[string]used) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soakRest)
	defer cancel()
	if err := harness.Eventually(ctx, "all is as it was", func() error {
		for name, most := range map[string]float64{"argomesh_tunnel_connections": 0, "argomesh_tunnel_spare_streams": soakSpares} {
			n, err := env.Metric(ctx, w.FrontDoor.AdminAddress, name)
			if err != nil {
				return err
			}
			if n > most {
				return fmt.Errorf("%s is %v", name, n)
			}
		}
		var problems []error
		now := usage(t, w, a)
		for name, was := range want {
			is := now[name]
			if is.goroutines > was.goroutines*soakGrowth || is.descriptors > was.descriptors*soakGrowth || is.memory > was.memory*soakGrowth {
				problems = append(problems, fmt.Errorf("%s has %+v, had %+v", name, is, was))
			}
		}
		return errors.Join(problems...)
	}); err != nil {
		t.Error(err)
	}
}
