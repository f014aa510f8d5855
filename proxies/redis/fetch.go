package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const (
	// idleCalls is the number of connections to one agent that are kept for the next
	// call, and idleCallTime for how long. The agent keeps them longer.
	idleCalls    = 16
	idleCallTime = 30 * time.Second
	// progressTimeout bounds the wait for the next bytes of an answer that has begun.
	progressTimeout = 10 * time.Second
)

// The first words of a Spoke's errors.
const (
	spokeDenied = "DENIED"  // the command or the key is not for the hub
	spokeFormat = "FORMAT"  // the format it keeps follows
	spokeAway   = "NOREDIS" // its Redis does not answer
)

// remote is an agent as the hub's end reaches it.
type remote struct {
	hub   *Hub
	agent identity.AgentName
	// calls has a value for each read under way.
	calls chan struct{}

	mu     sync.Mutex // guards what follows
	idle   []*link
	warned map[string]time.Time // when what was last said of it
	fit    fit

	subscriber *subscriber
}

func newRemote(h *Hub, agent identity.AgentName) *remote {
	r := &remote{hub: h, agent: agent, calls: make(chan struct{}, h.cfg.MaxAgentCalls), warned: map[string]time.Time{}}
	r.subscriber = newSubscriber(r)
	return r
}

// link is one connection to an agent's Spoke.
type link struct {
	conn *patient
	in   wire
	// expiry ends it when it is idle.
	expiry *time.Timer
}

func (r *remote) dial(ctx context.Context) (*link, error) {
	conn, err := r.hub.cfg.DialSpoke(ctx, r.agent)
	if err != nil {
		return nil, err
	}
	p := &patient{Conn: conn, read: progressTimeout, write: progressTimeout}
	return &link{conn: p, in: newWire(p)}, nil
}

// takeIdle returns a connection that was kept; nil when there is none.
func (r *remote) takeIdle() *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.idle) > 0 {
		last := len(r.idle) - 1
		l := r.idle[last]
		r.idle[last] = nil
		r.idle = r.idle[:last]
		if l.expiry.Stop() {
			return l
		}
	}
	return nil
}

// give keeps a connection for the next call, or closes it.
func (r *remote) give(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.idle) >= idleCalls || l.in.Buffered() > 0 {
		_ = l.conn.Close() // it has no error to return
		return
	}
	l.expiry = time.AfterFunc(idleCallTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = l.conn.Close() // as above
		r.idle = slices.DeleteFunc(r.idle, func(other *link) bool { return other == l })
	})
	r.idle = append(r.idle, l)
}

// closeIdle closes the connections that are kept.
func (r *remote) closeIdle() {
	for l := r.takeIdle(); l != nil; l = r.takeIdle() {
		_ = l.conn.Close() // it has no error to return
	}
}

// fetch is one read of agents' keys.
type fetch struct {
	hub    *Hub
	spawn  spawn
	verb   string
	keys   []owned
	remote *remote

	once   sync.Once
	done   chan struct{} // closed when reply is there
	reply  *reply
	mu     sync.Mutex // guards gone, cancel and, until done, reply
	gone   bool
	cancel context.CancelFunc
}

func newFetch(h *Hub, spawn spawn, verb string, keys []owned) *fetch {
	return &fetch{hub: h, spawn: spawn, verb: verb, keys: keys, done: make(chan struct{})}
}

// start begins it, once.
func (f *fetch) start(ctx context.Context) {
	f.once.Do(func() {
		ctx, cancel := context.WithCancel(ctx)
		f.mu.Lock()
		f.cancel = cancel
		f.mu.Unlock()
		f.spawn(func(context.Context) {
			reply := f.run(ctx)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.gone {
				reply.close()
				cancel()
				return
			}
			f.reply = reply
			close(f.done)
		})
	})
}

// wait returns the reply, which the caller closes.
func (f *fetch) wait(ctx context.Context) *reply {
	select {
	case <-f.done:
		f.cancel()
		return f.reply
	case <-ctx.Done():
		f.drop()
		return &reply{err: context.Cause(ctx)}
	}
}

// drop ends it: nobody waits any more.
func (f *fetch) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return
	}
	f.gone = true
	if f.cancel != nil {
		f.cancel()
	}
	if f.reply != nil {
		f.reply.close()
	}
}

// reply is the answer to a fetch: whole, still to be read from the agent, or an error
// after which nothing can be said.
type reply struct {
	raw  []byte // in RESP2
	link *link  // still to be read
	// values is what is to be read of it: the whole reply, unless size is a string's,
	// whose header was read.
	size int
	err  error
	// free gives back what the reply holds.
	free func(sound bool)
	read bool
}

