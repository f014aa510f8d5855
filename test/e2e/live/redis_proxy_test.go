//go:build linux

package live

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	redisChannel = "app|managed-resources|edge-1_shop|1.8.3"
	edgeChannel  = "app|managed-resources|shop|1.8.3" // the same on the spoke
)

// What a spoke's Argo CD keeps is read and heard of on the hub, through an agent's restart.
func TestRedisProxy(t *testing.T) {
	t.Parallel()
	w, ctx := env.NewRedisEnv(t), t.Context()
	spoke, begin := env.RedisClient(t, w.EdgeRedis.Address, 3), time.Now()
	tree := env.Gzipped(t, `{"nodes":[{"kind":"Deployment","name":"shop"}]}`)
	if err := spoke.Set(ctx, "app|resources-tree|shop|1.8.3.gz", tree, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []int{2, 3} {
		c := env.RedisClient(t, w.Door.RedisAddress, protocol)
		env.Eventually(t, "the tree to be shown", func() error {
			got, err := c.Get(ctx, env.RedisTree).Result()
			if err == nil && got != tree {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
		if err := c.Set(ctx, env.RedisTree, "x", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTCOMMAND ") {
			t.Errorf("SET = %v", err)
		}
		if err := c.Get(ctx, "app|resources-tree|edge-1_other|1.8.3.gz").Err(); !errors.Is(err, goredis.Nil) {
			t.Errorf("the tree of an Application that is not on the hub: %v", err)
		}
		if err := c.Get(ctx, "app|resources-tree|edge-1_shop|1.8.2.gz").Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTFORMAT ") {
			t.Errorf("another version of the cache: %v", err)
		}
	}
	c := env.RedisClient(t, w.Door.RedisAddress, 3)
	env.Eventually(t, "agentctl check finds that it is asked for another version", func() error {
		return env.CheckFinds(ctx, w.H, w.Hub, harness.ArgoCDNamespace, env.Managed, "OtherFormat")
	})
	s := c.Subscribe(ctx, redisChannel)
	defer func() { _ = s.Close() }() // the test is over
	if _, err := s.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	hear := func(what string) {
		t.Helper()
		timed, cancel := context.WithTimeout(ctx, env.Patience)
		defer cancel()
		if m, err := s.ReceiveMessage(timed); err != nil || m.Channel != redisChannel {
			t.Fatalf("%s: %v, %v", what, m, err)
		}
	}
	publish := func() {
		t.Helper()
		if err := spoke.Publish(ctx, edgeChannel, "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	hear("a change on the spoke")
	if err := w.Agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the last value to be shown, with its age", func() error {
		got, err := c.Get(ctx, env.RedisTree).Result()
		if err != nil {
			return err
		}
		return asOf(got, begin)
	})
	if left, err := c.TTL(ctx, env.RedisTree).Result(); err != nil || left > 7*24*time.Hour || left < 6*24*time.Hour {
		t.Errorf("TTL of a last value = %s, %v", left, err)
	}
	if err := w.Agent.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	hear("the agent's return")
	publish()
	hear("a change after that")

	// An open subscription is with the agent for as long as the Application is its.
	subscribed := func(want int64) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("%d to be subscribed on the spoke", want), func() error {
			n, err := spoke.PubSubNumSub(ctx, edgeChannel).Result()
			if err == nil && n[edgeChannel] != want {
				err = fmt.Errorf("%d are", n[edgeChannel])
			}
			return err
		})
	}
	apps := w.Hub.Resource(harness.Applications, env.Managed)
	env.Patch(t, apps, "shop", map[string]any{"spec": map[string]any{"destination": map[string]any{"name": "in-cluster"}}})
	subscribed(0)
	hear("that it runs elsewhere")
	env.Patch(t, apps, "shop", map[string]any{"spec": map[string]any{"destination": map[string]any{"name": env.Managed}}})
	subscribed(1)
	hear("that it is back")
	env.Eventually(t, "agentctl check finds nothing a minute after it was asked for another version", func() error {
		return errors.Join(c.Get(ctx, env.RedisTree).Err(), env.CheckFindsNo(ctx, w.H, w.Hub, harness.ArgoCDNamespace, env.Managed, "OtherFormat"))
	})
	redisDoor{t, w, tree}.speaksTLS()
}

// gunzipped is the text of what Argo CD keeps.
func gunzipped(t *testing.T, value string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asOf checks that a tree says as of when it is, and that this is no earlier than begin.
func asOf(value string, begin time.Time) error {
	r, err := gzip.NewReader(strings.NewReader(value))
	if err != nil {
		return err
	}
	var tree struct {
		Nodes []struct {
			Info []struct{ Name, Value string }
		}
	}
	if err := json.NewDecoder(r).Decode(&tree); err != nil {
		return err
	}
	if len(tree.Nodes) != 1 || len(tree.Nodes[0].Info) != 1 || tree.Nodes[0].Info[0].Name != "Last known" {
		return fmt.Errorf("it is %+v", tree)
	}
	at, _, err := markedAt(tree.Nodes[0].Info[0].Value, env.Managed)
	if err == nil && (at.Before(begin.Truncate(time.Second)) || at.After(time.Now())) {
		err = fmt.Errorf("it is as of %s, and was written after %s", at, begin)
	}
	return err
}
