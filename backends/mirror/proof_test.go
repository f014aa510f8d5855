package mirror_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// readStore counts reads of Applications, of which the first ones may fail.
type readStore struct {
	*memory.Store
	reads, failing *atomic.Int64
}

func (s readStore) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	if key.Kind == stream.Application {
		if s.reads.Add(1) <= s.failing.Load() {
			return backends.Object{}, fmt.Errorf("%w: away", stream.ErrUnavailable)
		}
	}
	return s.Store.Read(ctx, key)
}

// TestTakenOverLink: a principal whose cache is behind takes an agent's link over from another
// one, which had an Application go with its workloads. It must not have it made again.
func TestTakenOverLink(t *testing.T) {
	for name, c := range map[string]struct {
		other   int64              // who had the link before: zero for no one
		failing int64              // reads that fail
		unseen  func(r *pair) bool // what the hub's cache does not show yet; true when it is to show it later
		made    int                // Applications that the spoke has then
		says    string             // the path of the one
		reads   int64
	}{
		"it is there":                {other: 5, made: 1, says: "one", reads: 1},
		"nobody had the link before": {made: 1, says: "one"},
		"it is gone": {other: 5, reads: 1, unseen: func(r *pair) bool {
			r.remove(r.hub, "app")
			return true
		}},
		"it is gone, and the cache never shows it": {other: 5, reads: 1, unseen: func(r *pair) bool {
			r.remove(r.hub, "app")
			return false
		}},
		"it was made anew": {other: 5, made: 1, says: "two", reads: 1, unseen: func(r *pair) bool {
			r.remove(r.hub, "app")
			r.create(r.hub, "app", nil, spec("two"))
			return true
		}},
		"it is asked to go": {other: 5, reads: 1, unseen: func(r *pair) bool {
			r.update(r.hub, "app", func(o m) { o["metadata"].(m)["finalizers"] = []any{cascade} })
			r.remove(r.hub, "app")
			return true
		}},
		"the API server does not answer for a while": {other: 5, failing: 3, made: 1, says: "one", reads: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads, failing atomic.Int64
				failing.Store(c.failing)
				other := c.other
				o := options{hub: memory.Config{Lag: true}, configure: func(side stream.Side, cfg *mirror.Config) {
					if side == stream.Hub {
						cfg.Store = readStore{cfg.Store.(*memory.Store), &reads, &failing}
						cfg.History = func(context.Context, mirror.Peer, mirror.Known) (mirror.HistoryCheck, error) {
							return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: other + 1, Other: other}, nil
						}
					}
				}, before: func(hub, _ *memory.Store) { hub.Deliver(-1) }}
				r := newPair(t, o)
				r.create(r.hub, "app", nil, spec("one"))
				r.hub.store.Deliver(-1)
				later := c.unseen != nil && c.unseen(r)
				check := func(when string) {
					t.Helper()
					pass(20 * time.Second)
					apps := r.spoke.store.List(stream.Application, "")
					if len(apps) != c.made {
						t.Fatalf("%s the spoke has %d Applications, want %d", when, len(apps), c.made)
					}
					if c.made == 1 {
						if got := at(r.get(r.spoke, "app"), "spec", "source").(m)["path"]; got != c.says {
							t.Errorf("%s it has path %v, want %s", when, got, c.says)
						}
					}
					if got := reads.Load(); got < c.reads || c.reads == 0 && got > 0 || c.unseen == nil && got > c.reads {
						t.Errorf("%s there were %d reads, want %d", when, got, c.reads)
					}
				}
				cut, _ := r.connect()
				check("at first")
				cut()
				r.connect()
				check("after another connection")
				if later {
					r.hub.store.Deliver(-1)
				}
				check("at the end")
			})
		})
	}
}

// TestProofIsOfItsTime: what was known before another principal had the link counts no more.
func TestProofIsOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, other atomic.Int64
		check := make(chan struct{})
		r := newPair(t, options{configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Hub {
				cfg.Store = readStore{cfg.Store.(*memory.Store), &reads, new(atomic.Int64)}
				cfg.History = func(ctx context.Context, _ mirror.Peer, _ mirror.Known) (mirror.HistoryCheck, error) {
					select {
					case <-check:
					case <-ctx.Done():
						return mirror.HistoryCheck{}, ctx.Err()
					}
					return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: 9, Other: other.Load()}, nil
				}
			}
		}})
		r.create(r.hub, "app", nil, spec("one"))
		spokeHas := func(when string, apps int, read int64) {
			t.Helper()
			pass(10 * time.Second)
			if got := len(r.spoke.store.List(stream.Application, "")); got != apps {
				t.Errorf("%s the spoke has %d Applications, want %d", when, got, apps)
			}
			if got := reads.Load(); got != read {
				t.Errorf("%s there were %d reads, want %d", when, got, read)
			}
		}
		again := func() {
			r.remove(r.spoke, "app") // someone on the spoke
		}
		other.Store(1)
		cut, _ := r.connect()
		spokeHas("before the check", 0, 0)
		close(check)
		spokeHas("after it", 1, 1)
		again()
		spokeHas("after it went from the spoke", 1, 1)
		cut()
		pass(time.Second)
		other.Store(3)
		again()
		r.connect()
		spokeHas("after another one had the link", 1, 2)
	})
}
