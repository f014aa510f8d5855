package redis

import (
	"context"
	"errors"
	"strings"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// relay passes on what the hub's Redis answers and sends.
func (c *caller) relay(ctx context.Context) error {
	for {
		if c.fromHub.Buffered() == 0 {
			if err := c.flush(); err != nil {
				return err
			}
		}
		first, err := c.fromHub.Peek(1)
		if err != nil {
			return err
		}
		c.next()
		switch {
		case first[0] == '>' && c.resp3, first[0] == '*' && c.subscribing():
			err = c.relayPush(ctx)
		case c.current == nil:
			err = errors.Join(resp.ErrProtocol, errors.New("the hub's redis sent an answer without a command"))
		default:
			e := c.current
			if err = c.answer(ctx, e, first[0]); err == nil {
				c.current = nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// next takes the entry that is answered next, if there is one.
func (c *caller) next() {
	if c.current != nil {
		return
	}
	select {
	case c.current = <-c.waiting:
	default:
	}
}

// subscribing reports whether an array of RESP2 may be a message or a confirmation.
func (c *caller) subscribing() bool {
	if c.resp3 { // relay alone writes it
		return false
	}
	if c.current != nil && c.current.kind == subscribe {
		return true
	}
	for _, set := range c.sets {
		if len(set) > 0 {
			return true
		}
	}
	return false
}

// copy passes on the next values of the hub's Redis.
func (c *caller) copy(values int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fromHub.CopyValues(c.out, values, false)
}

// answer gives the answer to e, of which the hub's Redis has begun its own.
func (c *caller) answer(ctx context.Context, e *entry, first byte) error {
	failed := first == '-'
	switch e.kind {
	case subscribe: // an error, since it is no confirmation
		if !strings.Contains(e.confirms, "unsub") {
			c.channels.Add(-int64(e.want))
		}
		return c.copy(1)
	case ownError, poison:
		if failed && e.kind == ownError {
			return c.copy(1)
		}
		if e.kind == poison && !c.began {
			return c.copy(1) // the transaction was refused, and so is anyone who asks
		}
		if err := c.skip(); err != nil {
			return err
		}
		return c.write(resp.EncodeError(e.errorText))
	case agent:
		if failed {
			e.drop()
			return c.copy(1)
		}
		if err := c.skip(); err != nil {
			return err
		}
		c.trusted.Store(e.epoch + 1)
		// What was answered before is not to wait.
		if err := c.flush(); err != nil {
			return err
		}
		e.fetch.start(ctx)
		reply := e.fetch.wait(ctx)
		defer reply.close()
		stop := reply.endWith(ctx)
		defer stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		return reply.write(c.out, c.resp3)
	}
	c.began = !e.ends && (c.began || e.begins && !failed)
	if !failed && (e.hello > 0 || e.resets) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.fromHub.CopyValues(c.out, 1, false); err != nil {
			return err
		}
		c.resp3 = e.hello == 3
		if e.resets {
			clear(c.sets)
			c.channels.Store(0)
			c.listener.detachAll()
		}
		return nil
	}
	return c.copy(1)
}

// skip reads an answer that no one is to see.
func (c *caller) skip() error {
	return c.fromHub.CopyValues(c.discarded, 1, false)
}

// relayPush passes on a message or a confirmation.
func (c *caller) relayPush(ctx context.Context) error {
	n, err := c.fromHub.Collection('>', '*')
	if err != nil {
		return err
	}
	if n == 0 {
		return resp.ErrProtocol
	}
	what, _, err := c.fromHub.Small()
	if err != nil {
		return err
	}
	if c.current != nil && c.current.kind == subscribe && what == c.current.confirms && n == 3 {
		return c.confirmed(ctx, c.current)
	}
	if err := c.write(resp.AppendBulk(resp.AppendPush(nil, c.resp3, n), what)); err != nil {
		return err
	}
	if what == "pong" && !c.resp3 && c.current != nil {
		c.current = nil // the answer to PING while there are subscriptions
	}
	return c.copy(n - 1)
}

// confirmed takes one of the confirmations that e waits for.
func (c *caller) confirmed(ctx context.Context, e *entry) error {
	channel, null, err := c.fromHub.Small()
	if err != nil {
		return err
	}
	count, err := c.fromHub.Number()
	if err != nil {
		return err
	}
	begins := !strings.Contains(e.confirms, "unsub")
	if begins {
		c.begin(ctx, e.confirms, channel)
	} else {
		c.end(e, channel, null)
	}
	if e.want--; e.want == 0 {
		c.current = nil
	}
	b := resp.AppendBulk(resp.AppendPush(nil, c.resp3, 3), e.confirms)
	if null {
		b = resp.AppendNull(b, c.resp3)
	} else {
		b = resp.AppendBulk(b, channel)
	}
	// Both at once: when push sent what is written here before it is noted, the caller could
	// look before the agent's Redis tells of changes, and would get no message to read it again.
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.out.Write(resp.AppendNumber(b, count)); err != nil {
		return err
	}
	if begins {
		c.listener.confirm(channel)
	}
	return nil
}

// begin notes a subscription at the hub's Redis, and makes it at the agent too, if the
// channel is one of an Application.
func (c *caller) begin(ctx context.Context, what, channel string) {
	if c.sets[what] == nil {
		c.sets[what] = map[string]struct{}{}
	}
	if _, had := c.sets[what][channel]; had {
		c.channels.Add(-1)
	}
	c.sets[what][channel] = struct{}{}
	if what != "subscribe" {
		return
	}
	if key, ok := appkey.ParseKey(channel); ok {
		_ = c.flush() // anyone who waits for an earlier answer; an error shows at the next write
		c.listener.attach(ctx, channel, key)
	}
}

// end notes the end of a subscription; null is that there was none to end.
func (c *caller) end(e *entry, channel string, null bool) {
	set := c.sets[strings.Replace(e.confirms, "unsub", "sub", 1)]
	if e.all && e.want == 0 {
		e.want = max(1, len(set))
	}
	if _, had := set[channel]; had && !null {
		delete(set, channel)
		c.channels.Add(-1)
	}
	if e.confirms == "unsubscribe" {
		c.listener.detach(channel)
	}
}
