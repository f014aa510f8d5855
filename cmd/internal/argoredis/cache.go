package argoredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cache keeps values under a prefix for some time, in bounded room. The room is counted in
// Redis itself, so that it holds across processes and restarts. Whose a value is its key says
// before the first "|": where room is needed the one gives way who has most, by what was kept
// the longest ago, so that no one who has much, or changes it without end, takes the room
// of those who have little. Its methods may be called concurrently.
type Cache struct {
	client *Client
	prefix string
	limit  int64
	expiry time.Duration
}

// Cache returns one that keeps values of at most limit bytes altogether.
func (c *Client) Cache(prefix string, limit int64, expiry time.Duration) *Cache {
	return &Cache{client: c, prefix: prefix, limit: limit, expiry: expiry}
}

// accounts has what the scripts have in common. Keys hold what is there: when each was kept,
// how long it is, how much all of them take, and how much those of each owner do; and for each
// owner one, when each of its was kept. They last as long as the newest value.
const accounts = `
local times, sizes, total, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix = ARGV[1]
local function owner(k) return string.match(k, '^([^|]*)|') or '' end
local function of(o) return times .. '|' .. o end
local function at(k, when)
  redis.call('ZADD', times, when, k)
  redis.call('ZADD', of(owner(k)), when, k)
end
local function drop(k)
  local o = owner(k)
  redis.call('DEL', prefix .. k)
  redis.call('ZREM', times, k)
  redis.call('ZREM', of(o), k)
  local n = tonumber(redis.call('HGET', sizes, k) or '0')
  redis.call('HDEL', sizes, k)
  local left = 1
  if n > 0 then
    redis.call('DECRBY', total, n)
    left = tonumber(redis.call('ZINCRBY', owners, -n, o))
  end
  if left <= 0 or redis.call('EXISTS', of(o)) == 0 then redis.call('ZREM', owners, o) end
  return n
end
local function last(k, expiry)
  for _, name in ipairs(KEYS) do redis.call('PEXPIRE', name, expiry) end
  redis.call('PEXPIRE', of(owner(k)), expiry)
end
`

// keep takes a key, its value, expiry and limit. The time is that of Redis, by which values
// expire too. What was kept by a clock that was ahead is taken for kept now: it would hold its
// room until then. Of what a release kept that knew no owners, whose it is is found out
// first.
var keep = redis.NewScript(accounts + `
local key, value = ARGV[2], ARGV[3]
local expiry, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if redis.call('EXISTS', owners) == 0 then
  local all = redis.call('ZRANGE', times, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    redis.call('ZADD', of(owner(all[i])), all[i + 1], all[i])
    redis.call('ZINCRBY', owners, redis.call('HGET', sizes, all[i]) or '0', owner(all[i]))
  end
  for _, o in ipairs(redis.call('ZRANGE', owners, 0, -1)) do redis.call('PEXPIRE', of(o), expiry) end
end
drop(key)
for _, k in ipairs(redis.call('ZRANGEBYSCORE', times, '(' .. now, '+inf', 'LIMIT', 0, 1000)) do
  at(k, now)
  redis.call('PEXPIRE', prefix .. k, expiry)
end
for _, k in ipairs(redis.call('ZRANGEBYSCORE', times, '-inf', now - expiry, 'LIMIT', 0, 1000)) do drop(k) end
if #value > limit then return 0 end
local mine = owner(key)
-- most returns who has most, of those who have anything, and how much the next one has. What
-- is to be kept counts, and of two who have as much it is its owner who gives way.
local function most()
  local who, has, next = nil, -1, -1
  local own = redis.call('ZSCORE', owners, mine)
  if own then who, has = mine, tonumber(own) + #value end
  local top = redis.call('ZREVRANGE', owners, 0, 2, 'WITHSCORES')
  for i = 1, #top, 2 do
    local n = tonumber(top[i + 1])
    if top[i] == mine then
      -- is known
    elseif n > has then
      who, has, next = top[i], n, has
    elseif n > next then
      next = n
    end
  end
  return who, has, next
end
local function needs() return tonumber(redis.call('GET', total) or '0') + #value > limit end
while needs() do
  local who, has, next = most()
  if not who then -- what is left was kept by a release that knows no owners
    local oldest = redis.call('ZRANGE', times, 0, 0)[1]
    if not oldest then redis.call('DEL', sizes, total) break end
    drop(oldest)
  end
  while who and has >= next and needs() do
    local oldest = redis.call('ZRANGE', of(who), 0, 0)[1]
    if not oldest then redis.call('ZREM', owners, who) break end
    has = has - drop(oldest)
  end
end
redis.call('SET', prefix .. key, value, 'PX', expiry)
at(key, now)
redis.call('HSET', sizes, key, #value)
redis.call('INCRBY', total, #value)
redis.call('ZINCRBY', owners, #value, mine)
last(key, expiry)
return 1
`)

