package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
)

// attacker is the peer of one side of a pair: it says what a test wants.
type attacker struct {
	conn
	t      *testing.T
	end    context.CancelCauseFunc // of the context of Serve
	served chan error
	mu     sync.Mutex // guards heard
	heard  []stream.Message
}

// attack connects an attacker to e.
func (r *pair) attack(e end) *attacker {
	r.t.Helper()
	broken, cut := context.WithCancel(r.ctx)
	ours, theirs := pipe(broken)
	ctx, end := context.WithCancelCause(r.ctx)
	a := &attacker{conn: theirs, t: r.t, end: end, served: make(chan error, 1)}
	r.wait.Go(func() {
		a.served <- e.Serve(ctx, mirror.Peer{Connection: fmt.Sprint("c", r.connection.Add(1)), HubUID: "hub-1"}, ours)
		cut()
	})
	r.wait.Go(func() {
		for {
			msg, err := theirs.Recv()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.heard = append(a.heard, msg)
			a.mu.Unlock()
		}
	})
	synctest.Wait()
	return a
}

func (a *attacker) say(m stream.Message) {
	a.t.Helper()
	if err := a.Send(m); err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
}

// results are the answers to events, by their ids.
func (a *attacker) results() map[string]stream.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]stream.Result{}
	for _, m := range a.heard {
		if applied, ok := m.(stream.Applied); ok {
			for _, r := range applied.Results {
				out[r.Event] = r
			}
		}
	}
	return out
}

// goodbye is the reason for which the other side ended the connection.
func (a *attacker) goodbye() stream.GoodbyeReason {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.heard {
		if bye, ok := m.(stream.Goodbye); ok {
			return bye.Reason
		}
	}
	return ""
}

// creation asks for an Application of that name.
func creation(id, name string) stream.Event {
	data := []byte(`{"spec":{"project":"default","destination":{}}}`)
	return stream.Event{
		ID: id, Verb: stream.Apply, Key: stream.EntryKey{Collection: stream.Applications, Name: name}, Revision: 1,
		Version: stream.Version{SourceUID: "u-" + name, Hash: stream.HashOf(data)}, Data: data,
	}
}

// However many tokens a hub tells, the spoke's API server is asked for one at a time, and a
// hub that tells without end is left.
func TestTokensAreKeptOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		var mu sync.Mutex // guards asked
		kept := make(chan struct{})
		r := newPair(t, options{configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Hub {
				return
			}
			cfg.SaveHistory = func(ctx context.Context, _ string, h stream.History) error {
				mu.Lock()
				asked = append(asked, h.Token)
				mu.Unlock()
				select {
				case <-kept:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}})
		a := r.attack(r.spoke)
		for i := range 3 {
			a.say(stream.History{ID: "h", Token: fmt.Sprint("t", i), Revision: 1})
		}
		for i := range 3 {
			mu.Lock()
			if len(asked) != i+1 {
				t.Errorf("%v are being kept, want %d", asked, i+1)
			}
			mu.Unlock()
			kept <- struct{}{}
			synctest.Wait()
		}
		var echoes []string
		a.mu.Lock()
		for _, m := range a.heard {
			if h, ok := m.(stream.History); ok {
				echoes = append(echoes, h.Token)
			}
		}
		a.mu.Unlock()
		if got := strings.Join(echoes, " "); got != "t0 t1 t2" {
			t.Errorf("the hub is told of %q", got)
		}
		for i := range 64 {
			a.say(stream.History{ID: "h", Token: fmt.Sprint("u", i), Revision: 1})
		}
		if bye := a.goodbye(); bye != "" {
			t.Errorf("the spoke left because of %q", bye)
		}
		a.say(stream.History{ID: "h", Token: "one more", Revision: 1})
		if bye := a.goodbye(); bye != stream.GoodbyeProtocol {
			t.Errorf("the spoke said goodbye because of %q", bye)
		}
		if len(asked) != 4 {
			t.Errorf("%d tokens were kept, or begun with", len(asked))
		}
	})
}

// Events that we do not know are answered and logged once in a connection, and the
// link goes on.
func TestUnsupportedEventsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newPair(t, options{configure: func(side stream.Side, cfg *mirror.Config) {
			if side == stream.Spoke {
				cfg.Log = zerolog.New(zerolog.SyncWriter(&log))
			}
		}})
		a := r.attack(r.spoke)
		for i := range 5 {
			a.say(stream.Batch{
				Events:      []stream.Event{creation(fmt.Sprint("e", i), fmt.Sprint("app-", i))},
				Unsupported: []stream.Unsupported{{ID: fmt.Sprint("x", i), Type: "io.argomesh.secret.apply"}},
			})
		}
		pass(time.Second)
		results := a.results()
		for i := range 5 {
			if r := results[fmt.Sprint("x", i)]; r.Refusal == nil || r.Refusal.Kind != stream.RefusalUnsupported {
				t.Errorf("the answer to the unknown event %d is %+v", i, r)
			}
			if r := results[fmt.Sprint("e", i)]; r.Refusal != nil || r.Held.Absent() {
				t.Errorf("the answer to the event beside it is %+v", r)
			}
		}
		if n := strings.Count(log.String(), "io.argomesh.secret.apply"); n != 1 {
			t.Errorf("it is logged %d times, want once:\n%s", n, log.String())
		}
	})
}

