package spoke

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// spokeSession is one connection of the hub with its own to the spoke's Redis.
type spokeSession struct {
	spoke     *Spoke
	redis     *resp.DeadlineConn
	fromRedis resp.Wire
	hub       *resp.DeadlineConn
	in        resp.Wire

	mu  sync.Mutex // guards out, once there are two who write
	out *bufio.Writer
}

// connect opens the connection to Redis and authenticates.
func (c *spokeSession) connect(ctx context.Context) error {
	cfg := c.spoke.cfg
	conn, err := cfg.Dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // it interrupts what follows
	c.redis = &resp.DeadlineConn{Conn: conn, ReadTime: cfg.AnswerTimeout, WriteTime: cfg.AnswerTimeout}
	c.fromRedis = resp.NewWire(c.redis)
	err = c.authenticate(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the error is known
	}
	return err
}

func (c *spokeSession) authenticate(ctx context.Context) error {
	username, password, err := c.spoke.cfg.Credentials(ctx)
	if err != nil {
		return err
	}
	var commands [][]string
	switch {
	case username != "":
		commands = append(commands, []string{"AUTH", username, password})
	case password != "":
		commands = append(commands, []string{"AUTH", password})
	}
	if c.spoke.cfg.Database > 0 {
		commands = append(commands, []string{"SELECT", strconv.Itoa(c.spoke.cfg.Database)})
	}
	for _, command := range append(commands, []string{"PING"}) {
		if err := c.fromRedis.Ask(c.redis, command...); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(command[0]), err)
		}
		if _, _, err := c.fromRedis.Small(); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(command[0]), err)
		}
	}
	return nil
}

// Results of commands, as the metrics have them.
const (
	resultOK     = "ok"
	resultDenied = "denied"
	resultFormat = "format"
	resultFailed = "failed"
)

func (c *spokeSession) count(result string) {
	c.spoke.metrics.commands.WithLabelValues(result).Inc()
}

// serve takes reads until the first subscription.
func (c *spokeSession) serve(ctx context.Context) error {
	for {
		cmd, err := c.in.Command()
		if err != nil {
			return ended(err)
		}
		if cmd.Left > 0 {
			return resp.ErrTooLong
		}
		name := cmd.Args[0]
		switch name {
		case "PING":
			c.writeLocked([]byte("+PONG\r\n"))
		case "SUBSCRIBE", "UNSUBSCRIBE":
			return c.subscriptions(cmd)
		case "GET", "MGET", "EXISTS", "TTL":
			if err := c.read(ctx, name, cmd.Args[1:]); err != nil {
				return err
			}
		default:
			c.count(resultDenied)
			c.writeLocked(resp.EncodeError(appkey.SpokeDenied))
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
}

// ended is the end of the hub's connection: nil when the hub closed it, or sent nothing more.
func ended(err error) error {
	var timeout net.Error
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF) ||
		errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

func (c *spokeSession) writeLocked(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(b) // Flush returns the same error
}

func (c *spokeSession) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Flush()
}

// read answers one read.
func (c *spokeSession) read(ctx context.Context, name string, keys []string) error {
	if n := len(keys); n == 0 || n > maxSpokeKeys || n > 1 && (name == "GET" || name == "TTL") {
		c.count(resultDenied)
		c.writeLocked(resp.EncodeError(appkey.SpokeDenied))
		return nil
	}
	for _, key := range keys {
		if refusal, result := c.spoke.refusal(key, c.spoke.format()); refusal != "" {
			c.count(result)
			c.writeLocked(resp.EncodeError(refusal))
			return nil
		}
	}
	if name == "MGET" {
		return c.readEach(ctx, keys)
	}
	if name == "GET" {
		free, err := c.reserve(ctx, keys[0])
		if err != nil {
			return c.failRead(err)
		}
		defer free()
	}
	if answers, err := c.ask(append([]string{name}, keys...)...); !answers {
		return err
	}
	if name == "GET" {
		if null, err := c.fromRedis.Peek(3); err != nil {
			return resp.Unexpected(err)
		} else if string(null) == "$-1" {
			return c.missing()
		}
	}
	c.count(resultOK)
	return c.fromRedis.CopyValues(c.out, 1, false)
}

// readEach answers MGET, one value after the other: Redis would have all of them in its
// memory, once for each time that the hub names a key, until the hub has read them.
func (c *spokeSession) readEach(ctx context.Context, keys []string) error {
	free, err := c.reserve(ctx, keys[0])
	if err != nil {
		return c.failRead(err)
	}
	defer func() { free() }() //nolint:gocritic // that of the last value, not of this one
	if answers, err := c.ask("GET", keys[0]); !answers {
		return err
	}
	c.writeLocked(resp.AppendHeader(nil, '*', len(keys)))
	for i, key := range keys {
		if i > 0 {
			free()
			if free, err = c.next(ctx, key); err != nil {
				return fmt.Errorf("redis of the spoke: %w", err) // what was begun has no other end
			}
		}
		if err := c.fromRedis.CopyValues(c.out, 1, false); err != nil {
			return err
		}
	}
	c.count(resultOK)
	return nil
}

// next has Redis answer with one more value of what was begun. The room that it takes is
// given back by free, which can be called also where there is an error.
func (c *spokeSession) next(ctx context.Context, key string) (free func(), err error) {
	free, err = c.reserve(ctx, key)
	if err != nil {
		return func() {}, err
	}
	return free, c.fromRedis.Ask(c.redis, "GET", key)
}

// ask asks Redis, and reports whether it answers. If not, the hub has its answer.
func (c *spokeSession) ask(args ...string) (answers bool, err error) {
	err = c.fromRedis.Ask(c.redis, args...)
	var refused resp.RefusalError
	switch {
	case errors.As(err, &refused):
		c.count(resultFailed)
		c.spoke.cfg.Log.Warn().Err(err).Msg("the spoke's Redis refuses a read")
		c.writeLocked(resp.EncodeError(appkey.SpokeAway))
		return false, nil
	case err != nil:
		return false, c.failRead(err)
	}
	return true, nil
}

// failRead answers that the spoke's Redis does not, and returns why.
func (c *spokeSession) failRead(cause error) error {
	c.count(resultFailed)
	c.writeLocked(resp.EncodeError(appkey.SpokeAway))
	return errors.Join(fmt.Errorf("redis of the spoke: %w", cause), c.flush())
}
