package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// Fleet is a hub and the spokes of several agents, their people, and stand-ins
// for Argo CD's controllers. It lives in a synctest bubble.
type Fleet struct {
	trace   Trace
	chance  *chance
	journal *journal
	ctx     context.Context //nolint:containedctx // the bubble's life
	end     context.CancelFunc
	wait    sync.WaitGroup
	hub     *site
	spokes  map[string]*spoke
	resting atomic.Bool // no reconciliation begins any more

	// What follows is for the goroutine that carries out commands.
	backup      memory.Snapshot
	backed      bool
	older       bool // the hub's Argo CD was older then
	generations int
}

// spoke is an agent's side, and its connections.
type spoke struct {
	Agent
	site       *site
	controller *controller  // nil where another agent's is that of the cluster
	backup     *backup      // nil while there is none
	count      atomic.Int64 // of connections
	settings   switches
	departure  departure
}

// settleTime is how long after the last fault both sides may take to agree: 60
// seconds (I8), after a back-off of at most 15.
const settleTime = 75 * time.Second

// Run carries out a history in a synctest bubble and returns what happened.
func Run(ctx context.Context, trace Trace) Log {
	w := newFleet(ctx, trace)
	for _, c := range trace.Commands {
		w.pause(1) // all that was to happen until now has happened
		w.chance.begin(c.Seed)
		w.do(c)
		w.pause(c.Wait)
	}
	w.settle()
	log := w.journal.take()
	w.end()
	w.wait.Wait()
	return log
}

func newFleet(ctx context.Context, trace Trace) *Fleet {
	w := &Fleet{
		trace: trace, chance: &chance{}, spokes: map[string]*spoke{},
		journal: &journal{began: time.Now(), log: Log{Agents: trace.Agents}},
	}
	w.chance.begin(trace.Seed)
	w.ctx, w.end = context.WithCancel(ctx)
	w.hub = &site{cluster: &cluster{place: hubPlace}, name: hubPlace, side: stream.Hub, agents: trace.Agents}
	clusters := map[string]*cluster{}
	for _, a := range trace.Agents {
		at := clusters[a.place()]
		if at == nil {
			at = &cluster{place: a.place()}
			clusters[a.place()] = at
		}
		w.spokes[a.Name] = &spoke{
			Agent: a, site: &site{cluster: at, name: a.Name, side: stream.Spoke, agents: []Agent{a}},
			settings: switches{on: map[setting]bool{}},
		}
	}
	w.open(w.hub.cluster, 0)
	openProject(w.ctx, w.hub.people, defaultKey())
	principal := w.start(w.hub) // one after the other, so that a history repeats
	w.wait.Go(func() { w.supervise(w.hub, principal) })
	for _, a := range trace.Agents {
		s := w.spokes[a.Name]
		s.site.clock.Store(int64(trace.Clock))
		if s.site.server == nil {
			s.site.apiClock.Store(int64(trace.Clock))
			w.open(s.site.cluster, 0)
			w.installed(s)
		}
		if a.Beside == "" {
			s.controller = newController(w, s.site)
		}
		agent := w.start(s.site)
		w.wait.Go(func() { w.supervise(s.site, agent) })
		if s.controller != nil {
			w.wait.Go(s.controller.run)
		}
	}
	return w
}

// settle ends all faults, lets both sides agree and notes what they know.
func (w *Fleet) settle() {
	w.chance.begin(w.trace.Seed)
	w.resting.Store(true)
	for _, s := range w.sites() {
		s.failing.Store(false)
		s.slow.Store(0)
		w.refuse(s, false)
		s.undoomAll()
		if p := s.process(); p != nil {
			p.dieAt.Store(0) // it was to die at a call that did not come
		}
		s.unite()
	}
	// What was refused waits for minutes, or for a new connection.
	for _, s := range w.sites() {
		if s.refused.Load() && s.side == stream.Hub {
			for _, spoke := range w.spokes {
				spoke.cut()
			}
		} else if s.refused.Load() {
			w.spokes[s.name].cut()
		}
	}
	w.pause(settleTime)
	for _, a := range w.trace.Agents {
		for _, s := range []*site{w.hub, w.spokes[a.Name].site} {
			knows := Entry{Place: a.Name, Note: Knows, Side: s.side, Suspended: w.spokes[a.Name].settings.is(setSuspended, stream.Hub)}
			if p := s.process(); p != nil && w.spokes[a.Name].linked() {
				if stats, err := p.mirrors[a.Name].Stats(w.ctx); err == nil {
					knows.Agreed, knows.Held, knows.Refused, knows.Dropped = stats.Agreed, stats.Withheld.Total, stats.Parked, stats.Dropped
					for key, refusal := range stats.Parked {
						knows.Contested = knows.Contested || refusal.Kind == stream.RefusalContested
						knows.Parked = append(knows.Parked, fmt.Sprint(key, ": ", refusal.Message))
					}
				}
			}
			w.journal.add(knows)
		}
	}
	w.journal.add(Entry{Place: hubPlace, Note: Settled})
	w.pause(restTime)
	w.journal.add(Entry{Place: hubPlace, Note: Rested})
}

