package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/test/kit"
)

// until takes messages up to one with a payload, and returns how many were before it,
// none of which has one: they say that there is something to look at.
func until(t *testing.T, s *goredis.PubSub, name, payload string) int {
	t.Helper()
	for n := 0; ; n++ {
		m := next(t, s)
		switch {
		case m.Channel != name || m.Payload != "" && m.Payload != payload:
			t.Fatalf("a message %v before that with %q", m, payload)
		case m.Payload == payload:
			return n
		}
	}
}

// redisChannel is a channel of a Redis.
type redisChannel struct {
	at      *goredis.Client
	channel string
}

// subscribed waits until so many connections are subscribed there.
func (c redisChannel) subscribed(t *testing.T, want int64) {
	t.Helper()
	kit.EventuallyNil(t, fmt.Sprintf("%d to be subscribed to %s", want, c.channel), func() error {
		n, err := c.at.PubSubNumSub(t.Context(), c.channel).Result()
		if err == nil && n[c.channel] != want {
			err = fmt.Errorf("%d are", n[c.channel])
		}
		return err
	})
}

// connection names the one connection that is subscribed there, unlike every other that
// ever was, of another process of that Redis too.
func (c redisChannel) connection(t *testing.T) (string, error) {
	t.Helper()
	server, err := c.at.InfoMap(t.Context(), "server").Result()
	if err != nil {
		return "", err
	}
	subscribers, err := c.at.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		return "", err
	}
	if n := strings.Count(subscribers, "\n"); n != 1 {
		return "", fmt.Errorf("%d are subscribed", n)
	}
	id, _, _ := strings.Cut(subscribers, " ")
	return server["Server"]["run_id"] + " " + id, nil
}

// subscribedAnew waits until another connection is subscribed there than before, and that
// alone: Redis may notice later than all others that the one before has gone, and what is
// published meanwhile goes there.
func (c redisChannel) subscribedAnew(t *testing.T, before string) {
	t.Helper()
	kit.EventuallyNil(t, "another to be subscribed to "+c.channel, func() error {
		now, err := c.connection(t)
		if err == nil && now == before {
			err = errors.New("it is the one before")
		}
		return err
	})
	c.subscribed(t, 1) // it is to this channel
}

// An open subscription goes where its Application goes: anyone who is subscribed is told
// to look there, and hears nothing more of the place where it was.
func TestSubscriptionsFollow(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	a, b := w.add("a", nil), w.add("b", nil)
	shop, name := appkey.Instance{Namespace: "a", Name: "shop"}, channel("a", "shop")
	atA := redisChannel{a.redis.client(t, 3), channel("", "shop")}
	atB := redisChannel{b.redis.client(t, 3), channel("", "moved")}
	atHub := redisChannel{w.redis.client(t, 3), name} // where all are subscribed at any time
	toB := redis.Target{Agent: kit.Agent(t, "b"), UID: "uid-b", Instance: appkey.Instance{Name: "moved"}, Known: true}
	pages := []*goredis.PubSub{subscribeTo(t, w.client(2), name), subscribeTo(t, w.client(3), name)}
	stays := subscribeTo(t, w.client(3), channel("a", "other"))
	from := atA
	for _, step := range []struct {
		what string
		do   func()
		to   redisChannel
	}{
		{"nowhere", func() { w.ownerChanged(shop); w.ownerChanged(appkey.Instance{}) }, atA},
		{"to another agent, under another name", func() { w.move(shop, toB) }, atB},
		{"back, when anything may have changed", func() {
			w.mu.Lock()
			delete(w.moved, shop)
			w.mu.Unlock()
			w.ownerChanged(appkey.Instance{})
		}, atA},
		{"to the hub itself", func() { w.move(shop, redis.Target{}) }, atHub},
		{"to an agent that is away, and comes back", func() {
			w.set(b, true, func(e *edge) { e.away = true })
			w.move(shop, toB)
			for _, p := range pages {
				if m := next(t, p); m.Channel != name || m.Payload != "" {
					t.Fatalf("while it is away: a message %v", m)
				}
			}
			w.set(b, false, func(e *edge) { e.away = false })
		}, atB},
		{"from one that is suspended", func() {
			w.set(b, false, func(e *edge) { e.banned = true })
			w.ownerChanged(appkey.Instance{})
		}, atHub},
		{"to one that no longer is", func() {
			w.set(b, false, func(e *edge) { e.banned = false })
			w.ownerChanged(appkey.Instance{})
		}, atB},
	} {
		step.do()
		if from != step.to && from != atHub {
			from.subscribed(t, 0)
		}
		if step.to != atHub {
			step.to.subscribed(t, 1)
		}
		must(t, step.to.at.Publish(ctx, step.to.channel, step.what).Err())
		for _, p := range pages {
			if told := until(t, p, name, step.what); (told > 0) != (from != step.to) {
				t.Errorf("%s: told %d times to look", step.what, told)
			}
		}
		from = step.to
	}
	must(t, atA.at.Publish(ctx, channel("", "other"), "x").Err())
	if told := until(t, stays, channel("a", "other"), "x"); told != 0 {
		t.Errorf("one that stays was told %d times to look", told)
	}
	for _, p := range pages {
		must(t, p.Close())
	}
	atB.subscribed(t, 0)
}

// An Application that is not on the hub yet has no subscription at the agent before it is.
func TestSubscriptionBeforeTheApplication(t *testing.T) {
	w, ctx := newHubEnv(t, nil), t.Context()
	spoke := w.add("a", nil).redis.client(t, 3)
	early, name := appkey.Instance{Namespace: "a", Name: "unknown"}, channel("a", "unknown")
	s := subscribeTo(t, w.client(3), name)
	there := redisChannel{spoke, channel("", "unknown")}
	there.subscribed(t, 0)
	w.move(early, redis.Target{Agent: kit.Agent(t, "a"), UID: "uid-a", Instance: appkey.Instance{Name: "unknown"}, Known: true})
	there.subscribed(t, 1)
	must(t, spoke.Publish(ctx, there.channel, "here").Err())
	if told := until(t, s, name, "here"); told == 0 {
		t.Error("nobody was told to look")
	}
}

// Anyone who subscribes while it is not known whose an Application is, as after a start, or
// while its agent must not be reached, is subscribed there once that is over.
func TestSubscriptionBeforeTheOwner(t *testing.T) {
	for name, err := range map[string]error{
		"nothing is known yet":      errors.New("the Applications of the hub are not known yet"),
		"the agent is not admitted": fmt.Errorf("agent a is suspended: %w", identity.ErrDenied),
	} {
		t.Run(name, func(t *testing.T) {
			w, ctx := newHubEnv(t, nil), t.Context()
			spoke := w.add("a", nil).redis.client(t, 3)
			w.unsure(err)
			s := subscribeTo(t, w.client(3), channel("a", "shop"))
			there := redisChannel{spoke, channel("", "shop")}
			there.subscribed(t, 0)
			w.unsure(nil)
			there.subscribed(t, 1)
			must(t, spoke.Publish(ctx, there.channel, "here").Err())
			if told := until(t, s, channel("a", "shop"), "here"); told == 0 {
				t.Error("nobody was told to look")
			}
			w.unsure(err)
			there.subscribed(t, 0)
			must(t, s.Unsubscribe(ctx, channel("a", "shop")))
			w.unsure(nil)
			redisChannel{w.redis.client(t, 3), channel("a", "shop")}.subscribed(t, 0)
			there.subscribed(t, 0)
		})
	}
}
