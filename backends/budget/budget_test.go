package budget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/budget"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// small are limits with which a test sees an end.
var small = budget.Limits{Writes: budget.Limit{Rate: 2, Burst: 10}, Bytes: budget.Limit{Rate: 100, Burst: 3700}}

// spend has a peer write objects of size bytes as often as it may within d, asking every
// 10 ms, and returns how often that was.
func spend(p *budget.Peer, from time.Time, d time.Duration, size int) int {
	n := 0
	for now := from; now.Before(from.Add(d)); now = now.Add(10 * time.Millisecond) {
		for {
			if over, _ := p.Acquire(now, size); over != budget.OverNothing {
				break
			}
			p.Charge(now, size, 1, size)
			n++
		}
	}
	return n
}

// Whatever a peer does, it does not have us write more than its burst and its rate times
// the time, and one object that was begun with the last byte.
func TestPeerIsBoundByBurstAndRate(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		pauses time.Duration // between two minutes at full speed
	}{
		"small objects":              {size: 1},
		"large objects":              {size: 900},
		"larger than the burst":      {size: 5000},
		"small objects, with pauses": {size: 1, pauses: 20 * time.Minute},
		"large objects, with pauses": {size: 900, pauses: 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := budget.NewPeer("a", small, nil, start)
			now, n := start, 0
			for range 5 {
				n += spend(p, now, time.Minute, c.size)
				now = now.Add(time.Minute + c.pauses)
				passed := int(now.Sub(start).Seconds())
				if most := 10 + 2*passed; n > most {
					t.Errorf("%d writes in %ds, want %d at most", n, passed, most)
				}
				if most := 3700 + 100*passed + c.size; n*c.size > most {
					t.Errorf("%d bytes in %ds, want %d at most", n*c.size, passed, most)
				}
			}
			if n*c.size < 3700 && n < 10+2*300 {
				t.Errorf("%d writes of %d bytes: it did not get what it may", n, c.size)
			}
		})
	}
}

// The burst fills again over an hour in which nothing is used, and the rate is there at
// once.
func TestBurstFillsOverAnHour(t *testing.T) {
	p := budget.NewPeer("a", small, nil, start)
	p.Charge(start, 0, 10, 3700) // as if all was used
	for after, want := range map[time.Duration]budget.Levels{
		0:                {Writes: 1, Bytes: 0}, // the write of Take was not made
		time.Second:      {Writes: 2, Bytes: 100},
		30 * time.Minute: {Writes: 6, Bytes: 1900},
		2 * time.Hour:    {Writes: 10, Bytes: 3700},
	} {
		now := start.Add(after)
		q := budget.NewPeer("a", small, nil, start)
		q.Lower(p.Levels(start), now)
		got := q.Levels(now)
		got.At = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s (-want +got)\n%s", after, diff)
		}
	}
}

func TestLevelsSurvive(t *testing.T) {
	for name, c := range map[string]struct {
		told  budget.Levels
		after time.Duration
		want  budget.Levels
	}{
		"at once":                       {told: budget.Levels{Writes: 3, Bytes: 200}, want: budget.Levels{Writes: 3, Bytes: 200}},
		"a second later":                {told: budget.Levels{Writes: 0, Bytes: 0}, after: time.Second, want: budget.Levels{Writes: 2, Bytes: 100}},
		"a debt":                        {told: budget.Levels{Writes: -4, Bytes: -500}, after: time.Second, want: budget.Levels{Writes: -2, Bytes: -400}},
		"by a clock that was ahead":     {told: budget.Levels{Writes: 3, Bytes: 200}, after: -time.Hour, want: budget.Levels{Writes: 3, Bytes: 200}},
		"more than there is now":        {told: budget.Levels{Writes: 1000, Bytes: 1 << 40}, want: budget.Levels{Writes: 10, Bytes: 3700}},
		"a debt that nobody could make": {told: budget.Levels{Writes: -1 << 60, Bytes: -1 << 60}, want: budget.Levels{Writes: -10, Bytes: -3700}},
	} {
		t.Run(name, func(t *testing.T) {
			p := budget.NewPeer("a", small, nil, start)
			c.told.At, c.want.At = start, start.Add(c.after)
			p.Lower(c.told, start.Add(c.after))
			if diff := cmp.Diff(c.want, p.Levels(start.Add(c.after))); diff != "" {
				t.Errorf("Levels() (-want +got)\n%s", diff)
			}
		})
	}
}

