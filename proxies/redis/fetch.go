package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

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
