package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/internal/lease"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/server"
)

// statsInterval is how often the counts of connected agents are taken.
const statsInterval = 10 * time.Second

// links runs the hub's side of the link of each registered agent, connected or
// not, and hands it the agent's connections.
type links struct {
	cfg      principalconfig.Config
	client   dynamic.Interface
	writes   dynamic.Interface // of what agents have us write
	store    *kube.Store
	schemas  *kube.Definitions
	census   *kube.Census
	witness  *kube.Witness
	registry *fleet.Registry
	owners   *division // once it is known what the hub has decided
	sessions *sessions
	hub      *hubState
	restores *restores
	// lease is the hub's, held or not; set before Run.
	lease *lease.Lease
	// life is random: it names this process in the Agents whose link it has.
	life string
	// cascades counts what is to go with its workloads, of all agents, and reads tells
	// which places are being deleted.
	cascades *cascades.Counter
	budgets  *budgets
	events   *appevents.Common
	quota    *quota.Quota
	reads    metadata.Interface
	metrics  *linkmetrics.Metrics
	tracer   trace.Tracer
	log      zerolog.Logger

	// noted are the agents whose Agent says something new to its link, judged those of
	// whose history their link has come to know something.
	noted, judged *keyset.Set[identity.AgentName]

	// swept are the namespaces of agents when strays were last removed; of Run's
	// goroutine.
	swept map[string]identity.AgentName
	// sweptProjects are the agents by the begin of whose names projects are told apart,
	// then.
	sweptProjects map[identity.AgentName]bool

	mu      sync.Mutex // guards what follows
	running map[identity.AgentName]*runningLink
	// retired are the Agents, by UID, whose link has nothing left to do.
	retired map[types.UID]bool
	retire  chan struct{} // has a value when retired may have changed
}

// runningLink is the link of one agent, from its registration to its end.
type runningLink struct {
	mirror *mirror.Mirror
	budget *budget.Peer
	rules  ownership.Rules
	stop   context.CancelCauseFunc
	done   chan struct{}
	said   *agentSays // of links.Run's goroutine; nil before the first

	mu      sync.Mutex // guards what follows
	changed func(stream.ResourceKey)
	deleted func(backends.Deletion)
}

// identified returns nil once the hub's identity is known, before which no agent is
// served.
func (l *links) identified() error {
	if _, known := l.hub.now(); !known {
		return fmt.Errorf("the identity of the hub is not known yet: ConfigMap %s/%s could not be read or made, see the log", l.cfg.Namespace, hub.ConfigMap)
	}
	return nil
}

