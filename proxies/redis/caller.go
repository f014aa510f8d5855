package redis

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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
	conn    *patient
	in      wire
	up      net.Conn
	toHub   *bufio.Writer
	fromHub wire
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
	front    *entry
	began    bool                           // a transaction
	sets     map[string]map[string]struct{} // subscriptions at the hub's Redis, by kind
	listener *listener
	unseen   *bufio.Writer // where answers go that nobody is to see
}

// entry is one command that waits for its answer.
type entry struct {
	kind  kind
	says  string // of instead
	fetch *fetch // of agent
	epoch int64
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
	instead               // an error of ours takes the place of an answer
	poison                // the same in a transaction, which is spoilt by it
	agent                 // the agent's answer takes its place
	subscribe             // the answer is confirmations
)

func newCaller(h *Hub, conn, up net.Conn, spawn spawn) *caller {
	c := &caller{
		hub: h, spawn: spawn, conn: &patient{Conn: conn, write: h.cfg.WriteTimeout}, up: up,
		waiting: make(chan *entry, h.cfg.MaxPipelined),
		sets:    map[string]map[string]struct{}{},
	}
	c.in, c.out = newWire(conn), bufio.NewWriterSize(c.conn, maxLine)
	c.fromHub, c.toHub = newWire(up), bufio.NewWriterSize(up, maxLine)
	c.listener, c.unseen = newListener(h, spawn), bufio.NewWriterSize(io.Discard, 16)
	return c
}

// run serves until either side ends, or ctx.
func (c *caller) run(ctx context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _, _ = c.conn.Close(), c.up.Close() }) // it interrupts all
	defer func() {
		if stop() {
			_, _ = c.conn.Close(), c.up.Close()
		}
	}()
	defer c.listener.close()
	g.Go(func() error { return c.read(ctx) })
	g.Go(func() error { return c.relay(ctx) })
	g.Go(func() error { return c.push(ctx) })
	err := g.Wait()
	switch {
	case errors.Is(err, errProtocol), errors.Is(err, errTooLong):
		c.hub.metrics.refused.WithLabelValues("protocol").Inc()
		c.hub.cfg.Log.Debug().Err(err).Msg("a connection of the redis proxy ended")
	case errors.Is(err, errSlow), errors.Is(err, os.ErrDeadlineExceeded): // only writes to the caller have one
		c.hub.metrics.refused.WithLabelValues("slow").Inc()
	}
	// What was begun for commands that nobody waits for any more.
	for {
		select {
		case e := <-c.waiting:
			e.drop()
		default:
			if c.front != nil {
				c.front.drop()
			}
			return
		}
	}
}

func (e *entry) drop() {
	if e.fetch != nil {
		e.fetch.drop()
	}
}

// errEnd is that the caller left.
var errEnd = errors.New("the caller left")

// read takes commands and passes them on.
func (c *caller) read(ctx context.Context) error {
	for {
		cmd, err := c.in.command()
		if err == nil {
			err = c.take(ctx, cmd)
		}
		switch {
		case errors.Is(err, io.EOF):
			return errEnd
		case errors.Is(err, errProtocol), errors.Is(err, errTooLong):
			c.farewell("ERR Protocol error: " + err.Error())
			return err
		case err != nil:
			return err
		}
		if c.in.Buffered() == 0 {
			if err := c.toHub.Flush(); err != nil {
				return err
			}
		}
	}
}

// farewell says why the connection is closed.
func (c *caller) farewell(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.out.Write(encodeError(text)); err == nil {
		_ = c.out.Flush() // it is closed in any case
	}
}

