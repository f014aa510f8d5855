package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/test/kit"
)

// protocols runs a test with either.
func protocols(t *testing.T, test func(t *testing.T, protocol int)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) { test(t, protocol) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next returns the next message of a subscription.
func next(t *testing.T, s *goredis.PubSub) *goredis.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := s.ReceiveMessage(ctx)
	must(t, err)
	return m
}

// hubChannel is a channel of the hub's own. go-redis 9 looks at 36 bytes of whatever is
// pushed to it, and waits for them: the name of a channel must not be short.
const hubChannel = "channel-of-the-hub"

func subscribeTo(t *testing.T, c *goredis.Client, channels ...string) *goredis.PubSub {
	t.Helper()
	s := c.Subscribe(t.Context(), channels...)
	t.Cleanup(func() { _ = s.Close() }) // with its client
	for range channels {
		if m, err := s.ReceiveTimeout(t.Context(), patience); err != nil {
			t.Fatal(err)
		} else if _, ok := m.(*goredis.Subscription); !ok {
			t.Fatalf("Receive() = %v, want a confirmation", m)
		}
	}
	return s
}

func TestAgentKeys(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, nil), t.Context()
		a, b := w.add("a", nil).redis.client(t, 3), w.add("b", nil).redis.client(t, 3)
		must(t, a.Set(ctx, tree("", "shop"), "of a", time.Hour).Err())
		must(t, b.Set(ctx, tree("", "shop"), "of b", 0).Err())
		shard := "app|resources-tree|%s|2|" + version + ".gz"
		must(t, a.Set(ctx, fmt.Sprintf(shard, "shop"), "shard 2", 0).Err())
		large := strings.Repeat("0123456789abcdef", 30<<20/16)
		must(t, a.Set(ctx, tree("", "large"), large, 0).Err())
		c := w.client(protocol)
		for key, want := range map[string]string{
			tree("a", "shop"): "of a", tree("b", "shop"): "of b", fmt.Sprintf(shard, "a_shop"): "shard 2", tree("a", "large"): large,
		} {
			if got, err := c.Get(ctx, key).Result(); err != nil || got != want {
				t.Errorf("GET %s = %.20q (%d bytes), %v", key, got, len(got), err)
			}
		}
		for _, key := range []string{tree("a", "none"), tree("a", "unknown"), tree("c", "shop"), tree("", "shop")} {
			if got, err := c.Get(ctx, key).Result(); !errors.Is(err, goredis.Nil) {
				t.Errorf("GET %s = %q, %v", key, got, err)
			}
		}
		got, err := c.MGet(ctx, tree("a", "shop"), tree("a", "none"), fmt.Sprintf(shard, "a_shop")).Result()
		if diff := cmp.Diff([]any{"of a", nil, "shard 2"}, got); err != nil || diff != "" {
			t.Errorf("MGET: %v (-want +got)\n%s", err, diff)
		}
		if n, err := c.Exists(ctx, tree("a", "shop"), tree("a", "none")).Result(); err != nil || n != 1 {
			t.Errorf("EXISTS = %d, %v", n, err)
		}
		if ttl, err := c.TTL(ctx, tree("a", "shop")).Result(); err != nil || ttl < 59*time.Minute || ttl > time.Hour {
			t.Errorf("TTL = %s, %v", ttl, err)
		}
		if ttl, err := c.TTL(ctx, tree("a", "unknown")).Result(); err != nil || ttl != -2 {
			t.Errorf("TTL = %s, %v", ttl, err)
		}
	})
}

