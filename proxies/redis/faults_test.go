package redis_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/test/kit"
)

// A spoke's Redis that stands still is an error in time, or the last value, and serves
// as before when it goes on; one that lost all has nothing.
func TestSpokesRedisIsSlowAndFlushed(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.AnswerTimeout = 3 * time.Second }), t.Context()
	e := w.add("a", nil)
	spoke := e.redis.client(t, 3)
	for _, name := range []string{"shown", "new"} {
		must(t, spoke.Set(ctx, tree("", name), name, 0).Err())
	}
	c := w.client(3)
	kit.EventuallyNil(t, "the value to be kept", func() error {
		err := c.Get(ctx, tree("a", "shown")).Err()
		if err == nil && w.store.len() != 1 {
			err = errors.New("it is not")
		}
		return err
	})
	s := subscribeTo(t, c, channel("a", "shown"))
	must(t, e.redis.cmd.Process.Signal(syscall.SIGSTOP))
	if got, err := c.Get(ctx, tree("a", "shown")).Result(); err != nil || got != "shown" {
		t.Errorf("GET of what is kept = %q, %v", got, err)
	}
	if err := c.Get(ctx, tree("a", "new")).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTAWAY agent a is connected, but its Redis does not answer") {
		t.Errorf("GET of what is not = %v", err)
	}
	must(t, e.redis.cmd.Process.Signal(syscall.SIGCONT))
	kit.EventuallyNil(t, "it to go on", func() error { return c.Get(ctx, tree("a", "new")).Err() })
	redisChannel{spoke, channel("", "shown")}.subscribed(t, 1)
	must(t, spoke.Publish(ctx, channel("", "shown"), "x").Err())
	until(t, s, channel("a", "shown"), "x") // it may be told to look again before that
	must(t, spoke.FlushAll(ctx).Err())
	for _, name := range []string{"shown", "new"} {
		kit.EventuallyNil(t, "nothing to be left", func() error {
			if got, err := c.Get(ctx, tree("a", name)).Result(); !errors.Is(err, goredis.Nil) {
				return fmt.Errorf("GET = %q, %w", got, err)
			}
			return nil
		})
	}
}

// Values of 30 MB go to several at a time, and no one waits for them.
func TestLargeValuesDelayNobody(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	a, b := w.add("a", nil).redis.client(t, 3), w.add("b", nil).redis.client(t, 3)
	large := strings.Repeat("0123456789abcdef", 30<<20/16)
	must(t, a.Set(ctx, tree("", "large"), large, 0).Err())
	must(t, a.Set(ctx, tree("", "small"), "small", 0).Err())
	must(t, b.Set(ctx, tree("", "small"), "small", 0).Err())
	// One that asks for it and does not read.
	conn, err := net.Dial("unix", w.socket)
	must(t, err)
	defer func() { _ = conn.Close() }() // the test is over
	_, err = conn.Write(append(encode("AUTH", password), encode("GET", tree("a", "large"))...))
	must(t, err)
	c := w.client(3)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			if got, err := c.Get(ctx, tree("a", "large")).Result(); err != nil || got != large {
				t.Errorf("GET = %d bytes, %v", len(got), err)
			}
		})
		g.Go(func() {
			for i := range 50 {
				agent := []string{"a", "b"}[i%2]
				if got, err := c.Get(ctx, tree(agent, "small")).Result(); err != nil || got != "small" {
					t.Errorf("GET of agent %s = %q, %v", agent, got, err)
				}
			}
		})
	}
	g.Wait()
	if n := w.store.len(); n != 2 {
		t.Errorf("%d values are kept, want the small ones", n)
	}
}

// Calls to one agent are bounded, and so is the wait for a turn.
func TestCallsOfOneAgentAreBounded(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.MaxAgentCalls, c.AnswerTimeout = 3, time.Second }), t.Context()
	e := w.add("a", nil)
	w.set(e, false, func(e *edge) { e.stuck = true })
	c := w.client(3)
	var g sync.WaitGroup
	for range 10 {
		g.Go(func() {
			if err := c.Get(ctx, tree("a", "shop")).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTAWAY ") {
				t.Errorf("GET = %v", err)
			}
		})
	}
	g.Wait()
	kit.EventuallyNil(t, "no call to be left of at most three at a time", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e.most != 3 || e.open != 0 {
			return fmt.Errorf("%d calls at a time, %d are left", e.most, e.open)
		}
		return nil
	})
	w.set(e, true, func(e *edge) { e.stuck = false })
	kit.EventuallyNil(t, "it to answer afterwards", func() error {
		if err := c.Get(ctx, tree("a", "shop")).Err(); !errors.Is(err, goredis.Nil) {
			return fmt.Errorf("GET = %w", err)
		}
		return nil
	})
}

