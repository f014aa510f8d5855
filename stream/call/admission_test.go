package call_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/kit"
)

var (
	edge1ID = spiffeid.RequireFromString("spiffe://hub.test/edge-1")
	alsoID  = spiffeid.RequireFromString("spiffe://hub.test/edge-1-too")
	edge2ID = spiffeid.RequireFromString("spiffe://hub.test/edge-2")
)

// registry knows which agent has a SPIFFE ID.
type registry struct {
	mu      sync.Mutex // guards what follows
	agents  map[spiffeid.ID]stream.Agent
	changed chan struct{}
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{changed: make(chan struct{})}
	r.set(t, map[spiffeid.ID]string{edge1ID: "edge-1", alsoID: "edge-1", edge2ID: "edge-2"}, stream.Managed)
	return r
}

func (r *registry) set(t *testing.T, names map[spiffeid.ID]string, mode stream.Mode) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents = map[spiffeid.ID]stream.Agent{}
	for id, text := range names {
		name, err := identity.ParseAgentName(text)
		if err != nil {
			t.Fatal(err)
		}
		r.agents[id] = stream.Agent{Name: name, Mode: mode}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *registry) Admit(p identity.Peer) (stream.Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.agents[p.ID]; ok {
		return a, nil
	}
	return stream.Agent{}, identity.ErrDenied
}

