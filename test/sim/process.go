package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// argocdNamespace is where Argo CD's own objects are, on every side.
const argocdNamespace = "argocd"

// sharedNamespace is where agents that share one have their Applications, on every side.
const sharedNamespace = "team"

// site is one Kubernetes cluster with the process of ours beside it.
type site struct {
	place  string
	side   stream.Side
	agents []Agent       // whose links end here
	clock  time.Duration // how far its clock is ahead

	failing atomic.Bool
	slow    atomic.Int64 // the longest time of a call, in nanoseconds

	mu         sync.Mutex // guards what follows
	server     *memory.Store
	people     *memory.Store
	controller *memory.Store
	ghost      *memory.Store // carries out what was under way when a process died
	lost       *atomic.Bool  // set once the cluster is no more
	proc       *process      // nil while there is none
	generation int           // of the cluster
}

// process is one life of a principal or an agent.
type process struct {
	world   *World
	site    *site
	client  *memory.Store
	ghost   *memory.Store
	mirrors map[string]*mirror.Mirror
	ctx     context.Context //nolint:containedctx // its life
	stop    context.CancelFunc
	calls   atomic.Int64
	keepers []*historian
	shares  *mirror.Shares // of a principal

	mu   sync.Mutex // guards what follows
	met  map[string]met
	told map[string]func(stream.ResourceKey) // by agent that shares a namespace

	// dieAt is the call at which it dies, negative if before the call takes effect;
	// zero for never.
	dieAt atomic.Int64
}

func (s *site) writer() Writer {
	if s.side == stream.Hub {
		return Principal
	}
	return AgentSide
}

// process returns the process of the moment; nil when there is none.
func (s *site) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// open makes the site's Kubernetes cluster, empty.
func (w *World) open(s *site, generation int) {
	var uids atomic.Int64
	lost := &atomic.Bool{}
	record := w.journal.of(s.place)
	root := memory.New(memory.Config{
		Kinds:  []stream.Kind{stream.Application, stream.AppProject, stream.Secret, stream.ConfigMap, agentKind},
		Lag:    true,
		NewUID: func() string { return fmt.Sprintf("%s-%d-%d", s.place, generation, uids.Add(1)) },
		Now:    func() time.Time { return time.Now().Add(s.clock) },
		Journal: func(a memory.Accepted) {
			if !lost.Load() { // else a late call to a cluster that is no more
				record(a)
			}
		},
	})
	people, controller := root.OpenAs(string(People)), root.OpenAs(string(Controller))
	root.Close() // it has no cache to keep
	s.mu.Lock()
	s.lost = lost
	s.generation, s.server, s.people, s.controller, s.ghost = generation, root, people, controller, root.OpenAs(string(s.writer()))
	s.mu.Unlock()
	w.deliver(w.ctx, s, string(People), people)
	w.deliver(w.ctx, s, string(Controller), controller)
}

// deliver lets a client's cache follow its server, late, and the objects in any
// order.
func (w *World) deliver(ctx context.Context, s *site, name string, c *memory.Store) {
	actor := s.place + " deliver " + name
	c.Deliver(-1)
	w.wait.Go(func() {
		for pause(ctx, w.chance.upTo(actor, 80*time.Millisecond)) {
			// One at a time: what is told at one instant may be seen together or not.
			for range 1 + w.chance.n(actor+" count", 4) {
				if !c.DeliverAny(func(n int) int { return w.chance.n(actor+" pick", n) }) ||
					!pause(ctx, w.chance.upTo(actor+" apart", time.Microsecond)) {
					break
				}
			}
		}
	})
}

// supervise keeps a process running on a site, as a Deployment does.
func (w *World) supervise(s *site, p *process) {
	for {
		p.run()
		s.mu.Lock()
		s.proc = nil
		s.mu.Unlock()
		if !pause(w.ctx, w.chance.upTo(s.place+" restart", 2*time.Second)) {
			return
		}
		p = w.start(s)
	}
}

func (w *World) start(s *site) *process {
	s.mu.Lock()
	p := &process{world: w, site: s, client: s.server.OpenAs(string(s.writer())), ghost: s.ghost}
	s.mu.Unlock()
	p.ctx, p.stop = context.WithCancel(w.ctx)
	p.mirrors, p.met, p.told = map[string]*mirror.Mirror{}, map[string]met{}, map[string]func(stream.ResourceKey){}
	if s.side == stream.Hub {
		p.shares = mirror.NewShares(client{Store: p.client, process: p})
		p.client.Subscribe(p.dispatch)
	}
	for _, a := range s.agents {
		p.mirrors[a.Name] = p.mirror(a)
	}
	for _, h := range p.keepers {
		w.wait.Go(h.keep)
	}
	w.deliver(p.ctx, s, string(s.writer()), p.client)
	if p.shares != nil {
		p.shares.Assign(s.owner) // the cache has listed by now
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return p
}

func (p *process) mirror(a Agent) *mirror.Mirror {
	name, err := identity.ParseAgentName(a.Name)
	if err != nil {
		panic(err) // ParseTrace and Generate make none
	}
	metrics, err := mirror.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		panic(err) // the registry is new
	}
	cfg := mirror.Config{
		Rules: mirror.Rules{
			Side: p.site.side, Mode: a.Mode, Agent: name, Namespace: argocdNamespace, ClusterServer: serverOf(a.Name),
		},
		Store: client{Store: p.client, process: p}, Window: 8,
		Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	}
	if a.Shared {
		cfg.Rules.Namespaces = []string{sharedNamespace}
	}
	if a.Shared && p.site.side == stream.Hub {
		cfg.Rules.ByDestination = true
		cfg.Store, cfg.Subscribe = p.shares.Of(name), func(changed func(stream.ResourceKey)) func() { return p.subscribe(a.Name, changed) }
	}
	if p.site.side == stream.Hub {
		h := &historian{process: p, agent: a}
		cfg.History = h.judge
		p.keepers = append(p.keepers, h)
	} else {
		cfg.Remember = p.remember
	}
	m, err := mirror.New(cfg)
	if err != nil {
		panic(err) // all it needs is there
	}
	return m
}