// enqueue makes an entry wait for its answer; the command is written after it.
func (c *caller) enqueue(ctx context.Context, e *entry) error {
	e.epoch = c.epoch.Load()
	select {
	case c.waiting <- e:
		return nil
	default:
	}
	// The answers that make room are to commands that may not have left yet.
	if err := c.toHub.Flush(); err != nil {
		return err
	}
	select {
	case c.waiting <- e:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// notPassed are commands after which answers would no longer be one to each command.
var notPassed = map[string]bool{"MONITOR": true, "SYNC": true, "PSYNC": true, "REPLCONF": true}

// confirmations are the commands that are answered by confirmations.
var confirmations = map[string]string{
	"SUBSCRIBE": "subscribe", "UNSUBSCRIBE": "unsubscribe", "PSUBSCRIBE": "psubscribe", "PUNSUBSCRIBE": "punsubscribe",
	"SSUBSCRIBE": "ssubscribe", "SUNSUBSCRIBE": "sunsubscribe",
}

// take decides about one command.
func (c *caller) take(ctx context.Context, cmd command) error {
	if len(cmd.args) == 0 {
		return errTooLong // a name of that length
	}
	name := strings.ToUpper(cmd.args[0])
	keys, other, err := c.keysOf(cmd.args[1:])
	switch {
	case err != nil:
		return c.instead(ctx, cmd, keys, codeRefused+" "+err.Error())
	case len(keys) > 0:
		return c.takeAgent(ctx, name, cmd, keys, other)
	case notPassed[name], name == "CLIENT" && len(cmd.args) > 1 && strings.EqualFold(cmd.args[1], "REPLY"):
		return c.instead(ctx, cmd, nil, "ERR this command does not pass the redis proxy")
	case confirmations[name] != "":
		return c.takeSubscribe(ctx, name, cmd)
	}
	e := &entry{}
	switch name {
	case "HELLO":
		c.epoch.Add(1)
		if len(cmd.args) > 1 {
			switch cmd.args[1] {
			case "2":
				e.hello = 2
			case "3":
				e.hello = 3
			}
		}
	case "AUTH":
		c.epoch.Add(1)
	case "RESET":
		c.epoch.Add(1)
		e.resets, e.ends, c.multi = true, true, false
	case "MULTI":
		e.begins = len(cmd.args) == 1 && cmd.left == 0
		c.multi = c.multi || e.begins
	case "EXEC", "DISCARD":
		e.ends, c.multi = true, false
	}
	c.hub.metrics.commands.WithLabelValues("hub").Inc()
	if err := c.enqueue(ctx, e); err != nil {
		return err
	}
	return c.send(cmd)
}

// owned is an agent's key as a caller names it.
type owned struct {
	key    Key
	text   string
	target Target
}

// asked is the key by which the agent knows it.
func (o owned) asked() string { return o.key.of(o.target.Instance).String() }

// keysOf returns the arguments that are agents' keys, and how many are not. An error
// comes with the first key that it is about.
func (c *caller) keysOf(args []string) (keys []owned, other int, err error) {
	for _, arg := range args {
		key, ok := ParseKey(arg)
		if !ok {
			other++
			continue
		}
		target, isOwned, err := c.hub.cfg.Owners.Owner(key.Instance)
		if err != nil {
			return []owned{{key: key, text: arg}}, other, err
		}
		if !isOwned {
			other++
			continue
		}
		keys = append(keys, owned{key: key, text: arg, target: target})
	}
	return keys, other, nil
}

// takeAgent decides about a command that names agents' keys.
func (c *caller) takeAgent(ctx context.Context, name string, cmd command, keys []owned, other int) error {
	switch name {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		return c.takeSubscribe(ctx, name, cmd)
	case "GET", "MGET", "EXISTS", "TTL":
	default:
		return c.instead(ctx, cmd, keys, codeCommand+" what an agent's spoke keeps can be read and subscribed to, and nothing else: GET, MGET, EXISTS, TTL, SUBSCRIBE, UNSUBSCRIBE")
	}
	switch {
	case c.multi:
		return c.instead(ctx, cmd, keys, codeCommand+" what an agent's spoke keeps has no part in a transaction")
	case cmd.left > 0:
		return c.instead(ctx, cmd, keys, codeCommand+" too many keys of an agent in one command")
	case other > 0:
		return c.instead(ctx, cmd, keys, codeCommand+" the keys of one command are all of one agent, or none is an agent's")
	case len(keys) > 1 && (name == "GET" || name == "TTL"):
		return c.instead(ctx, cmd, keys, "ERR wrong number of arguments for '"+strings.ToLower(name)+"' command")
	}
	for _, k := range keys {
		if k.target.Agent != keys[0].target.Agent {
			return c.instead(ctx, cmd, keys, codeCommand+" the keys of one command are all of one agent, or none is an agent's")
		}
	}
	c.hub.metrics.commands.WithLabelValues("agent").Inc()
	e := &entry{kind: agent, fetch: newFetch(c.hub, c.spawn, name, keys)}
	if c.trusted.Load() == c.epoch.Load()+1 {
		e.fetch.start(ctx) // its answer waits for its turn, and for the hub's Redis
	}
	if err := c.enqueue(ctx, e); err != nil {
		e.drop()
		return err
	}
	return c.send(cmd)
}

// takeSubscribe passes on what is answered by confirmations.
func (c *caller) takeSubscribe(ctx context.Context, name string, cmd command) error {
	switch {
	case c.multi:
		return c.instead(ctx, cmd, nil, "ERR subscriptions have no part in a transaction")
	case cmd.left > 0:
		return c.instead(ctx, cmd, nil, "ERR too many channels in one command")
	}
	e := &entry{kind: subscribe, confirms: confirmations[name], want: len(cmd.args) - 1}
	if strings.HasSuffix(name, "UNSUBSCRIBE") {
		e.all = e.want == 0
	} else if c.channels.Add(int64(e.want)) > int64(c.hub.cfg.MaxSubscriptions) {
		c.channels.Add(-int64(e.want))
		c.hub.metrics.refused.WithLabelValues("subscriptions").Inc()
		return c.instead(ctx, cmd, nil, "ERR too many subscriptions on one connection")
	}
	c.hub.metrics.commands.WithLabelValues("subscribe").Inc()
	if err := c.enqueue(ctx, e); err != nil {
		return err
	}
	return c.send(cmd)
}

// nowhere is a key of ours that is never set.
const nowhere = "argomesh|nowhere"

// instead answers a command with an error, in its turn, and only to a caller that may
// ask the hub's Redis for such a key. A transaction is spoilt by it.
func (c *caller) instead(ctx context.Context, cmd command, keys []owned, text string) error {
	c.hub.metrics.commands.WithLabelValues("refused").Inc()
	if err := c.discard(cmd); err != nil {
		return err
	}
	e, probe := &entry{kind: instead, says: text}, []string{"EXISTS", nowhere}
	switch {
	case c.multi:
		e.kind, probe = poison, []string{"GET"}
	case len(keys) > 0:
		probe[1] = keys[0].text
	}
	if err := c.enqueue(ctx, e); err != nil {
		return err
	}
	_, err := c.toHub.Write(encodeCommand(probe...))
	return err
}

// discard reads what is left of a command.
func (c *caller) discard(cmd command) error {
	for ; cmd.left > 0; cmd.left-- {
		if _, err := c.in.Discard(cmd.next); err != nil {
			return unexpected(err)
		}
		if err := c.in.end(); err != nil {
			return err
		}
		if cmd.left > 1 {
			var err error
			if cmd.next, err = c.in.argument(); err != nil {
				return err
			}
		}
	}
	return nil
}

// errLateKey is that an agent's key came so late in a command that the hub's Redis
// has the begin of it.
var errLateKey = errors.New("an agent's key in a long command")

// send passes a command on, the head at once and the rest as it comes.
func (c *caller) send(cmd command) error {
	head := appendHeader(nil, '*', len(cmd.args)+cmd.left)
	for _, arg := range cmd.args {
		head = appendBulk(head, arg)
	}
	if _, err := c.toHub.Write(head); err != nil {
		return err
	}
	for ; cmd.left > 0; cmd.left-- {
		if _, err := c.toHub.Write(appendHeader(nil, '$', cmd.next)); err != nil {
			return err
		}
		if cmd.next <= maxKeyBytes {
			arg, err := c.in.bytes(cmd.next)
			if err != nil {
				return err
			}
			if keys, _, err := c.keysOf([]string{string(arg)}); err != nil || len(keys) > 0 {
				c.farewell(codeCommand + " what an agent's spoke keeps has no part in such a command")
				return errLateKey // the hub's Redis never has the whole of it
			}
			if _, err := c.toHub.Write(append(arg, "\r\n"...)); err != nil {
				return err
			}
		} else if err := c.in.copyString(c.toHub, cmd.next); err != nil {
			return err
		}
		if cmd.left > 1 {
			var err error
			if cmd.next, err = c.in.argument(); err != nil {
				return err
			}
		}
	}
	return nil
}

// relay takes what the hub's Redis says.
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
			err = c.told(ctx)
		case c.front == nil:
			err = errors.Join(errProtocol, errors.New("the hub's redis answers what nobody asked"))
		default:
			e := c.front
			if err = c.answer(ctx, e, first[0]); err == nil {
				c.front = nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// next takes the entry that is answered next, if there is one.
func (c *caller) next() {
	if c.front != nil {
		return
	}
	select {
	case c.front = <-c.waiting:
	default:
	}
}

// subscribing reports whether an array of RESP2 may be a message or a confirmation.
func (c *caller) subscribing() bool {
	if c.resp3 { // relay alone writes it
		return false
	}
	if c.front != nil && c.front.kind == subscribe {
		return true
	}
	for _, set := range c.sets {
		if len(set) > 0 {
			return true
		}
	}
	return false
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

// copy passes on the next values of the hub's Redis.
func (c *caller) copy(values int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fromHub.copyValues(c.out, values, false)
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
	case instead, poison:
		if failed && e.kind == instead {
			return c.copy(1)
		}
		if e.kind == poison && !c.began {
			return c.copy(1) // the transaction was refused, and so is whoever asks
		}
		if err := c.skip(); err != nil {
			return err
		}
		return c.write(encodeError(e.says))
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
		if err := c.fromHub.copyValues(c.out, 1, false); err != nil {
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

// skip reads an answer that nobody is to see.
func (c *caller) skip() error {
	return c.fromHub.copyValues(c.unseen, 1, false)
}

// told takes a message or a confirmation.
func (c *caller) told(ctx context.Context) error {
	n, err := c.fromHub.collection('>', '*')
	if err != nil {
		return err
	}
	if n == 0 {
		return errProtocol
	}
	what, _, err := c.fromHub.small()
	if err != nil {
		return err
	}
	if c.front == nil || c.front.kind != subscribe || what != c.front.confirms || n != 3 {
		header := byte('*')
		if c.resp3 {
			header = '>'
		}
		if err := c.write(appendBulk(appendHeader(nil, header, n), what)); err != nil {
			return err
		}
		if what == "pong" && !c.resp3 && c.front != nil {
			c.front = nil // the answer to PING while there are subscriptions
		}
		return c.copy(n - 1)
	}
	e := c.front
	channel, null, err := c.fromHub.small()
	if err != nil {
		return err
	}
	count, err := c.fromHub.number()
	if err != nil {
		return err
	}
	set := c.sets[strings.Replace(what, "unsub", "sub", 1)]
	if e.all && e.want == 0 {
		e.want = max(1, len(set))
	}
	if strings.Contains(what, "unsub") {
		if _, had := set[channel]; had && !null {
			delete(set, channel)
			c.channels.Add(-1)
		}
		if what == "unsubscribe" {
			c.listener.detach(channel)
		}
	} else {
		if set == nil {
			set = map[string]struct{}{}
			c.sets[what] = set
		}
		if _, had := set[channel]; had {
			c.channels.Add(-1)
		}
		set[channel] = struct{}{}
		if what == "subscribe" {
			c.attach(ctx, channel)
		}
	}
	if e.want--; e.want == 0 {
		c.front = nil
	}
	header := byte('*')
	if c.resp3 {
		header = '>'
	}
	b := appendBulk(appendHeader(nil, header, 3), what)
	if null {
		b = appendNull(b, c.resp3)
	} else {
		b = appendBulk(b, channel)
	}
	return c.write(appendNumber(b, count))
}

// attach subscribes at the agent too, if the channel is one of an agent.
func (c *caller) attach(ctx context.Context, channel string) {
	key, ok := ParseKey(channel)
	if !ok {
		return
	}
	target, isOwned, err := c.hub.cfg.Owners.Owner(key.Instance)
	if err != nil || !isOwned {
		return
	}
	_ = c.flush() // whoever waits for an earlier answer; an error shows at the next write
	c.listener.attach(ctx, channel, target.Agent, owned{key: key, target: target}.asked())
}

// errSlow is that a caller does not read what it has subscribed to.
var errSlow = errors.New("messages are not read")

// push tells the caller what its agents' channels tell.
func (c *caller) push(ctx context.Context) error {
	for {
		select {
		case <-c.listener.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		messages, ok := c.listener.take()
		if !ok {
			return errSlow
		}
		if err := c.tell(messages); err != nil {
			return err
		}
	}
}

func (c *caller) tell(messages []message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, m := range messages {
		if _, err := c.out.Write(appendMessage(nil, c.resp3, m.channel, m.payload)); err != nil {
			return err
		}
		c.hub.metrics.delivery.Observe(now.Sub(m.at).Seconds())
	}
	return c.out.Flush()
}