func hold(t *testing.T, g *call.Admission, c call.Caller) (release func()) {
	t.Helper()
	release, err := g.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func (r *registry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

type peerKey struct{}

// as is the context of a call with a proof that lasts for d.
func as(id spiffeid.ID, d time.Duration) context.Context {
	return context.WithValue(context.Background(), peerKey{}, identity.Peer{ID: id, NotAfter: time.Now().Add(d), Method: identity.MethodX509})
}

func newGate(t *testing.T, r call.Registry) *call.Admission {
	t.Helper()
	g, err := call.NewAdmission(call.AdmissionConfig{
		Method: func(context.Context) string { return identity.MethodX509 },
		Authenticate: func(ctx context.Context) (identity.Peer, error) {
			p, ok := ctx.Value(peerKey{}).(identity.Peer)
			if !ok {
				return identity.Peer{}, identity.ErrUnauthenticated
			}
			return p, nil
		},
		Registry: r, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func admit(t *testing.T, g *call.Admission, ctx context.Context) call.Caller { //nolint:revive // t first, as everywhere
	t.Helper()
	c, err := g.Admit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAdmit(t *testing.T) {
	g := newGate(t, newRegistry(t))
	if c := admit(t, g, as(edge1ID, time.Hour)); c.Agent.Name.String() != "edge-1" || c.Peer.ID != edge1ID {
		t.Errorf("Admit() = %+v, want edge-1", c)
	}
	for what, tt := range map[string]struct {
		ctx  context.Context
		code codes.Code
	}{
		"nobody":                   {context.Background(), codes.Unauthenticated},
		"an SVID that is over":     {as(edge1ID, 0), codes.Unauthenticated},
		"an ID that is not listed": {as(spiffeid.RequireFromString("spiffe://other.test/edge-1"), time.Hour), codes.PermissionDenied},
	} {
		if _, err := g.Admit(tt.ctx); status.Code(err) != tt.code {
			t.Errorf("%s: Admit() = %v, want %s", what, err, tt.code)
		}
	}
}

// Authority lasts as long as the newest SVID that the same SPIFFE ID proved on a call
// that is open, and the grace of 30 s.
func TestAuthority(t *testing.T) {
	const minute = time.Minute
	for what, tt := range map[string]struct {
		later func(*testing.T, *call.Admission)
		lasts time.Duration
	}{
		"of one call": {func(*testing.T, *call.Admission) {}, 90 * time.Second},
		"with a newer proof": {func(t *testing.T, g *call.Admission) {
			hold(t, g, admit(t, g, as(edge1ID, 5*minute)))
		}, 50*time.Second + 5*minute + 30*time.Second},
		"renewed": {func(_ *testing.T, g *call.Admission) {
			g.Renew(identity.Peer{ID: edge1ID, NotAfter: time.Now().Add(5 * minute)})
		}, 50*time.Second + 5*minute + 30*time.Second},
		"renewed by less": {func(_ *testing.T, g *call.Admission) {
			g.Renew(identity.Peer{ID: edge1ID, NotAfter: time.Now().Add(time.Second)})
		}, 90 * time.Second},
		"when another ID renews": {func(_ *testing.T, g *call.Admission) {
			g.Renew(identity.Peer{ID: alsoID, NotAfter: time.Now().Add(5 * minute)})
		}, 90 * time.Second},
		"with an older proof": {func(t *testing.T, g *call.Admission) {
			hold(t, g, admit(t, g, as(edge1ID, time.Second)))
		}, 90 * time.Second},
		"with a newer proof of another ID of the agent": {func(t *testing.T, g *call.Admission) {
			hold(t, g, admit(t, g, as(alsoID, 5*minute)))
		}, 90 * time.Second},
		"with a newer proof of another agent": {func(t *testing.T, g *call.Admission) {
			hold(t, g, admit(t, g, as(edge2ID, 5*minute)))
		}, 90 * time.Second},
		"with a newer proof on a call that has ended since": {func(t *testing.T, g *call.Admission) {
			hold(t, g, admit(t, g, as(edge1ID, 5*minute)))()
		}, 50*time.Second + 5*minute + 30*time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, newRegistry(t))
				c := admit(t, g, as(edge1ID, minute))
				release := hold(t, g, c)
				defer release()
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- g.Watch(context.Background(), c, nil) }()
				time.Sleep(50 * time.Second) //nolint:forbidigo // virtual time
				tt.later(t, g)
				if err := <-ended; !errors.Is(err, call.ErrExpired) {
					t.Errorf("Watch() = %v, want %v", err, call.ErrExpired)
				}
				if lasted := time.Since(began); lasted != tt.lasts {
					t.Errorf("authority lasts %s, want %s", lasted, tt.lasts)
				}
			})
		})
	}
}

// With our own identity withdrawn, calls end after the grace, whatever their callers
// prove, unless it comes back meanwhile.
func TestWithdrawnIdentity(t *testing.T) {
	for what, tt := range map[string]struct {
		back  time.Duration // after the withdrawal; zero: never
		lasts time.Duration
		why   error
	}{
		"for good":             {0, 10*time.Second + 30*time.Second, call.ErrUnproven},
		"for less than grace":  {29 * time.Second, time.Hour + 30*time.Second, call.ErrExpired},
		"for more than grace":  {31 * time.Second, 10*time.Second + 30*time.Second, call.ErrUnproven},
		"for the grace itself": {30 * time.Second, 10*time.Second + 30*time.Second, call.ErrUnproven},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards what follows
				var since time.Time
				updated := make(chan struct{})
				set := func(at time.Time) {
					mu.Lock()
					defer mu.Unlock()
					since = at
					close(updated)
					updated = make(chan struct{})
				}
				g, err := call.NewAdmission(call.AdmissionConfig{
					Method:       func(context.Context) string { return identity.MethodX509 },
					Authenticate: func(ctx context.Context) (identity.Peer, error) { return ctx.Value(peerKey{}).(identity.Peer), nil },
					Withdrawn: func() time.Time {
						mu.Lock()
						defer mu.Unlock()
						return since
					},
					Updated: func() <-chan struct{} {
						mu.Lock()
						defer mu.Unlock()
						return updated
					},
					Registry: newRegistry(t), Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
				})
				if err != nil {
					t.Fatal(err)
				}
				c := admit(t, g, as(edge1ID, time.Hour))
				defer hold(t, g, c)()
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- g.Watch(context.Background(), c, nil) }()
				time.AfterFunc(10*time.Second, func() { set(time.Now()) })
				if tt.back > 0 {
					// A moment later than an end at the same time.
					time.AfterFunc(10*time.Second+tt.back+time.Nanosecond, func() { set(time.Time{}) })
				}
				if err := <-ended; !errors.Is(err, tt.why) {
					t.Errorf("Watch() = %v, want %v", err, tt.why)
				}
				if lasted := time.Since(began); lasted != tt.lasts {
					t.Errorf("the call lasts %s, want %s", lasted, tt.lasts)
				}
			})
		})
	}
}

