package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// statsInterval is how often the counts of connected agents are taken.
const statsInterval = 10 * time.Second

// links runs the hub's side of the link of each registered agent, connected or
// not, and hands it the agent's connections.
type links struct {
	cfg      Config
	client   dynamic.Interface
	store    *kube.Store
	census   *kube.Census
	registry *fleet.Registry
	owners   *ownership
	sessions *sessions
	// hub is the identity of the hub, empty while it is not known.
	hub     atomic.Pointer[string]
	metrics *mirror.Metrics
	tracer  trace.Tracer
	log     zerolog.Logger

	// noted are the agents whose Agent says something new to its link, judged those of
	// whose history their link has come to know something.
	noted, judged *marks

	// swept are the namespaces of agents when strays were last removed; of Run's
	// goroutine.
	swept map[string]identity.AgentName

	mu      sync.Mutex // guards what follows
	running map[identity.AgentName]*runningLink
	// retired are the Agents, by UID, whose link has nothing left to do.
	retired map[types.UID]bool
	retire  chan struct{} // has a value when retired may have changed
}

// runningLink is the link of one agent, from its registration to its end.
type runningLink struct {
	mirror *mirror.Mirror
	rules  mirror.Rules
	stop   context.CancelCauseFunc
	done   chan struct{}
	said   *agentSays // of links.Run's goroutine; nil before the first

	mu      sync.Mutex // guards changed
	changed func(stream.ResourceKey)
}

// identified returns nil once the hub's identity is known, before which no agent is
// served.
func (l *links) identified() error {
	if l.hub.Load() == nil {
		return fmt.Errorf("the identity of the hub is not known yet: ConfigMap %s/%s could not be read or made, see the log", l.cfg.Namespace, hubConfigMap)
	}
	return nil
}

// Run follows the registry until ctx is done, then ends all links.
func (l *links) Run(ctx context.Context) error {
	cancel := l.store.Subscribe(l.dispatch)
	defer cancel()
	stats := time.NewTicker(statsInterval)
	defer stats.Stop()
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
			case <-l.noted.signal:
				l.tellNoted()
				told = true // which links there are has not changed
			case <-l.judged.signal:
				// A new history, and what is held back, are not to wait for the next count.
				for _, name := range l.judged.take() {
					l.count(ctx, name)
				}
				told = true
			case <-stats.C:
				if synced(l.store) == nil {
					for name := range l.all() {
						l.count(ctx, name)
					}
				}
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
	for _, name := range l.noted.take() {
		if a, known := l.registry.Agent(name); known {
			if r := l.link(name); r != nil {
				r.tellAgent(a)
			}
		}
	}
}

// rulesOf are the rules of the hub's side of an agent's link.
func (l *links) rulesOf(name identity.AgentName, a v1alpha1.Agent) mirror.Rules {
	rules := mirror.Rules{
		Side: stream.Hub, Mode: modeOf(a.Spec.Mode), Agent: name, Namespace: l.cfg.Namespace,
		ClusterServer: controller.ClusterServer(l.cfg.ResourceProxy.URL, name),
		Departing:     a.DeletionTimestamp != nil && fleet.Cascades(&a),

		SharesUnscoped: l.cfg.Repositories.ShareUnscoped,
		Selector:       l.cfg.Mapping.selector(),
	}
	if l.registry.Mapping.ByDestination && rules.Mode == stream.Managed {
		rules.ByDestination, rules.Namespaces = true, l.cfg.Mapping.Namespaces
	} else {
		rules.Pairs, rules.Children = l.owners.pairsOf(name), fleet.ShowsChildren(&a)
	}
	return rules
}

// tellAgent tells the link what its Agent says, if that is news.
func (r *runningLink) tellAgent(a v1alpha1.Agent) {
	says := saidBy(a)
	if r.said != nil && *r.said == says {
		return
	}
	r.said = &says
	r.mirror.Hold(says.held)
	r.mirror.Announce(says.history)
	r.mirror.Accept(says.accepted)
}

func (l *links) start(ctx context.Context, name identity.AgentName, a v1alpha1.Agent) (*runningLink, error) {
	rules := l.rulesOf(name, a)
	if name.String() == l.cfg.Namespace && len(rules.Pairs) == 0 && !rules.ByDestination {
		return nil, fmt.Errorf("it has the name of Argo CD's own namespace %s, whose Applications it would claim: "+
			"delete the Agent and create it under another name", l.cfg.Namespace)
	}
	log := l.log.With().Stringer("agent", name).Logger()
	r := &runningLink{rules: rules, done: make(chan struct{})}
	judge := &historian{
		client: l.client, namespace: l.cfg.Namespace, agent: name,
		hub: func() string {
			if hub := l.hub.Load(); hub != nil {
				return *hub
			}
			return ""
		},
		caughtUp: func(ctx context.Context) (bool, error) { return l.caughtUp(ctx, rules) },
	}
	var err error
	r.mirror, err = mirror.New(mirror.Config{
		Rules: r.rules,
		Store: l.owners.of(rules), Subscribe: func(changed func(stream.ResourceKey)) func() { return l.subscribe(r, changed) },
		History: judge.judge, Judged: func() { l.judged.add(name) },
		Heard:   func(info stream.SpokeInfo) { l.sessions.hear(name, info) },
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
		defer namespaces.Wait()
		if err := r.mirror.Run(ctx); err != nil {
			log.Error().Err(err).Msg("link of an agent failed")
		}
	}()
	return r, nil
}

// caughtUp reports whether what the cache shows of an agent is all on the hub.
func (l *links) caughtUp(ctx context.Context, rules mirror.Rules) (bool, error) {
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
		WriteCredentials: s.Capabilities.Has(stream.WriteCredentials),
	}, conn)
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
		l.sessions.count(name, r.rules.Local, stats)
	}
}

// sweepTimeout bounds one removal of strays; what is left follows with the next.
const sweepTimeout = 30 * time.Second

// removeStrays removes mirrors from namespaces that their agents no longer have, if
// the namespaces have changed.
func (l *links) removeStrays(ctx context.Context) {
	namespaces := l.registry.Namespaces()
	if l.swept != nil && maps.Equal(namespaces, l.swept) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	agents := l.registry.Agents()
	err := mirror.Strays{
		Store: l.store, Owner: func(namespace string) identity.AgentName { return namespaces[namespace] },
		Registered: func(name identity.AgentName) bool {
			_, registered := agents[name]
			return registered
		},
	}.Remove(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Warn().Err(err).Msg("cannot remove mirrors from namespaces that their agents no longer have, trying again")
		return
	}
	l.swept = namespaces
}
