// Package links runs the hub's side of the links of all registered agents.
package links

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/continuity"
	"github.com/argomesh/argomesh/fleet/events"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// Identified returns nil once the hub's identity is known, before which no agent is
// served.
func (l *Links) Identified() error {
	if _, known := l.cfg.Hub.Now(); !known {
		return fmt.Errorf("the identity of the hub is not known yet: ConfigMap %s/%s could not be read or made, see the log",
			l.cfg.Namespace, hub.ConfigMap)
	}
	return nil
}

// Run follows the registry until ctx is done, then ends all links. It begins once it is
// known what the hub has decided.
func (l *Links) Run(ctx context.Context) error {
	kept, known := l.cfg.Hub.Wait(ctx)
	if !known {
		return nil
	}
	l.cfg.Budgets.common.Lower(kept.Common.Bytes, kept.Common.At, time.Now())
	// Both in one order: of what is gone a link hears first that it was deleted.
	unsee := l.cfg.Store.Deletions(l.dispatchDeletion)
	defer unsee()
	cancel := l.cfg.Store.Subscribe(l.dispatch)
	defer cancel()
	var counting sync.WaitGroup
	counting.Go(func() { l.updateCounts(ctx) })
	defer counting.Wait()
	storeSynced := l.cfg.Store.Synced()
	for {
		changed := l.cfg.Registry.Changed()
		if l.cfg.Registry.Ready() == nil {
			l.follow(ctx)
			if Synced(l.cfg.Store) == nil {
				l.removeOrphaned(ctx)
			}
		}
		for wait := true; wait; {
			wait = false
			select {
			case <-changed:
			case <-storeSynced:
				storeSynced = nil // to assign what it holds
			case <-l.retirement:
			case <-l.cfg.Restores.signal:
				for _, r := range l.all() {
					r.mirror.RecheckHistory()
				}
				wait = true
			case <-l.cfg.Dirty.Signal:
				l.applyDirty()
				wait = true // which links there are has not changed
			case <-ctx.Done():
				for _, r := range l.all() {
					<-r.done
				}
				return nil
			}
		}
	}
}

// follow starts the links of new agents and ends those of agents that went.
func (l *Links) follow(ctx context.Context) {
	agents := l.cfg.Registry.Agents()
	l.dropRetired(agents)
	l.limitCascades(agents)
	for name, r := range l.all() {
		a, registered := agents[name]
		if registered && reflect.DeepEqual(l.RulesOf(name, a), r.rules) {
			continue
		}
		if registered {
			r.stop(nil) // other rules are another link; a connected agent connects again
		} else {
			r.stop(stream.ErrRevoked)
		}
		<-r.done
		l.mu.Lock()
		delete(l.running, name)
		l.mu.Unlock()
		if !registered {
			l.cfg.Sessions.Cascades.Forget(name)
			l.cfg.Budgets.forget(name)
			l.cfg.Sessions.Forget(name)
		}
	}
	moved := l.cfg.Owners().Assign()
	for name, a := range agents {
		r := l.link(name)
		if r == nil {
			var err error
			if r, err = l.start(ctx, name, a); err != nil {
				l.log.Error().Err(err).Stringer("agent", name).Msg("cannot start the link of an agent")
				l.cfg.Sessions.Cascades.Forget(name)
				continue
			}
		}
		r.apply(a)
	}
	for name, keys := range moved {
		if r := l.link(name); r != nil {
			for _, key := range keys {
				r.notify(key)
			}
		}
	}
}

// applyDirty hands those links what the registry has now, which is never older than
// what follow handed them.
func (l *Links) applyDirty() {
	for _, name := range l.cfg.Dirty.Drain() {
		if a, known := l.cfg.Registry.Agent(name); known {
			if r := l.link(name); r != nil {
				r.apply(a)
			}
		}
	}
}

func (l *Links) start(ctx context.Context, name identity.AgentName, a v1alpha1.Agent) (*runningLink, error) {
	rules := l.RulesOf(name, a)
	if name.String() == l.cfg.Namespace && len(rules.Pairs) == 0 && !rules.ByDestination {
		return nil, fmt.Errorf("it has the name of Argo CD's own namespace %s, whose Applications it would claim: "+
			"delete the Agent and create it under another name", l.cfg.Namespace)
	}
	log := l.log.With().Stringer("agent", name).Logger()
	r := &runningLink{rules: rules, budget: l.cfg.Budgets.of(name, a), done: make(chan struct{})}
	began := l.cfg.Restores.count()
	verifier := continuity.New(continuity.Config{
		Read:    continuity.Agents{Client: l.cfg.Client, Namespace: l.cfg.Namespace}.Read(name),
		Replica: l.cfg.Replica, Life: l.cfg.Life,
		Hub: func() string {
			kept, _ := l.cfg.Hub.Now()
			return kept.UID
		},
		CaughtUp: func(ctx context.Context) (bool, error) { return l.caughtUp(ctx, rules) },
		Restores: func() int { return l.cfg.Restores.count() - began }, ObserveRestores: l.observeRestores,
	})
	var err error
	r.mirror, err = mirror.New(mirror.Config{
		Rules: r.rules,
		Store: l.cfg.Owners().Of(rules), Schemas: l.cfg.Schemas,
		Subscribe: func(changed func(stream.ResourceKey)) func() { return l.subscribe(r, changed) },
		Deletions: func(deleted func(backends.Deletion)) func() { return r.subscribeDeletions(deleted) },
		Confirm:   l.cfg.Witness.Confirm, History: verifier.Verify,
		TerminatingNamespaces: terminationCheck{l.cfg.Reads, l.cfg.Namespace, rules.Terminating}.run,
		Cascades:              l.cfg.Sessions.Cascades,
		HistoryChanged:        func() { l.historyChanged.Add(name) },
		OnSpokeInfo:           func(info stream.SpokeInfo) { l.cfg.Sessions.SetSpokeInfo(name, info) },
		Quota:                 l.cfg.Quota, Budget: r.budget,
		ShowEvent: events.Show(l.cfg.Writes, name), EventRate: l.cfg.EventRate,
		Metrics: l.cfg.Metrics, Tracer: l.cfg.Tracer, Log: log,
	})
	if err != nil {
		return nil, err
	}
	r.apply(a)
	ctx, r.stop = context.WithCancelCause(ctx)
	l.mu.Lock()
	l.running[name] = r
	l.mu.Unlock()
	go func() {
		defer close(r.done)
		var namespaces sync.WaitGroup
		// The link does not wait: without the right to make namespaces someone else
		// makes them, and until then the mirrors that need them are parked.
		for _, p := range rules.Pairs {
			namespaces.Go(func() { maintainNamespace(ctx, l.cfg.Client, p.Hub, log) })
		}
		if rules.ChildNamespace != "" {
			namespaces.Go(func() { maintainNamespace(ctx, l.cfg.Client, rules.ChildNamespace, log) })
		}
		defer namespaces.Wait()
		if err := r.mirror.Run(ctx); err != nil {
			log.Error().Err(err).Msg("link of an agent failed")
		}
	}()
	return r, nil
}