// A limit that is raised is there at once, one that is lowered too, and what was used
// stays used.
func TestLimitsChange(t *testing.T) {
	for name, c := range map[string]struct {
		limits budget.Limits
		want   budget.Levels
	}{
		"raised": {
			limits: budget.Limits{Writes: budget.Limit{Rate: 4, Burst: 30}, Bytes: budget.Limit{Rate: 100, Burst: 5000}},
			want:   budget.Levels{Writes: 25, Bytes: 4000},
		},
		"lowered": {
			limits: budget.Limits{Writes: budget.Limit{Rate: 1, Burst: 2}, Bytes: budget.Limit{Rate: 10, Burst: 1000}},
			want:   budget.Levels{Writes: 2, Bytes: 1000},
		},
		"taken away": {limits: budget.Limits{}, want: budget.Levels{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := budget.NewPeer("a", small, nil, start)
			p.Lower(budget.Levels{Writes: 5, Bytes: 2700, At: start}, start)
			p.Limit(c.limits, start)
			c.want.At = start
			if diff := cmp.Diff(c.want, p.Levels(start)); diff != "" {
				t.Errorf("Levels() (-want +got)\n%s", diff)
			}
		})
	}
}

// What is paid is what was written: what was granted for more is given back, and what
// took more is a debt.
func TestSettleCorrectsWhatWasGranted(t *testing.T) {
	for name, c := range map[string]struct {
		writes, bytes int
		want          budget.Levels
	}{
		"nothing was written":    {want: budget.Levels{Writes: 10, Bytes: 3700}},
		"as estimated":           {writes: 1, bytes: 50, want: budget.Levels{Writes: 9, Bytes: 3650}},
		"more than there was":    {writes: 12, bytes: 4000, want: budget.Levels{Writes: -2, Bytes: -300}},
		"refused without effect": {writes: 1, want: budget.Levels{Writes: 9, Bytes: 3700}},
	} {
		t.Run(name, func(t *testing.T) {
			p := budget.NewPeer("a", small, nil, start)
			if over, _ := p.Acquire(start, 50); over != budget.OverNothing {
				t.Fatalf("Take() = %s", over)
			}
			p.Charge(start, 50, c.writes, c.bytes)
			c.want.At = start
			if diff := cmp.Diff(c.want, p.Levels(start)); diff != "" {
				t.Errorf("Levels() (-want +got)\n%s", diff)
			}
		})
	}
}

// A peer that is told to wait gets through when it asks again then.
func TestWaitIsLongEnough(t *testing.T) {
	p := budget.NewPeer("a", small, nil, start)
	p.Lower(budget.Levels{Writes: -3, Bytes: -1234, At: start}, start)
	over, wait := p.Acquire(start, 10)
	if over != budget.OverWrites || wait < 12*time.Second {
		t.Fatalf("Take() = %s, %s", over, wait)
	}
	if over, again := p.Acquire(start.Add(wait), 10); over != budget.OverNothing {
		t.Errorf("after %s Take() = %s, %s", wait, over, again)
	}
}

// peers of one common budget, each of which asks when it was told to.
type crowd struct {
	common *budget.Common
	peers  []*drinker
	warm   time.Duration // what waits before that is not noted
}

type drinker struct {
	peer *budget.Peer
	// size are the bytes of one write, and every how often it has one; zero for always.
	size  int
	every time.Duration

	next  time.Time // when it asks
	asked time.Time // since when it wants the present one
	got   int
	worst time.Duration
}

func newCrowd(limit budget.Limit) *crowd {
	return &crowd{common: budget.NewCommon(limit, start)}
}

func (c *crowd) join(size int, every time.Duration) *drinker {
	d := &drinker{
		peer: budget.NewPeer(fmt.Sprint("p", len(c.peers)), budget.Limits{}, c.common, start),
		size: size, every: every, next: start, asked: start,
	}
	c.peers = append(c.peers, d)
	return d
}

