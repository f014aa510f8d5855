package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/harness"
)

// restoreBump is added to the revision of a restored etcd, as etcd's documentation advises,
// so that watches begin anew.
const restoreBump = 1_000_000

// restored measures how soon a hub that was restored from a backup knows of all its agents
// that their history does not go on. Each agent has an Application that the backup lacks:
// its deletion has to be held.
func (c *crowd) restored(ctx context.Context, b *bench, s *Scenario, w *world, client dynamic.Interface, agents []string) error {
	b.say("restoring the hub")
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	before, err := tokens(ctx, client, len(agents), nil)
	if err != nil {
		return err
	}
	snapshot := w.h.Path("restored.db")
	if err := w.hub.Etcd.Snapshot(ctx, snapshot); err != nil {
		return err
	}
	lost := []string{"lost"}
	arrived := c.expect(lost, revision(1))
	if err := each(ctx, agents, func(ctx context.Context, agent string) error {
		return create(ctx, client.Resource(harness.Applications).Namespace(agent), application(lost[0], agent, agent, revision(1)))
	}); err != nil {
		return err
	}
	if err := arrived.wait(ctx); err != nil {
		return err
	}
	// A backup that is younger than what an agent was given last cannot be told from no restore.
	if _, err := tokens(ctx, client, len(agents), before); err != nil {
		return err
	}
	if err := w.principal.Kill(); err != nil {
		return err
	}
	if err := w.hub.Restore(ctx, snapshot, restoreBump); err != nil {
		return err
	}
	return s.measure(ctx, "restored hub with 1,000 agents", w.processes(), func() error {
		if err := w.principal.Start(ctx); err != nil {
			return err
		}
		ready, judged := time.Now(), newArrivals(len(agents))
		stop := background(ctx, func(ctx context.Context) error {
			return followAgents(ctx, client, func(o *unstructured.Unstructured) {
				if hasCondition(o, v1alpha1.ConditionDeletionsHeld) {
					judged.add(o.GetName())
				}
			})
		})
		if err := errors.Join(judged.wait(ctx), stop()); err != nil {
			return fmt.Errorf("%d of %d histories are judged: %w", judged.count(), len(agents), err)
		}
		s.target("restored hub, 1,000 agents: ready to all histories judged and told", time.Since(ready).Seconds(), "s", atMost(60),
			"each has an Application that the backup lacks")
		return nil
	})
}

// tokens waits until n Agents keep a token of their history other than those of before, and
// returns the newest of each.
func tokens(ctx context.Context, client dynamic.Interface, n int, before map[string]string) (map[string]string, error) {
	have, given := map[string]string{}, newArrivals(n)
	stop := background(ctx, func(ctx context.Context) error {
		return followAgents(ctx, client, func(o *unstructured.Unstructured) {
			list, _, _ := unstructured.NestedStringSlice(o.Object, "status", "history", "tokens") // none yet
			if len(list) > 0 && list[0] != before[o.GetName()] {
				have[o.GetName()] = list[0]
				given.add(o.GetName())
			}
		})
	})
	err := errors.Join(given.wait(ctx), stop())
	return have, err
}
