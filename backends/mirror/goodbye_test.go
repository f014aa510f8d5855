package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
)

// goodbyes is a connection that keeps the reasons it was ended for.
type goodbyes struct {
	conn
	said chan stream.GoodbyeReason
}

func (g goodbyes) Send(msg stream.Message) error {
	if bye, ok := msg.(stream.Goodbye); ok {
		g.said <- bye.Reason
	}
	return g.conn.Send(msg)
}

// The side whose context ends says why, and the peer's Serve returns it.
func TestGoodbyeSaysWhy(t *testing.T) {
	other := errors.New("the principal is stopping")
	for name, tt := range map[string]struct {
		cause   error
		reason  stream.GoodbyeReason
		revoked bool
	}{
		"revoked":          {fmt.Errorf("guard: %w", stream.ErrRevoked), stream.GoodbyeRevoked, true},
		"drained":          {other, stream.GoodbyeDrain, false},
		"without a reason": {nil, stream.GoodbyeDrain, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				broken, cut := context.WithCancel(r.ctx)
				defer cut()
				hub, spoke := pipe(broken)
				ends := goodbyes{hub, make(chan stream.GoodbyeReason, 1)}
				ctx, end := context.WithCancelCause(r.ctx)
				fromHub, fromSpoke := make(chan error, 1), make(chan error, 1)
				r.wait.Go(func() {
					fromHub <- r.hub.Serve(ctx, mirror.Peer{Connection: "c"}, ends)
					cut() // as a server does when its handler returns
				})
				r.wait.Go(func() {
					fromSpoke <- r.spoke.Serve(r.ctx, mirror.Peer{Connection: "c", HubUID: "hub-1"}, spoke)
				})
				synctest.Wait()
				end(tt.cause)
				if got := <-ends.said; got != tt.reason {
					t.Errorf("goodbye %q, want %q", got, tt.reason)
				}
				if err := <-fromHub; !errors.Is(err, session.ErrEnded) || tt.cause != nil && !errors.Is(err, tt.cause) {
					t.Errorf("Serve() of the hub = %v, want the cause %v", err, tt.cause)
				}
				if err := <-fromSpoke; !errors.Is(err, session.ErrEnded) || errors.Is(err, stream.ErrRevoked) != tt.revoked {
					t.Errorf("Serve() of the spoke = %v; revoked is to be %t", err, tt.revoked)
				}
			})
		})
	}
}

// A link that ends says on its connections why, though their own contexts do not.
func TestEndOfALinkSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		cause  error
		reason stream.GoodbyeReason
	}{
		"revoked":          {fmt.Errorf("registry: %w", stream.ErrRevoked), stream.GoodbyeRevoked},
		"without a reason": {nil, stream.GoodbyeDrain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				ctx, cut := context.WithCancel(t.Context())
				hub, spoke := pipe(ctx)
				ends := goodbyes{hub, make(chan stream.GoodbyeReason, 1)}
				fromHub := make(chan error, 1)
				r.wait.Go(func() { fromHub <- r.hub.Serve(ctx, mirror.Peer{Connection: "c"}, ends) })
				r.wait.Go(func() {
					for {
						switch msg, err := spoke.Recv(); msg.(type) {
						case stream.Goodbye:
							cut()
						default:
							if err != nil {
								return
							}
						}
					}
				})
				synctest.Wait()
				r.cancel(tt.cause)
				if got := <-ends.said; got != tt.reason {
					t.Errorf("goodbye %q, want %q", got, tt.reason)
				}
				if err := <-fromHub; !errors.Is(err, session.ErrEnded) || tt.cause != nil && !errors.Is(err, stream.ErrRevoked) {
					t.Errorf("Serve() of the hub = %v, want the cause %v", err, tt.cause)
				}
			})
		})
	}
}