// run lets time pass in steps of a millisecond.
func (c *crowd) run(d time.Duration) {
	for now := start; now.Before(start.Add(d)); now = now.Add(time.Millisecond) {
		for _, p := range c.peers {
			for !p.next.After(now) {
				over, wait := p.peer.Acquire(now, p.size)
				if over != budget.OverNothing {
					p.next = now.Add(wait)
					break
				}
				p.peer.Charge(now, p.size, 1, p.size)
				p.got += p.size
				if p.asked.Sub(start) >= c.warm {
					p.worst = max(p.worst, now.Sub(p.asked))
				}
				if p.every > 0 {
					p.next = p.asked.Add(p.every)
				}
				p.asked = p.next
			}
		}
	}
}

// All that have something to write get the same, however large their objects are, and
// together not more than there is.
func TestCommonIsSharedInTurn(t *testing.T) {
	c := newCrowd(budget.Limit{Rate: 2 << 20, Burst: 8 << 20})
	for _, size := range []int{1 << 20, 1 << 20, 300 << 10, 40 << 10, 5 << 10, 5 << 10, 1 << 10, 700} {
		c.join(size, 0)
	}
	c.run(5 * time.Minute)
	all := 0
	for _, p := range c.peers {
		all += p.got
	}
	if most := 8<<20 + 300*2<<20 + 8<<20; all > most {
		t.Errorf("together they wrote %d bytes, want %d at most", all, most)
	}
	if least := 290 * 2 << 20; all < least {
		t.Errorf("together they wrote %d bytes, and there were %d", all, least)
	}
	share := 300 * 2 << 20 / len(c.peers)
	for _, p := range c.peers[1:] { // the first took the burst before the others asked
		if p.got < share*8/10 || p.got > share*12/10 {
			t.Errorf("one with objects of %d bytes wrote %d, want about %d", p.size, p.got, share)
		}
	}
}

// Twenty peers take all that there is; one that asks for less than an equal share waits
// for no one.
func TestWhoAsksForLessThanAShareWaitsForNobody(t *testing.T) {
	for name, c := range map[string]struct {
		size       int
		every      time.Duration
		warm, late time.Duration
	}{
		"a status each second": {size: 5 << 10, every: time.Second},
		"ten a second":         {size: 5 << 10, every: 100 * time.Millisecond},
		// When it begins all are equal, and it has its turn.
		"a large one now and then":    {size: 700 << 10, every: 20 * time.Second, warm: 15 * time.Second},
		"more than a share, it waits": {size: 300 << 10, every: time.Second, late: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			crowd := newCrowd(budget.Limit{Rate: 2 << 20, Burst: 8 << 20})
			crowd.warm = c.warm
			for range 20 {
				crowd.join(1<<20, 0)
			}
			honest := crowd.join(c.size, c.every)
			crowd.run(2 * time.Minute)
			if honest.worst > c.late {
				t.Errorf("it waited %s, want %s at most", honest.worst, c.late)
			}
			if c.late > time.Minute && honest.worst == 0 {
				t.Error("it never waited")
			}
			all := 0
			for _, p := range crowd.peers {
				all += p.got
			}
			if most := 8<<20 + 120*2<<20 + 2*2<<20 + 1<<20; all > most {
				t.Errorf("together they wrote %d bytes, want %d at most", all, most)
			}
		})
	}
}

