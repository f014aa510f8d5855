package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Someone has a reason to doubt the history that the link cannot see.
func TestDoubtIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubHistory{}
		r := newPair(t, options{configure: h.configure})
		r.create(r.hub, "a", nil, spec("v1"))
		r.hub.RecheckHistory() // before there is a connection
		r.connect()
		pass(time.Minute)
		h.set("the hub was restored", nil)
		pass(time.Hour)
		if r.stats(r.hub).Withheld.Broken != "" {
			t.Fatal("it is checked without a reason")
		}
		r.hub.RecheckHistory()
		pass(time.Second)
		r.remove(r.hub, "a")
		pass(time.Minute)
		if got := r.stats(r.hub).Withheld.Broken; got != "the hub was restored" || r.get(r.spoke, "a") == nil {
			t.Errorf("broken %q, the spoke has %v", got, r.get(r.spoke, "a"))
		}
	})
}