// observeRestores has restores know of a restore that was before the call, if this process holds the
// Lease; another one knows it by what it watches alone.
func (l *Links) observeRestores(ctx context.Context) error {
	if err := l.cfg.Confirm(ctx); !errors.Is(err, l.cfg.NotHeld) {
		return err
	}
	return nil
}

// caughtUp reports whether what the cache shows of an agent is all on the hub.
func (l *Links) caughtUp(ctx context.Context, rules ownership.Rules) (bool, error) {
	if !l.cfg.Store.ListedSince(l.cfg.Restores.before()) {
		return false, nil
	}
	type part struct {
		kind      stream.Kind
		namespace string
	}
	var parts []part
	for _, kind := range argoKinds() {
		parts = append(parts, part{kind, l.cfg.Namespace})
	}
	for _, p := range rules.Pairs {
		parts = append(parts, part{stream.Application, p.Hub})
	}
	if rules.ByDestination {
		parts = append(parts, part{kind: stream.Application}) // it may be anywhere
	}
	for _, p := range parts {
		if exact, err := l.cfg.Consistency.CaughtUp(ctx, p.kind, p.namespace); err != nil || !exact {
			return false, err
		}
	}
	return true, nil
}

// dispatch tells a change of the hub to the links it may concern.
func (l *Links) dispatch(key stream.ResourceKey) {
	if key.Kind == stream.Application {
		for _, name := range l.cfg.Owners().Changed(key) {
			if r := l.link(name); r != nil {
				r.notify(key)
			}
		}
		return
	}
	for _, r := range l.all() {
		r.notify(key)
	}
}

// subscribe is mirror.Config.Subscribe for one agent's part of the hub.
func (l *Links) subscribe(r *runningLink, changed func(stream.ResourceKey)) (cancel func()) {
	r.mu.Lock()
	r.changed = changed
	r.mu.Unlock()
	for _, o := range l.cfg.Owners().List(r.rules) {
		changed(o.Key)
	}
	for _, kind := range argoKinds() {
		for _, o := range l.cfg.Store.List(kind, l.cfg.Namespace) {
			changed(o.Key)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed = nil
	}
}

// dispatchDeletion tells the link of the agent whose Application was deleted.
func (l *Links) dispatchDeletion(d backends.Deletion) {
	if d.Last.Key.Kind != stream.Application {
		return
	}
	if name, owned := l.cfg.Owners().OwnerOf(d.Last); owned {
		if r := l.link(name); r != nil {
			r.notifyDeletion(d)
		}
	}
}

// Serve is server.Config.Serve.
func (l *Links) Serve(ctx context.Context, s server.Session, conn *server.Conn) error {
	r := l.link(s.Agent.Name)
	if r == nil {
		return fmt.Errorf("link of agent %s: %w", s.Agent.Name, stream.ErrUnavailable) // registered a moment ago
	}
	return r.mirror.Serve(ctx, mirror.Peer{
		Connection: s.Connection, Hello: s.Hello, Children: s.Agent.Children,
		WriteCredentials: s.Capabilities.Has(stream.WriteCredentials), GivesUp: s.Capabilities.Has(stream.GiveUp),
		SeenDeletes: s.Capabilities.Has(stream.SeenDeletes), Waits: conn.Waits,
	}, conn)
}

// limitCascades says for each managed agent how many of its Applications may be asked to
// go with their workloads.
func (l *Links) limitCascades(agents map[identity.AgentName]v1alpha1.Agent) {
	for name, a := range agents {
		if a.Spec.Mode == v1alpha1.ModeManaged {
			departing := a.DeletionTimestamp != nil && fleet.Cascades(&a)
			l.cfg.Sessions.Cascades.Limit(name, fleet.CascadeHold(&a), departing, sessions.StateOf(a.Status.Cascades))
		}
	}
}

// Of returns the rules of the link of an agent, and its budget; false while there is no link.
func (l *Links) Of(name identity.AgentName) (ownership.Rules, *budget.Peer, bool) {
	r := l.link(name)
	if r == nil {
		return ownership.Rules{}, nil, false
	}
	return r.rules, r.budget, true
}
