package sim

import (
	"slices"
	"time"
)

// twin lets a process live on for so long beside its successor, to which its role goes:
// it does not notice that it lost its Lease.
func (w *Fleet) twin(p *process, life time.Duration) {
	if p == nil {
		return
	}
	w.journal.add(Entry{Place: p.site.place, Note: Late})
	p.relieve()
	w.wait.Go(func() {
		if pause(p.ctx, life) {
			p.die()
		}
	})
}

// relieve lets another process have the role.
func (p *process) relieve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.relieved:
	default:
		close(p.relieved)
	}
}

// living returns the processes of the site, those first that live on beside the one that
// has the role.
func (s *site) living() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.alive)
}

// principal returns one to which an agent's connection comes; nil when there is none.
func (w *Fleet) principal(agent string) *process {
	candidates := slices.DeleteFunc(w.hub.living(), func(p *process) bool { return p.gate.closed() })
	switch len(candidates) {
	case 0:
		return nil
	case 1:
		return candidates[0]
	}
	return candidates[w.chance.n(agent+" principal", len(candidates))]
}

// unite lets one process be left, which is not frozen.
func (s *site) unite() {
	for _, p := range s.living() {
		p.gate.open()
		if p != s.process() {
			p.die()
		}
	}
}
