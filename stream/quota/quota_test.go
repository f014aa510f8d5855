package quota_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/kit"
)

func newQuota(t *testing.T) *quota.Quota {
	t.Helper()
	q, err := quota.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// The numbers of SECURITY.md.
func TestRoom(t *testing.T) {
	if got := quota.PeerArriving + quota.PeerDecoding + quota.PeerOpen + quota.PeerWorking + quota.PeerPassing; got != 64<<20 {
		t.Errorf("one peer has %d bytes, want 64 MiB", got)
	}
	if got := quota.AllArriving + quota.AllDecoding + quota.AllOpen + quota.AllWorking + quota.AllPassing; got != 256<<20 {
		t.Errorf("all together have %d bytes, want 256 MiB", got)
	}
}

// A peer takes as much as it has room for, and waits for the next byte; another does not
// wait, nor does the same for another use.
func TestPeerAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, a, b := newQuota(t), kit.Agent(t, "edge-1"), kit.Agent(t, "edge-2")
		ctx := t.Context()
		whole, err := q.Acquire(ctx, a, quota.Arriving, quota.PeerArriving)
		if err != nil {
			t.Fatal(err)
		}
		took := make(chan func(), 1)
		go func() {
			release, err := q.Acquire(ctx, a, quota.Arriving, 1)
			if err != nil {
				t.Error(err)
			}
			took <- release
		}()
		synctest.Wait()
		select {
		case <-took:
			t.Fatal("a peer has more than its room")
		default:
		}
		for what, take := range map[string]func() (func(), error){
			"another peer": func() (func(), error) { return q.Acquire(ctx, b, quota.Arriving, quota.PeerArriving) },
			"another use":  func() (func(), error) { return q.Acquire(ctx, a, quota.Decoding, quota.PeerDecoding) },
		} {
			release, err := take()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			release()
		}
		whole()
		(<-took)()
	})
}

// All together are bounded, no matter who they are; who waits can give up, and leaves nothing
// behind.
func TestAllAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		var releases []func()
		for i := range int(quota.AllDecoding / quota.PeerDecoding) {
			release, err := q.Acquire(t.Context(), kit.Agent(t, "edge-"+string(rune('a'+i))), quota.Decoding, quota.PeerDecoding)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := q.Acquire(ctx, kit.Agent(t, "late"), quota.Decoding, 1)
			failed <- err
		}()
		synctest.Wait()
		select {
		case err := <-failed:
			t.Fatalf("Acquire() = %v while nothing is free", err)
		default:
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire() = %v after its context ended", err)
		}
		for _, release := range releases {
			release()
		}
		for i := range int(quota.AllDecoding / quota.PeerDecoding) {
			if _, err := q.Acquire(t.Context(), kit.Agent(t, "again-"+string(rune('a'+i))), quota.Decoding, quota.PeerDecoding); err != nil {
				t.Error(err)
			}
		}
	})
}

// What is longer than the room of a peer takes all of it, and does not wait for ever.
func TestMoreThanThereIs(t *testing.T) {
	release, err := newQuota(t).Acquire(t.Context(), kit.Agent(t, "edge-1"), quota.Working, quota.AllWorking+1)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		q, err := quota.New(r)
		if err != nil {
			t.Fatal(err)
		}
		value := func(metric string) float64 {
			families, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == metric && m.GetLabel()[0].GetValue() == "open" {
						return m.GetGauge().GetValue()
					}
				}
			}
			t.Fatalf("no %s", metric)
			return 0
		}
		release, err := q.Acquire(t.Context(), kit.Agent(t, "edge-1"), quota.Open, quota.PeerOpen)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan func())
		go func() {
			release, err := q.Acquire(t.Context(), kit.Agent(t, "edge-1"), quota.Open, 1)
			if err != nil {
				t.Error(err)
			}
			done <- release
		}()
		synctest.Wait()
		if bytes, waiting := value("argomesh_memory_bytes"), value("argomesh_memory_waiting"); bytes != quota.PeerOpen || waiting != 1 {
			t.Errorf("metrics say %v bytes and %v waiting", bytes, waiting)
		}
		release()
		(<-done)()
		if bytes, waiting := value("argomesh_memory_bytes"), value("argomesh_memory_waiting"); bytes != 0 || waiting != 0 {
			t.Errorf("afterwards metrics say %v bytes and %v waiting", bytes, waiting)
		}
		if n := testutil.CollectAndCount(r); n != 12 {
			t.Errorf("%d series, want one of each use and metric, and two of the processors", n)
		}
	})
}