// Whatever is not reading is refused by name, and changes nothing on either side.
func TestAgentKeysAreReadOnly(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, nil), t.Context()
		e := w.add("a", nil)
		w.add("b", nil)
		spoke := e.redis.client(t, 3)
		must(t, spoke.Set(ctx, tree("", "shop"), "x", 0).Err())
		c, key := w.client(protocol), tree("a", "shop")
		for _, args := range [][]any{
			{"SET", key, "y"}, {"DEL", key}, {"RENAME", key, "other"}, {"RENAME", "other", key}, {"EXPIRE", key, "1"}, {"UNLINK", key},
			{"GETRANGE", key, "0", "1"}, {"TYPE", key}, {"PUBLISH", key, ""}, {"MSET", "other", "1", key, "2"}, {"WATCH", key},
			{"EVAL", "return redis.call('get', KEYS[1])", "1", key}, {"COPY", "other", key}, {"DUMP", key}, {"get", key, "more"},
			{"MGET", key, "other"}, {"MGET", key, tree("b", "shop")}, {"SET", key, strings.Repeat("y", 100<<10)}, {"EXISTS", key, "other"},
		} {
			err := c.Do(ctx, args...).Err()
			if err == nil || !strings.HasPrefix(err.Error(), "AGENTCOMMAND ") && args[0] != "get" {
				t.Errorf("%.40v = %v", args, err)
			}
		}
		if got, err := c.Get(ctx, key).Result(); err != nil || got != "x" {
			t.Errorf("GET = %q, %v", got, err)
		}
		if keys, err := w.redis.client(t, 3).Keys(ctx, "*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("the hub's redis holds %v, %v", keys, err)
		}
		for _, args := range [][]any{{"MONITOR"}, {"SYNC"}, {"CLIENT", "REPLY", "OFF"}} {
			if err := c.Do(ctx, args...).Err(); err == nil || !strings.Contains(err.Error(), "does not pass") {
				t.Errorf("%v = %v", args, err)
			}
		}
		// In a transaction it is an error, and the transaction does not happen.
		_, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Set(ctx, "other", "1", 0)
			p.Get(ctx, key)
			return nil
		})
		if err == nil || c.Exists(ctx, "other").Val() != 0 {
			t.Errorf("a transaction with an agent's key: %v", err)
		}
		// So late in a command that the begin of it has passed.
		args := []any{"MSET"}
		for i := range 2000 {
			args = append(args, fmt.Sprintf("k%d", i), "v")
		}
		if err := c.Do(ctx, append(args, key, "v")...).Err(); err == nil || c.Exists(ctx, "k0").Val() != 0 {
			t.Errorf("a long command with an agent's key: %v", err)
		}
	})
}