// Values that there is no room to hold pass as well, and are not kept.
func TestHeldAndKeptBytes(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*redis.HubConfig)
	}{
		"held": {func(c *redis.HubConfig) { c.MaxHeldBytes = 1000 }},
		"kept": {func(c *redis.HubConfig) { c.MaxKeptBytes = 1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			w, ctx := newHubEnv(t, tt.change), t.Context()
			spoke, c := w.add("a", nil).redis.client(t, 3), w.client(3)
			for round := range 2 {
				for _, size := range []int{1001, 1000} {
					value := strings.Repeat(fmt.Sprint(round), size)
					must(t, spoke.Set(ctx, tree("", fmt.Sprint("s", size)), value, 0).Err())
					if got, err := c.Get(ctx, tree("a", fmt.Sprint("s", size))).Result(); err != nil || got != value {
						t.Errorf("GET of %d bytes = %d bytes, %v", size, len(got), err)
					}
				}
			}
			kit.EventuallyNil(t, "the shorter value to be kept", func() error {
				for key, value := range w.store.all() {
					if strings.Contains(key, "s1001") {
						t.Fatal("the longer one is")
					}
					if strings.HasPrefix(string(value), "1") {
						return nil
					}
				}
				return errors.New("it is not")
			})
		})
	}
}

// refused returns how many connections were refused or ended for a reason.
func (w *hubEnv) refused(reason string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	must(w.t, err)
	for _, family := range families {
		if family.GetName() != "argomesh_redis_proxy_refused_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// An answer that breaks off ends the connection that has its begin, since nothing else
// can be said there any more. The agent is to blame, and no one else notices.
func TestAnswerThatBreaksOff(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	e := w.add("a", nil)
	must(t, w.add("b", nil).redis.client(t, 3).Set(ctx, tree("", "shop"), "of b", 0).Err())
	w.set(e, false, func(e *edge) { e.breaks = true })
	c, other := w.client(3), w.client(3)
	must(t, other.Ping(ctx).Err())
	if got, err := c.Get(ctx, tree("a", "shop")).Result(); err == nil {
		t.Errorf("GET = %q", got)
	}
	kit.EventuallyNil(t, "the connection to be counted", func() error {
		if n := w.refused("agent"); n != 1 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	if n := w.refused("slow") + w.refused("protocol") + w.refused("redis"); n != 0 {
		t.Errorf("%v are counted for another reason", n)
	}
	w.set(e, false, func(e *edge) { e.breaks = false })
	for _, c := range []*goredis.Client{c, other} {
		if got, err := c.Get(ctx, tree("b", "shop")).Result(); err != nil || got != "of b" {
			t.Errorf("GET of another agent = %q, %v", got, err)
		}
	}
	if err := c.Get(ctx, tree("a", "shop")).Err(); !errors.Is(err, goredis.Nil) {
		t.Errorf("GET when it answers again = %v", err)
	}
}

// A caller that does not read its answer is closed in time, and counted.
func TestCallerThatDoesNotRead(t *testing.T) {
	w, ctx := newHubEnv(t, func(c *redis.HubConfig) { c.WriteTimeout = 300 * time.Millisecond }), t.Context()
	const size = 32 << 20
	must(t, w.redis.client(t, 3).Set(ctx, "big", strings.Repeat("x", size), 0).Err())
	conn, err := net.Dial("unix", w.socket)
	must(t, err)
	defer func() { _ = conn.Close() }() // it may be closed
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write(append(encode("AUTH", password), encode("GET", "big")...))
	must(t, err)
	kit.EventuallyNil(t, "the connection to be ended", func() error {
		if n := w.refused("slow"); n != 1 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	if n, err := io.Copy(io.Discard, conn); n >= size {
		t.Errorf("%d bytes were sent, %v", n, err)
	}
}

// The subscriptions of one connection at a spoke are bounded.
func TestSpokeChannelsAreBounded(t *testing.T) {
	w := newHubEnv(t, nil)
	w.add("a", nil)
	conn, err := w.dialSpoke(t.Context(), kit.Agent(t, "a"))
	must(t, err)
	defer func() { _ = conn.Close() }() // the test is over
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	const most = 16384
	go func() {
		for i := range most + 1 {
			if _, err := conn.Write(encode("SUBSCRIBE", channel("", fmt.Sprint("a", i)))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	confirmed, refused := 0, ""
	for confirmed < most || refused == "" {
		switch line := readLine(t, conn); {
		case strings.HasPrefix(line, "-"):
			refused = line
		case line == "subscribe":
			confirmed++
		}
	}
	if want := "-DENIED " + channel("", fmt.Sprint("a", most)); refused != want {
		t.Errorf("one channel more: %q, want %q", refused, want)
	}
}
