package mirror_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// A worker that meets a conflict does not try again with what a later connection, or a
// later event of the same one, has overtaken: after a restore of the hub it would write
// what the hub had before, long after the hub has told what it has now.
func TestNoAttemptWithWhatIsObsolete(t *testing.T) {
	for name, say := range map[string]func(r *pair, a *attacker, newer stream.Batch){
		"a newer event":      func(_ *pair, a *attacker, newer stream.Batch) { a.say(newer) },
		"a newer connection": func(r *pair, _ *attacker, newer stream.Batch) { r.attack(r.spoke).say(newer) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				var attempts atomic.Int64
				var written []string // by one worker
				r := newPair(t, options{spoke: memory.Config{
					Fault: func(op memory.Op, _ stream.ResourceKey) error {
						if op == memory.OpCreate && attempts.Add(1) == 1 {
							<-free
							return stream.ErrConflict
						}
						return nil
					},
					Journal: func(a memory.Accepted) { written = append(written, string(a.Object.Raw)) },
				}})
				older, newer := creation("e1", "app"), creation("e2", "app")
				older.Revision, newer.Revision = 77, 21
				a := r.attack(r.spoke)
				a.say(stream.Batch{Events: []stream.Event{older}})
				say(r, a, stream.Batch{Events: []stream.Event{newer}})
				close(free)
				pass(time.Minute)
				if n := attempts.Load(); n != 2 {
					t.Errorf("%d attempts to create it, want 2", n)
				}
				if len(written) != 1 || !strings.Contains(written[0], `\"revision\":21`) {
					t.Errorf("written: %q, want once, with what was read at revision 21", written)
				}
			})
		})
	}
}