// With the limits as they are by default, 256 MiB and 2 MiB a second for all, six stolen
// peers write what bursts and rates admit and no more, together and each. One that writes a
// status each second waits for no one, when the common burst is used up and after that.
// After an hour in which no one writes it is there again.
func TestCommonByDefault(t *testing.T) {
	const mib, minutes = 1 << 20, 10
	c := newCrowd(budget.DefaultCommon())
	for range 6 {
		c.join(200<<10, 0)
	}
	honest := c.join(5<<10, time.Second)
	for i, p := range c.peers {
		p.peer = budget.NewPeer(fmt.Sprint("p", i), budget.DefaultLimits(), c.common, start)
	}
	c.run(minutes * time.Minute)
	if honest.worst > 0 || honest.got < (minutes*60-1)*5<<10 {
		t.Errorf("the honest one wrote %d bytes, and waited up to %s", honest.got, honest.worst)
	}
	all := honest.got
	for _, p := range c.peers[:6] {
		all += p.got
		if most := 64*mib + minutes*60*mib + p.size; p.got > most {
			t.Errorf("one wrote %d bytes, want %d at most", p.got, most)
		}
	}
	most := 256*mib + minutes*60*2*mib
	// Two seconds of the rate may be used in advance, and the last write passes the end.
	if least := most * 98 / 100; all < least || all > most+2*2*mib+200<<10 {
		t.Errorf("together they wrote %d bytes, want %d at most, and %d at least", all, most, least)
	}
	end := start.Add(minutes * time.Minute)
	if level := c.common.Level(end); level > 2*mib {
		t.Errorf("%d bytes are left", level)
	}
	if level := c.common.Level(end.Add(time.Hour + 2*time.Second)); level != 256*mib {
		t.Errorf("after an hour %d bytes are left, want all", level)
	}
}

// One that asked for its turn and does not come back holds up no one.
func TestWhoDoesNotComeBackHoldsUpNobody(t *testing.T) {
	c := newCrowd(budget.Limit{Rate: 1 << 20, Burst: 1 << 20})
	gone := c.join(1<<20, 0)
	other := c.join(10<<10, 0)
	now := start
	for over := budget.OverNothing; over == budget.OverNothing; {
		over, _ = gone.peer.Acquire(now, gone.size) // until it waits, for ever
	}
	c.peers = c.peers[1:]
	c.run(30 * time.Second)
	if other.got < 20<<20 {
		t.Errorf("the other one wrote %d bytes in 30s", other.got)
	}
}

func TestObjectsAreWrittenTwelveTimesAtOnce(t *testing.T) {
	var o budget.Objects[string]
	now := start
	for i := range 12 {
		if wait := o.Wait("a", budget.Other, now); wait != 0 {
			t.Fatalf("write %d waits %s", i, wait)
		}
		o.Wrote("a", 1, now)
	}
	if wait := o.Wait("b", budget.Last, now); wait != 0 {
		t.Errorf("another object waits %s", wait)
	}
	for range 5 { // then once in two seconds
		wait := o.Wait("a", budget.Other, now)
		if wait <= time.Second || wait > 2*time.Second {
			t.Fatalf("Wait() = %s", wait)
		}
		now = now.Add(2 * time.Second)
		if wait := o.Wait("a", budget.Last, now); wait != 0 {
			t.Fatalf("after two seconds Wait() = %s", wait)
		}
		o.Wrote("a", 1, now)
	}
	// One pass may take several writes: what goes first waits one pause all the same.
	o.Wrote("a", 9, now)
	if wait := o.Wait("a", budget.First, now); wait != 2*time.Second {
		t.Errorf("what goes first waits %s", wait)
	}
	if wait := o.Wait("a", budget.Other, now); wait < 10*time.Second {
		t.Errorf("another change waits %s", wait)
	}
}

// Nothing is remembered of objects that are full again.
func TestObjectsAreForgotten(t *testing.T) {
	var o budget.Objects[int]
	for i := range 10_000 {
		o.Wrote(i, 1, start.Add(time.Duration(i)*time.Millisecond))
	}
	o.Wrote(-1, 1, start.Add(10*time.Minute))
	if o.Len() != 1 {
		t.Errorf("%d objects are remembered", o.Len())
	}
}

func TestLineGoesByClassAndArrival(t *testing.T) {
	var l budget.Line[string]
	l.Add("status 1", budget.Last)
	l.Add("change 1", budget.Other)
	l.Add("status 2", budget.Last)
	l.Add("end 1", budget.First)
	l.Add("change 2", budget.Other)
	l.Add("status 2", budget.First) // now it is the end of an operation
	l.Add("change 1", budget.Last)  // it stays what it was
	l.Add("end 1", budget.First)
	var got []string
	for l.Len() > 0 {
		key, class, ok := l.Next()
		if !ok {
			t.Fatal("Next() has none")
		}
		got = append(got, fmt.Sprint(class, " ", key))
		l.Remove(key)
	}
	want := []string{"0 end 1", "0 status 2", "1 change 1", "1 change 2", "2 status 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order (-want +got)\n%s", diff)
	}
	if _, _, ok := l.Next(); ok {
		t.Error("an empty line has a next one")
	}
}

