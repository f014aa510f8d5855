package redis

import (
	"bufio"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// What callers are told of agents' keys, by its first word.
const (
	codeAway    = "AGENTAWAY"    // the spoke cannot be asked, and no last value is kept
	codeFormat  = "AGENTFORMAT"  // the spoke's Argo CD keeps its cache in another way
	codeRefused = "AGENTREFUSED" // the agent is not to be asked, or does not answer to this
	codeCommand = "AGENTCOMMAND" // not a command for agents' keys
)

// caller is one connection of Argo CD, and its own to the hub's Redis. Every command
// goes there, so that there is one answer to each, in order; that of an agent's key
// then gives way to the agent's.
type caller struct {
	hub     *Hub
	spawn   spawn
	conn    *resp.DeadlineConn
	in      resp.Wire
	up      *resp.DeadlineConn // to the hub's Redis
	toHub   *bufio.Writer
	fromHub resp.Wire
	// waiting are the commands that were passed on, in order.
	waiting chan *entry

	mu    sync.Mutex // guards what follows
	out   *bufio.Writer
	resp3 bool

	// epoch counts what may change who the caller is, and trusted is the last one in
	// which the hub's Redis let it read an agent's key.
	epoch, trusted atomic.Int64
	// channels is at least the number of subscriptions.
	channels atomic.Int64

	multi bool // of read: a transaction has begun

	// Of relay.
	current   *entry                         // the one that is being answered; nil for none
	began     bool                           // a transaction
	sets      map[string]map[string]struct{} // subscriptions at the hub's Redis, by kind
	listener  *listener
	discarded *bufio.Writer // where answers go that no one is to see
}

// entry is one command that waits for its answer.
type entry struct {
	kind      kind
	errorText string // of ownError and poison
	fetch     *fetch // of agent
	epoch     int64
	// hello is the protocol that the command asks for; 0 for none.
	hello  int
	resets bool
	// begins and ends are of a transaction.
	begins, ends bool
	// Of subscribe: the kind of confirmation and how many are still to come, of which
	// zero and all means as many as there are.
	confirms string
	want     int
	all      bool
}

type kind uint8

const (
	pass      kind = iota // the answer is the hub's Redis'
	ownError              // an error of ours takes the place of an answer
	poison                // the same in a transaction, which is spoilt by it
	agent                 // the agent's answer takes its place
	subscribe             // the answer is confirmations
)

func (e *entry) drop() {
	if e.fetch != nil {
		e.fetch.drop()
	}
}

// errEnd is that the caller left.
var errEnd = errors.New("the caller left")

// sendError says why the connection is closed, before it is.
func (c *caller) sendError(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.out.Write(resp.EncodeError(text)); err == nil {
		_ = c.out.Flush() // it is closed in any case
	}
}

func (c *caller) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Flush()
}

// write writes to the caller.
func (c *caller) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.out.Write(b)
	return err
}

// errSlow is that a caller does not read what it has subscribed to.
var errSlow = errors.New("messages are not read")

// push writes the messages of its agents' channels to the caller.
func (c *caller) push(ctx context.Context) error {
	for {
		select {
		case <-c.listener.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		messages, ok := c.listener.drain()
		if !ok {
			return errSlow
		}
		if err := c.writeMessages(messages); err != nil {
			return err
		}
	}
}

// writeMessages writes messages at once.
func (c *caller) writeMessages(messages []message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, m := range messages {
		if _, err := c.out.Write(resp.AppendMessage(nil, c.resp3, m.channel, m.payload)); err != nil {
			return err
		}
		c.hub.metrics.delivery.Observe(now.Sub(m.at).Seconds())
	}
	return c.out.Flush()
}
