package acceptor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/argomesh/argomesh/stream/tunnel"

	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// maxOpening bounds the streams that are being opened at a time. What terminates TLS before the
// principal puts them on connections of its own, and on a new one it may put any number
// before it learns how many the principal takes on one, which is call.MaxStreams. Those
// beyond are refused, and nothing tells that from a principal that is away. Half leaves
// room for other agents.
const maxOpening = call.MaxStreams / 2

// transport is one TCP connection, which carries up to call.MaxStreams streams.
type transport struct {
	cc *grpc.ClientConn
	// proof is when the authority of our SVID ends that it was made with.
	proof time.Time
	// nonce is what the principal answers to on each of its streams. One for all of
	// them, so that a hub's connection does not cost SPIRE a signature.
	nonce stream.Nonce
	// renewAt is when the principal wants to see another; zero: we know by ourselves.
	renewAt time.Time
	streams int
	up      time.Time // since when a stream of it has been up; zero: none has
	leaving bool      // it gets no more streams
}

// tunnelStream is one stream as the loop of Run knows it.
type tunnelStream struct {
	transport *transport
	state     streamState
	conn      *tunnel.Conn // from up on
	// renewAt is when to prove ourselves by another stream, with the next token; zero
	// where there is none.
	renewAt time.Time
}

type streamState uint8

const (
	opening streamState = iota
	idle
	closing
	inUse
)

// streamEvent is what the goroutine of a stream reports to the loop.
type streamEvent struct {
	of   *tunnelStream
	kind streamState // idle, in use, or opening when it has ended
	// Of idle: of its transport, after how long to prove ourselves by another; and of
	// itself, when.
	conn       *tunnel.Conn
	proveAgain time.Duration
	renewAt    time.Time
	// Of inUse.
	waiting int
	// Of the end.
	err error
}

// acceptorRun is one Run.
type acceptorRun struct {
	*Acceptor
	events     chan streamEvent
	streams    map[*tunnelStream]struct{}
	transports map[*transport]struct{}
	// want is how many spare streams demand asks for, and urgent for how many dials wait,
	// as far as streams for them are not under way.
	want, urgent int
	// unused is the least number of spare streams since the last review.
	unused     int
	failures   int
	backingOff bool // until pause fires
	pause      *time.Timer
	able       bool        // to prove ourselves, at the last attempt
	renewTimer *time.Timer // fires when a spare stream, or a transport, is to be replaced
	stopping   bool
}

// newRun returns one that opens nothing until its pause is over, which is at once.
func newRun(a *Acceptor) *acceptorRun {
	return &acceptorRun{
		Acceptor: a, events: make(chan streamEvent), streams: map[*tunnelStream]struct{}{},
		transports: map[*transport]struct{}{}, want: a.cfg.MinSpares,
		pause: time.NewTimer(0), backingOff: true, able: true, renewTimer: time.NewTimer(0),
	}
}

// fresh reports whether a transport may get streams: it is to stay, and neither is there
// a newer SVID to be proven nor has the principal seen this one for too long.
func (t *acceptorRun) fresh(c *transport, proves time.Time) bool {
	return !c.leaving && !c.proof.Before(proves) && !passed(c.renewAt)
}

// current reports whether a stream is to stay: its transport is fresh, and there is no
// next token to be proven.
func (t *acceptorRun) current(s *tunnelStream, proves time.Time) bool {
	return t.fresh(s.transport, proves) && !passed(s.renewAt)
}

