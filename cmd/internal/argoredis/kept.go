package argoredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Kept keeps values under a prefix for some time, in bounded room: what was kept the
// longest ago goes first. The room is counted in Redis itself, so that it holds across
// processes and restarts. Its methods may be called concurrently.
type Kept struct {
	client *Client
	prefix string
	limit  int64
	expiry time.Duration
}

// Kept returns one that keeps values of at most limit bytes altogether.
func (c *Client) Kept(prefix string, limit int64, expiry time.Duration) *Kept {
	return &Kept{client: c, prefix: prefix, limit: limit, expiry: expiry}
}

// keep takes a key, its value, expiry and limit. Three keys hold what is there: when
// each was kept, how long it is, and all of them together. They last as long as the
// newest value. The time is that of Redis, by which values expire too. What was kept by
// a clock that was ahead is taken for kept now: it would hold its room until then.
var keep = redis.NewScript(`
local times, sizes, total = KEYS[1], KEYS[2], KEYS[3]
local prefix, key, value = ARGV[1], ARGV[2], ARGV[3]
local expiry, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function drop(k)
  redis.call('DEL', prefix .. k)
  redis.call('ZREM', times, k)
  local n = redis.call('HGET', sizes, k)
  if n then
    redis.call('HDEL', sizes, k)
    redis.call('DECRBY', total, n)
  end
end
drop(key)
for _, k in ipairs(redis.call('ZRANGEBYSCORE', times, '(' .. now, '+inf', 'LIMIT', 0, 1000)) do
  redis.call('ZADD', times, now, k)
  redis.call('PEXPIRE', prefix .. k, expiry)
end
for _, k in ipairs(redis.call('ZRANGEBYSCORE', times, '-inf', now - expiry, 'LIMIT', 0, 1000)) do drop(k) end
if #value > limit then return 0 end
while tonumber(redis.call('GET', total) or '0') + #value > limit do
  local oldest = redis.call('ZRANGE', times, 0, 0)[1]
  if not oldest then redis.call('DEL', sizes, total) break end
  drop(oldest)
end
redis.call('SET', prefix .. key, value, 'PX', expiry)
redis.call('ZADD', times, now, key)
redis.call('HSET', sizes, key, #value)
redis.call('INCRBY', total, #value)
for _, k in ipairs(KEYS) do redis.call('PEXPIRE', k, expiry) end
return 1
`)

// forget takes a key.
var forget = redis.NewScript(`
redis.call('DEL', ARGV[1] .. ARGV[2])
redis.call('ZREM', KEYS[1], ARGV[2])
local n = redis.call('HGET', KEYS[2], ARGV[2])
if n then
  redis.call('HDEL', KEYS[2], ARGV[2])
  redis.call('DECRBY', KEYS[3], n)
end
return 1
`)

// touch takes an expiry, and then keys, each with its age. It returns the keys of which
// there is nothing.
var touch = redis.NewScript(`
local times = KEYS[1]
local prefix, expiry = ARGV[1], tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local missing, touched = {}, false
for i = 3, #ARGV, 2 do
  local key, age = ARGV[i], tonumber(ARGV[i + 1])
  local at = redis.call('ZSCORE', times, key)
  if not at or redis.call('EXISTS', prefix .. key) == 0 then
    missing[#missing + 1] = key
  elseif age < expiry and now - age > tonumber(at) then
    redis.call('ZADD', times, now - age, key)
    redis.call('PEXPIRE', prefix .. key, expiry - age)
    touched = true
  end
end
if touched then
  for _, k in ipairs(KEYS) do redis.call('PEXPIRE', k, expiry) end
end
return missing
`)

// clearAll removes all that is kept.
var clearAll = redis.NewScript(`
for _, k in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('DEL', ARGV[1] .. k) end
for _, k in ipairs(KEYS) do redis.call('DEL', k) end
return 1
`)

func (k *Kept) keys() []string {
	return []string{k.prefix + "times", k.prefix + "sizes", k.prefix + "total"}
}

// values is where the values are, apart from what is known of them.
func (k *Kept) values() string { return k.prefix + "value|" }

// Keep keeps a value. One longer than all the room is not kept, which is no error.
func (k *Kept) Keep(ctx context.Context, key string, value []byte) error {
	return keep.Run(ctx, k.client.redis, k.keys(), k.values(), key, value,
		k.expiry.Milliseconds(), k.limit).Err()
}

// Touch says how long ago values were last seen to be what is kept. One that is kept for
// longer is that old from now on, and expires that much later. It returns the keys of
// which nothing is kept.
func (k *Kept) Touch(ctx context.Context, ages map[string]time.Duration) (missing []string, err error) {
	args := []any{k.values(), k.expiry.Milliseconds()}
	for key, age := range ages {
		args = append(args, key, max(age, 0).Milliseconds())
	}
	return touch.Run(ctx, k.client.redis, k.keys(), args...).StringSlice()
}

// Forget removes a value. It is no error when there is none.
func (k *Kept) Forget(ctx context.Context, key string) error {
	return forget.Run(ctx, k.client.redis, k.keys(), k.values(), key).Err()
}

// Clear removes all values.
func (k *Kept) Clear(ctx context.Context) error {
	return clearAll.Run(ctx, k.client.redis, k.keys(), k.values()).Err()
}

// Last returns a value and how long ago it was kept; nil when there is none.
func (k *Kept) Last(ctx context.Context, key string) (value []byte, age time.Duration, err error) {
	pipe := k.client.redis.Pipeline()
	get, ttl := pipe.Get(ctx, k.values()+key), pipe.PTTL(ctx, k.values()+key)
	if _, err := pipe.Exec(ctx); errors.Is(err, redis.Nil) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("last value: %w", err)
	}
	value, err = get.Bytes()
	return value, max(k.expiry-ttl.Val(), 0), err // of one that was kept by a clock that was ahead nobody knows
}

// KeptOf is a Kept for each of several owners under one prefix. Its methods may be
// called concurrently.
type KeptOf struct{ each Kept } // but for the owner in its prefix

// KeptOf returns one that keeps values of at most limit bytes altogether for each
// owner.
func (c *Client) KeptOf(prefix string, limit int64, expiry time.Duration) *KeptOf {
	return &KeptOf{*c.Kept(prefix, limit, expiry)}
}

// of returns what is an owner's.
func (k *KeptOf) of(owner string) *Kept {
	kept := k.each
	kept.prefix += owner + "|"
	return &kept
}

// Get returns the value of a key, of a longer one the first limit bytes, and nothing
// when there is none.
func (k *KeptOf) Get(ctx context.Context, owner, key string, limit int) ([]byte, error) {
	return k.each.client.Get(ctx, k.of(owner).values()+key, limit)
}

// Set keeps a value; one without a byte is removed.
func (k *KeptOf) Set(ctx context.Context, owner, key string, value []byte) error {
	if len(value) == 0 {
		return k.of(owner).Forget(ctx, key)
	}
	return k.of(owner).Keep(ctx, key, value)
}

// Clear removes all values of an owner.
func (k *KeptOf) Clear(ctx context.Context, owner string) error { return k.of(owner).Clear(ctx) }
