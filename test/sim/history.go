package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/continuity"
	"github.com/argomesh/argomesh/stream"
)

// What a principal and an agent keep of the history that they have in common
// (docs/design/deletes-and-history.md) are objects of these kinds, so that a restore takes them
// back too.
const (
	agentKind  stream.Kind = "Agent"
	memoryKind             = stream.ConfigMap
)

// hubUID is the hub's identity, which a restore does not change.
const hubUID = "hub-uid"

// tokenTime is how often a principal hands out a token: much more often than the
// real one's minute, since histories are short.
const tokenTime = 3 * time.Second

func (a Agent) agentKey() stream.ResourceKey {
	return stream.ResourceKey{Kind: agentKind, Namespace: argocdNamespace, Name: a.Name}
}

const memoryName = "argomesh-memory"

func (a Agent) memoryKey() stream.ResourceKey {
	return stream.ResourceKey{Kind: memoryKind, Namespace: a.home(), Name: memoryName}
}

// memoryKey is that of an agent's process.
func (p *process) memoryKey() stream.ResourceKey { return p.site.agents[0].memoryKey() }

// agentOf reads what is of the API of an Agent.
func agentOf(o backends.Object) v1alpha1.Agent {
	var agent v1alpha1.Agent
	if err := json.Unmarshal(o.Raw, &agent); err != nil {
		panic("sim: " + err.Error()) // a store holds JSON
	}
	return agent
}

