package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/shares"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// argocdNamespace is where Argo CD's own objects are, on every side.
const argocdNamespace = "argocd"

// sharedNamespace is where agents that share one have their Applications, on every side.
const sharedNamespace = "team"

// cluster is one Kubernetes cluster.
type cluster struct {
	place    string       // the hub, or the agent whose spoke it is; of several the first
	apiClock atomic.Int64 // how far the clock of its API server is ahead, in nanoseconds

	mu         sync.Mutex // guards what follows, and the processes of its sites
	server     *memory.Store
	people     *memory.Store
	controller *memory.Store
	ghosts     map[string]*memory.Store // by site: carry out what was under way when a process died
	lost       *atomic.Bool             // set once the cluster is no more
	generation int
	dooms      map[string]doom // by namespace
	older      bool            // its Argo CD is
}

// site is where a principal or an agent runs, beside its Kubernetes cluster.
type site struct {
	*cluster
	name   string // the hub, or the agent
	side   stream.Side
	agents []Agent // whose links end here

	failing atomic.Bool
	slow    atomic.Int64 // the longest time of a call, in nanoseconds
	// refusing says that the API server refuses some writes of ours.
	refusing atomic.Bool
	refused  atomic.Bool  // it did once
	clock    atomic.Int64 // how far that of the process' node is ahead, in nanoseconds

	// cascades are those of the last process, of which the Agents keep the state.
	cascades atomic.Pointer[cascades.Counter]

	// Guarded by mu.
	proc  *process   // the one that has the role; nil while there is none
	alive []*process // with those that live on beside it, oldest first
	lives int        // how many there were
}

// process is one life of a principal or an agent.
type process struct {
	fleet   *Fleet
	site    *site
	name    string        // like no other's
	life    int           // counts those of the site
	actor   string        // in the names of what is drawn
	over    chan struct{} // closed when it is dead
	gate    gate
	client  *memory.Store
	ghost   *memory.Store
	mirrors map[string]*mirror.Mirror
	ctx     context.Context //nolint:containedctx // its life
	stop    context.CancelFunc
	calls   atomic.Int64
	keepers []*past
	shares  *shares.Partition // of a principal
	// cascades count for a principal how many Applications are asked to go; nil where that
	// is not limited.
	cascades *cascades.Counter
	idle     chan struct{} // of an agent: has a value when a connection ended

	mu       sync.Mutex                    // guards what follows
	live     map[string]context.CancelFunc // of an agent: its connections
	turn     uint64                        // of an agent: how many connections it has opened
	relieved chan struct{}                 // closed when its role goes to another, whether it knows or not
	kept     *remembered                   // of an agent, what its spoke kept when it last looked; nil before
	met      map[string]met
	told     map[string]func(stream.ResourceKey) // by agent that shares a namespace

	// dieAt is the call at which it dies, negative if before the call takes effect;
	// zero for never.
	dieAt atomic.Int64
}

