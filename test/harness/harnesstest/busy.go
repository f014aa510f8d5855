//go:build linux

package harnesstest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/argomesh/argomesh/test/harness/broker"
)

const (
	// firstBusy is how many tests keep servers busy at a time before anything is known of the
	// machine. go test's own limit counts tests that wait for one another, too.
	firstBusy = 6
	// maxStarts is how many control planes start at a time. Dozens at once would take minutes
	// each, in which no test runs, and some would end because their own checks take too long.
	maxStarts = 2
)

// Kinds of what a broker grants, for the programs of one go test together.
const (
	kindBusy  = "busy"
	kindStart = "start"
)

// Limits are those that tests which start servers keep to. Methods may be called concurrently.
type Limits struct{ busy, starts *broker.Slots }

// NewLimits returns limits of which nothing is used.
func NewLimits() *Limits {
	return &Limits{busy: broker.NewSlots(firstBusy), starts: broker.NewSlots(maxStarts)}
}

// own are those of this program, which keeps to them where no broker is.
var own = NewLimits()

// Handle answers what tests of other programs ask of the limits; known is false for other
// requests. It is part of a broker.Handler.
func (l *Limits) Handle(ctx context.Context, r broker.Request) (release func(failed bool), known bool, err error) {
	slots := map[string]*broker.Slots{kindBusy: l.busy, kindStart: l.starts}[r.Kind]
	if slots == nil {
		return nil, false, nil
	}
	give, err := slots.Take(ctx, r.Name, r.Shares)
	return func(bool) { give() }, true, err
}

// take takes one of the slots of a kind, the broker's where there is one.
func take(ctx context.Context, r broker.Request) (release func(), err error) {
	if address := os.Getenv(broker.Variable); address != "" {
		lease, err := broker.Take(ctx, address, r)
		if err != nil {
			return nil, err
		}
		return func() { lease.Release(false) }, nil
	}
	give, _, err := own.Handle(ctx, r)
	if err != nil {
		return nil, err
	}
	return func() { give(false) }, nil
}

// Busy waits until another test may keep servers busy, and counts this one until it ends. shares names the servers that the test shares with others; empty means
// that it has its own. Tests that share what was begun first come first, so that it is
// done with early and ends. A subtest shares the slot of its test, so that none waits
// for its own parent.
func Busy(t testing.TB, shares string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	release, err := take(t.Context(), broker.Request{Kind: kindBusy, Name: name, Shares: shares})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
}

// Turn waits until another control plane may start, for those of a program that has a
// harness of its own, and returns what says that they have.
func Turn(t testing.TB) (done func()) {
	t.Helper()
	done, err := start(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	done = sync.OnceFunc(done)
	t.Cleanup(done)
	return done
}

// start is for a control plane that starts.
func start(ctx context.Context, name string) (done func(), err error) {
	return take(ctx, broker.Request{Kind: kindStart, Name: name})
}