// At a drain Serve returns when the peer has ended the connection, so that the
// next one begins after it; a peer that does not is waited for a second. At a
// revocation it is not waited for.
func TestDrainIsHeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		cause error
		ends  time.Duration // of the peer, after it has read the goodbye
		want  time.Duration
	}{
		"a drain that is heeded":     {errors.New("stopping"), 300 * time.Millisecond, 300 * time.Millisecond},
		"a drain that is not":        {errors.New("stopping"), time.Hour, time.Second},
		"a revocation, heeded late":  {stream.ErrRevoked, 300 * time.Millisecond, 0},
		"a revocation, heeded never": {stream.ErrRevoked, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				broken, cut := context.WithCancel(r.ctx)
				defer cut()
				mine, theirs := pipe(broken)
				ctx, end := context.WithCancelCause(r.ctx)
				served := make(chan error, 1)
				r.wait.Go(func() { served <- r.hub.Serve(ctx, mirror.Peer{Connection: "c"}, mine) })
				read := make(chan time.Time, 1)
				r.wait.Go(func() { // it talks on until the end
					for theirs.Send(stream.Heartbeat{}) == nil {
						<-time.After(10 * time.Millisecond)
					}
				})
				r.wait.Go(func() {
					for {
						switch msg, err := theirs.Recv(); msg.(type) {
						case stream.Goodbye:
							read <- time.Now()
							select {
							case <-time.After(tt.ends):
							case <-broken.Done():
							}
							cut()
						default:
							if err != nil {
								return
							}
						}
					}
				})
				pass(5 * time.Millisecond)
				end(tt.cause)
				said := <-read
				if err := <-served; !errors.Is(err, tt.cause) {
					t.Errorf("Serve() = %v, want %v", err, tt.cause)
				}
				if took := time.Since(said); took != tt.want {
					t.Errorf("Serve() returned %s after its goodbye was read, want %s", took, tt.want)
				}
			})
		})
	}
}

// A connection that takes over in the middle of the work of the one before does
// none of it twice.
func TestTakeoverInTheMiddleOfWork(t *testing.T) {
	const objects = 30
	synctest.Test(t, func(t *testing.T) {
		var creates atomic.Int64
		r := newPair(t, options{spoke: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
			if op != memory.OpRead {
				creates.Add(1)
				<-time.After(time.Second)
			}
			return nil
		}}})
		for i := range objects {
			r.create(r.hub, fmt.Sprint("a-", i), nil, spec("one"))
		}
		r.connect()
		pass(500 * time.Millisecond)
		if n := creates.Load(); n == 0 || n == objects {
			t.Fatalf("%d writes have begun, want some: the test shows nothing", n)
		}
		for range 3 { // each of them while others are written
			r.connect()
			pass(700 * time.Millisecond)
		}
		pass(time.Minute)
		if n := creates.Load(); n != objects {
			t.Errorf("%d writes on the spoke, want one for each of %d objects", n, objects)
		}
		if !r.stats(r.hub).Agreed || !r.stats(r.spoke).Agreed {
			t.Error("the sides do not agree")
		}
	})
}

// endedStream is a stream that has ended: who sends is told no more than that, and who
// receives how, a while later.
type endedStream struct {
	told chan error
}

func (e endedStream) Send(stream.Message) error { return io.EOF }

func (e endedStream) Recv() (stream.Message, error) { return nil, <-e.told }

// TestASendThatFailsSaysHowTheStreamEnded, such as that the agent was suspended, when the
// receiving side learns it in time.
func TestASendThatFailsSaysHowTheStreamEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		want  error
	}{
		"soon":     {100 * time.Millisecond, stream.ErrRevoked},
		"too late": {time.Minute, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				conn := endedStream{make(chan error, 1)}
				r.wait.Go(func() {
					<-time.After(tt.after)
					conn.told <- fmt.Errorf("the registry no longer admits the agent: %w", stream.ErrRevoked)
				})
				err := r.spoke.Serve(r.ctx, mirror.Peer{Connection: "c", HubUID: "hub-1"}, conn)
				if !errors.Is(err, tt.want) {
					t.Errorf("Serve() = %v, want %v", err, tt.want)
				}
			})
		})
	}
}