// What is said is what a process that starts again could not know: not what comes back by
// itself.
func TestUnsaidIsWhatWasUsed(t *testing.T) {
	p := budget.NewPeer("a", small, nil, start)
	if p.ReportDue(budget.Levels{}, start) {
		t.Error("of a full one something is to be said")
	}
	p.Charge(start, 0, 1, 3000)
	if !p.ReportDue(budget.Levels{}, start) {
		t.Error("nothing is to be said of what was used")
	}
	said := p.Levels(start)
	for _, after := range []time.Duration{0, time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour} {
		if p.ReportDue(said, start.Add(after)) {
			t.Errorf("%s later it is to be said again", after)
		}
	}
	later := start.Add(2 * time.Hour)
	p.Charge(later, 0, 1, 150) // less than two seconds of the rate
	if p.ReportDue(said, later) {
		t.Error("a little is to be said")
	}
	p.Charge(later, 0, 1, 100)
	if !p.ReportDue(said, later) {
		t.Error("what comes together is not to be said")
	}

	c := budget.NewCommon(small.Bytes, start)
	q := budget.NewPeer("a", budget.Limits{}, c, start)
	q.Charge(start, 0, 1, 3000)
	if !c.ReportDue(0, time.Time{}, start) || c.ReportDue(c.Level(start), start, start.Add(time.Minute)) {
		t.Error("of the common budget something else is to be said")
	}
	next := budget.NewCommon(small.Bytes, start)
	next.Lower(c.Level(start), start, start)
	if next.Level(start) != c.Level(start) {
		t.Errorf("the next process has %d, and there are %d", next.Level(start), c.Level(start))
	}
}

// What is spare is granted only while no one has to wait, and anyone who is not granted it
// keeps no one from his turn.
func TestSpareGoesLast(t *testing.T) {
	common := budget.NewCommon(budget.Limit{Rate: 100 << 10, Burst: 1000 << 10}, start)
	limits := budget.Limits{Writes: budget.Limit{Rate: 2, Burst: 100}, Bytes: budget.Limit{Rate: 100 << 10, Burst: 10_000 << 10}}
	a, b := budget.NewPeer("a", limits, common, start), budget.NewPeer("b", limits, common, start)
	if over := a.AcquireSpare(start, 400<<10); over != budget.OverNothing {
		t.Fatalf("with enough for all it is over %s", over)
	}
	if left := a.Levels(start); left.Writes != 99 || left.Bytes != 9600<<10 || common.Level(start) != 600<<10 {
		t.Errorf("%+v is left of its own, %d of all", left, common.Level(start))
	}
	b.Acquire(start, 700<<10)
	if over := a.AcquireSpare(start, 1); over != budget.OverCommon {
		t.Errorf("when all is used it is over %s", over)
	}
	if over, _ := b.Acquire(start, 500<<10); over != budget.OverCommon {
		t.Fatalf("b does not wait, it is over %s", over)
	}
	now := start.Add(1100 * time.Millisecond)
	if over := a.AcquireSpare(now, 1); over != budget.OverCommon {
		t.Errorf("before one that waits it is over %s", over)
	}
	if over, wait := b.Acquire(now, 5<<10); over != budget.OverNothing {
		t.Errorf("b waits for %s, over %s", wait, over)
	}

	alone := budget.NewPeer("c", small, nil, start)
	spend(alone, start, time.Second, 1)
	if over := alone.AcquireSpare(start.Add(time.Second-10*time.Millisecond), 1); over != budget.OverWrites {
		t.Errorf("without writes left it is over %s", over)
	}
	alone = budget.NewPeer("d", small, nil, start)
	alone.Acquire(start, 4000)
	if over := alone.AcquireSpare(start, 1); over != budget.OverBytes {
		t.Errorf("without bytes left it is over %s", over)
	}
}
