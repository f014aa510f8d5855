package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// restoreBump is added to the revision of a restored etcd, as etcd's documentation advises,
// so that watches start over.
const restoreBump = 1_000_000

// restored measures how soon a hub that was restored from a backup knows of all its agents
// that their history does not go on. Each agent has an Application that the backup lacks:
// its deletion has to be held.
func (c *crowd) restored(ctx context.Context, b *bench, s *report.Scenario, w *benchEnv, client dynamic.Interface, agents []string) error {
	b.say("restoring the hub")
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	snapshot := w.h.Path("restored.db")
	if err := w.hub.Etcd.Snapshot(ctx, snapshot); err != nil {
		return err
	}
	given, err := tokens(ctx, client) // after it: what is not among these the backup lacks
	if err != nil {
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
	if err := harness.Eventually(ctx, "each agent keeps a token that the backup lacks", func() error { return c.keepOthers(given) }); err != nil {
		return err
	}
	if err := w.principal.Kill(); err != nil {
		return err
	}
	if err := w.hub.Restore(ctx, snapshot, restoreBump); err != nil {
		return err
	}
	return measurePhase(ctx, s, "restored hub with 1,000 agents", w.processes(), func() error {
		if err := w.principal.Start(ctx); err != nil {
			return err
		}
		ready, judged := time.Now(), newArrivals(len(agents))
		stop := kit.Start(ctx, func(ctx context.Context) error {
			return followAgents(ctx, client, func(o *unstructured.Unstructured) {
				if hasCondition(o, v1alpha1.ConditionDeletionsHeld) {
					judged.add(o.GetName())
				}
			})
		})
		if err := errors.Join(judged.wait(ctx), stop()); err != nil {
			return fmt.Errorf("%d of %d histories are judged: %w", judged.count(), len(agents), err)
		}
		s.Target("restored hub, 1,000 agents: ready to all histories judged and told", time.Since(ready).Seconds(), "s", report.AtMost(60),
			"each has an Application that the backup lacks")
		return nil
	})
}

// tokens returns those that the hub keeps of each agent's history.
func tokens(ctx context.Context, client dynamic.Interface) (map[string][]string, error) {
	list, err := client.Resource(v1alpha1.AgentResource).Namespace(harness.ArgoCDNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := make(map[string][]string, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].GetName()], _, _ = unstructured.NestedStringSlice(list.Items[i].Object, "status", "history", "tokens") // none yet
	}
	return all, nil
}

// keepOthers is nil when each agent keeps a token of its history that is none of those given.
func (c *crowd) keepOthers(given map[string][]string) error {
	for _, a := range c.agents {
		if token := a.past.token(); token == "" || slices.Contains(given[a.name.String()], token) {
			return fmt.Errorf("%s has %q", a.name, token)
		}
	}
	return nil
}
