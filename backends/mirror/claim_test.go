package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
)

// TestWhatWasToldBeforeTheJudgement: a spoke says what it left out, and that someone changes
// back what it applied, before the hub has checked the connection, as behind a slow API server.
// The hub shows it once it has.
func TestWhatWasToldBeforeTheJudgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := make(chan struct{})
		r := newPair(t, options{spoke: older(t), configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Hub {
				cfg.History = func(ctx context.Context, peer mirror.Peer, _ mirror.Known) (mirror.HistoryCheck, error) {
					if peer.Connection == "c1" { // by which both come to be there
						return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: 1}, nil
					}
					select {
					case <-check:
					case <-ctx.Done():
						return mirror.HistoryCheck{}, ctx.Err()
					}
					return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: 3, Other: 2}, nil
				}
			}
		}})
		r.create(r.hub, "short", nil, m{"spec": m{"project": "default", "destination": m{"name": "edge-1"}, "source": m{"path": "one", "tagPrefix": "v"}}})
		r.create(r.hub, "fought", nil, spec("ours"))
		cut, _ := r.connect()
		pass(time.Second)
		cut()
		r.hub.ShowLink(presence.LinkState{Epoch: 2}) // another principal has it in between, and says nothing
		pass(time.Second)
		r.update(r.hub, "short", func(app m) { delete(app, "status") })
		pass(time.Second)
		r.connect()
		pass(time.Second)
		for range 5 {
			r.update(r.spoke, "fought", func(app m) { at(app, "spec", "source").(m)["path"] = "theirs" })
			pass(time.Second)
		}
		said := func(when, app, want string) { // by its error or its warning
			t.Helper()
			if got := conditionOf(r.get(r.hub, app)) + messageOf(r.get(r.hub, app), "ArgomeshWarning"); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s the hub says of %s %q, want %q", when, app, got, want)
			}
		}
		said("before", "short", "")
		said("before", "fought", "")
		close(check)
		pass(time.Minute)
		said("after", "short", "spec.source.tagPrefix")
		said("after", "fought", "changes it back: spec.source.path")
	})
}

// TestConnectionOfWhichANewerOneIsKnownEnds: who comes second at one end may have come first
// at the other. Both ends then keep a connection that the Agent does not name, on which
// nothing is checked, and which no keepalive ends.
func TestConnectionOfWhichANewerOneIsKnownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newer := true
		r := newPair(t, options{configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Hub {
				cfg.History = func(context.Context, mirror.Peer, mirror.Known) (mirror.HistoryCheck, error) {
					if newer {
						return mirror.HistoryCheck{}, fmt.Errorf("%w, to principal b", mirror.ErrSuperseded)
					}
					return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: 1}, nil
				}
			}
		}})
		r.create(r.hub, "app", nil, spec("one"))
		_, served := r.connect()
		pass(time.Second)
		if len(served) != 2 {
			t.Fatalf("%d of 2 ends left the connection", len(served))
		}
		if err := errors.Join(<-served, <-served); !errors.Is(err, mirror.ErrSuperseded) || !errors.Is(err, session.ErrEnded) {
			t.Errorf("the connection ends with %v, want %v", err, mirror.ErrSuperseded)
		}
		newer = false
		r.connect()
		pass(time.Minute)
		if stats := r.stats(r.hub); !stats.HistoryChecked || !stats.Agreed {
			t.Errorf("after the next one came: checked %t, agreed %t", stats.HistoryChecked, stats.Agreed)
		}
	})
}
