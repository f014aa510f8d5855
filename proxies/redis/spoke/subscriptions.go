package spoke

import (
	"fmt"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"

	"golang.org/x/sync/errgroup"
)

// subscriptions serves a connection from its first subscription on.
func (c *spokeSession) subscriptions(cmd resp.Command) error {
	c.redis.ReadTime = spokeIdle // the hub asks for a sign of life more often
	var g errgroup.Group
	broken := func(err error) error {
		// The other direction has no one to serve.
		_ = c.redis.Close() // it interrupts what is under way there
		c.hub.Interrupt()
		return err
	}
	left := false
	g.Go(func() error {
		err := c.relayHub(cmd)
		left = err == nil
		return broken(err)
	})
	g.Go(func() error { return broken(c.relayRedis()) })
	err := g.Wait()
	if left {
		return nil
	}
	return err
}

// relayHub passes on the subscriptions of the hub.
func (c *spokeSession) relayHub(cmd resp.Command) error {
	channels := map[string]struct{}{}
	for {
		if cmd.Left > 0 {
			return resp.ErrTooLong
		}
		switch name := cmd.Args[0]; {
		case name == "PING" && len(cmd.Args) == 1:
		case (name == "SUBSCRIBE" || name == "UNSUBSCRIBE") && len(cmd.Args) == 2:
			channel := cmd.Args[1]
			if _, ok := appkey.ParseKey(channel); !ok {
				c.count(resultDenied)
				return fmt.Errorf("%w: a channel that is none", resp.ErrProtocol)
			}
			if name == "UNSUBSCRIBE" {
				delete(channels, channel)
				break
			}
			refusal, result := c.spoke.refusal(channel, c.spoke.cfg.Version)
			if _, had := channels[channel]; !had && len(channels) >= maxSpokeChannels && refusal == "" {
				refusal, result = appkey.SpokeDenied, resultDenied
			}
			c.count(result)
			if refusal != "" {
				c.writeLocked(resp.EncodeError(refusal + " " + channel))
				if err := c.flush(); err != nil {
					return err
				}
				cmd.Args = nil
			} else {
				channels[channel] = struct{}{}
			}
		default:
			c.count(resultDenied)
			return fmt.Errorf("%w: no command for a connection with subscriptions", resp.ErrProtocol)
		}
		if cmd.Args != nil {
			if _, err := c.redis.Write(resp.EncodeCommand(cmd.Args...)); err != nil {
				return err
			}
		}
		var err error
		if cmd, err = c.in.Command(); err != nil {
			return ended(err)
		}
	}
}

// relayRedis passes on the messages of Redis.
func (c *spokeSession) relayRedis() error {
	for {
		if _, err := c.fromRedis.Peek(1); err != nil {
			return resp.Unexpected(err)
		}
		if err := c.copyMessage(); err != nil {
			return err
		}
	}
}

// copyMessage passes on one message or confirmation.
func (c *spokeSession) copyMessage() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fromRedis.CopyValues(c.out, 1, false); err != nil {
		return err
	}
	if c.fromRedis.Buffered() > 0 {
		return nil
	}
	return c.out.Flush()
}