// What was proven is forgotten with the last call that is open.
func TestProofsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, newRegistry(t))
		hold(t, g, admit(t, g, as(edge1ID, time.Hour)))()
		c := admit(t, g, as(edge1ID, time.Minute))
		defer hold(t, g, c)()
		began := time.Now()
		if err := g.Watch(context.Background(), c, nil); !errors.Is(err, call.ErrExpired) || time.Since(began) != 90*time.Second {
			t.Errorf("Watch() = %v after %s, want %v after 90s", err, time.Since(began), call.ErrExpired)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*testing.T, *registry, *call.Admission, context.CancelFunc)
		want   error
	}{
		"by revocation": {func(t *testing.T, r *registry, _ *call.Admission, _ context.CancelFunc) {
			r.set(t, map[spiffeid.ID]string{edge2ID: "edge-2"}, stream.Managed)
		}, stream.ErrRevoked},
		"by another owner of the ID": {func(t *testing.T, r *registry, _ *call.Admission, _ context.CancelFunc) {
			r.set(t, map[spiffeid.ID]string{edge1ID: "edge-2"}, stream.Managed)
		}, stream.ErrRevoked},
		"by another mode": {func(t *testing.T, r *registry, _ *call.Admission, _ context.CancelFunc) {
			r.set(t, map[spiffeid.ID]string{edge1ID: "edge-1"}, stream.Autonomous)
		}, stream.ErrRevoked},
		"by draining":      {func(_ *testing.T, _ *registry, g *call.Admission, _ context.CancelFunc) { g.Drain(); g.Drain() }, call.ErrDraining},
		"with the context": {func(_ *testing.T, _ *registry, _ *call.Admission, cancel context.CancelFunc) { cancel() }, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				g := newGate(t, r)
				c := admit(t, g, as(edge1ID, time.Hour))
				defer hold(t, g, c)()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- g.Watch(ctx, c, g.Draining()) }()
				// A change that is not about the caller ends nothing.
				r.set(t, map[spiffeid.ID]string{edge1ID: "edge-1"}, stream.Managed)
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("Watch() = %v before anything changed", err)
				default:
				}
				changed := time.Now()
				tt.change(t, r, g, cancel)
				if err := <-ended; !errors.Is(err, tt.want) {
					t.Errorf("Watch() = %v, want %v", err, tt.want)
				}
				if took := time.Since(changed); took > 0 { // by the clock of the bubble
					t.Errorf("Watch() = after %s", took)
				}
			})
		})
	}
}

func TestFirst(t *testing.T) {
	broken := errors.New("broken")
	for what, tt := range map[string]struct {
		recv  func() (string, error)
		drain bool
		want  error
		after time.Duration
	}{
		"a message":       {recv: func() (string, error) { return "hello", nil }},
		"a broken call":   {recv: func() (string, error) { return "", broken }, want: broken},
		"silence":         {recv: func() (string, error) { <-time.After(time.Minute); return "late", nil }, want: stream.ErrProtocol, after: 10 * time.Second},
		"a stop meantime": {recv: func() (string, error) { <-time.After(time.Minute); return "late", nil }, drain: true, want: call.ErrDraining},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, newRegistry(t))
				if tt.drain {
					g.Drain()
				}
				began := time.Now()
				got, err := call.First(g, tt.recv)
				if !errors.Is(err, tt.want) || (err == nil) != (got == "hello") || time.Since(began) != tt.after {
					t.Errorf("First() = %q, %v after %s, want %v after %s", got, err, time.Since(began), tt.want, tt.after)
				}
				time.Sleep(time.Hour) //nolint:forbidigo // virtual time, in which the call ends
			})
		})
	}
}