func TestNothingBeforeAuthentication(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", nil)
	must(t, e.redis.client(t, 3).Set(ctx, tree("", "shop"), "x", 0).Err())
	conn, err := net.Dial("unix", w.socket)
	must(t, err)
	defer func() { _ = conn.Close() }() // the test is over
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	for _, command := range [][]string{
		{"GET", tree("a", "shop")}, {"MGET", tree("a", "shop")}, {"SUBSCRIBE", channel("a", "shop")}, {"SET", tree("a", "shop"), "y"},
		{"DEL", tree("a", "shop")}, {"AUTH", "wrong"}, {"GET", tree("a", "shop")}, {"MULTI"}, {"GET", tree("a", "shop")}, {"HELLO", "3", "AUTH", "default", "wrong"},
		{"TTL", tree("a", "shop")},
	} {
		_, err := conn.Write(encode(command...))
		must(t, err)
		line := readLine(t, conn)
		if !strings.HasPrefix(line, "-NOAUTH") && !strings.HasPrefix(line, "-WRONGPASS") && !strings.HasPrefix(line, "-ERR wrong number of arguments") {
			t.Errorf("%v: %s", command, line)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.dials != 0 {
		t.Errorf("the agent was asked %d times", e.dials)
	}
}

func encode(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// readLine reads byte by byte, so that nothing more is read.
func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for one := []byte{0}; !bytes.HasSuffix(line, []byte("\r\n")); {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		line = append(line, one[0])
	}
	return string(line[:len(line)-2])
}

func TestSubscribe(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, nil), t.Context()
		a, b, hub := w.add("a", nil).redis.client(t, 3), w.add("b", nil).redis.client(t, 3), w.redis.client(t, 3)
		s := subscribeTo(t, w.client(protocol), channel("a", "shop"), channel("b", "shop"), hubChannel)
		// A spoke that is slow to subscribe is not waited for; then s is told to look again.
		for _, at := range []*goredis.Client{a, b} {
			redisChannel{at, channel("", "shop")}.subscribed(t, 1)
			must(t, at.Publish(ctx, channel("", "shop"), "begin").Err())
		}
		for begun := 0; begun < 2; {
			switch m := next(t, s); m.Payload {
			case "begin":
				begun++
			case "":
			default:
				t.Fatalf("a message %v", m)
			}
		}
		for name, publish := range map[string]func() error{
			channel("a", "shop"): func() error { return a.Publish(ctx, channel("", "shop"), "").Err() },
			channel("b", "shop"): func() error { return b.Publish(ctx, channel("", "shop"), "text").Err() },
			hubChannel:           func() error { return hub.Publish(ctx, hubChannel, "x").Err() },
		} {
			must(t, publish())
			if m := next(t, s); m.Channel != name {
				t.Errorf("a message of %s, want %s", m.Channel, name)
			}
		}
		must(t, s.Ping(ctx, "alive"))
		if m, err := s.ReceiveTimeout(ctx, patience); err != nil || m.(*goredis.Pong).Payload != "alive" {
			t.Errorf("PING = %v, %v", m, err)
		}
		must(t, s.Unsubscribe(ctx, channel("a", "shop")))
		if m, err := s.ReceiveTimeout(ctx, patience); err != nil || m.(*goredis.Subscription).Count != 2 {
			t.Errorf("UNSUBSCRIBE = %v, %v", m, err)
		}
		kit.EventuallyNil(t, "the spoke's redis to know", func() error {
			if n := a.PubSubNumSub(ctx, channel("", "shop")).Val()[channel("", "shop")]; n != 0 {
				return fmt.Errorf("%d subscribers", n)
			}
			return nil
		})
		must(t, s.Unsubscribe(ctx))
		for range 2 {
			_, err := s.ReceiveTimeout(ctx, patience)
			must(t, err)
		}
	})
}

// An agent that comes back is subscribed again, and anyone who was subscribed looks again.
func TestSubscriptionsSurvive(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", nil)
	spoke := e.redis.client(t, 3)
	var pages []*goredis.PubSub
	for i := range 10 {
		pages = append(pages, subscribeTo(t, w.client(2+i%2), channel("a", "shop")))
	}
	there := redisChannel{spoke, channel("", "shop")}
	there.subscribed(t, 1)
	must(t, spoke.Publish(ctx, channel("", "shop"), "begin").Err())
	for _, p := range pages {
		until(t, p, channel("a", "shop"), "begin")
	}
	for _, fault := range []func(){
		func() { w.set(e, true, func(*edge) {}) },
		func() {
			w.set(e, true, func(e *edge) { e.away = true })
			// One more while it is away.
			pages = append(pages, subscribeTo(t, w.client(3), channel("a", "shop")))
			w.set(e, false, func(e *edge) { e.away = false })
		},
		func() {
			e.redis.stop()
			e.redis.start(t)
		},
	} {
		before, err := there.connection(t)
		must(t, err)
		fault()
		for _, p := range pages { // of the loss, or of what was missed; those that wait are one
			if m := next(t, p); m.Channel != channel("a", "shop") || m.Payload != "" {
				t.Fatalf("a message %v", m)
			}
		}
		there.subscribedAnew(t, before)
		must(t, spoke.Publish(ctx, channel("", "shop"), "now").Err())
		for _, p := range pages {
			until(t, p, channel("a", "shop"), "now")
		}
	}
	if n := spoke.PubSubNumSub(ctx, channel("", "shop")).Val()[channel("", "shop")]; n != 1 {
		t.Errorf("%d connections are subscribed at the spoke, want one for all", n)
	}
}