// owner is a mirror.Owner for the agents that share a namespace.
func (s *site) owner(at mirror.Placement) identity.AgentName {
	for _, a := range s.agents {
		if a.Shared && at.Namespace == sharedNamespace && (at.Name == a.Name || at.Name == "" && at.Server == serverOf(a.Name)) {
			if name, err := identity.ParseAgentName(a.Name); err == nil {
				return name
			}
		}
	}
	return identity.AgentName{}
}

// dispatch tells the links of agents that share a namespace of a change.
func (p *process) dispatch(key stream.ResourceKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key.Kind == stream.Application {
		for _, name := range p.shares.Changed(key) {
			if tell := p.told[name.String()]; tell != nil {
				tell(key)
			}
		}
		return
	}
	for _, a := range p.site.agents { // in one order
		if tell := p.told[a.Name]; tell != nil {
			tell(key)
		}
	}
}

// subscribe is mirror.Config.Subscribe of such an agent.
func (p *process) subscribe(agent string, changed func(stream.ResourceKey)) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[agent] = changed
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.told, agent)
	}
}

// serverOf is the server of an agent's cluster Secret.
func serverOf(agent string) string { return "https://proxy:9090/agents/" + agent }

// run blocks until the process is dead.
func (p *process) run() {
	var g errgroup.Group
	for _, m := range p.mirrors {
		g.Go(func() error { return m.Run(p.ctx) })
	}
	_ = g.Wait() // a Mirror that dies early would be seen as one that does not agree
	p.die()
}

// die ends the process at whatever instruction it is: no call takes effect any
// more, no frame leaves.
func (p *process) die() {
	p.client.Close()
	p.stop()
}

// client is the store as a process sees it: a server that takes its time, fails,
// and goes on with what it was asked for when the process is dead.
type client struct {
	*memory.Store
	process *process
}

var _ backends.Store = client{}

// Read implements backends.Store.
func (c client) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	return c.call(ctx, memory.OpRead, key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return s.Read(ctx, key)
	})
}

// Create implements backends.Store.
func (c client) Create(ctx context.Context, key stream.ResourceKey, raw []byte) (backends.Object, error) {
	return c.call(ctx, memory.OpCreate, key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return s.Create(ctx, key, raw)
	})
}

// Update implements backends.Store.
func (c client) Update(ctx context.Context, old backends.Object, raw []byte) (backends.Object, error) {
	return c.call(ctx, memory.OpUpdate, old.Key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return s.Update(ctx, old, raw)
	})
}

// Delete implements backends.Store.
func (c client) Delete(ctx context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	_, err := c.call(ctx, memory.OpDelete, key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return backends.Object{}, s.Delete(ctx, key, pre)
	})
	return err
}

// callTime is how long a call takes at most when the store is not slow. Each has
// a time of its own, so that what follows from two calls has an order.
const callTime = 2 * time.Millisecond

func (c client) call(ctx context.Context, op memory.Op, key stream.ResourceKey,
	do func(context.Context, *memory.Store) (backends.Object, error),
) (backends.Object, error) {
	p := c.process
	w, actor := p.world, fmt.Sprintf("%s call %s %s", p.site.place, op, key)
	n := p.calls.Add(1)
	dieAt := p.dieAt.Load()
	if dieAt < 0 && n >= -dieAt {
		p.die()
	}
	slow := max(time.Duration(p.site.slow.Load()), callTime)
	if !pause(ctx, w.chance.upTo(actor, slow)) || p.ctx.Err() != nil {
		// The server has it already, perhaps: what a dead process asked for still
		// happens.
		if op != memory.OpRead && w.ctx.Err() == nil && w.chance.n(actor+" ghost", 2) == 0 {
			w.wait.Go(func() {
				if pause(w.ctx, w.chance.upTo(actor+" ghost", slow)) {
					_, _ = do(w.ctx, p.ghost) // there is nobody to tell
				}
			})
		}
		return backends.Object{}, fmt.Errorf("%w: the process is dead", stream.ErrUnavailable)
	}
	failing := p.site.failing.Load()
	if failing {
		switch w.chance.n(actor+" fault", 12) {
		case 0:
			return backends.Object{}, fmt.Errorf("%w: too many requests", stream.ErrUnavailable)
		case 1:
			return backends.Object{}, fmt.Errorf("%w: internal error", stream.ErrUnavailable)
		case 2:
			if op != memory.OpRead {
				return backends.Object{}, stream.ErrConflict
			}
		}
	}
	o, err := do(ctx, c.Store)
	if dieAt > 0 && n >= dieAt {
		p.die()
	}
	switch {
	case p.ctx.Err() != nil:
		return backends.Object{}, errors.Join(stream.ErrUnavailable, p.ctx.Err())
	case failing && w.chance.n(actor+" reply", 15) == 0:
		return backends.Object{}, fmt.Errorf("%w: the reply was lost", stream.ErrUnavailable)
	}
	return o, err
}