// writer is who we are on the cluster.
func (s *cluster) writer() Writer {
	if s.place == hubPlace {
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

// open makes the Kubernetes cluster, empty.
func (w *Fleet) open(s *cluster, generation int) {
	var uids atomic.Int64
	lost := &atomic.Bool{}
	record := w.journal.of(s.place)
	root := memory.New(memory.Config{
		Kinds: []stream.Kind{stream.Application, stream.AppProject, stream.Secret, stream.ConfigMap, agentKind},
		Lag:   true, Schemas: newerSchemas(),
		NewUID: func() string { return fmt.Sprintf("%s-%d-%d", s.place, generation, uids.Add(1)) },
		Now:    func() time.Time { return ahead(&s.apiClock) },
		Journal: func(a memory.Accepted) {
			if !lost.Load() { // else a late call to a cluster that is no more
				record(a)
			}
		},
	})
	people, controller := root.OpenAs(string(People)), root.OpenAs(string(Controller))
	root.Close() // it has no cache to keep
	s.mu.Lock()
	s.lost, s.dooms, s.older = lost, nil, false
	s.generation, s.server, s.people, s.controller, s.ghosts = generation, root, people, controller, map[string]*memory.Store{}
	s.mu.Unlock()
	w.deliver(w.ctx, s.place+" deliver "+string(People), people, func() {})
	w.deliver(w.ctx, s.place+" deliver "+string(Controller), controller, func() {})
}

// deliver lets a client's cache follow its server, late, and the objects in any
// order. await blocks while the client is not to learn anything.
func (w *Fleet) deliver(ctx context.Context, actor string, c *memory.Store, await func()) {
	c.Deliver(-1)
	w.wait.Go(func() {
		for pause(ctx, w.chance.upTo(actor, 80*time.Millisecond)) {
			await()
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
func (w *Fleet) supervise(s *site, p *process) {
	for {
		select {
		case <-p.over:
		case <-p.relieved:
		}
		s.mu.Lock()
		s.proc = nil
		s.mu.Unlock()
		if !pause(w.ctx, w.chance.upTo(s.name+" restart", 2*time.Second)) {
			return
		}
		p = w.start(s)
	}
}

func (w *Fleet) start(s *site) *process {
	s.mu.Lock()
	name := clientName(s.writer(), s.name)
	if s.ghosts[s.name] == nil {
		s.ghosts[s.name] = s.server.OpenAs(name)
	}
	p := &process{fleet: w, site: s, actor: s.name, client: s.server.OpenAs(name), ghost: s.ghosts[s.name]}
	s.lives++
	p.life, p.name = s.lives, fmt.Sprintf("%s.%d", s.name, s.lives)
	if len(s.alive) > 0 {
		p.actor = p.name // two may draw at one instant
	}
	s.mu.Unlock()
	p.over, p.relieved = make(chan struct{}), make(chan struct{})
	p.live, p.idle = map[string]context.CancelFunc{}, make(chan struct{}, 1)
	p.ctx, p.stop = context.WithCancel(w.ctx)
	p.mirrors, p.met, p.told = map[string]*mirror.Mirror{}, map[string]met{}, map[string]func(stream.ResourceKey){}
	if s.side == stream.Hub {
		p.shares = shares.New(client{Store: p.client, process: p})
		p.client.Subscribe(p.dispatch)
		p.client.Subscribe(p.informed)
		p.hold()
	}
	for _, a := range s.agents {
		p.mirrors[a.Name] = p.mirror(a)
	}
	for _, h := range p.keepers {
		w.wait.Go(h.keep)
	}
	w.deliver(p.ctx, p.actor+" deliver "+string(s.writer()), p.client, p.await)
	if p.shares != nil {
		p.shares.Assign(s.owner) // the cache has listed by now
	}
	s.mu.Lock()
	s.proc, s.alive = p, append(s.alive, p)
	s.mu.Unlock()
	w.journal.add(Entry{Place: s.place, Note: Started})
	w.wait.Go(p.run)
	if s.side == stream.Spoke {
		w.wait.Go(func() { w.dial(p) })
	}
	return p
}

func (p *process) mirror(a Agent) *mirror.Mirror {
	name, err := identity.ParseAgentName(a.Name)
	if err != nil {
		panic(err) // ParseTrace and Generate make none
	}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		panic(err) // the registry is new
	}
	namespace := argocdNamespace
	if p.site.side == stream.Spoke {
		namespace = a.home()
	}
	cfg := mirror.Config{
		Rules: ownership.Rules{
			Marks: copies.Marks{
				Map: mapping.Map{
					Side: p.site.side, Mode: a.Mode, Agent: name, Namespace: namespace, ClusterServer: serverOf(a.Name),
				},
			},
		},
		Store: client{Store: p.client, process: p}, Schemas: p.client, Window: 8, Now: p.now,
		Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	}
	// Of several managed agents on one cluster each may have Applications there.
	if a.Shared || p.site.side == stream.Spoke && a.Mode == stream.Managed && p.fleet.trace.several(a) {
		cfg.Rules.Namespaces = []string{sharedNamespace}
	}
	if a.Shared && p.site.side == stream.Hub {
		cfg.Rules.ByDestination = true
		cfg.Store = p.shares.For(name)
		cfg.Subscribe = func(changed func(stream.ResourceKey)) func() { return p.subscribe(a.Name, changed) }
	}
	if p.site.side == stream.Hub {
		cfg.Rules.Hub = hubUID
		h := &past{process: p, agent: a}
		cfg.Cascades = p.cascades
		cfg.History, cfg.Confirm = h.judge().Verify, client{Store: p.client, process: p}.Confirm
		cfg.TerminatingNamespaces = func(_ context.Context, namespaces []string) (map[string]string, error) {
			return p.site.places(namespaces), nil
		}
		if p.fleet.spokes[a.Name].linked() {
			p.keepers = append(p.keepers, h)
		}
	} else {
		cfg.SaveHistory, cfg.Fence = p.remember, p.fence
	}
	p.fleet.spokes[a.Name].apply(&cfg, p.site.side)
	if began, cascades, _ := p.fleet.spokes[a.Name].departure.now(); p.site.side == stream.Hub && !began.IsZero() {
		cfg.Rules.Terminating = cascades
		p.fleet.wait.Go(func() { p.departs(p.fleet.spokes[a.Name], cfg) })
	}
	m, err := mirror.New(cfg)
	if err != nil {
		panic(err) // all it needs is there
	}
	return m
}

// owner is a mirror.Owner for the agents that share a namespace.
func (s *site) owner(at mapping.Placement) identity.AgentName {
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
	for name, m := range p.mirrors {
		g.Go(func() error {
			if !p.links(name) {
				<-p.ctx.Done()
				return nil
			}
			return m.Run(p.ctx)
		})
	}
	_ = g.Wait() // a Mirror that dies early would be seen as one that does not agree
	p.die()
	p.site.mu.Lock()
	p.site.alive = slices.DeleteFunc(p.site.alive, func(other *process) bool { return other == p })
	p.site.mu.Unlock()
	close(p.over)
}

// links reports whether the process has a link with an agent.
func (p *process) links(agent string) bool {
	return p.site.side == stream.Spoke || p.fleet.spokes[agent].linked()
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

// Confirm is memory.Store.Confirm by calls that take their time, and fail.
func (c client) Confirm(ctx context.Context, deletions []backends.Deletion) ([]bool, error) {
	confirmed := make([]bool, len(deletions))
	for i, d := range deletions {
		switch _, err := c.Read(ctx, d.Last.Key); {
		case errors.Is(err, stream.ErrNotFound):
			confirmed[i] = c.Revision() >= d.Revision && !c.process.site.wentWithPlace(d)
		case err != nil:
			return nil, err
		}
	}
	return confirmed, nil
}

// Create implements backends.Store.
func (c client) Create(ctx context.Context, key stream.ResourceKey, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	return c.call(ctx, memory.OpCreate, key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return s.Create(ctx, key, raw, opts...)
	})
}

// Update implements backends.Store.
func (c client) Update(ctx context.Context, old backends.Object, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	return c.call(ctx, memory.OpUpdate, old.Key, func(ctx context.Context, s *memory.Store) (backends.Object, error) {
		return s.Update(ctx, old, raw, opts...)
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
	w, actor := p.fleet, fmt.Sprintf("%s call %s %s", p.actor, op, key)
	defer p.await() // anyone who is frozen does not take a reply
	ctx = p.delayed(ctx, actor)
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
					_, _ = do(w.ctx, p.ghost) // there is no one to tell
				}
			})
		}
		return backends.Object{}, fmt.Errorf("%w: the process is dead", stream.ErrUnavailable)
	}
	if p.gate.closed() && w.chance.n(actor+" unsent", 2) == 0 {
		if ctx = p.delayed(ctx, actor); ctx.Err() != nil {
			return backends.Object{}, fmt.Errorf("%w: %w", stream.ErrUnavailable, ctx.Err())
		}
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
	if err := p.refusal(op, key); err != nil {
		return backends.Object{}, err
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