// Anyone who is subscribed looks again when the agent goes, once more when it is known since
// when it is away, and when it is back; what it sees then says so.
func TestSubscribersAreToldOfALoss(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", func(c *spoke.Config) { c.Plain = true })
	spoke := e.redis.client(t, 3)
	const text = `{"nodes":[{"kind":"Service"}]}`
	key := strings.TrimSuffix(tree("a", "shop"), ".gz")
	must(t, spoke.Set(ctx, strings.TrimSuffix(tree("", "shop"), ".gz"), text, 0).Err())
	c := w.client(3)
	page := subscribeTo(t, c, channel("a", "shop"))
	there := redisChannel{spoke, channel("", "shop")}
	there.subscribed(t, 1)
	shows := func() string {
		t.Helper()
		got, err := c.Get(ctx, key).Result()
		must(t, err)
		return got
	}
	if got := shows(); got != text {
		t.Fatalf("GET = %s", got)
	}
	kit.EventuallyNil(t, "the value to be kept", func() error {
		if w.store.len() == 0 {
			return errors.New("nothing is kept")
		}
		return nil
	})
	told := func() {
		t.Helper()
		if m := next(t, page); m.Channel != channel("a", "shop") || m.Payload != "" {
			t.Fatalf("a message %v", m)
		}
	}
	w.set(e, true, func(e *edge) { e.away = true })
	told()
	there.subscribed(t, 0)
	if got := shows(); !regexp.MustCompile(`"value":"as of \d\d:\d\d:\d\d UTC on \d{4}-\d\d-\d\d, agent a is away since \d\d:`).MatchString(got) {
		t.Errorf("GET = %s", got)
	}
	w.set(e, false, func(e *edge) { e.since = time.Date(2026, 11, 25, 18, 57, 28, 0, time.UTC) })
	told()
	if got := shows(); !strings.Contains(got, ", agent a is away since 18:57:28 UTC on 2026-11-25") {
		t.Errorf("GET = %s", got)
	}
	w.set(e, false, func(e *edge) { e.away, e.since = false, time.Time{} })
	told()
	there.subscribed(t, 1)
	if got := shows(); got != text {
		t.Errorf("GET when it is back = %s", got)
	}
	must(t, spoke.Publish(ctx, channel("", "shop"), "now").Err())
	if n := until(t, page, channel("a", "shop"), "now"); n > 1 {
		t.Errorf("it was told %d times more", n)
	}
}

func TestAbsentSpoke(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", nil)
	spoke := e.redis.client(t, 3)
	must(t, spoke.Set(ctx, tree("", "shop"), "x", 0).Err())
	c := w.client(3)
	must(t, c.Get(ctx, tree("a", "shop")).Err())
	kit.EventuallyNil(t, "the value to be kept", func() error {
		if w.store.len() == 0 {
			return errors.New("nothing is kept")
		}
		return nil
	})
	for name, fault := range map[string]func(){
		"away":  func() { w.set(e, true, func(e *edge) { e.away = true }) },
		"redis": func() { e.redis.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			fault()
			if got, err := c.Get(ctx, tree("a", "shop")).Result(); err != nil || got != "x" {
				t.Errorf("GET = %q, %v", got, err)
			}
			if got, err := c.MGet(ctx, tree("a", "shop"), tree("a", "none")).Result(); err != nil || len(got) != 2 || got[0] != "x" || got[1] != nil {
				t.Errorf("MGET = %v, %v", got, err)
			}
			if got, err := c.MGet(ctx, tree("a", "unknown"), tree("a", "shop")).Result(); err != nil || len(got) != 2 || got[0] != nil || got[1] != "x" {
				t.Errorf("MGET of one that is not on the hub, and of one that is = %v, %v", got, err)
			}
			for _, keys := range [][]string{{tree("a", "shop")}, {tree("a", "unknown"), tree("a", "shop")}} {
				if n, err := c.Exists(ctx, keys...).Result(); err != nil || n != 1 {
					t.Errorf("EXISTS = %d, %v", n, err)
				}
			}
			if ttl, err := c.TTL(ctx, tree("a", "shop")).Result(); err != nil || ttl < redis.KeptFor-time.Hour {
				t.Errorf("TTL = %s, %v", ttl, err)
			}
			if err := c.Get(ctx, tree("a", "other")).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTAWAY agent a ") {
				t.Errorf("GET without a last value = %v", err)
			}
			w.set(e, true, func(e *edge) { e.banned = true })
			if err := c.Get(ctx, tree("a", "shop")).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTREFUSED ") {
				t.Errorf("GET of one that is suspended = %v", err)
			}
			w.set(e, false, func(e *edge) { e.banned, e.away = false, false })
		})
	}
	// What the spoke has no more is not shown later.
	e.redis.start(t)
	if got, err := c.Get(ctx, tree("a", "shop")).Result(); !errors.Is(err, goredis.Nil) {
		t.Errorf("GET after the spoke's redis lost all = %q, %v", got, err)
	}
	kit.EventuallyNil(t, "the value to be forgotten", func() error {
		if w.store.len() != 0 {
			return errors.New("it is kept")
		}
		return nil
	})
}