// Run follows the registry until ctx is done, then ends all links. It begins once it is
// known what the hub has decided.
func (l *links) Run(ctx context.Context) error {
	kept, known := l.hub.wait(ctx)
	if !known {
		return nil
	}
	l.budgets.common.Lower(kept.Common.Bytes, kept.Common.At, time.Now())
	// Both in one order: of what is gone a link hears first that it was deleted.
	unsee := l.store.Deletions(l.dispatchDeletion)
	defer unsee()
	cancel := l.store.Subscribe(l.dispatch)
	defer cancel()
	var counting sync.WaitGroup
	counting.Go(func() { l.keepCounts(ctx) })
	defer counting.Wait()
	storeSynced := l.store.Synced()
	for {
		changed := l.registry.Changed()
		if l.registry.Ready() == nil {
			l.follow(ctx)
			if synced(l.store) == nil {
				l.removeStrays(ctx)
			}
		}
		for told := true; told; {
			told = false
			select {
			case <-changed:
			case <-storeSynced:
				storeSynced = nil // to assign what it holds
			case <-l.retire:
			case <-l.restores.signal:
				for _, r := range l.all() {
					r.mirror.Doubt()
				}
				told = true
			case <-l.noted.Signal:
				l.tellNoted()
				told = true // which links there are has not changed
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
func (l *links) follow(ctx context.Context) {
	agents := l.registry.Agents()
	l.dropRetired(agents)
	l.limitCascades(agents)
	for name, r := range l.all() {
		a, registered := agents[name]
		if registered && reflect.DeepEqual(l.rulesOf(name, a), r.rules) {
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
			l.cascades.Forget(name)
			l.budgets.forget(name)
			l.sessions.forget(name)
		}
	}
	moved := l.owners.assign()
	for name, a := range agents {
		r := l.link(name)
		if r == nil {
			var err error
			if r, err = l.start(ctx, name, a); err != nil {
				l.log.Error().Err(err).Stringer("agent", name).Msg("cannot start the link of an agent")
				l.cascades.Forget(name)
				continue
			}
		}
		r.tellAgent(a)
	}
	for name, keys := range moved {
		if r := l.link(name); r != nil {
			for _, key := range keys {
				r.tell(key)
			}
		}
	}
}

// tellNoted tells those links what the registry has now, which is never older than
// what follow told them.
func (l *links) tellNoted() {
	for _, name := range l.noted.Take() {
		if a, known := l.registry.Agent(name); known {
			if r := l.link(name); r != nil {
				r.tellAgent(a)
			}
		}
	}
}

// rulesOf are the rules of the hub's side of an agent's link.
func (l *links) rulesOf(name identity.AgentName, a v1alpha1.Agent) ownership.Rules {
	decided, _ := l.hub.now()
	return l.cfg.Rules(l.registry, decided, name, a)
}

// tellAgent tells the link what its Agent says, if that is news.
func (r *runningLink) tellAgent(a v1alpha1.Agent) {
	says := saidBy(a)
	if r.said != nil && *r.said == says {
		return
	}
	r.said = &says
	r.budget.Limit(says.limits, time.Now())
	r.budget.Lower(says.left, time.Now())
	r.mirror.Bound(says.bounds)
	r.mirror.Hold(says.held)
	r.mirror.Announce(says.history)
	r.mirror.ShowLink(says.link)
	r.mirror.Accept(says.accepted)
}

func (l *links) start(ctx context.Context, name identity.AgentName, a v1alpha1.Agent) (*runningLink, error) {
	rules := l.rulesOf(name, a)
	if name.String() == l.cfg.Namespace && len(rules.Pairs) == 0 && !rules.ByDestination {
		return nil, fmt.Errorf("it has the name of Argo CD's own namespace %s, whose Applications it would claim: "+
			"delete the Agent and create it under another name", l.cfg.Namespace)
	}
	log := l.log.With().Stringer("agent", name).Logger()
	r := &runningLink{rules: rules, budget: l.budgets.of(name, a), done: make(chan struct{})}
	judge := &historian{
		client: l.client, namespace: l.cfg.Namespace, agent: name, replica: replica(), life: l.life,
		hub: func() string {
			kept, _ := l.hub.now()
			return kept.UID
		},
		caughtUp: func(ctx context.Context) (bool, error) { return l.caughtUp(ctx, rules) },
		restores: l.restores, began: l.restores.count(), look: l.look,
	}
	var err error
	r.mirror, err = mirror.New(mirror.Config{
		Rules: r.rules,
		Store: l.owners.of(rules), Schemas: l.schemas, Subscribe: func(changed func(stream.ResourceKey)) func() { return l.subscribe(r, changed) },
		Deletions: func(deleted func(backends.Deletion)) func() { return r.subscribeDeletions(deleted) }, Confirm: l.witness.Confirm,
		History: judge.judge, Places: places{l.reads, l.cfg.Namespace, rules.Departing}.doomed, Cascades: l.cascades,
		Judged: func() { l.judged.Add(name) },
		Heard:  func(info stream.SpokeInfo) { l.sessions.hear(name, info) },
		Quota:  l.quota, Budget: r.budget,
		ShowEvent: showEvent(l.writes, name), EventRate: l.events,
		Metrics: l.metrics, Tracer: l.tracer, Log: log,
	})
	if err != nil {
		return nil, err
	}
	r.tellAgent(a)
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
			namespaces.Go(func() { keepNamespace(ctx, l.client, p.Hub, log) })
		}
		if rules.ChildNamespace != "" {
			namespaces.Go(func() { keepNamespace(ctx, l.client, rules.ChildNamespace, log) })
		}
		defer namespaces.Wait()
		if err := r.mirror.Run(ctx); err != nil {
			log.Error().Err(err).Msg("link of an agent failed")
		}
	}()
	return r, nil
}

// look has restores know of a restore that was before the call, if this process holds the
// Lease; another one knows it by what it watches alone.
func (l *links) look(ctx context.Context) error {
	if err := l.lease.Confirm(ctx); !errors.Is(err, lease.ErrNotHeld) {
		return err
	}
	return nil
}

// caughtUp reports whether what the cache shows of an agent is all on the hub.
func (l *links) caughtUp(ctx context.Context, rules ownership.Rules) (bool, error) {
	if !l.store.ListedSince(l.restores.before()) {
		return false, nil
	}
	type part struct {
		kind      stream.Kind
		namespace string
	}
	var parts []part
	for _, kind := range argoKinds {
		parts = append(parts, part{kind, l.cfg.Namespace})
	}
	for _, p := range rules.Pairs {
		parts = append(parts, part{stream.Application, p.Hub})
	}
	if rules.ByDestination {
		parts = append(parts, part{kind: stream.Application}) // it may be anywhere
	}
	for _, p := range parts {
		if exact, err := l.census.CaughtUp(ctx, p.kind, p.namespace); err != nil || !exact {
			return false, err
		}
	}
	return true, nil
}

// dispatch tells a change of the hub to the links it may concern.
func (l *links) dispatch(key stream.ResourceKey) {
	if key.Kind == stream.Application {
		for _, name := range l.owners.changed(key) {
			if r := l.link(name); r != nil {
				r.tell(key)
			}
		}
		return
	}
	for _, r := range l.all() {
		r.tell(key)
	}
}

// subscribe is mirror.Config.Subscribe for one agent's share of the hub.
func (l *links) subscribe(r *runningLink, changed func(stream.ResourceKey)) (cancel func()) {
	r.mu.Lock()
	r.changed = changed
	r.mu.Unlock()
	for _, o := range l.owners.list(r.rules) {
		changed(o.Key)
	}
	for _, kind := range argoKinds {
		for _, o := range l.store.List(kind, l.cfg.Namespace) {
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
func (l *links) dispatchDeletion(d backends.Deletion) {
	if d.Last.Key.Kind != stream.Application {
		return
	}
	if name, owned := l.owners.ownerOf(d.Last); owned {
		if r := l.link(name); r != nil {
			r.tellDeletion(d)
		}
	}
}

// subscribeDeletions is mirror.Config.Deletions.
func (r *runningLink) subscribeDeletions(deleted func(backends.Deletion)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = deleted
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deleted = nil
	}
}

func (r *runningLink) tellDeletion(d backends.Deletion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted != nil {
		r.deleted(d)
	}
}

func (r *runningLink) tell(key stream.ResourceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed != nil {
		r.changed(key)
	}
}

func (l *links) link(name identity.AgentName) *runningLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[name]
}

func (l *links) all() map[identity.AgentName]*runningLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[identity.AgentName]*runningLink, len(l.running))
	for name, r := range l.running {
		out[name] = r
	}
	return out
}

// serve is server.Config.Serve.
func (l *links) serve(ctx context.Context, s server.Session, conn *server.Conn) error {
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

// keepCounts takes the counts of connected agents until ctx is done: of all every
// statsInterval, and at once of those of whose history something has become known. It is
// apart from Run, for a link that is busy answers late, and new Agents do not wait for that.
func (l *links) keepCounts(ctx context.Context) {
	stats := time.NewTicker(statsInterval)
	defer stats.Stop()
	for {
		select {
		case <-l.judged.Signal:
			// A new history, and what is held back, are not to wait for the next count.
			l.countAll(ctx, l.judged.Take())
		case <-stats.C:
			if synced(l.store) == nil {
				l.countAll(ctx, slices.Collect(maps.Keys(l.all())))
			}
		case <-ctx.Done():
			return
		}
	}
}

// countAll asks all links at once: one that is busy does not keep us from the others.
func (l *links) countAll(ctx context.Context, names []identity.AgentName) {
	var counts sync.WaitGroup
	for _, name := range names {
		counts.Go(func() { l.count(ctx, name) })
	}
	counts.Wait()
}

// count takes the counts of an agent, if it is connected.
func (l *links) count(ctx context.Context, name identity.AgentName) {
	r := l.link(name)
	if r == nil || !l.sessions.connected(name) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if stats, err := r.mirror.Stats(ctx); err == nil { // else its store has not synced yet
		var elsewhere controller.ChildrenElsewhere
		stats.Parked, elsewhere = splitParked(r.rules, stats.Parked)
		l.sessions.count(name, r.rules.Local, stats, elsewhere, leftOf(r.budget, time.Now()))
	}
}

// sweepTimeout bounds one removal of strays; what is left follows with the next.
const sweepTimeout = 30 * time.Second

// removeStrays removes mirrors from namespaces that their agents no longer have, and
// those of projects whose names are another agent's, if whose they are has changed.
func (l *links) removeStrays(ctx context.Context) {
	namespaces := l.registry.Namespaces()
	projects := l.registry.Prefixes()
	if l.swept != nil && maps.Equal(namespaces, l.swept) && maps.Equal(projects, l.sweptProjects) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	agents := l.registry.Agents()
	err := departures.Strays{
		Store: l.store, Namespace: l.cfg.Namespace, Owner: func(namespace string) identity.AgentName { return namespaces[namespace] },
		ProjectOwner: l.registry.ProjectOwner,
		Registered: func(name identity.AgentName) bool {
			_, registered := agents[name]
			return registered
		},
	}.Remove(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Warn().Err(err).Msg("cannot remove mirrors from namespaces that their agents no longer have, trying again")
		return
	}
	l.swept, l.sweptProjects = namespaces, projects
}