func (r *reply) close() {
	if r.free != nil {
		r.free(r.read)
		r.free = nil
	}
}

// endWith ends what is still to be read with ctx, until the function is called that it
// returns.
func (r *reply) endWith(ctx context.Context) func() bool {
	if r.link == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { _ = r.link.conn.Close() }) // it interrupts the read
}

// write writes it to a caller. After an error the caller's connection has no meaning.
func (r *reply) write(to *bufio.Writer, resp3 bool) error {
	switch {
	case r.err != nil:
		return r.err
	case r.link == nil:
		return newWire(bytes.NewReader(r.raw)).copyValues(to, 1, resp3)
	case r.size < 0:
		if err := r.link.in.copyValues(to, 1, resp3); err != nil {
			return err
		}
	default:
		if _, err := to.Write(appendHeader(nil, '$', r.size)); err != nil {
			return err
		}
		if err := r.link.in.copyString(to, r.size); err != nil {
			return err
		}
	}
	r.read = true
	return nil
}

// said is an error of the agent's Spoke.
type said struct{ code, rest string }

func (s said) Error() string { return "the agent says " + s.code }

// run asks the agent, and says what is known without it when it is away.
func (f *fetch) run(ctx context.Context) *reply {
	if slices.ContainsFunc(f.keys, func(k owned) bool { return !k.target.Known }) {
		if len(f.keys) == 1 {
			return &reply{raw: f.missing()}
		}
		return &reply{raw: encodeError(codeRefused + " there is no such Application on the hub")}
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, f.hub.cfg.AnswerTimeout)
	defer cancel()
	f.remote = f.hub.remote(f.keys[0].target.Agent)
	r, err := f.ask(timed)
	if err == nil {
		f.hub.metrics.reads.WithLabelValues("answered").Inc()
		f.hub.metrics.seconds.Observe(time.Since(began).Seconds())
		return r
	}
	if ctx.Err() != nil {
		return &reply{err: context.Cause(ctx)}
	}
	return f.failed(ctx, err)
}

// missing is the answer about one key that is not there.
func (f *fetch) missing() []byte {
	switch f.verb {
	case "EXISTS":
		return []byte(":0\r\n")
	case "TTL":
		return []byte(":-2\r\n")
	case "MGET":
		return []byte("*1\r\n$-1\r\n")
	}
	return []byte("$-1\r\n")
}

// ask takes its turn, and asks on a connection that was kept, or a new one.
func (f *fetch) ask(ctx context.Context) (*reply, error) {
	r := f.remote
	select {
	case r.calls <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another call: %w", ctx.Err())
	}
	leave := func() { <-r.calls }
	args := []string{f.verb}
	for _, k := range f.keys {
		args = append(args, k.asked())
	}
	for {
		l, kept := r.takeIdle(), true
		if l == nil {
			kept = false
			var err error
			if l, err = r.dial(ctx); err != nil {
				leave()
				return nil, err
			}
		}
		reply, err := f.exchange(ctx, l, args, leave)
		if err == nil {
			return reply, nil
		}
		var answered said
		if errors.As(err, &answered) {
			r.give(l)
		} else {
			_ = l.conn.Close() // the error is known
			if kept && ctx.Err() == nil {
				continue // it was dead before; a read may be asked twice
			}
		}
		leave()
		return nil, err
	}
}