func TestOtherFormat(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	w.add("old", func(cfg *spoke.Config) { cfg.Version = "1.8.2" })
	plain := w.add("plain", nil).redis.client(t, 3)
	must(t, plain.Set(ctx, strings.TrimSuffix(tree("", "shop"), ".gz"), "{}", 0).Err())
	c := w.client(3)
	for agent, format := range map[string]string{"old": "1.8.2.gz", "plain": "1.8.3"} {
		err := c.Get(ctx, tree(agent, "shop")).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "AGENTFORMAT ") || !strings.Contains(err.Error(), " as "+format+", and 1.8.3.gz is asked for") {
			t.Errorf("GET of agent %s = %v", agent, err)
		}
		if err := c.Get(ctx, tree(agent, "other")).Err(); err == nil {
			t.Errorf("another GET of agent %s succeeds", agent)
		}
		told := w.drainFound()
		if len(told) != 1 || !strings.HasPrefix(told[0], agent+": ") || !strings.Contains(told[0], " as "+format+", and the hub's asks for 1.8.3.gz: ") {
			t.Errorf("of agent %s it is found %q", agent, told)
		}
	}
	// The one that is mended, and one about which there was nothing to say.
	must(t, plain.Set(ctx, tree("", "shop"), "x", 0).Err())
	must(t, w.add("good", nil).redis.client(t, 3).Set(ctx, tree("", "shop"), "x", 0).Err())
	for _, agent := range []string{"plain", "good"} {
		for range 2 {
			must(t, c.Get(ctx, tree(agent, "shop")).Err())
		}
	}
	if diff := cmp.Diff([]string{"plain: ", "good: "}, w.drainFound()); diff != "" {
		t.Errorf("what is found of them (-want +got)\n%s", diff)
	}
}

