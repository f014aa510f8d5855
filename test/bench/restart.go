//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// runT6 measures how soon both sides agree again after a restart and after a cut.
func runT6(ctx context.Context, b *bench, s *report.Scenario) error {
	s.Setup = realSetup + " The 1,000 agents are the real stream client and mirror over stores in memory, with an SVID and a TLS connection each, in one process " +
		"with the load. A restart is kill -9 and a start; a cut ends the connection, and every new one, in a proxy between agent and principal."
	if err := oneAgent(ctx, b, s); err != nil {
		return fmt.Errorf("one agent: %w", err)
	}
	if err := manyAgents(ctx, b, s); err != nil {
		return fmt.Errorf("1,000 agents: %w", err)
	}
	return nil
}

func oneAgent(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	w, err := startBenchEnv(ctx, b, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	l, err := newLoad(ctx, w)
	if err != nil {
		return err
	}
	defer l.close()
	apps := names(2000)
	b.say("creating 1,000 Applications")
	if _, err := l.createAll(ctx, apps[:1000]); err != nil {
		return err
	}
	b.say("restarts of the principal")
	const restarts = 5
	var fromReady, fromKill []time.Duration
	if err := measurePhase(ctx, s, "restarts with one agent", w.processes(), func() error {
		for i := range restarts {
			// A connection that ends within seconds counts as a failure at the agent, which
			// then waits longer; a principal is not restarted that often.
			if err := idle(ctx, 12*time.Second); err != nil {
				return err
			}
			ready, kill, err := l.restart(ctx, apps[i])
			if err != nil {
				return err
			}
			fromReady, fromKill = append(fromReady, ready), append(fromKill, kill)
		}
		return nil
	}); err != nil {
		return err
	}
	s.Target("restart, one agent, 1,000 Applications: ready to first change through", report.Quantile(fromReady, 1).Seconds(), "s", report.AtMost(3),
		fmt.Sprintf("the slowest of %d, median %s", restarts, report.Median(fromReady).Round(10*time.Millisecond)))
	s.Note("the same from the kill", report.Quantile(fromKill, 1).Seconds(), "s", fmt.Sprintf("median %s", report.Median(fromKill).Round(10*time.Millisecond)))

	b.say("growing to 2,000 Applications")
	if _, err := l.createAll(ctx, apps[1000:]); err != nil {
		return err
	}
	return measurePhase(ctx, s, "cuts with one agent", w.processes(), func() error {
		const cuts = 3
		var equal, afterwards []time.Duration
		have := apps
		for i := range cuts {
			b.say("cut %d", i+1)
			e, a, kept, err := l.cut(ctx, have, i)
			if err != nil {
				return err
			}
			have, equal, afterwards = kept, append(equal, e), append(afterwards, a)
		}
		s.Target("1,500 updates, 200 deletes, 200 creates during a cut, of 2,000: equal after its end", report.Quantile(equal, 1).Seconds(), "s", report.AtMost(15),
			fmt.Sprintf("the slowest of %d, median %s; back-off included", cuts, report.Median(equal).Round(10*time.Millisecond)))
		s.Note("the same from the new connection", report.Quantile(afterwards, 1).Seconds(), "s", fmt.Sprintf("median %s", report.Median(afterwards).Round(10*time.Millisecond)))
		return w.compare(ctx)
	})
}

// restart kills the principal, starts it and changes an Application the moment it is
// ready. It returns how long until that is on the spoke.
func (l *load) restart(ctx context.Context, name string) (fromReady, fromKill time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	killed := time.Now()
	if err := l.w.principal.Kill(); err != nil {
		return 0, 0, err
	}
	if err := l.w.principal.Start(ctx); err != nil {
		return 0, 0, err
	}
	ready := time.Now()
	r := l.next()
	x := l.spoke.expect(ofSpec, map[string]string{name: r})
	if err := setRevision(ctx, l.w.onHub, name, r); err != nil {
		return 0, 0, err
	}
	arrived, err := x.wait(ctx)
	return arrived.Sub(ready), arrived.Sub(killed), err
}

// cut changes much while the agent is cut off. It returns how long after the end of
// the cut, and after the new connection, the spoke held it all, and the names that
// are left.
func (l *load) cut(ctx context.Context, have []string, nth int) (fromEnd, fromConnection time.Duration, kept []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, burstLimit)
	defer cancel()
	gone, updated := have[:200], have[200:1700]
	created := make([]string, 200)
	for i := range created {
		created[i] = fmt.Sprintf("new-%d-%05d", nth, i)
	}
	r := l.next()
	want := all(slices.Concat(updated, created), r)
	maps.Copy(want, all(gone, ""))

	l.w.network.Cut()
	before := l.w.network.traffic.count()
	x := l.spoke.expect(ofSpec, want)
	if err := each(ctx, gone, func(ctx context.Context, name string) error {
		return l.w.onHub.Delete(ctx, name, metav1.DeleteOptions{})
	}); err != nil {
		return 0, 0, nil, err
	}
	if err := each(ctx, updated, func(ctx context.Context, name string) error { return setRevision(ctx, l.w.onHub, name, r) }); err != nil {
		return 0, 0, nil, err
	}
	if err := each(ctx, created, func(ctx context.Context, name string) error {
		return create(ctx, l.w.onHub, application(name, edge, edge, r))
	}); err != nil {
		return 0, 0, nil, err
	}
	end := time.Now()
	l.w.network.Mend()
	last, err := x.wait(ctx)
	if err != nil {
		return 0, 0, nil, err
	}
	connected, err := l.w.network.traffic.settled(ctx, before, 0)
	return last.Sub(end), last.Sub(connected.begun), slices.Concat(have[200:], created), err
}

