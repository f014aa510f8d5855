package links

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A restore is counted once for each that tells of it, and lists are believed by what they
// showed, or from the last good write on.
func TestRestoresAreCounted(t *testing.T) {
	r := NewRestores(zerolog.Nop())
	if r.count() != 0 || !r.before().IsZero() {
		t.Errorf("at first %d, since %v", r.count(), r.before())
	}
	r.Listed()
	if r.count() != 1 || !r.before().IsZero() {
		t.Errorf("after a list %d, since %v", r.count(), r.before())
	}
	good := time.Now()
	r.Written(good)
	r.Written(good.Add(-time.Minute))
	if r.count() != 3 || !r.before().Equal(good) {
		t.Errorf("after writes %d, since %v", r.count(), r.before())
	}
	if len(r.signal) != 1 {
		t.Error("nobody is told")
	}
}
