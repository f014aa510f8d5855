package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/proxies/redis/values"
	"github.com/argomesh/argomesh/stream/quota"
)

// fetch is one read of agents' keys.
type fetch struct {
	hub    *Hub
	spawn  spawn
	verb   string
	keys   []owned
	asked  []owned // of run: those of which the agent may have something
	remote *remote
	// unasked says that no caller has asked: what is read is kept by anyone who reads it.
	unasked bool

	once    sync.Once
	done    chan struct{} // closed when reply is there
	reply   *reply
	mu      sync.Mutex // guards dropped, cancel and, until done, reply
	dropped bool
	cancel  context.CancelFunc
}

func newFetch(h *Hub, spawn spawn, verb string, keys []owned) *fetch {
	if before := h.format.Load(); before == nil || *before != keys[0].key.Format {
		format := keys[0].key.Format
		h.format.Store(&format)
	}
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
			if f.dropped {
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

// drop ends it: no one waits any more.
func (f *fetch) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return
	}
	f.dropped = true
	if f.cancel != nil {
		f.cancel()
	}
	if f.reply != nil {
		f.reply.close()
	}
}

// run asks the agent, and says what is known without it when it is away. Of an
// Application that is not on the hub there is nothing, whatever the spoke has.
func (f *fetch) run(ctx context.Context) *reply {
	f.asked = slices.DeleteFunc(slices.Clone(f.keys), func(k owned) bool { return !k.target.Known })
	if len(f.asked) == 0 {
		return &reply{raw: f.missing()}
	}
	began := time.Now()
	f.remote = f.hub.remote(f.keys[0].target.Agent)
	r, err := f.ask(ctx)
	if err == nil {
		f.remote.answered()
		f.hub.metrics.reads.WithLabelValues("answered").Inc()
		f.hub.metrics.seconds.Observe(time.Since(began).Seconds())
		return r
	}
	if ctx.Err() != nil {
		return &reply{err: context.Cause(ctx)}
	}
	return f.failed(ctx, err)
}

// ask takes its turn, and asks on a connection that was kept, or a new one.
func (f *fetch) ask(ctx context.Context) (*reply, error) {
	begin, cancel := context.WithTimeout(ctx, f.hub.cfg.AnswerTimeout)
	defer cancel()
	r := f.remote
	select {
	case r.calls <- struct{}{}:
	case <-begin.Done():
		return nil, fmt.Errorf("wait for another call: %w", begin.Err())
	}
	leave := func() { <-r.calls }
	args := []string{f.verb}
	for _, k := range f.asked {
		args = append(args, k.asked())
	}
	for {
		l, kept := r.takeIdle(), true
		if l == nil {
			kept = false
			var err error
			if l, err = r.dial(begin); err != nil {
				leave()
				return nil, err
			}
		}
		reply, err := f.exchange(ctx, begin, l, args, leave)
		if err == nil {
			return reply, nil
		}
		var refused resp.RefusalError
		if errors.As(err, &refused) {
			r.putIdle(l)
		} else {
			_ = l.conn.Close() // the error is known
			if kept && begin.Err() == nil {
				continue // it was dead before; a read may be asked twice
			}
		}
		leave()
		return nil, err
	}
}

