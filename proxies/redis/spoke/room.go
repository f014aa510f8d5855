package spoke

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/argomesh/argomesh/proxies/redis/resp"
)

// shortValue is how long a value may be that waits for no others.
const shortValue = 64 << 10

// reserve waits until there is room for the value of a key among those that are on their way
// to the hub, and takes it until free is called: it may be called more than once. How long
// a value is Redis is asked before; one that grows in between is a few milliseconds ahead.
func (c *spokeSession) reserve(ctx context.Context, key string) (free func(), err error) {
	n, err := c.length(key)
	if err != nil {
		return nil, err
	}
	s := c.spoke
	if n = min(n, s.cfg.MaxBytes); n <= shortValue {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AnswerTimeout)
	defer cancel()
	s.metrics.waiting.Inc()
	err = s.room.Acquire(ctx, n)
	s.metrics.waiting.Dec()
	if err != nil {
		return nil, fmt.Errorf("values of %d bytes in all are on their way to the hub: %w", s.cfg.MaxBytes, err)
	}
	s.metrics.bytes.Add(float64(n))
	return sync.OnceFunc(func() {
		s.metrics.bytes.Sub(float64(n))
		s.room.Release(n)
	}), nil
}

// length is how long a value is, in bytes. Of one about which Redis does not let us ask, it
// is as long as any may be.
func (c *spokeSession) length(key string) (int64, error) {
	var refused resp.RefusalError
	switch err := c.fromRedis.Ask(c.redis, "STRLEN", key); {
	case errors.As(err, &refused):
		return resp.MaxBulk, nil
	case err != nil:
		return 0, err
	}
	line, err := c.fromRedis.Line()
	if err != nil {
		return 0, resp.Unexpected(err)
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil || line[0] != ':' || n < 0 {
		return 0, fmt.Errorf("%w: no length of a value", resp.ErrProtocol)
	}
	return n, nil
}