// keptOf reads what an Agent keeps, and the id of the deletions that a person
// accepted.
func keptOf(o backends.Object) (kept *v1alpha1.AgentHistory, accepted string) {
	var agent struct {
		Status struct {
			History  *v1alpha1.AgentHistory `json:"history"`
			Accepted string                 `json:"accepted"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &agent); err != nil {
		panic("sim: " + err.Error()) // a store holds JSON
	}
	return agent.Status.History, agent.Status.Accepted
}

// record is an object of ours, as text.
func recordOf(key stream.ResourceKey, status any) []byte {
	return application{map[string]any{
		"apiVersion": "v1", "kind": string(key.Kind),
		"metadata": map[string]any{"name": key.Name, "namespace": key.Namespace}, "status": status,
	}}.raw()
}

// past is a principal's view of the history of one agent.
type past struct {
	process *process
	agent   Agent
}

func (h *past) store() client { return client{Store: h.process.client, process: h.process} }

// judge is what the real principal judges by, over a store.
func (h *past) judge() *continuity.Verifier {
	return continuity.New(continuity.Config{
		Read: h.read, Hub: func() string { return hubUID }, Replica: h.process.name, Life: h.process.name,
		CaughtUp: func(ctx context.Context) (bool, error) {
			stale, err := h.stale(ctx)
			return !stale, err
		},
	})
}

// read is continuity.Config.Read.
func (h *past) read(ctx context.Context) (continuity.Record, error) {
	o, err := h.store().Read(ctx, h.agent.agentKey())
	if errors.Is(err, stream.ErrNotFound) { // keep was not there yet
		o, err = h.store().Create(ctx, h.agent.agentKey(), recordOf(h.agent.agentKey(), nil))
	}
	if err != nil {
		return continuity.Record{}, err
	}
	return continuity.Record{
		Agent: agentOf(o), Revision: h.process.client.Revision(),
		Claim: func(ctx context.Context, link v1alpha1.AgentLink) error {
			agent := parse(o.Raw)
			agent.ensure("status")["link"] = link
			_, err := h.store().Update(ctx, o, agent.raw())
			return err
		},
	}, nil
}

// stale reports whether the cache shows what the hub does not have.
func (h *past) stale(ctx context.Context) (bool, error) {
	cached := h.process.client.List(stream.Application, h.agent.key(stream.Hub, "").Namespace)
	for _, kind := range []stream.Kind{stream.AppProject, stream.Secret, stream.ConfigMap} {
		cached = append(cached, h.process.client.List(kind, argocdNamespace)...)
	}
	for _, o := range cached {
		now, err := h.store().Read(ctx, o.Key)
		switch {
		case errors.Is(err, stream.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case now.UID != o.UID:
			return true, nil
		}
	}
	return false, nil
}

// keep hands out tokens, begins histories and writes that the agent is connected, for as
// long as the process lives.
func (h *past) keep() {
	p := h.process
	m := p.mirrors[h.agent.Name]
	var fulfilled fleet.Wish // the wish for a new history that was fulfilled last
	for pause(p.ctx, tokenTime) {
		p.await()
		o, err := h.store().Read(p.ctx, h.agent.agentKey())
		if errors.Is(err, stream.ErrNotFound) {
			_, _ = h.store().Create(p.ctx, h.agent.agentKey(), recordOf(h.agent.agentKey(), nil)) // or in the next pass
			continue
		}
		stats, statsErr := m.Stats(p.ctx)
		if err != nil || statsErr != nil {
			continue
		}
		if !stats.HistoryChecked {
			continue
		}
		said := fleet.SessionHistory{
			Broken: stats.Withheld.Broken, Stored: stats.Stored, Begin: stats.Begin, Begins: stats.Begins, Replaces: stats.Replaces,
		}
		wish := said.Wish(p.peerOf(h.agent.Name))
		said.Begin = said.Begin && wish != fulfilled
		now := p.now()
		observed := observes(linkOf(o).ObservedAt, now)
		before, _ := keptOf(o)
		kept := fleet.NextHistory(before, said, p.clusterOf(h.agent.Name), observed)
		if kept == before && !observed {
			continue
		}
		app := parse(o.Raw)
		app.ensure("status")["history"] = kept
		if observed {
			app.ensure("status")["observedAt"] = now.UTC()
		}
		if _, err = h.store().Update(p.ctx, o, app.raw()); err == nil && fleet.HistoryID(kept) != fleet.HistoryID(before) { // or in the next pass
			fulfilled = wish
		}
	}
}

// met notes what the handshake of a connection told.
type met struct{ connection, cluster string }

func (p *process) meet(agent, connection, cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met[agent] = met{connection, cluster}
}

func (p *process) peerOf(agent string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met[agent].connection
}

func (p *process) clusterOf(agent string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met[agent].cluster
}

// remembered is what a spoke keeps.
type remembered struct {
	Hub     string         `json:"hub"`
	History stream.History `json:"history"`
}

// remember is mirror.Config.SaveHistory.
func (p *process) remember(ctx context.Context, hub string, h stream.History) error {
	store := client{Store: p.client, process: p}
	for {
		o, err := store.Read(ctx, p.memoryKey())
		kept := remembered{}
		if err == nil {
			kept = memoryOf(o)
		}
		next := remembered{hub, h}
		switch raw := recordOf(p.memoryKey(), next); {
		case err == nil && kept.Hub == hub && kept.History.Token == h.Token:
			p.keeps(kept)
			return nil // of an earlier connection, or the reply to the write was lost
		case (err == nil || errors.Is(err, stream.ErrNotFound)) && p.forgot(kept):
			return mirror.ErrForgotten
		case errors.Is(err, stream.ErrNotFound):
			_, err = store.Create(ctx, p.memoryKey(), raw)
		case err == nil:
			app := parse(o.Raw)
			if kept.Hub == hub && kept.History.ID == h.ID && kept.History.Revision > h.Revision {
				return errors.New("what is kept is newer")
			}
			app.fields["status"] = next
			_, err = store.Update(ctx, o, app.raw())
		}
		if err == nil {
			p.keeps(next)
			return nil
		}
		if !pause(ctx, time.Second) {
			return fmt.Errorf("remember: %w", ctx.Err())
		}
	}
}

// hello is what an agent says of itself: what its spoke keeps, by a quorum read.
func (p *process) hello(cluster string) stream.Hello {
	hello := stream.Hello{ClusterUID: cluster}
	kept := remembered{}
	// No fault here: an agent that cannot read does not connect.
	if o, err := p.client.Read(p.ctx, p.memoryKey()); err == nil {
		kept = memoryOf(o)
	}
	if p.forgot(kept) {
		p.forgotten()
	}
	p.keeps(kept)
	hello.HubUID, hello.History = kept.Hub, kept.History
	return hello
}

// forgotten ends the connections on which a spoke showed what it does not keep.
func (p *process) forgotten() { p.cut() }

// keeps notes what the spoke keeps, as the agent has seen it last.
func (p *process) keeps(kept remembered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = &kept
}

// forgot reports whether the spoke does not keep what it did.
func (p *process) forgot(kept remembered) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept != nil && *p.kept != kept
}

func memoryOf(o backends.Object) remembered {
	var kept struct {
		Status remembered `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &kept); err != nil {
		panic("sim: " + err.Error()) // a store holds JSON
	}
	return kept.Status
}

// tokenOf is the newest token that a spoke keeps; empty for none.
func (w *Fleet) tokenOf(s *spoke) string {
	s.site.mu.Lock()
	store := s.site.people
	s.site.mu.Unlock()
	o, err := store.Read(w.ctx, s.memoryKey())
	if err != nil {
		return ""
	}
	return memoryOf(o).History.Token
}

// met reports whether the hub has a history with the spoke's cluster.
func (w *Fleet) met(s *spoke) bool {
	o, err := w.hub.people.Read(w.ctx, s.agentKey())
	if err != nil {
		return false
	}
	s.site.mu.Lock()
	defer s.site.mu.Unlock()
	kept, _ := keptOf(o)
	return kept != nil && kept.ClusterUID == s.site.clusterUID()
}

// clusterUID is that of the site's cluster; called with mu locked.
func (s *cluster) clusterUID() string { return fmt.Sprintf("%s-cluster-%d", s.place, s.generation) }

// backup is one of a spoke's etcd.
type backup struct {
	generation int  // of the cluster
	older      bool // its Argo CD was
	memory.Snapshot
}

func (w *Fleet) backUp(s *spoke) {
	s = w.spokes[s.place()]
	s.site.mu.Lock()
	defer s.site.mu.Unlock()
	s.backup = &backup{s.site.generation, s.site.older, s.site.server.Snapshot()}
}

// restore makes a spoke what it was, while its agents live. As with the hub it does
// nothing when that could not be seen: the spoke keeps a token of the hub's present
// history, and the backup has none of those that the hub still keeps.
func (w *Fleet) restore(s *spoke, c Command) {
	s = w.spokes[s.place()]
	s.site.mu.Lock()
	server, generation := s.site.server, s.site.generation
	s.site.mu.Unlock()
	if s.backup == nil || s.backup.generation != generation {
		return
	}
	for _, one := range w.beside(s) {
		if !w.seenOf(one, s.backup) {
			return
		}
	}
	w.journal.add(Entry{Place: s.Name, Note: Restored})
	w.bringBack(s.site, s.backup.older || c.Older)
	server.Restore(s.backup.Snapshot, uint64(c.Count))
	s.controller.relist()
}

// seenOf reports whether an agent sees that its spoke is restored.
func (w *Fleet) seenOf(one *spoke, from *backup) bool {
	token := w.tokenOf(one)
	o, err := w.hub.people.Read(w.ctx, one.agentKey())
	if err != nil || token == "" {
		return false
	}
	now, _ := keptOf(o)
	then := ""
	if o, ok := from.Get(one.memoryKey()); ok {
		then = memoryOf(o).History.Token
	}
	return now != nil && slices.Contains(now.Tokens, token) && !slices.Contains(now.Tokens, then) && len(now.Tokens) >= 2
}

// seen reports whether a restore of the backup can be seen: every spoke keeps a
// token of the hub's present history that the backup does not have. What is younger
// than a token is not seen, as docs/design/README.md says, and neither is what comes before the
// first token of a history that has just begun.
func (w *Fleet) seen() bool {
	for _, s := range w.spokes {
		token := w.tokenOf(s)
		o, err := w.hub.people.Read(w.ctx, s.agentKey())
		if err != nil {
			return false
		}
		if now, _ := keptOf(o); now == nil || !slices.Contains(now.Tokens, token) {
			return false
		}
		var kept *v1alpha1.AgentHistory
		if o, ok := w.backup.Get(s.agentKey()); ok {
			kept, _ = keptOf(o)
		}
		if token == "" || kept != nil && slices.Contains(kept.Tokens, token) {
			return false
		}
	}
	return true
}

// accept is a person who looks at what is held and lets it happen.
func (w *Fleet) accept(s *spoke) {
	p := w.hub.process()
	if p == nil || !s.linked() {
		return
	}
	stats, err := p.mirrors[s.Name].Stats(w.ctx)
	if err != nil || stats.Withheld.ID == "" {
		return
	}
	o, err := w.hub.people.Read(w.ctx, s.agentKey())
	if err != nil {
		return
	}
	app := parse(o.Raw)
	app.ensure("status")["accepted"] = stats.Withheld.ID
	w.journal.add(Entry{Place: s.Name, Note: Accepted}) // before it can have an effect
	_, err = w.hub.people.Update(w.ctx, o, app.raw())
	w.live(Command{Verb: Accept, Place: s.Name}, err)
}