// exchange asks on l; the answer begins before begin ends. After an error that is no
// refusal l is of no use.
func (f *fetch) exchange(ctx, begin context.Context, l *link, args []string, leave func()) (*reply, error) {
	interrupt := func() { _ = l.conn.Close() }
	stop := context.AfterFunc(begin, interrupt)
	err := l.in.Ask(l.conn, args...)
	if !stop() {
		err = begin.Err()
	}
	if err != nil {
		return nil, err
	}
	stop = context.AfterFunc(ctx, interrupt)
	r, err := f.readReply(l)
	if !stop() && err == nil {
		r.close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if r.link == nil {
		f.remote.putIdle(l)
		leave()
		return r, nil
	}
	r.free = func(sound bool) {
		if sound {
			f.remote.putIdle(l)
		} else {
			_ = l.conn.Close() // no one reads the rest
		}
		leave()
	}
	return r, nil
}

// readReply reads an answer that has begun, unless it is one that passes piece by piece.
func (f *fetch) readReply(l *link) (*reply, error) {
	switch f.verb {
	case "GET":
		return f.value(l)
	case "MGET":
		return f.list(l)
	}
	n, err := l.in.Number()
	if err != nil {
		return nil, fmt.Errorf("the answer to %s: %w", f.verb, err)
	}
	return &reply{raw: resp.AppendNumber(nil, n)}, nil
}

// value is the answer to GET.
func (f *fetch) value(l *link) (*reply, error) {
	line, err := l.in.Line()
	if err != nil {
		return nil, err
	}
	if line[0] != '$' {
		return nil, fmt.Errorf("%w: the answer to GET", resp.ErrProtocol)
	}
	n, err := resp.Size(line, resp.MaxBulk)
	if err != nil {
		return nil, err
	}
	f.noteFormat("")
	if n < 0 {
		if !f.unasked { // else it may be that the spoke has not got it yet
			f.hub.lastKnown.forget(f.keys[0])
		}
		return &reply{raw: f.missing()}, nil
	}
	release, held := f.hub.reserve(f.remote.agent, n)
	if !held {
		return &reply{link: l, size: n, keys: []appkey.Key{f.keys[0].key}, remote: f.remote}, nil
	}
	whole, value, err := l.in.Bulk(n)
	if err != nil {
		release()
		return nil, err
	}
	if err := values.MeasuredWhole(f.keys[0].key, value); err != nil {
		release()
		f.remote.exceeded(err)
		return &reply{raw: resp.EncodeError(fmt.Sprintf("%s a value of agent %s is refused: %s", codeRefused,
			f.keys[0].target.Agent, err))}, nil
	}
	if !f.unasked {
		f.hub.lastKnown.save(f.keys[0], value)
	}
	return &reply{bulk: whole, value: value, free: func(bool) { release() }}, nil
}

// noteFormat records what an answer says of the format of the agent's cache. Without a caller
// the format asked for may not be the one of the hub's Argo CD: then it says nothing.
func (f *fetch) noteFormat(kept string) {
	format := f.keys[0].key.Format
	if asked := f.hub.format.Load(); f.unasked && (asked == nil || *asked != format) {
		return
	}
	f.remote.noteFormat(format, kept)
}

// reserve takes the room of a value that is short enough to be held as a whole; false when
// there is none, and it is to be passed on piece by piece.
func (h *Hub) reserve(agent identity.AgentName, n int) (release func(), ok bool) {
	if n > h.cfg.MaxKeptBytes || !h.heldBytes.TryAcquire(int64(n)) {
		return nil, false
	}
	of, ok := h.cfg.Quota.TryAcquire(agent, quota.Passing, int64(n))
	if !ok {
		h.heldBytes.Release(int64(n))
		return nil, false
	}
	return func() {
		of()
		h.heldBytes.Release(int64(n))
	}, true
}

// list is the answer to MGET, of which every element is still to come.
func (f *fetch) list(l *link) (*reply, error) {
	header := resp.AppendHeader(nil, '*', len(f.asked))
	peeked, err := l.in.Peek(len(header))
	if err != nil {
		return nil, resp.Unexpected(err)
	}
	if !bytes.Equal(peeked, header) {
		return nil, fmt.Errorf("%w: the answer to MGET", resp.ErrProtocol)
	}
	if _, err := l.in.Discard(len(header)); err != nil {
		return nil, err
	}
	elements, keys := make([]bool, len(f.keys)), make([]appkey.Key, len(f.keys))
	for i, k := range f.keys {
		elements[i], keys[i] = k.target.Known, k.key
	}
	return &reply{link: l, elements: elements, keys: keys, remote: f.remote}, nil
}