// One that is stuck delays no one else: all others have read what they want while it
// still says nothing.
func TestStuckSpoke(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.AnswerTimeout = 10 * patience }), t.Context()
	const agents, pages = 20, 50
	edges := make([]*edge, agents)
	for i := range agents {
		edges[i] = w.add(fmt.Sprintf("a%d", i), nil)
		must(t, edges[i].redis.client(t, 3).Set(ctx, tree("", "shop"), "x", 0).Err())
	}
	w.set(edges[0], false, func(e *edge) { e.stuck = true })
	c := w.client(3)
	must(t, c.Set(ctx, hubChannel, "x", 0).Err())
	var stuck, others sync.WaitGroup
	var answered atomic.Int64 // of the one that is stuck
	for page := range pages {
		agent, of := fmt.Sprintf("a%d", page%agents), &others
		if page%agents == 0 {
			of = &stuck
		}
		of.Go(func() {
			s := c.Subscribe(ctx, channel(agent, "shop"))
			defer func() { _ = s.Close() }() // the page is closed
			if _, err := s.ReceiveTimeout(ctx, patience); err != nil {
				t.Errorf("page %d: %v", page, err)
			}
			if of == &stuck {
				err := client(t, w.socket, 3).Do(ctx, "GET", tree(agent, "shop")).Err()
				answered.Add(1)
				if err == nil || !strings.HasPrefix(err.Error(), "AGENTAWAY ") {
					t.Errorf("GET of the one that is stuck: %v", err)
				}
				return
			}
			for range 5 {
				for _, key := range []string{tree(agent, "shop"), hubChannel} {
					if err := c.Get(ctx, key).Err(); err != nil {
						t.Errorf("page %d: GET %s: %v", page, key, err)
					}
				}
			}
		})
	}
	others.Wait()
	if n := answered.Load(); n != 0 {
		t.Errorf("%d reads of the one that is stuck were answered meanwhile", n)
	}
	kit.EventuallyNil(t, "the pages of the one that is stuck to ask", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if edges[0].open < 4 { // three reads, one for subscriptions
			return fmt.Errorf("there are %d connections", edges[0].open)
		}
		return nil
	})
	w.set(edges[0], true, func(e *edge) { e.away = true })
	stuck.Wait()
}

// The same commands to a real Redis and through the proxy have the same answers.
func TestPassThrough(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, nil), t.Context()
		other := startRedis(t, "--requirepass", password)
		through, direct := w.client(protocol), other.client(t, protocol)
		big := strings.Repeat("x", 8<<20)
		for _, args := range [][]any{
			{"SET", "a", "1", "EX", 100}, {"GET", "a"}, {"GET", "none"}, {"INCR", "a"}, {"LPUSH", "l", "1", "2", "3"}, {"LRANGE", "l", 0, -1}, {"INCR", "l"},
			{"HSET", "h", "f", "v", "g", "w"}, {"HGETALL", "h"}, {"ZADD", "z", 1.5, "m"}, {"ZRANGE", "z", 0, -1, "WITHSCORES"}, {"SMEMBERS", "none"},
			{"SET", "big", big}, {"STRLEN", "big"}, {"GET", "big"}, {"MGET", "a", "none", "l"}, {"EVAL", "return {1,{2,'x'},false}", 0}, {"NOSUCH"}, {"GET"},
			{"CONFIG", "GET", "maxmemory"}, {"TYPE", "h"}, {"ECHO", ""}, {"GET", "app|resources-tree|shop|1.8.3.gz"}, {"SET", "app|managed-resources|argocd_shop|1.8.3.gz", "x"},
			{"EXISTS", "app|managed-resources|argocd_shop|1.8.3.gz"}, {"SELECT", 1}, {"DBSIZE"}, {"CLIENT", "SETINFO", "LIB-NAME", "x"}, {"OBJECT", "ENCODING", "a"},
		} {
			want, wantErr := direct.Do(ctx, args...).Result()
			got, err := through.Do(ctx, args...).Result()
			if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%.60v: %v, want %v (-want +got)\n%.300s", args, err, wantErr, diff)
			}
		}
		_, err := through.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Set(ctx, "t", "1", 0)
			p.Incr(ctx, "t")
			return nil
		})
		if got := through.Get(ctx, "t").Val(); err != nil || got != "2" {
			t.Errorf("a transaction: %q, %v", got, err)
		}
		s := through.PSubscribe(ctx, "channel-of-the-*")
		defer func() { _ = s.Close() }() // the test is over
		_, err = s.ReceiveTimeout(ctx, patience)
		must(t, err)
		must(t, through.Publish(ctx, hubChannel, big).Err())
		if m := next(t, s); m.Channel != hubChannel || m.Payload != big {
			t.Errorf("a message of %s with %d bytes", m.Channel, len(m.Payload))
		}
	})
}

