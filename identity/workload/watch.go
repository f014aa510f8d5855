package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream/protolimit"
)

const (
	// firstRetry and lastRetry bound the wait between two attempts to reach
	// the Workload API, and connectRetry that of the connection below. An answer
	// comes within 4 s of its return, so that all who wait for it are served
	// within 10 s.
	firstRetry   = 250 * time.Millisecond
	lastRetry    = 2 * time.Second
	connectRetry = 1 * time.Second
	// greeting is how long a socket that accepts may take to speak HTTP/2.
	greeting = 3 * time.Second
	// silence is how long an open stream may send nothing before we report it.
	// We go on waiting: attestation of a pod can take half a minute.
	silence = 10 * time.Second
	// maxReplyHeap bounds what an answer takes once it is decoded, of the 4 MiB that gRPC
	// takes of it. It is counted before.
	maxReplyHeap = 16 << 20
)

// Run keeps the SVID and the bundles fresh until ctx is done, and then returns
// nil; what it holds stays usable until it expires. The Workload API may be
// absent, come late, go away or refuse: Run tries again, with back-off, and logs
// each distinct problem once. It is called once.
func (s *Source) Run(ctx context.Context) error {
	w := &watcher{source: s}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, s.endpoint.network, s.endpoint.address)
		w.dialed(err)
		return conn, err
	}
	connect := backoff.DefaultConfig
	connect.BaseDelay, connect.MaxDelay = firstRetry, connectRetry
	client, err := workloadapi.New(ctx,
		workloadapi.WithAddr(s.socket),
		workloadapi.WithBackoffStrategy(retry{}),
		workloadapi.WithDialOptions(
			grpc.WithContextDialer(dial),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(replyCodec{protolimit.Codec{Heap: maxReplyHeap}, s})),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: connect, MinConnectTimeout: greeting}),
		))
	if err != nil {
		return fmt.Errorf("the Workload API at %s: %w", s.socket, err)
	}
	defer func() { _ = client.Close() }() // nothing is lost with the connection

	s.client.Store(client)
	defer s.client.Store(nil)

	var watching sync.WaitGroup
	watching.Go(func() { retryWatch(ctx, func() error { return client.WatchX509Context(ctx, w) }) })
	if s.needsJWT {
		watching.Go(func() { retryWatch(ctx, func() error { return client.WatchJWTBundles(ctx, jwtWatcher{s}) }) })
	}
	s.watchClock(ctx, w)
	watching.Wait()
	return nil
}

// retryWatch watches until ctx is done. A watch returns, always with an error that its
// watcher was told too, when it holds that to be final. A server that is replaced
// makes such errors pass, so we only slow down.
func retryWatch(ctx context.Context, watch func() error) {
	pause := retry{}.NewBackoff()
	for ctx.Err() == nil {
		_ = watch()
		wait(ctx, pause.Next())
	}
}

// watchClock reports what only the passing of time shows: that the SVID in hand
// ran out, and that the Workload API is silent.
func (s *Source) watchClock(ctx context.Context, w *watcher) {
	silent := time.NewTimer(silence)
	defer silent.Stop()
	expiry := time.NewTimer(0)
	defer expiry.Stop()
	for {
		updated := s.Updated()
		held := s.current.Load()
		expiry.Stop()
		if held.svid != nil {
			if left := time.Until(held.svid.Certificates[0].NotAfter); left >= 0 {
				expiry.Reset(left + time.Millisecond)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-updated:
			silent.Reset(silence)
		case <-silent.C:
			w.silent()
		case <-expiry.C:
			s.log.Warn().Stringer("spiffe_id", held.svid.ID).Str("socket", s.socket).
				Msg("SVID has expired and the Workload API gave no new one")
			s.notify()
		}
	}
}

// wait returns after d, or earlier when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// retry is a back-off that doubles from firstRetry to lastRetry, minus up to a
// quarter so that many processes do not come at once.
type retry struct{}

func (retry) NewBackoff() workloadapi.Backoff { return &doubling{next: firstRetry} }

type doubling struct{ next time.Duration }

func (d *doubling) Next() time.Duration {
	now := d.next
	d.next = min(2*d.next, lastRetry)
	return now - rand.N(now/4)
}

func (d *doubling) Reset() { d.next = firstRetry }

// watcher takes what the Workload API says over into its source. Its methods
// may be called by several goroutines.
type watcher struct {
	source *Source

	// mu guards the fields below and orders changes of source.held.
	mu       sync.Mutex
	dialErr  error
	answered bool   // the open stream has sent something
	reported string // the last problem logged, empty when all is well
}

var _ workloadapi.X509ContextWatcher = (*watcher)(nil)

// dialed keeps why the last connection could not be made, which gRPC tells as
// text only.
func (w *watcher) dialed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialErr = err
}

// OnX509ContextUpdate takes over a whole new state: what is not in it is gone.
func (w *watcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.source
	w.answered = true
	before := s.current.Load()
	withoutUnusable(s, update.Bundles)
	next := &current{bundles: update.Bundles}
	svid, err := pick(update.SVIDs, s.id, s.hint)
	if err != nil {
		next.problem = s.describe(problemNoChoice, err)
		next.withdrawn = since(before)
		w.report(problemNoChoice, err)
		s.metrics.apiUp.Set(0)
	} else {
		next.svid = svid
		w.resolved(svid, before.svid)
		s.metrics.apiUp.Set(1)
	}
	s.metrics.count(before, next)
	s.set(next)
}

// OnX509ContextWatchError notes why there is no news. Only the answer that this
// process has no identity takes away what is held; for all else the last state
// holds until it expires.
func (w *watcher) OnX509ContextWatchError(err error) {
	if status.Code(err) == codes.Canceled {
		return // we stop
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.source
	p, cause := classify(err, w.dialErr)
	w.answered = false // the stream is over
	before := s.current.Load()
	next := &current{svid: before.svid, bundles: before.bundles, problem: s.describe(p, cause),
		withdrawn: before.withdrawn}
	if p == problemNoIdentity {
		next.svid, next.bundles, next.withdrawn = nil, x509bundle.NewSet(), since(before)
	}
	w.report(p, cause)
	s.metrics.apiUp.Set(0)
	s.metrics.count(before, next)
	s.set(next)
}

// silent reports a stream that neither fails nor sends anything.
func (w *watcher) silent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered {
		return
	}
	s := w.source
	before := s.current.Load()
	w.report(problemNoAnswer, nil)
	s.set(&current{svid: before.svid, bundles: before.bundles, problem: s.describe(problemNoAnswer, nil),
		withdrawn: before.withdrawn})
}

// since returns since when the identity is withdrawn that is so now.
func since(before *current) time.Time {
	if before.withdrawn.IsZero() {
		return time.Now()
	}
	return before.withdrawn
}

// report logs a problem, once as long as it stays the same.
func (w *watcher) report(p problem, err error) {
	text := string(p)
	if err != nil {
		text += err.Error()
	}
	if text == w.reported {
		return
	}
	w.reported = text
	event := w.source.log.Warn().Str("socket", w.source.socket)
	if err != nil {
		event = event.Err(err)
	}
	event.Msg(advice[p])
}

// resolved logs that svid is in use, when that is news to an operator.
func (w *watcher) resolved(svid, before *x509svid.SVID) {
	event := w.source.log.Debug()
	if w.reported != "" || before == nil || before.ID != svid.ID {
		event = w.source.log.Info()
	}
	w.reported = ""
	event.Stringer("spiffe_id", svid.ID).Time("not_after", svid.Certificates[0].NotAfter).Msg("SVID received")
}
