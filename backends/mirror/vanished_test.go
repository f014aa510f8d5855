package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// TestReleaseEndsWhatIsBeingDeleted: someone deletes a copy on the spoke with its workloads,
// and then the Application of the hub is deleted without. The finalizer that is taken away
// was the last, so that the copy is gone before it is deleted.
func TestReleaseEndsWhatIsBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		r.connect()
		r.create(r.hub, "shop", nil, spec("v1"))
		pass(time.Minute)
		r.update(r.spoke, "shop", func(o m) { o["metadata"].(m)["finalizers"] = []any{cascade} })
		r.remove(r.spoke, "shop")
		r.remove(r.hub, "shop")
		pass(time.Minute)
		if n := len(r.spoke.store.List(stream.Application, "")); n != 0 {
			t.Errorf("the spoke still has %d Applications", n)
		}
	})
}
