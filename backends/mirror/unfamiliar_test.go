package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// A process takes over from another one whose watch was ahead of its own: what the peer
// has and its cache does not show yet is asked about, and does not go. What went meanwhile
// does.
func TestTakingOverWithACacheThatIsBehind(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := memory.New(memory.Config{Lag: true})
				first.Deliver(-1)
				stores := [2]*memory.Store{first, memory.New(memory.Config{})}
				if mode == stream.Managed {
					opened(t, first, "default")
				} else {
					stores[0], stores[1] = stores[1], stores[0]
				}
				r := newPair(t, options{mode: mode, stores: stores})
				owner, other := r.hub, r.spoke
				if mode == stream.Autonomous {
					owner, other = other, owner
				}
				behind := first.Open()
				behind.Deliver(-1)
				cut, served := r.connect()
				for _, name := range []string{"new", "gone"} {
					r.create(owner, name, nil, spec("one"))
				}
				first.Deliver(-1)
				pass(time.Second)
				made := at(r.get(other, "new"), "metadata", "uid")
				if made == nil || r.get(other, "gone") == nil {
					t.Fatal("the other side has not got both")
				}
				cut()
				if err := <-served; err == nil {
					t.Error("a connection that was cut ended without an error")
				}
				r.remove(owner, "gone")
				r.cancel(nil)
				r.wait.Wait()

				for i, s := range stores {
					if s == first {
						stores[i] = behind
					}
				}
				next := newPair(t, options{mode: mode, stores: stores})
				next.connect()
				pass(time.Minute)
				if next.get(other, "gone") != nil {
					t.Error("what is gone is still on the other side")
				}
				for _, e := range []end{next.hub, next.spoke} {
					if s := next.stats(e); !s.Agreed {
						t.Errorf("Stats() = %+v", s)
					}
				}
				behind.Deliver(-1)
				pass(time.Second)
				if got := at(next.get(other, "new"), "metadata", "uid"); got != made {
					t.Errorf("what the cache did not show for a while is %v on the other side, was %v", got, made)
				}
			})
		})
	}
}
