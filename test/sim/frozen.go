package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
)

// gate holds up what a frozen process does: its calls, its frames, and what its caches
// learn. Its timers go on, as if all of them fired when it thaws. The zero value is open.
type gate struct {
	mu   sync.Mutex    // guards shut
	shut chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

// close lets nothing pass until open is called, which closes what it returns.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
	return g.shut
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// wait returns when the gate is open, or done.
func (g *gate) wait(done <-chan struct{}) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	select {
	case <-shut:
	case <-done:
	}
}

// Of a Lease: how long it holds, and how long a process that was frozen meanwhile takes
// at most to notice that it is another's.
const (
	holdTime   = 15 * time.Second
	noticeTime = 2 * time.Second
)

// freeze stops a process for so long. Its role goes to another when its Lease has expired.
func (w *Fleet) freeze(p *process, life time.Duration) {
	if p == nil {
		return
	}
	thawed := p.gate.close()
	w.journal.add(Entry{Place: p.site.place, Note: Late})
	until := func(d time.Duration) (over bool) {
		select {
		case <-time.After(d):
			return true
		case <-thawed:
		case <-p.ctx.Done():
		}
		return false
	}
	w.wait.Go(func() {
		defer p.gate.open()
		if !until(min(life, holdTime)) || life <= holdTime {
			return
		}
		p.relieve()
		until(life - holdTime)
		p.gate.open()
		if pause(p.ctx, w.chance.upTo(p.actor+" notice", noticeTime)) {
			p.die()
		}
	})
}

// await blocks while the process is frozen.
func (p *process) await() { p.gate.wait(p.ctx.Done()) }

// delayed is where a call begins that a process has decided on. Of one that is frozen the
// call is sent when it thaws, though its time may be over by then.
func (p *process) delayed(ctx context.Context, actor string) context.Context {
	if !p.gate.closed() || ctx.Err() != nil {
		return ctx
	}
	p.await()
	if ctx.Err() != nil && p.fleet.chance.n(actor+" sent", 2) == 0 {
		return p.ctx
	}
	return ctx
}

// gated is a connection of a process.
type gated struct {
	session.Conn
	process *process
}

// Send implements session.Conn.
func (g gated) Send(m stream.Message) error {
	g.process.await()
	return g.Conn.Send(m)
}

// Recv implements session.Conn. The end of a connection is not noticed by a process that is
// frozen, either.
func (g gated) Recv() (stream.Message, error) {
	m, err := g.Conn.Recv()
	g.process.await()
	return m, err
}

// fence is mirror.Config.Fence: a read of the Lease by quorum. Who had the role last holds it.
func (p *process) fence(ctx context.Context) error {
	p.await()
	defer p.await()
	w, s := p.fleet, p.site
	if !pause(ctx, w.chance.upTo(p.actor+" lease", max(time.Duration(s.slow.Load()), callTime))) {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives != p.life {
		return errors.New("another process has the role")
	}
	return nil
}

// deploys reports whether Argo CD would act on an Application by itself.
func (o *object) deploys() bool {
	return o != nil && !o.skipped() && !o.deleting() && o.child("spec", "syncPolicy")["automated"] != nil
}

// comesBack reports whether a write brings back what went with its workloads. Where a
// process may be late, that is once Argo CD could deploy it: an Application can be there
// for a moment.
func (c *checker) comesBack(before, after *object) bool {
	return before == nil && !c.late || after.deploys() && !before.deploys()
}
