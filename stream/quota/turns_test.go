package quota_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/kit"
)

// besieged is a room of which peers hold, and ask for, all that they may.
type besieged struct {
	t    *testing.T
	q    *quota.Quota
	use  quota.Use
	took chan func() // gives back what those have that were let in
}

// besiege has as many peers hold their whole room for a use, and ask for it again.
func besiege(t *testing.T, q *quota.Quota, use quota.Use, most int64, peers int) *besieged {
	t.Helper()
	b := &besieged{t: t, q: q, use: use, took: make(chan func(), 100)}
	for i := range peers {
		for range 2 {
			b.ask(kit.Agent(t, fmt.Sprint("bad-", i)), most)
		}
	}
	return b
}

// ask asks on behalf of a peer and waits until that is let in, or waits.
func (b *besieged) ask(of identity.AgentName, n int64) {
	go func() {
		if release, err := b.q.Acquire(b.t.Context(), of, b.use, n); err == nil {
			b.took <- release
		}
	}()
	synctest.Wait()
}

// Anyone who holds little is not held up by stolen spokes that hold, and ask for, as much as
// they may, and never give it back: for each use in which something is held for longer than
// a processor takes.
func TestWhoHoldsLittleWaitsForNobody(t *testing.T) {
	for _, tc := range []struct {
		use    quota.Use
		most   int64
		little int64
		peers  int // that hold little
	}{
		{quota.Arriving, quota.PeerArriving, 256 << 10, 16},
		{quota.Open, quota.PeerOpen, 512 << 10, 26},
		{quota.Working, quota.PeerWorking, 2 << 20, 7},
		{quota.Passing, quota.PeerPassing, 512 << 10, 10},
	} {
		for _, attackers := range []int{1, 2, 3, 6, 20} {
			t.Run(fmt.Sprint(tc.use, " ", attackers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQuota(t)
					besiege(t, q, tc.use, tc.most, attackers)
					// The attackers' lesser ones do not help them either.
					for i := range attackers {
						b := &besieged{t: t, q: q, use: tc.use, took: make(chan func(), 100)}
						b.ask(kit.Agent(t, fmt.Sprint("bad-", i)), tc.most/4)
					}
					for i := range tc.peers {
						release, ok := q.TryAcquire(kit.Agent(t, fmt.Sprint("good-", i)), tc.use, tc.little)
						if !ok {
							t.Fatalf("peer %d that wants %d bytes waits for %d attackers", i, tc.little, attackers)
						}
						defer release()
					}
				})
			})
		}
	}
}

// What is for those that hold little is not for one that holds much already, in small
// pieces neither, nor for one that asks for a lot.
func TestManySmallPiecesAreMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		for i := range 20 {
			of := kit.Agent(t, fmt.Sprint("bad-", i))
			for range quota.PeerArriving / (64 << 10) {
				_, _ = q.TryAcquire(of, quota.Arriving, 64<<10)
			}
		}
		// Sixteenths of what a peer may have are all that others get of the last sixth.
		if _, ok := q.TryAcquire(kit.Agent(t, "late"), quota.Arriving, 512<<10); ok {
			t.Error("half a megabyte is let into what is kept for less")
		}
		if got := quota.AllArriving / 6 / (quota.PeerArriving / 16); got != 16 {
			t.Errorf("there is room for %d peers that hold little, want 16", got)
		}
	})
}

// Peers take turns: who holds least goes next, and of those who waits longest, however many
// the others ask at once. None goes before someone who needs more and has waited.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		var mu sync.Mutex
		var order []string
		var releases []func()
		for i := range 3 { // all that there is
			release, ok := q.TryAcquire(kit.Agent(t, fmt.Sprint("first-", i)), quota.Decoding, quota.PeerDecoding)
			if !ok {
				t.Fatal("no room")
			}
			releases = append(releases, release)
		}
		got := make(chan func())
		wait := func(of string, n int64) {
			go func() {
				release, err := q.Acquire(t.Context(), kit.Agent(t, of), quota.Decoding, n)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, of)
				mu.Unlock()
				got <- release
			}()
			synctest.Wait()
		}
		for range 5 {
			wait("bad", quota.PeerDecoding)
		}
		wait("good", quota.PeerDecoding)
		wait("first-0", 1) // holds something
		wait("small", 1)
		for _, release := range releases[1:] {
			release()
			synctest.Wait()
			(<-got)()
			synctest.Wait()
		}
		releases[0]()
		for range 6 {
			(<-got)()
			synctest.Wait()
		}
		if want := []string{"bad", "good", "small"}; !slices.Equal(order[:3], want) {
			t.Errorf("turns were given to %v, want %v first", order, want)
		}
		if len(order) != 8 {
			t.Errorf("%d of 8 had their turn: %v", len(order), order)
		}
	})
}

// A large one has its turn, though others take and give back all the time.
func TestALargeOneHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		b := besiege(t, q, quota.Working, quota.PeerWorking/2, 8)
		b.ask(kit.Agent(t, "good"), quota.PeerWorking)
		for turn := range 16 + 1 {
			(<-b.took)()
			synctest.Wait()
			if turn == 16 {
				return // the good one's was among them
			}
		}
	})
}

// Who gives up lets those go on that waited behind.
func TestGivingUpLetsOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(t)
		all, ok := q.TryAcquire(kit.Agent(t, "edge-1"), quota.Arriving, quota.PeerArriving)
		if !ok {
			t.Fatal("no room")
		}
		defer all()
		if _, ok := q.TryAcquire(kit.Agent(t, "edge-1"), quota.Arriving, 1); ok {
			t.Error("a peer has more than its room")
		}
		if _, ok := q.TryAcquire(kit.Agent(t, "edge-2"), quota.Arriving, quota.PeerArriving+1); ok {
			t.Error("a peer has more than it may ever have")
		}
		release, ok := q.TryAcquire(kit.Agent(t, "edge-2"), quota.Arriving, quota.PeerArriving)
		if !ok {
			t.Fatal("who gave up is in the way")
		}
		release()
	})
}

// What weighs nothing, such as content that no one can read, is taken and given back as
// any other, before and after what weighs something.
func TestNothingIsTakenToo(t *testing.T) {
	q, of := newQuota(t), kit.Agent(t, "edge-1")
	nothing, err := q.Acquire(t.Context(), of, quota.Working, 0)
	if err != nil {
		t.Fatal(err)
	}
	something, ok := q.TryAcquire(of, quota.Working, 1)
	if !ok {
		t.Fatal("no room")
	}
	something()
	nothing()
	again, ok := q.TryAcquire(of, quota.Working, quota.PeerWorking)
	if !ok {
		t.Fatal("no room after all was given back")
	}
	again()
}