// A proxy that does not say whose a call is counts apart from a caller that proves nothing.
func TestHeaderlessCallsAreCounted(t *testing.T) {
	metrics, calls := prometheus.NewRegistry(), 0
	g, err := call.NewAdmission(call.AdmissionConfig{
		Method: func(context.Context) string { return identity.MethodHeader },
		Authenticate: func(context.Context) (identity.Peer, error) {
			if calls++; calls > 2 {
				return identity.Peer{}, identity.ErrUnauthenticated
			}
			return identity.Peer{}, fmt.Errorf("%w: %w", identity.ErrHeaderMissing, identity.ErrUnauthenticated)
		},
		Registry: newRegistry(t), Metrics: metrics, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := g.Admit(t.Context()); status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "authentication failed" {
			t.Errorf("Admit() = %v", err) // who calls learns nothing of it
		}
	}
	want := `
		# HELP argomesh_stream_refused_total Calls that were refused, by why.
		# TYPE argomesh_stream_refused_total counter
		argomesh_stream_refused_total{kind="headerless"} 2
		argomesh_stream_refused_total{kind="unauthenticated"} 1
	`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "argomesh_stream_refused_total"); err != nil {
		t.Error(err)
	}
}

// An agent whose calls do not say what they are for has few of them, and others notice nothing.
func TestPendingCallsAreBounded(t *testing.T) {
	const most = 2 * call.MaxStreams
	g := newGate(t, newRegistry(t))
	ctx, end := context.WithCancel(as(edge1ID, time.Hour))
	defer end()
	calls := make([]call.Caller, most)
	for i := range calls {
		calls[i] = admit(t, g, ctx)
	}
	full := func(want bool) {
		t.Helper()
		one, over := context.WithCancel(as(alsoID, time.Hour)) // of another SPIFFE ID of the same agent
		_, err := g.Admit(one)
		over()
		if is := status.Code(err) == codes.Aborted; is != want || !want && err != nil {
			t.Errorf("another call: %v, want it refused: %t", err, want)
		}
	}
	full(true)
	admit(t, g, as(edge2ID, time.Hour))
	release := hold(t, g, calls[0]) // which says what it is for
	kit.Eventually(t, "there is room for a call in place of one that is open", func() bool {
		one, over := context.WithCancel(as(edge1ID, time.Hour))
		defer over()
		_, err := g.Admit(one)
		return err == nil
	})
	kit.Eventually(t, "a call that ended takes no room", func() bool {
		again, err := g.Admit(ctx)
		if err == nil {
			calls[0] = again
		}
		return err == nil
	})
	full(true)
	release() // an open one is not counted, so that its end gives no room
	full(true)
	end()
	kit.Eventually(t, "all have room once the calls have ended", func() bool {
		one, over := context.WithCancel(as(edge1ID, time.Hour))
		defer over()
		_, err := g.Admit(one)
		return err == nil
	})
}

func TestNewGateChecks(t *testing.T) {
	if _, err := call.NewAdmission(call.AdmissionConfig{}); err == nil {
		t.Error("NewAdmission() of nothing succeeds")
	}
}

// TestCallsCountAtTheProcessors: who begins calls without end waits for its turn at the
// processors; until then none of its calls goes on.
func TestCallsCountAtTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // of which half is one
	synctest.Test(t, func(t *testing.T) {
		q, err := quota.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		g, err := call.NewAdmission(call.AdmissionConfig{
			Method:       func(context.Context) string { return identity.MethodX509 },
			Authenticate: func(ctx context.Context) (identity.Peer, error) { return ctx.Value(peerKey{}).(identity.Peer), nil },
			Registry:     newRegistry(t), Quota: q, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		other, err := identity.ParseAgentName("other")
		if err != nil {
			t.Fatal(err)
		}
		q.Spend(other, time.Second)
		turn := q.Compute(other)
		admitted := make(chan struct{}, 2000)
		go func() {
			for range 2000 {
				hold(t, g, admit(t, g, as(edge1ID, time.Hour)))()
				admitted <- struct{}{}
			}
		}()
		synctest.Wait()
		if n := len(admitted); n != 1000 {
			t.Errorf("%d calls are admitted while it is another one's turn, want 1,000", n)
		}
		turn.End()
		synctest.Wait()
		if n := len(admitted); n != 2000 {
			t.Errorf("%d calls are admitted in its turn, want all", n)
		}
	})
}