// passed reports whether there is a time, and it has come.
func passed(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

// resetRenewTimer lets balance be called again when the next stream or transport is to be
// replaced.
func (t *acceptorRun) resetRenewTimer() {
	var next time.Time
	for s := range t.streams {
		for _, at := range []time.Time{s.renewAt, s.transport.renewAt} {
			if s.state == idle && !at.IsZero() && !passed(at) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	if t.renewTimer.Stop(); !next.IsZero() {
		t.renewTimer.Reset(time.Until(next))
	}
}

// count counts the streams that are, or soon will be, spare.
func (t *acceptorRun) count(proves time.Time) (ready, coming, stale int) {
	for s := range t.streams {
		switch fresh := t.current(s, proves); {
		case s.state == idle && fresh:
			ready++
		case s.state == idle:
			stale++
		case s.state == opening && fresh:
			coming++
		}
	}
	return ready, coming, stale
}

// balance opens streams that are wanting, and gives up those that were renewed.
func (t *acceptorRun) balance(ctx context.Context) {
	proves := t.cfg.Proves()
	if t.backingOff && !t.able && t.cfg.Ready() == nil {
		t.backingOff = false // we can do now what we could not
	}
	ready, coming, stale := t.count(proves)
	target := max(t.want, t.urgent)
	if ready == 0 && !t.anyUp(proves) {
		target = 1 // the first tells whether others make sense
	}
	for !t.backingOff && ctx.Err() == nil && ready+coming < target && coming < maxOpening {
		if len(t.streams) >= t.cfg.MaxStreams {
			t.closeOneIdle(proves, true) // to make room
			break
		}
		if !t.open(ctx, proves) {
			break
		}
		coming++
	}
	if ready+coming >= t.urgent {
		t.urgent = 0
	}
	// Make before break.
	for ready >= t.want && stale > 0 && t.closeOneIdle(proves, true) {
		stale--
	}
	t.unused = min(t.unused, ready)
	t.metrics.Spare.Set(float64(ready + stale))
	t.metrics.transports.Set(float64(len(t.transports)))
	t.resetRenewTimer()
}

func (t *acceptorRun) anyUp(proves time.Time) bool {
	for c := range t.transports {
		if t.fresh(c, proves) && !c.up.IsZero() {
			return true
		}
	}
	return false
}

// closeOneIdle gives up a spare stream, one that is not current if stale, and reports
// whether there was one. One that the hub has taken goes on, also when that event is still
// to come.
func (t *acceptorRun) closeOneIdle(proves time.Time, stale bool) bool {
	for {
		var one *tunnelStream
		for s := range t.streams {
			if s.state == idle && t.current(s, proves) != stale && (one == nil ||
				s.transport.streams < one.transport.streams) {
				one = s // of the emptiest
			}
		}
		if one == nil {
			return false
		}
		if one.conn.CloseIdle() {
			one.state = closing
			return true
		}
		one.state = inUse
	}
}

// review adjusts the number of spare streams to what was used of them since the
// last time, by halves, and the number of transports to that of the streams.
func (t *acceptorRun) review() {
	proves := t.cfg.Proves()
	ready, _, _ := t.count(proves)
	if t.unused > 0 {
		t.want = max(t.cfg.MinSpares, t.want-(t.unused+1)/2)
	}
	for ; ready > t.want; ready-- {
		t.closeOneIdle(proves, false)
	}
	t.unused = ready
	var emptiest *transport
	room := 0 // in the others
	for c := range t.transports {
		if !t.fresh(c, proves) {
			continue
		}
		room += call.MaxStreams - c.streams
		if emptiest == nil || c.streams < emptiest.streams {
			emptiest = c
		}
	}
	if emptiest != nil && room-(call.MaxStreams-emptiest.streams) >= max(emptiest.streams, t.want) {
		emptiest.leaving = true // its spare streams go once the others have more
	}
}

// open begins a stream, and reports whether it could.
func (t *acceptorRun) open(ctx context.Context, proves time.Time) bool {
	var on *transport
	for c := range t.transports {
		if t.fresh(c, proves) && c.streams < call.MaxStreams && (on == nil || c.streams > on.streams) {
			on = c // the fullest, so that others empty
		}
	}
	if on == nil {
		limit := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(tunnel.MaxChunk))
		cc, err := grpc.NewClient(t.cfg.Target, append(call.DialOptions(t.cfg.Credentials), limit)...)
		if err != nil {
			t.backOff(fmt.Errorf("dial: %w", err), true)
			return false
		}
		on = &transport{cc: cc, proof: proves, nonce: t.cfg.NewNonce()}
		t.transports[on] = struct{}{}
	}
	t.able = t.cfg.Ready() == nil
	s := &tunnelStream{transport: on}
	on.streams++
	t.streams[s] = struct{}{}
	go t.runStream(ctx, s, t.events)
	return true
}

// handle handles what became of a stream.
func (t *acceptorRun) handle(n streamEvent) {
	s := n.of
	switch n.kind {
	case idle:
		s.conn, s.state, s.renewAt = n.conn, idle, n.renewAt
		if n.proveAgain > 0 && s.transport.renewAt.IsZero() {
			s.transport.renewAt = time.Now().Add(n.proveAgain)
		}
		if s.transport.up.IsZero() {
			s.transport.up = time.Now()
			t.cfg.Log.Info().Str("connection", n.conn.ID).Msg("tunnel connection to the principal is up")
		}
	case inUse:
		s.state = inUse
		t.urgent = n.waiting
		ready, _, _ := t.count(t.cfg.Proves())
		switch {
		case n.waiting > 0:
			t.want = min(t.cfg.MaxSpares, t.want+n.waiting)
		case ready == 0:
			t.want = min(t.cfg.MaxSpares, t.want+1)
		}
	default:
		t.ended(s, n.err)
	}
}

// stableAfter is how long a TCP connection must have lasted for its end to be no
// failure.
const stableAfter = 10 * time.Second

func (t *acceptorRun) ended(s *tunnelStream, err error) {
	c := s.transport
	delete(t.streams, s)
	if c.streams--; c.streams == 0 {
		_ = c.cc.Close() // nothing is left to be flushed
		delete(t.transports, c)
	}
	unasked := s.state == opening || s.state == idle
	switch {
	case !unasked || c.leaving:
	case errors.Is(err, call.ErrBusy):
		t.backOff(err, false)
	default:
		c.leaving = true
		up := !c.up.IsZero()
		if up && time.Since(c.up) >= stableAfter {
			t.failures = 0
		}
		t.backOff(err, !up)
	}
}

// backOff lets no stream be opened for a while.
func (t *acceptorRun) backOff(err error, failed bool) {
	if t.stopping {
		return
	}
	t.failures++
	t.able = t.able && t.cfg.Ready() == nil
	delay := t.cfg.BackOff.Pause(t.failures, err)
	t.backingOff = true
	t.pause.Reset(delay)
	switch log := t.cfg.Log.With().AnErr("error", err).Stringer("retry_in", delay.Round(time.Millisecond)).Logger(); {
	case errors.Is(err, call.ErrImpostor):
		log.Error().
			Msg("the server did not prove that it is the principal, so it reaches nothing on this spoke; see principal.address and principal.spiffe_ids")
	case errors.Is(err, stream.ErrIncompatible):
		log.Error().Msg("the principal has no tunnel that this agent understands; upgrade the older of the two")
	case errors.Is(err, call.ErrBusy):
		log.Warn().Msg("the principal accepts no more streams of the tunnel; see its limits")
	case failed:
		log.Warn().Msg("cannot open the tunnel to the principal")
	default:
		log.Info().Msg("tunnel connection to the principal ended")
	}
}