// exchange asks on l. An error of type said leaves it in order.
func (f *fetch) exchange(ctx context.Context, l *link, args []string, leave func()) (*reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() }) // it interrupts both
	if _, err := l.conn.Write(encodeCommand(args...)); err != nil {
		stop()
		return nil, err
	}
	first, err := l.in.Peek(1)
	if !stop() && err == nil {
		err = ctx.Err() // and closed
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if first[0] == '-' {
		line, err := l.in.line()
		if err != nil {
			return nil, err
		}
		code, rest, _ := strings.Cut(string(line[1:]), " ")
		return nil, said{code, rest}
	}
	free := func(sound bool) {
		if sound {
			f.remote.give(l)
		} else {
			_ = l.conn.Close() // nobody reads the rest
		}
		leave()
	}
	if f.verb != "GET" {
		want := map[string]byte{"MGET": '*', "EXISTS": ':', "TTL": ':'}[f.verb]
		if first[0] != want {
			return nil, fmt.Errorf("%w: the answer to %s", errProtocol, f.verb)
		}
		if want == '*' {
			return f.list(l, free)
		}
		line, err := l.in.line()
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(string(line[1:]), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: the answer to %s", errProtocol, f.verb)
		}
		free(true)
		return &reply{raw: appendNumber(nil, n)}, nil
	}
	line, err := l.in.line()
	if err != nil {
		return nil, err
	}
	if line[0] != '$' {
		return nil, fmt.Errorf("%w: the answer to GET", errProtocol)
	}
	n, err := size(line, maxBulk)
	if err != nil {
		return nil, err
	}
	f.remote.judged(f.keys[0].key.Format, "")
	switch {
	case n < 0:
		free(true)
		f.hub.keeping.forget(f.keys[0])
		return &reply{raw: f.missing()}, nil
	case n > f.hub.cfg.MaxKeptBytes || !f.hub.held.TryAcquire(2*int64(n)):
		return &reply{link: l, size: n, free: free}, nil
	}
	value, err := l.in.bytes(n)
	if err != nil {
		f.hub.held.Release(2 * int64(n))
		return nil, err
	}
	free(true)
	f.hub.keeping.keep(f.keys[0], value)
	return &reply{raw: bulk(value), free: func(bool) { f.hub.held.Release(2 * int64(n)) }}, nil
}

// list is the answer to MGET, of which every element is still to come.
func (f *fetch) list(l *link, free func(bool)) (*reply, error) {
	peeked, err := l.in.Peek(len(appendHeader(nil, '*', len(f.keys))))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(peeked, appendHeader(nil, '*', len(f.keys))) {
		return nil, fmt.Errorf("%w: the answer to MGET", errProtocol)
	}
	return &reply{link: l, size: -1, free: free}, nil
}

func bulk(value []byte) []byte {
	b := make([]byte, 0, len(value)+16)
	b = appendHeader(b, '$', len(value))
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// failed says what is known without the agent, or why nothing is.
func (f *fetch) failed(ctx context.Context, err error) *reply {
	name := f.keys[0].target.Agent
	var (
		answered said
		timeout  net.Error
	)
	result := "away"
	switch {
	case errors.As(err, &answered) && answered.code == spokeFormat && isFormat(answered.rest):
		f.hub.metrics.reads.WithLabelValues("format").Inc()
		f.hub.warn(name, "format", "the spoke's argo cd keeps its cache in another format than the hub's asks for")
		f.remote.judged(f.keys[0].key.Format, answered.rest)
		return &reply{raw: encodeError(fmt.Sprintf("%s the Argo CD of agent %s keeps its cache as %s, and %s is asked for: "+
			"both must be of one release, with one --redis-compress", codeFormat, name, answered.rest, f.keys[0].key.Format))}
	case errors.Is(err, stream.ErrRefused), errors.As(err, &answered) && answered.code == spokeDenied:
		f.hub.metrics.reads.WithLabelValues("refused").Inc()
		return &reply{raw: encodeError(fmt.Sprintf("%s agent %s does not let the hub read its Redis: see redis_proxy.enabled there", codeRefused, name))}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		result = "timeout"
	case errors.Is(err, errProtocol), errors.Is(err, errTooLong):
		f.hub.warn(name, "protocol", "what an agent answers cannot be read")
	}
	f.hub.metrics.reads.WithLabelValues(result).Inc()
	if raw, ok := f.last(ctx); ok {
		return &reply{raw: raw}
	}
	why := "is not connected"
	if !errors.Is(err, stream.ErrNotConnected) {
		why = "is connected, but its Redis does not answer"
	}
	return &reply{raw: encodeError(fmt.Sprintf("%s agent %s %s, and no last value is kept", codeAway, name, why))}
}

// last answers from what was kept.
func (f *fetch) last(ctx context.Context) ([]byte, bool) {
	if f.hub.keeping == nil {
		return nil, false
	}
	var b []byte
	if f.verb == "MGET" {
		b = appendHeader(b, '*', len(f.keys))
	}
	there, left := 0, int64(-2)
	for _, k := range f.keys {
		value, age := f.hub.keeping.last(ctx, k)
		if value != nil {
			there++
			left = int64((KeptFor - age) / time.Second)
			f.hub.metrics.lastAge.Observe(age.Seconds())
		}
		switch {
		case f.verb != "MGET" && f.verb != "GET":
		case value == nil:
			b = appendNull(b, false)
		default:
			b = append(b, bulk(value)...)
		}
	}
	if there == 0 {
		return nil, false
	}
	switch f.verb {
	case "EXISTS":
		b = appendNumber(b, int64(there))
	case "TTL":
		b = appendNumber(b, max(left, 0))
	}
	return b, true
}
