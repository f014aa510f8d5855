//go:build linux

package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// mirrorMistakes are those that people make with what the hub shows of an autonomous spoke, on
// a hub with the policy of the chart. TestMirrorsRefuse makes them.
func mirrorMistakes(w *roleWorld) mistakes {
	const name, sentence = "shown", "this Application belongs to the autonomous agent edge-2: change or delete it there"
	onHub := func() dynamic.ResourceInterface { return w.hub.Resource(harness.Applications, autonomous) }
	onSpoke := func() dynamic.ResourceInterface { return w.spoke.Resource(harness.Applications, "gitops") }
	to := func(namespace string) map[string]any { return merged("spec.destination.namespace", namespace) }
	return mistakes{
		{
			person: "an edit of a mirror on the hub",
			does: func(s *scene) {
				here := &world{hub: w.hub, repository: &harness.Repository{URL: "https://git.example.org/x"}}
				create(s.T, onSpoke(), here.plain(name, "gitops", ""))
				eventually(s.T, "the mirror", func() error { return there(s.Context(), onHub(), name) })
				eventually(s.T, "the policy in force", func() error {
					return bySentence(onHub().Delete(s.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), sentence)
				})
				s.answer("", mergePatch(s.Context(), onHub(), name, to("web-2")))
			},
			on: "what Argo CD and `kubectl` answer", told: printed,
			says: sentence,
			cure: func(s *scene) {
				s.find("change or delete it there")
				patch(s.T, onSpoke(), name, to("web-2"))
			},
			cured: func(s *scene) error {
				return field(s.Context(), onHub(), name, "web-2", "spec", "destination", "namespace")
			},
		},
		{
			person: "a delete of a mirror on the hub",
			does:   func(s *scene) { s.answer("", onHub().Delete(s.Context(), name, metav1.DeleteOptions{})) },
			on:     "what Argo CD and `kubectl` answer", told: printed,
			says: sentence,
			cure: func(s *scene) {
				s.find("change or delete it there")
				s.must(onSpoke().Delete(s.Context(), name, metav1.DeleteOptions{}))
			},
			cured: func(s *scene) error { return gone(s.Context(), onHub(), name) },
		},
	}
}

// TestMistakesOfRedis are those that people make with the Redis proxy.
func TestMistakesOfRedis(t *testing.T) {
	t.Parallel()
	w := newRedisWorld(t)
	if err := redisClient(t, w.edgeRedis.Address, 3).Set(t.Context(), "app|resources-tree|shop|1.8.3.gz", gzipped(t, `{"nodes":[]}`), 0).Err(); err != nil {
		t.Fatal(err)
	}
	redisMistakes(w).happen(t)
}

func redisMistakes(w *redisWorld) mistakes {
	get := func(s *scene, key string) error {
		_, err := redisClient(s.T, w.door.RedisAddress, 3).Get(s.Context(), key).Result()
		if errors.Is(err, goredis.Nil) {
			err = nil // an answer
		}
		return err
	}
	refused := func(key, code string) func(*scene) (string, time.Time, error) {
		return func(s *scene) (string, time.Time, error) {
			err := get(s, key)
			if err == nil || !strings.HasPrefix(err.Error(), code) {
				return "", time.Time{}, errors.Join(errors.New("it is not refused with "+code), err)
			}
			return err.Error(), time.Time{}, nil
		}
	}
	const otherFormat = "app|resources-tree|edge-1_shop|1.8.2.gz"
	return mistakes{
		{
			person: "a tree in the UI, where the agent has the Redis proxy off",
			does: func(s *scene) {
				s.reconfigure(w.agent.Process, w.agent.ConfigFile, "redis_proxy.enabled", false)
			},
			on: "what Argo CD answers, as error of its cache", within: told10, told: refused(redisTree, "AGENTREFUSED"),
			says: "AGENTREFUSED agent edge-1 does not let the hub read its Redis: see redis_proxy.enabled there",
			cure: func(s *scene) {
				s.reconfigure(w.agent.Process, w.agent.ConfigFile, s.find(`see (\S+) there`), true)
			},
			cured: func(s *scene) error { return get(s, redisTree) },
		},
		{
			person: "Argo CD of the hub and of the spoke of releases with other caches",
			does:   func(*scene) {}, // the hub's asks so
			on:     "what Argo CD answers, as error of its cache", within: told10, told: refused(otherFormat, "AGENTFORMAT"),
			says:  "AGENTFORMAT the Argo CD of agent edge-1 keeps its cache as 1.8.3.gz, and 1.8.2.gz is asked for: both must be of one release, with one --redis-compress",
			cure:  func(s *scene) { s.said = s.find(`keeps its cache as (\S+),`) },
			cured: func(s *scene) error { return get(s, "app|resources-tree|edge-1_shop|"+s.said) },
		},
	}
}
