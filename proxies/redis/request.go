package redis

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// read takes commands and passes them on.
func (c *caller) read(ctx context.Context) error {
	for {
		cmd, err := c.in.Command()
		if err == nil {
			err = c.handle(ctx, cmd)
		}
		switch {
		case errors.Is(err, io.EOF):
			return errEnd
		case errors.Is(err, resp.ErrProtocol), errors.Is(err, resp.ErrTooLong):
			c.sendError("ERR Protocol error: " + err.Error())
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

// handle decides about one command.
func (c *caller) handle(ctx context.Context, cmd resp.Command) error {
	if len(cmd.Args) == 0 {
		return resp.ErrTooLong // a name of that length
	}
	name := strings.ToUpper(cmd.Args[0])
	keys, other, err := c.keysOf(cmd.Args[1:])
	switch {
	case err != nil && (name == "SUBSCRIBE" || name == "UNSUBSCRIBE"):
		// Whose the channel is, or that it may be reached, is perhaps known in a moment, as
		// after a start. Clients that subscribe again on a new connection look no further
		// at an error, and would receive nothing from then on.
		return c.handleSubscribe(ctx, name, cmd)
	case err != nil:
		return c.refuse(ctx, cmd, keys, codeRefused+" "+err.Error())
	case len(keys) > 0:
		return c.handleAgent(ctx, name, cmd, keys, other)
	case notPassed[name], name == "CLIENT" && len(cmd.Args) > 1 && strings.EqualFold(cmd.Args[1], "REPLY"):
		return c.refuse(ctx, cmd, nil, "ERR this command does not pass the redis proxy")
	case confirmations[name] != "":
		return c.handleSubscribe(ctx, name, cmd)
	}
	e := &entry{}
	switch name {
	case "HELLO":
		c.epoch.Add(1)
		if len(cmd.Args) > 1 {
			switch cmd.Args[1] {
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
		e.begins = len(cmd.Args) == 1 && cmd.Left == 0
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

// severalAgents answers a command that names keys of more than one agent, or of an agent and others.
const severalAgents = codeCommand + " the keys of one command are all of one agent, or none is an agent's"

// handleAgent decides about a command that names agents' keys.
func (c *caller) handleAgent(ctx context.Context, name string, cmd resp.Command, keys []owned, other int) error {
	switch name {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		return c.handleSubscribe(ctx, name, cmd)
	case "GET", "MGET", "EXISTS", "TTL":
	default:
		return c.refuse(ctx, cmd, keys, codeCommand+
			" what an agent's spoke keeps can be read and subscribed to, and nothing else: GET, MGET, EXISTS, TTL, SUBSCRIBE, UNSUBSCRIBE")
	}
	switch {
	case c.multi:
		return c.refuse(ctx, cmd, keys, codeCommand+" what an agent's spoke keeps has no part in a transaction")
	case cmd.Left > 0:
		return c.refuse(ctx, cmd, keys, codeCommand+" too many keys of an agent in one command")
	case other > 0:
		return c.refuse(ctx, cmd, keys, severalAgents)
	case len(keys) > 1 && (name == "GET" || name == "TTL"):
		return c.refuse(ctx, cmd, keys, "ERR wrong number of arguments for '"+strings.ToLower(name)+"' command")
	}
	for _, k := range keys {
		if k.target.Agent != keys[0].target.Agent {
			return c.refuse(ctx, cmd, keys, severalAgents)
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

// handleSubscribe passes on what is answered by confirmations.
func (c *caller) handleSubscribe(ctx context.Context, name string, cmd resp.Command) error {
	switch {
	case c.multi:
		return c.refuse(ctx, cmd, nil, "ERR subscriptions have no part in a transaction")
	case cmd.Left > 0:
		return c.refuse(ctx, cmd, nil, "ERR too many channels in one command")
	}
	e := &entry{kind: subscribe, confirms: confirmations[name], want: len(cmd.Args) - 1}
	if strings.HasSuffix(name, "UNSUBSCRIBE") {
		e.all = e.want == 0
	} else if c.channels.Add(int64(e.want)) > int64(c.hub.cfg.MaxSubscriptions) {
		c.channels.Add(-int64(e.want))
		c.hub.metrics.refused.WithLabelValues("subscriptions").Inc()
		return c.refuse(ctx, cmd, nil, "ERR too many subscriptions on one connection")
	}
	c.hub.metrics.commands.WithLabelValues("subscribe").Inc()
	if err := c.enqueue(ctx, e); err != nil {
		return err
	}
	return c.send(cmd)
}

// unsetKey is a key of ours that is never set.
const unsetKey = "argomesh|nowhere"

// refuse answers a command with an error, in its turn, and only to a caller that may
// ask the hub's Redis for such a key. A transaction is spoilt by it.
func (c *caller) refuse(ctx context.Context, cmd resp.Command, keys []owned, text string) error {
	c.hub.metrics.commands.WithLabelValues("refused").Inc()
	if err := c.discard(cmd); err != nil {
		return err
	}
	e, probe := &entry{kind: ownError, errorText: text}, []string{"EXISTS", unsetKey}
	switch {
	case c.multi:
		e.kind, probe = poison, []string{"GET"}
	case len(keys) > 0:
		probe[1] = keys[0].text
	}
	if err := c.enqueue(ctx, e); err != nil {
		return err
	}
	_, err := c.toHub.Write(resp.EncodeCommand(probe...))
	return err
}

// discard reads what is left of a command.
func (c *caller) discard(cmd resp.Command) error {
	for ; cmd.Left > 0; cmd.Left-- {
		if _, err := c.in.Discard(cmd.Next); err != nil {
			return resp.Unexpected(err)
		}
		if err := c.in.End(); err != nil {
			return err
		}
		if cmd.Left > 1 {
			var err error
			if cmd.Next, err = c.in.Argument(); err != nil {
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
func (c *caller) send(cmd resp.Command) error {
	head := resp.AppendHeader(nil, '*', len(cmd.Args)+cmd.Left)
	for _, arg := range cmd.Args {
		head = resp.AppendBulk(head, arg)
	}
	if _, err := c.toHub.Write(head); err != nil {
		return err
	}
	for ; cmd.Left > 0; cmd.Left-- {
		if _, err := c.toHub.Write(resp.AppendHeader(nil, '$', cmd.Next)); err != nil {
			return err
		}
		if cmd.Next <= appkey.MaxKeyBytes {
			arg, err := c.in.Bytes(cmd.Next)
			if err != nil {
				return err
			}
			if keys, _, err := c.keysOf([]string{string(arg)}); err != nil || len(keys) > 0 {
				c.sendError(codeCommand + " what an agent's spoke keeps has no part in such a command")
				return errLateKey // the hub's Redis never has the whole of it
			}
			if _, err := c.toHub.Write(append(arg, "\r\n"...)); err != nil {
				return err
			}
		} else if err := c.in.CopyString(c.toHub, cmd.Next); err != nil {
			return err
		}
		if cmd.Left > 1 {
			var err error
			if cmd.Next, err = c.in.Argument(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keysOf returns the arguments that are agents' keys, and how many are not. An error
// comes with the first key that it is about.
func (c *caller) keysOf(args []string) (keys []owned, other int, err error) {
	for _, arg := range args {
		key, ok := appkey.ParseKey(arg)
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