// Who breaks the protocol is told so, and is told apart from one who says so of us.
func TestViolationsEndTheConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		hub bool // is attacked, else the spoke
		say stream.Message
		is  stream.Violation
	}{
		"a spoke that says where the hub stands": {true, stream.History{ID: "mine", Token: "t"}, stream.ViolationDirection},
		"a spoke that sends Applications":        {true, stream.Batch{Events: []stream.Event{creation("e", "a")}}, stream.ViolationDirection},
		"a hub that says what the spoke has":     {false, stream.SpokeInfo{Applications: 1}, stream.ViolationDirection},
		"a hub that says what argo cd says":      {false, stream.ApplicationEvents{}, stream.ViolationDirection},
		"a list that nobody asked for":           {false, stream.Inventory{Collection: stream.Statuses}, stream.ViolationOrder},
		"a peer that says that we broke it":      {true, stream.Goodbye{Reason: stream.GoodbyeProtocol}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				e := r.spoke
				if tt.hub {
					e = r.hub
				}
				a := r.attack(e)
				a.say(tt.say)
				err := <-a.served
				if !errors.Is(err, stream.ErrProtocol) || stream.ViolationOf(err) != tt.is {
					t.Errorf("Serve() = %v, want kind %q", err, tt.is)
				}
				if got := a.goodbye(); (got == stream.GoodbyeProtocol) != (tt.is != "") {
					t.Errorf("the goodbye is %q", got)
				}
			})
		})
	}
}

// Of what a peer sent before its authority ended nothing is begun after it.
func TestNothingIsBegunAfterARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var tries atomic.Int64
		r := newPair(t, options{
			mode: stream.Autonomous,
			hub: memory.Config{Fault: func(op memory.Op, key stream.ResourceKey) error {
				if op == memory.OpCreate && key.Name == "first" && tries.Add(1) == 1 {
					<-free
					return stream.ErrConflict // it is read and planned again
				}
				return nil
			}},
			configure: func(_ stream.Side, cfg *mirror.Config) { cfg.Workers = 1 },
		})
		a := r.attack(r.hub)
		a.say(stream.Batch{Events: []stream.Event{creation("e1", "first"), creation("e2", "second")}})
		a.end(stream.ErrRevoked)
		if err := <-a.served; !errors.Is(err, stream.ErrRevoked) {
			t.Errorf("Serve() = %v", err)
		}
		close(free)
		pass(time.Minute)
		for _, name := range []string{"first", "second"} {
			if _, there := r.hub.store.Get(r.hub.key(name)); there {
				t.Errorf("%s was made after the revocation", name)
			}
		}
	})
}

// Thousands of objects that a side cannot take do not flood its log, nor that of
// the other.
func TestRefusalsDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 2000
		var logs [3]bytes.Buffer
		r := newPair(t, options{
			spoke: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
				if op == memory.OpCreate {
					return fmt.Errorf("no: %w", stream.ErrRefused)
				}
				return nil
			}},
			configure: func(side stream.Side, cfg *mirror.Config) { cfg.Log = zerolog.New(zerolog.SyncWriter(&logs[side])) },
		})
		for i := range objects {
			r.create(r.hub, fmt.Sprint("invalid-", i), nil, m{"spec": m{"destination": m{"name": "edge-1"}}})
		}
		r.connect()
		pass(time.Minute)
		stats, err := r.hub.Stats(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(stats.Parked) != objects {
			t.Errorf("%d are parked, want %d", len(stats.Parked), objects)
		}
		for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
			if lines := strings.Count(logs[side].String(), "\n"); lines == 0 || lines > 400 {
				t.Errorf("the %s wrote %d lines in a minute, want some and not more than 400", side, lines)
			}
		}
	})
}

// Whose words wait on this side for memory keeps its connection, however long others hold
// that; it ends by its silence from then on.
func TestWhoWaitsForMemoryKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		var waits atomic.Bool
		waits.Store(true)
		broken, cut := context.WithCancel(r.ctx)
		ours, theirs := pipe(broken)
		served := make(chan error, 1)
		r.wait.Go(func() {
			served <- r.hub.Serve(r.ctx, mirror.Peer{Connection: "c", Waits: waits.Load}, ours)
			cut()
		})
		r.wait.Go(func() {
			for {
				if _, err := theirs.Recv(); err != nil {
					return
				}
			}
		})
		pass(10 * time.Minute)
		select {
		case err := <-served:
			t.Fatalf("Serve() = %v while it waits", err)
		default:
		}
		waits.Store(false)
		pass(time.Minute)
		select {
		case err := <-served:
			if !errors.Is(err, session.ErrEnded) {
				t.Errorf("Serve() = %v", err)
			}
		default:
			t.Error("it goes on without a word")
		}
	})
}