// forget takes a key.
var forget = redis.NewScript(accounts + `
drop(ARGV[2])
return 1
`)

// touch takes an expiry, and then keys, each with its age. It returns the keys of which
// there is nothing.
var touch = redis.NewScript(accounts + `
local expiry = tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local missing = {}
for i = 3, #ARGV, 2 do
  local key, age = ARGV[i], tonumber(ARGV[i + 1])
  local before = redis.call('ZSCORE', times, key)
  if not before or redis.call('EXISTS', prefix .. key) == 0 then
    missing[#missing + 1] = key
  elseif age < expiry and now - age > tonumber(before) then
    at(key, now - age)
    redis.call('PEXPIRE', prefix .. key, expiry - age)
    last(key, expiry)
  end
end
return missing
`)

// clearAll removes all that is kept.
var clearAll = redis.NewScript(accounts + `
for _, k in ipairs(redis.call('ZRANGE', times, 0, -1)) do redis.call('DEL', prefix .. k, of(owner(k))) end
for _, o in ipairs(redis.call('ZRANGE', owners, 0, -1)) do redis.call('DEL', of(o)) end
for _, name in ipairs(KEYS) do redis.call('DEL', name) end
return 1
`)

func (k *Cache) keys() []string {
	return []string{k.prefix + "times", k.prefix + "sizes", k.prefix + "total", k.prefix + "owners"}
}

// values is where the values are, apart from what is known of them.
func (k *Cache) values() string { return k.prefix + "value|" }

// Set keeps a value. One longer than all the room is not kept, which is no error.
func (k *Cache) Set(ctx context.Context, key string, value []byte) error {
	return keep.Run(ctx, k.client.redis, k.keys(), k.values(), key, value,
		k.expiry.Milliseconds(), k.limit).Err()
}

// Touch says how long ago values were last seen to be what is kept. One that is kept for
// longer is that old from now on, and expires that much later. It returns the keys of
// which nothing is kept.
func (k *Cache) Touch(ctx context.Context, ages map[string]time.Duration) (missing []string, err error) {
	args := []any{k.values(), k.expiry.Milliseconds()}
	for key, age := range ages {
		args = append(args, key, max(age, 0).Milliseconds())
	}
	return touch.Run(ctx, k.client.redis, k.keys(), args...).StringSlice()
}

// Forget removes a value. It is no error when there is none.
func (k *Cache) Forget(ctx context.Context, key string) error {
	return forget.Run(ctx, k.client.redis, k.keys(), k.values(), key).Err()
}

// Clear removes all values.
func (k *Cache) Clear(ctx context.Context) error {
	return clearAll.Run(ctx, k.client.redis, k.keys(), k.values()).Err()
}

// Last returns a value and how long ago it was kept; nil when there is none.
func (k *Cache) Last(ctx context.Context, key string) (value []byte, age time.Duration, err error) {
	pipe := k.client.redis.Pipeline()
	get, ttl := pipe.Get(ctx, k.values()+key), pipe.PTTL(ctx, k.values()+key)
	if _, err := pipe.Exec(ctx); errors.Is(err, redis.Nil) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("last value: %w", err)
	}
	value, err = get.Bytes()
	return value, max(k.expiry-ttl.Val(), 0), err // of one that was kept by a clock that was ahead no one knows
}

// OwnerCaches is a Cache for each of several owners under one prefix. Its methods may be
// called concurrently.
type OwnerCaches struct{ each Cache } // but for the owner in its prefix

// OwnerCaches returns one that keeps values of at most limit bytes altogether for each
// owner.
func (c *Client) OwnerCaches(prefix string, limit int64, expiry time.Duration) *OwnerCaches {
	return &OwnerCaches{*c.Cache(prefix, limit, expiry)}
}

// of returns what is an owner's.
func (k *OwnerCaches) of(owner string) *Cache {
	kept := k.each
	kept.prefix += owner + "|"
	return &kept
}

// Get returns the value of a key, of a longer one the first limit bytes, and nothing
// when there is none.
func (k *OwnerCaches) Get(ctx context.Context, owner, key string, limit int) ([]byte, error) {
	return k.each.client.Get(ctx, k.of(owner).values()+key, limit)
}

// Set keeps a value; one without a byte is removed.
func (k *OwnerCaches) Set(ctx context.Context, owner, key string, value []byte) error {
	if len(value) == 0 {
		return k.of(owner).Forget(ctx, key)
	}
	return k.of(owner).Set(ctx, key, value)
}

// Clear removes all values of an owner.
func (k *OwnerCaches) Clear(ctx context.Context, owner string) error { return k.of(owner).Clear(ctx) }
