//go:build linux

package mistakes

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
)

// TestMistakesOfRedis are those that people make with the Redis proxy.
func TestMistakesOfRedis(t *testing.T) {
	t.Parallel()
	w := env.NewRedisEnv(t)
	if err := env.RedisClient(t, w.EdgeRedis.Address, 3).Set(t.Context(), "app|resources-tree|shop|1.8.3.gz", env.Gzipped(t, `{"nodes":[]}`), 0).Err(); err != nil {
		t.Fatal(err)
	}
	redisMistakes(w).Happen(t)
}

func redisMistakes(w *env.RedisEnv) mistake.List {
	get := func(s *mistake.Scene, key string) error {
		_, err := env.RedisClient(s.T, w.Door.RedisAddress, 3).Get(s.Context(), key).Result()
		if errors.Is(err, goredis.Nil) {
			err = nil // an answer
		}
		return err
	}
	refused := func(key, code string) func(*mistake.Scene) (string, time.Time, error) {
		return func(s *mistake.Scene) (string, time.Time, error) {
			err := get(s, key)
			if err == nil || !strings.HasPrefix(err.Error(), code) {
				return "", time.Time{}, errors.Join(errors.New("it is not refused with "+code), err)
			}
			return err.Error(), time.Time{}, nil
		}
	}
	const otherFormat = "app|resources-tree|edge-1_shop|1.8.2.gz"
	return mistake.List{
		{
			Person: "a tree in the UI, where the agent has the Redis proxy off",
			Does: func(s *mistake.Scene) {
				reconfigure(s, w.Agent.Process, w.Agent.ConfigFile, "redis_proxy.enabled", false)
			},
			On: "what Argo CD answers, as error of its cache", Within: told10, Told: refused(env.RedisTree, "AGENTREFUSED"),
			Says: "AGENTREFUSED agent edge-1 does not let the hub read its Redis: see redis_proxy.enabled there",
			Cure: func(s *mistake.Scene) {
				reconfigure(s, w.Agent.Process, w.Agent.ConfigFile, s.Find(`see (\S+) there`), true)
			},
			Cured: func(s *mistake.Scene) error { return get(s, env.RedisTree) },
		},
		{
			Person: "Argo CD of the hub and of the spoke of releases with other caches",
			Does:   func(*mistake.Scene) {}, // the hub's asks so
			On:     "what Argo CD answers, as error of its cache", Within: told10, Told: refused(otherFormat, "AGENTFORMAT"),
			Says:  "AGENTFORMAT the Argo CD of agent edge-1 keeps its cache as 1.8.3.gz, and 1.8.2.gz is asked for: both must be of one release, with one --redis-compress",
			Cure:  func(s *mistake.Scene) { s.Said = s.Find(`keeps its cache as (\S+),`) },
			Cured: func(s *mistake.Scene) error { return get(s, "app|resources-tree|edge-1_shop|"+s.Said) },
		},
	}
}