func (w *Fleet) sites() []*site {
	sites := []*site{w.hub}
	for _, a := range w.trace.Agents {
		sites = append(sites, w.spokes[a.Name].site)
	}
	return sites
}

// pause lets virtual time pass; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *Fleet) pause(d time.Duration) { pause(w.ctx, d) }

// dial keeps an agent connected, as its client does.
func (w *Fleet) dial(p *process) {
	for p.ctx.Err() == nil {
		p.mu.Lock()
		live := len(p.live)
		p.mu.Unlock()
		if live == 0 && !p.suspended() && p.fleet.spokes[p.site.name].linked() {
			w.connect(p)
		}
		select {
		case <-p.idle:
		case <-p.ctx.Done():
		case <-time.After(time.Second): // a principal may not have been there
		}
		w.pause(w.chance.upTo(p.actor+" dial", 500*time.Millisecond))
	}
}

// connect opens a connection of an agent beside those there are. The two ends take it
// up at times of their own.
func (w *Fleet) connect(agent *process) {
	s := w.spokes[agent.site.name]
	hub := w.principal(s.Name)
	if hub == nil || agent.gate.closed() {
		return
	}
	id := fmt.Sprintf("%s.c%d", s.Name, s.count.Add(1))
	ctx, cut := context.WithCancel(w.ctx)
	agent.mu.Lock()
	agent.live[id] = cut
	agent.turn++
	turn := agent.turn
	agent.mu.Unlock()
	ends := []func() bool{context.AfterFunc(hub.ctx, cut), context.AfterFunc(agent.ctx, cut)}
	delay := func(from string) func() time.Duration {
		return func() time.Duration { return w.chance.upTo("frames "+id+" "+from, 60*time.Millisecond) }
	}
	down, up := Pipe(ctx, delay("hub"), delay("spoke"))
	s.site.mu.Lock()
	cluster := s.site.clusterUID()
	s.site.mu.Unlock()
	hello := agent.hello(cluster)
	hello.Process, hello.Turn = agent.name, turn
	hub.meet(s.Name, id, hello.ClusterUID)
	peer := mirror.Peer{Connection: id, HubUID: hubUID, Hello: hello, SeenDeletes: true, GivesUp: true}
	var both sync.WaitGroup
	serve := func(p *process, c *Carrier) {
		defer c.Close()
		if pause(ctx, w.chance.upTo("attach "+id+" "+p.site.place, 200*time.Millisecond)) {
			_ = p.mirrors[s.Name].Serve(p.ctx, peer, gated{c, p}) // it ends by a cut, a death, or a newer one
		}
		// What is under way has a moment to arrive.
		if !pause(ctx, w.chance.upTo("linger "+id+" "+p.site.place, 300*time.Millisecond)) {
			return
		}
		cut()
	}
	both.Go(func() { serve(hub, down) })
	both.Go(func() { serve(agent, up) })
	w.wait.Go(func() {
		both.Wait()
		cut()
		for _, stop := range ends {
			stop()
		}
		agent.mu.Lock()
		delete(agent.live, id)
		agent.mu.Unlock()
		select {
		case agent.idle <- struct{}{}:
		default:
		}
	})
}

// cut breaks all connections of an agent.
func (p *process) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cut := range p.live {
		cut()
	}
}

// cut breaks those of all its processes.
func (s *spoke) cut() {
	for _, p := range s.site.living() {
		p.cut()
	}
}