const (
	manyCount = 1000 // agents
	manyApps  = 5    // Applications of each
)

func manyAgents(ctx context.Context, b *bench, s *report.Scenario) (err error) {
	w, err := startBenchEnv(ctx, b, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx, err != nil)) }()
	agents, apps := agentNames(manyCount), names(manyApps)
	config := w.hub.REST()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	b.say("registering %d agents", len(agents))
	if err := measurePhase(ctx, s, "registration of 1,000 agents", w.processes(), func() error {
		begun := time.Now()
		if err := register(ctx, client, agents); err != nil {
			return err
		}
		s.Note("registration of 1,000 agents, until their cluster Secrets are there", time.Since(begun).Seconds(), "s")
		return nil
	}); err != nil {
		return err
	}
	b.say("creating %d Applications", len(agents)*len(apps))
	if err := each(ctx, agents, func(ctx context.Context, agent string) error {
		if err := w.hub.EnsureNamespace(ctx, agent); err != nil {
			return err
		}
		for _, app := range apps {
			if err := create(ctx, client.Resource(harness.Applications).Namespace(agent), application(app, agent, agent, revision(1))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	ca, err := newAuthority(w.caDir)
	if err != nil {
		return err
	}
	f, err := newCrowd(w, ca, agents)
	if err != nil {
		return err
	}
	first, started := f.expect(apps, revision(1)), time.Now()
	stop := kit.Start(ctx, f.run)
	defer func() { err = errors.Join(err, stop()) }()
	b.say("connecting them for the first time")
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := measurePhase(ctx, s, "first connection of 1,000 agents", w.processes(), func() error { return first.wait(limited) }); err != nil {
		return err
	}
	s.Note("first connection of 1,000 agents: all of 5,000 Applications on their spokes", time.Since(started).Seconds(), "s")

	b.say("restarting the principal")
	if err := w.principal.Kill(); err != nil {
		return err
	}
	connected, changed := f.reconnect(), f.expect(apps[:1], revision(2))
	if err := each(limited, agents, func(ctx context.Context, agent string) error {
		return setRevision(ctx, client.Resource(harness.Applications).Namespace(agent), apps[0], revision(2))
	}); err != nil {
		return err
	}
	if err := measurePhase(ctx, s, "restart with 1,000 agents", w.processes(), func() error {
		if err := w.principal.Start(limited); err != nil {
			return err
		}
		ready := time.Now()
		if err := connected.wait(limited); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		s.Target("restart, 1,000 agents: ready to all connected", time.Since(ready).Seconds(), "s", report.AtMost(20))
		if err := changed.wait(limited); err != nil {
			return fmt.Errorf("converge: %w", err)
		}
		s.Target("restart, 1,000 agents: ready to all converged", time.Since(ready).Seconds(), "s", report.AtMost(60), "one of the 5 Applications of each changed meanwhile")
		return nil
	}); err != nil {
		return err
	}
	b.say("idle")
	if err := measurePhase(ctx, s, "1,000 idle agents", w.processes(), func() error { return idle(ctx, 20*time.Second) }); err != nil {
		return err
	}
	if _, err := f.compare(ctx, b, client, func(int) {}); err != nil {
		return err
	}
	return f.restored(ctx, b, s, w, client, agents)
}

// register makes Agents and returns when the hub has settled their cluster Secrets.
func register(ctx context.Context, client dynamic.Interface, agents []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+time.Duration(len(agents))*time.Second)
	defer cancel()
	settled := newArrivals(len(agents))
	stop := kit.Start(ctx, func(ctx context.Context) error {
		return followAgents(ctx, client, func(o *unstructured.Unstructured) {
			if slices.Contains(agents, o.GetName()) && hasCondition(o, v1alpha1.ConditionClusterSecretReady) {
				settled.add(o.GetName())
			}
		})
	})
	if err := createAgents(ctx, client, agents, nil); err != nil {
		return errors.Join(err, stop())
	}
	return errors.Join(settled.wait(ctx), stop())
}

// followAgents shows all Agents, and each change of one, until ctx is done.
func followAgents(ctx context.Context, client dynamic.Interface, look func(*unstructured.Unstructured)) error {
	where := client.Resource(v1alpha1.AgentResource).Namespace(harness.ArgoCDNamespace)
	for ctx.Err() == nil {
		list, err := where.List(ctx, metav1.ListOptions{})
		if err != nil {
			return unless(ctx, err)
		}
		for i := range list.Items {
			look(&list.Items[i])
		}
		events, err := where.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return unless(ctx, err)
		}
		// An API server ends the watch of a client that it finds too slow.
		for e := range events.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				look(o)
			}
		}
		events.Stop()
	}
	return nil
}

// unless is err unless ctx is done.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // documented
	}
	return err
}

// createAgents makes Agents, with a spec.access each if it is not nil.
func createAgents(ctx context.Context, client dynamic.Interface, agents []string, access map[string]any) error {
	where := client.Resource(v1alpha1.AgentResource).Namespace(harness.ArgoCDNamespace)
	return each(ctx, agents, func(ctx context.Context, name string) error {
		spec := map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{agentID(name)}}}
		if access != nil {
			spec["access"] = access
		}
		return create(ctx, where, map[string]any{
			"apiVersion": v1alpha1.AgentResource.GroupVersion().String(), "kind": "Agent",
			"metadata": map[string]any{"name": name, "namespace": harness.ArgoCDNamespace}, "spec": spec,
		})
	})
}

func hasCondition(o *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // not there yet
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == kind && m["status"] == "True"
	})
}