// Pipelined commands are answered in order, however many there are.
func TestPipeline(t *testing.T) {
	protocols(t, func(t *testing.T, protocol int) {
		w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.MaxPipelined = 4 }), t.Context()
		spoke := w.add("a", nil).redis.client(t, 3)
		const n = 300
		for i := range n {
			must(t, spoke.Set(ctx, tree("", fmt.Sprint("s", i)), fmt.Sprint("agent ", i), 0).Err())
		}
		c := w.client(protocol)
		results, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for i := range n {
				p.Set(ctx, "k", fmt.Sprint("hub ", i), 0)
				p.Get(ctx, tree("a", fmt.Sprint("s", i)))
				p.Get(ctx, "k")
				p.MGet(ctx, tree("a", fmt.Sprint("s", i)))
			}
			return nil
		})
		must(t, err)
		for i := range n {
			if agent, hub := results[4*i+1].(*goredis.StringCmd).Val(), results[4*i+2].(*goredis.StringCmd).Val(); agent != fmt.Sprint("agent ", i) || hub != fmt.Sprint("hub ", i) {
				t.Fatalf("%d: %q, %q", i, agent, hub)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.MaxConnections, c.MaxSubscriptions = 2, 3 }), t.Context()
	w.add("a", nil)
	first, second, third := w.client(3), w.client(3), w.client(3)
	s := subscribeTo(t, first, channel("a", "1"), channel("a", "2"), hubChannel)
	must(t, s.Subscribe(ctx, channel("a", "4")))
	if m, err := s.ReceiveTimeout(ctx, patience); err == nil || !strings.Contains(err.Error(), "too many subscriptions") {
		t.Errorf("one subscription more = %v, %v", m, err)
	}
	must(t, second.Ping(ctx).Err())
	if err := third.Ping(ctx).Err(); err == nil {
		t.Error("one connection more is served")
	}
	over, err := net.Dial("unix", w.socket)
	must(t, err)
	must(t, over.SetDeadline(time.Now().Add(patience)))
	if answer, err := io.ReadAll(over); err != nil || string(answer) != "-ERR max number of clients reached\r\n" {
		t.Errorf("one connection more is told %q, %v", answer, err)
	}
	must(t, over.Close())
	must(t, second.Close())
	kit.EventuallyNil(t, "the place to be free", func() error { return third.Ping(ctx).Err() })
	must(t, third.Close())
	must(t, s.Close())
	for name, bytes := range map[string]string{
		"an inline command": "PING\r\n", "a value that is too long": "*2\r\n$3\r\nGET\r\n$67108865\r\n", "arguments without number": "*1048577\r\n",
		"a name without end": "*1\r\n$40000\r\n", "no name": "*0\r\n", "a negative length": "*1\r\n$-2\r\n", "a line without end": strings.Repeat("*", 9000),
	} {
		var conn net.Conn
		kit.EventuallyNil(t, "a place", func() (err error) {
			if conn, err = net.Dial("unix", w.socket); err != nil {
				return err
			}
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			if _, err := conn.Write([]byte(bytes)); err != nil {
				return err
			}
			answer, err := io.ReadAll(conn)
			if strings.Contains(string(answer), "max number") {
				return errors.New("there is none")
			}
			if !strings.Contains(string(answer), "-ERR Protocol error") {
				t.Errorf("%s: %q, %v", name, answer, err)
			}
			return nil
		})
		must(t, conn.Close())
	}
}

// However many read at a time, and however often, an agent gets no more connections
// than there are readers.
func TestReadersKeepTheirConnections(t *testing.T) {
	const readers, reads = 32, 20
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", nil)
	must(t, e.redis.client(t, 3).Set(ctx, tree("", "shop"), "x", 0).Err())
	var work sync.WaitGroup
	for range readers {
		c := w.client(3)
		work.Go(func() {
			for range reads {
				if err := c.Get(ctx, tree("a", "shop")).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.dials > readers {
		t.Errorf("%d reads of %d readers made %d connections", readers*reads, readers, e.dials)
	}
}
