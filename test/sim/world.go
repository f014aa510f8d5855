package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// World is a hub and the spokes of several agents, their people, and stand-ins
// for Argo CD's controllers. It lives in a synctest bubble.
type World struct {
	trace   Trace
	chance  *chance
	journal *journal
	ctx     context.Context //nolint:containedctx // the bubble's life
	end     context.CancelFunc
	wait    sync.WaitGroup
	hub     *site
	spokes  map[string]*spoke

	// What follows is for the goroutine that carries out commands.
	backup      memory.Snapshot
	backed      bool
	generations int
}

// spoke is an agent's side, and its connections.
type spoke struct {
	Agent
	site       *site
	controller *controller

	mu    sync.Mutex // guards what follows
	live  map[string]context.CancelFunc
	count int
	idle  chan struct{} // has a value when a connection ended
}

// settleTime is how long after the last fault both sides may take to agree: 60
// seconds (I8), after a back-off of at most 15.
const settleTime = 75 * time.Second

// Run carries out a history in a synctest bubble and returns what happened.
func Run(ctx context.Context, trace Trace) Log {
	w := newWorld(ctx, trace)
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

func newWorld(ctx context.Context, trace Trace) *World {
	w := &World{
		trace: trace, chance: &chance{}, spokes: map[string]*spoke{},
		journal: &journal{began: time.Now(), log: Log{Agents: trace.Agents}},
	}
	w.chance.begin(trace.Seed)
	w.ctx, w.end = context.WithCancel(ctx)
	w.hub = &site{place: hubPlace, side: stream.Hub, agents: trace.Agents}
	w.open(w.hub, 0)
	principal := w.start(w.hub)
	w.wait.Go(func() { w.supervise(w.hub, principal) })
	for _, a := range trace.Agents {
		s := &spoke{
			Agent: a, live: map[string]context.CancelFunc{}, idle: make(chan struct{}, 1),
			site: &site{place: a.Name, side: stream.Spoke, agents: []Agent{a}, clock: trace.Clock},
		}
		s.controller = newController(w, s.site)
		w.spokes[a.Name] = s
		w.open(s.site, 0)
		process := w.start(s.site)
		w.wait.Go(func() { w.supervise(s.site, process) })
		w.wait.Go(s.controller.run)
		w.wait.Go(func() { w.dial(s) })
	}
	return w
}

// settle ends all faults, lets both sides agree and notes what they know.
func (w *World) settle() {
	w.chance.begin(w.trace.Seed)
	for _, s := range w.sites() {
		s.failing.Store(false)
		s.slow.Store(0)
		if p := s.process(); p != nil {
			p.dieAt.Store(0) // it was to die at a call that did not come
		}
	}
	w.pause(settleTime)
	for _, a := range w.trace.Agents {
		for _, s := range []*site{w.hub, w.spokes[a.Name].site} {
			knows := Entry{Place: a.Name, Note: Knows, Side: s.side}
			if p := s.process(); p != nil {
				if stats, err := p.mirrors[a.Name].Stats(w.ctx); err == nil {
					knows.Agreed, knows.Held = stats.Agreed, stats.Withheld.Total
					for key, refusal := range stats.Parked {
						knows.Parked = append(knows.Parked, fmt.Sprint(key, ": ", refusal.Message))
					}
				}
			}
			w.journal.add(knows)
		}
	}
	w.journal.add(Entry{Place: hubPlace, Note: Settled})
}

func (w *World) sites() []*site {
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

func (w *World) pause(d time.Duration) { pause(w.ctx, d) }

// dial keeps a connection between the processes, as server and client do.
func (w *World) dial(s *spoke) {
	for w.ctx.Err() == nil {
		s.mu.Lock()
		live := len(s.live)
		s.mu.Unlock()
		if live == 0 {
			w.connect(s)
		}
		select {
		case <-s.idle:
		case <-w.ctx.Done():
		case <-time.After(time.Second): // a process may not have been there
		}
		w.pause(w.chance.upTo(s.Name+" dial", 500*time.Millisecond))
	}
}

// connect opens a connection beside those there are. The two ends take it up at
// times of their own.
func (w *World) connect(s *spoke) {
	hub, agent := w.hub.process(), s.site.process()
	if hub == nil || agent == nil {
		return
	}
	s.mu.Lock()
	s.count++
	id := fmt.Sprintf("%s.c%d", s.Name, s.count)
	ctx, cut := context.WithCancel(w.ctx)
	s.live[id] = cut
	s.mu.Unlock()
	ends := []func() bool{context.AfterFunc(hub.ctx, cut), context.AfterFunc(agent.ctx, cut)}
	delay := func(from string) func() time.Duration {
		return func() time.Duration { return w.chance.upTo("frames "+id+" "+from, 60*time.Millisecond) }
	}
	down, up := Pipe(ctx, delay("hub"), delay("spoke"))
	s.site.mu.Lock()
	cluster := s.site.clusterUID()
	s.site.mu.Unlock()
	hello := agent.hello(cluster)
	hub.meet(s.Name, id, hello.ClusterUID)
	peer := mirror.Peer{Connection: id, HubUID: hubUID, Hello: hello}
	var both sync.WaitGroup
	serve := func(p *process, c *Carrier) {
		defer c.Close()
		if pause(ctx, w.chance.upTo("attach "+id+" "+p.site.place, 200*time.Millisecond)) {
			_ = p.mirrors[s.Name].Serve(p.ctx, peer, c) // it ends by a cut, a death, or a newer one
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
		s.mu.Lock()
		delete(s.live, id)
		s.mu.Unlock()
		select {
		case s.idle <- struct{}{}:
		default:
		}
	})
}

// cut breaks all connections of an agent.
func (s *spoke) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.live {
		cut()
	}
}
