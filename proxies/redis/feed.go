package redis

import (
	"fmt"

	"golang.org/x/sync/errgroup"
)

// subscriptions serves a connection from its first subscription on.
func (c *spokeSession) subscriptions(cmd command) error {
	c.redis.read = spokeIdle // the hub asks for a sign of life more often
	var g errgroup.Group
	broken := func(err error) error {
		// The other direction has nobody to serve.
		_ = c.redis.Close() // it interrupts what is under way there
		c.hub.interrupt()
		return err
	}
	left := false
	g.Go(func() error {
		err := c.hearHub(cmd)
		left = err == nil
		return broken(err)
	})
	g.Go(func() error { return broken(c.hearRedis()) })
	err := g.Wait()
	if left {
		return nil
	}
	return err
}

// hearHub passes subscriptions on.
func (c *spokeSession) hearHub(cmd command) error {
	channels := map[string]struct{}{}
	for {
		if cmd.left > 0 {
			return errTooLong
		}
		switch name := cmd.args[0]; {
		case name == "PING" && len(cmd.args) == 1:
		case (name == "SUBSCRIBE" || name == "UNSUBSCRIBE") && len(cmd.args) == 2:
			channel := cmd.args[1]
			if _, ok := ParseKey(channel); !ok {
				c.count(resultDenied)
				return fmt.Errorf("%w: a channel that is none", errProtocol)
			}
			if name == "UNSUBSCRIBE" {
				delete(channels, channel)
				break
			}
			refusal, result := c.spoke.judge(channel, c.spoke.cfg.Version)
			if _, had := channels[channel]; !had && len(channels) >= maxSpokeChannels && refusal == "" {
				refusal, result = spokeDenied, resultDenied
			}
			c.count(result)
			if refusal != "" {
				c.writeLocked(encodeError(refusal + " " + channel))
				if err := c.flush(); err != nil {
					return err
				}
				cmd.args = nil
			} else {
				channels[channel] = struct{}{}
			}
		default:
			c.count(resultDenied)
			return fmt.Errorf("%w: no command for a connection with subscriptions", errProtocol)
		}
		if cmd.args != nil {
			if _, err := c.redis.Write(encodeCommand(cmd.args...)); err != nil {
				return err
			}
		}
		var err error
		if cmd, err = c.in.command(); err != nil {
			return ended(err)
		}
	}
}

// hearRedis passes on what Redis tells.
func (c *spokeSession) hearRedis() error {
	for {
		if _, err := c.fromRedis.Peek(1); err != nil {
			return unexpected(err)
		}
		if err := c.pass(); err != nil {
			return err
		}
	}
}

func (c *spokeSession) pass() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fromRedis.copyValues(c.out, 1, false); err != nil {
		return err
	}
	if c.fromRedis.Buffered() > 0 {
		return nil
	}
	return c.out.Flush()
}
