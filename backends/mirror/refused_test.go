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

// TestRefusalEndsWithWhatIsThereAllTheSame: the spoke's API server stores an Application,
// and what the agent hears of it is a refusal, as when the reply to a write was lost and a
// quota refuses the next one. Once the cache shows it nothing says any more that it was not
// applied: neither the hub's Application nor what either side names.
func TestRefusalEndsWithWhatIsThereAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int64
		r := newPair(t, options{spoke: memory.Config{Lag: true, LostReply: func(op memory.Op, _ stream.ResourceKey) error {
			if op == memory.OpCreate && refused.Add(1) == 1 {
				return stream.ErrRefused
			}
			return nil
		}}})
		r.spoke.store.Deliver(-1)
		r.create(r.hub, "a", nil, spec("one"))
		r.connect()
		pass(100 * time.Millisecond) // it is tried again in half a second
		told := func() string {
			list, _ := at(r.get(r.hub, "a"), "status", "conditions").([]any)
			if len(list) == 0 {
				return ""
			}
			return at(list[0].(m), "message").(string)
		}
		if !strings.Contains(told(), "did not apply it") || len(r.stats(r.hub).Parked) != 1 || len(r.stats(r.spoke).Parked) != 1 {
			t.Fatalf("a refusal is told %q, and named %v on the hub, %v on the spoke", told(), r.stats(r.hub).Parked, r.stats(r.spoke).Parked)
		}
		if r.spoke.store.Deliver(-1) == 0 {
			t.Fatal("the Application was not stored")
		}
		pass(time.Minute)
		if told() != "" || len(r.stats(r.hub).Parked) != 0 || len(r.stats(r.spoke).Parked) != 0 {
			t.Errorf("of what is there is told %q, and named %v on the hub, %v on the spoke", told(), r.stats(r.hub).Parked, r.stats(r.spoke).Parked)
		}
	})
}
