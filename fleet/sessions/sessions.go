// Package sessions knows which agents are connected to this process, and what their links
// say of them.
package sessions

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/cascades"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
	"github.com/argomesh/argomesh/stream/server"
)

// Sessions is controller.Sessions over the connections of this process.
type Sessions struct {
	replica string
	// Cascades counts the Applications that are asked to go with their workloads. It tells
	// of changes with its own lock held, so it is asked without mu.
	Cascades *cascades.Counter

	mu      sync.Mutex // guards what follows
	agents  map[identity.AgentName]*agentSession
	caches  map[identity.AgentName]string // how a spoke's cache differs, where that is known
	changed notify.Broadcast
	// subscribers are told which agent's controller.Session changed.
	subscribers map[*subscriber]struct{}
}

type subscriber struct{ changed func(identity.AgentName) }

type agentSession struct {
	open int // connections; two while one takes over from the other
	// process is the agent's, as its newest connection says.
	process string
	info    controller.Session
	// spoke is what the agent last told of its Argo CD, by our clock; nil before it
	// told.
	spoke *stream.SpokeInfo
	// forgotten says that the agent is no longer registered.
	forgotten bool
	parked    parkedSince
}

// New returns those of a process that no agent is connected to yet. replica names it.
func New(replica string) *Sessions {
	s := &Sessions{
		replica: replica, agents: map[identity.AgentName]*agentSession{}, caches: map[identity.AgentName]string{},
		subscribers: map[*subscriber]struct{}{},
	}
	s.Cascades = cascades.New(s.counted)
	return s
}

// Open records a connection and returns what records its end.
func (s *Sessions) Open(session server.Session) (closed func()) {
	name := session.Agent.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		a = &agentSession{}
		s.agents[name] = a
	}
	now := time.Now()
	a.forgotten = false
	a.open++
	if a.open == 1 {
		a.info.Connected, a.info.Since = true, now
	}
	a.process = session.Hello.Process
	a.info.Refused = nil
	a.info.Replica = s.replica
	a.info.AgentVersion, a.info.KubernetesVersion = session.Hello.Version, session.Hello.Kubernetes
	a.info.SPIFFEID, a.info.SVIDExpiry = session.Peer.ID, session.Peer.NotAfter
	a.info.ClusterUID = session.Hello.ClusterUID
	a.info.History, a.info.HeldUnknown = fleet.SessionHistory{}, true
	a.info.BudgetKnown = false
	s.touch(name)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.open--
		if a.open == 0 {
			now := time.Now()
			a.info.Connected, a.info.Since, a.info.ObservedAt, a.info.Replica = false, now, now, ""
			a.info.History, a.info.HeldUnknown = fleet.SessionHistory{}, true
			a.info.BudgetKnown = false
			if a.forgotten && s.agents[name] == a {
				delete(s.agents, name)
			}
		}
		s.touch(name)
	}
}

// strangerPause is for how long a refusal stands before one of a SPIFFE ID that no Agent has takes its
// place: there may be many of them, and each is a write of the status.
const strangerPause = time.Minute

// Refuse records that a connection was refused to the agent of the Agent with that uid. One
// that is connected all the same has another process that is not as it should be, of which
// its log tells.
func (s *Sessions) Refuse(uid types.UID, r server.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[r.Agent]
	if a == nil {
		a = &agentSession{}
		s.agents[r.Agent] = a
	}
	a.forgotten = false
	now := controller.Refused{UID: uid, ID: r.Peer.ID, What: string(r.Reason), Message: r.Message, Since: time.Now()}
	if before := a.info.Refused; before != nil {
		same := now
		same.Since = before.Since
		if same == *before || r.Reason == server.RefusedID && now.Since.Sub(before.Since) < strangerPause {
			return
		}
	}
	if a.open > 0 {
		return
	}
	a.info.Refused = &now
	s.touch(r.Agent)
}

// Renewed records that the agent of a connection has proven itself again.
func (s *Sessions) Renewed(session server.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := session.Agent.Name
	if a := s.agents[name]; a != nil && session.Peer.NotAfter.After(a.info.SVIDExpiry) {
		a.info.SVIDExpiry = session.Peer.NotAfter
		s.touch(name)
	}
}

// Connected reports whether an agent has a connection to this process.
func (s *Sessions) Connected(name identity.AgentName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	return a != nil && a.open > 0
}

// Connections returns the agents that are connected, each with a text that is another one once
// it was away, or its process is another one: a proof that is renewed is no other connection.
func (s *Sessions) Connections() map[identity.AgentName]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[identity.AgentName]string, len(s.agents))
	for name, a := range s.agents {
		if a.open > 0 {
			out[name] = a.connection()
		}
	}
	return out
}

// Connection is what connections says of one agent; false while it is away.
func (s *Sessions) Connection(name identity.AgentName) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil || a.open == 0 {
		return "", false
	}
	return a.connection(), true
}

// connection is called with mu of the sessions locked.
func (a *agentSession) connection() string {
	return strconv.FormatInt(a.info.Since.UnixNano(), 10) + " " + a.process
}

// Count records what the link of a connected agent holds, and what is left of its budget.
// Local is Rules.Local.
func (s *Sessions) Count(name identity.AgentName, local func(stream.EntryKey) (stream.ResourceKey, bool),
	stats mirror.Stats, elsewhere controller.ChildrenElsewhere, left *v1alpha1.AgentBudget) {
	s.mu.Lock()
	a := s.agents[name]
	s.mu.Unlock()
	if a == nil {
		return
	}
	// Others need not wait for a long list.
	objects, parked := a.parked.objects(local, stats.Parked, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	before := a.info
	if stats.HistoryChecked {
		a.info.History = fleet.SessionHistory{
			Broken: stats.Withheld.Broken, Stored: stats.Stored, Begin: stats.Begin, Replaces: stats.Replaces,
			Begins: stats.Begins,
		}
		a.info.Held, a.info.HeldUnknown = heldOf(local, stats.Withheld), false
	}
	a.info.AcceptUsed = stats.AcceptUsed
	a.info.Counts = v1alpha1.AgentCounts{
		Applications: int64(stats.Applications), AppProjects: int64(stats.AppProjects), Parked: int64(len(stats.Parked)),
		Shortened: int64(len(stats.Dropped)), Delayed: int64(stats.Delayed),
	}
	a.info.BudgetKnown, a.info.OverBudget, a.info.Budget = true, overBudget(stats), left
	a.info.Shortened = shortened(local, stats.Dropped)
	a.info.Elsewhere, a.info.Parked = elsewhere, objects
	if parked || !before.BudgetKnown || !reflect.DeepEqual(a.info.OverBudget, before.OverBudget) ||
		a.info.Counts != before.Counts || a.info.History != before.History || a.info.AcceptUsed != before.AcceptUsed ||
		a.info.Elsewhere != before.Elsewhere || a.info.HeldUnknown != before.HeldUnknown ||
		idOfHeld(a.info.Held) != idOfHeld(before.Held) || !reflect.DeepEqual(a.info.Shortened, before.Shortened) {
		s.touch(name)
	}
}

// shortened are the objects of which an API server dropped something, in the order of
// their entries.
func shortened(local func(stream.EntryKey) (stream.ResourceKey, bool),
	dropped map[stream.EntryKey][]string) []v1alpha1.ShortenedObject {
	var out []v1alpha1.ShortenedObject
	for _, entry := range slices.SortedFunc(maps.Keys(dropped),
		func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) }) {
		out = append(out, v1alpha1.ShortenedObject{
			Kind: string(entry.Collection.Kind()), Namespace: namespaceOf(local, entry), Name: entry.Name, Paths: dropped[entry],
		})
	}
	return out
}

func idOfHeld(h *v1alpha1.DeletionsHeld) string {
	if h == nil {
		return ""
	}
	return h.ID
}

// namespaceOf is where the object of an entry is on the hub; empty when it can be
// nowhere.
func namespaceOf(local func(stream.EntryKey) (stream.ResourceKey, bool), entry stream.EntryKey) string {
	key, _ := local(entry)
	return key.Namespace
}

// heldOf is what is held back of an agent, as its status shows it.
func heldOf(local func(stream.EntryKey) (stream.ResourceKey, bool), w link.Withheld) *v1alpha1.DeletionsHeld {
	if w.Total == 0 {
		return nil
	}
	held := &v1alpha1.DeletionsHeld{ID: w.ID, Reason: v1alpha1.HoldTooMany, Total: int64(w.Total),
		WithWorkloads: int64(len(w.Ending))}
	switch {
	case w.Broken != "":
		held.Reason, held.Message = v1alpha1.HoldHistoryBroken, w.Broken
	case w.Cascades != "":
		held.Reason, held.Message = v1alpha1.HoldCascade, w.Cascades
	}
	ending := make(map[stream.EntryKey]struct{}, len(w.Ending))
	for _, entry := range w.Ending {
		ending[entry] = struct{}{}
	}
	held.Objects = slices.Grow(held.Objects, len(w.Keys))
	for _, entry := range w.Keys {
		_, withWorkloads := ending[entry]
		held.Objects = append(held.Objects, v1alpha1.HeldObject{
			Kind: string(entry.Collection.Kind()), Namespace: namespaceOf(local, entry), Name: entry.Name,
			WithWorkloads: withWorkloads,
		})
	}
	return held
}

// SetSpokeInfo records what an agent reports of its Argo CD.
func (s *Sessions) SetSpokeInfo(name identity.AgentName, reported stream.SpokeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		return
	}
	info := byOurClock(reported, time.Now())
	if a.spoke != nil {
		if d := info.CacheSynced.Sub(a.spoke.CacheSynced); d.Abs() < clockTolerance {
			info.CacheSynced = a.spoke.CacheSynced // the message was faster, or slower, than the one before
		}
		if *a.spoke == info {
			return
		}
	}
	a.spoke = &info
	s.notify() // an Agent's status has none of it
}

// counted tells that what cascades says of an agent has changed.
func (s *Sessions) counted(name identity.AgentName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(name)
}

// Found records how the cache of an agent's Argo CD differs from what the hub's asks
// for; empty when it does not.
func (s *Sessions) Found(name identity.AgentName, mismatch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.caches[name]; known && before == mismatch {
		return
	}
	s.caches[name] = mismatch
	s.touch(name)
}

// clockTolerance is how much of a difference of two clocks may be the time that a
// message takes.
const clockTolerance = 3 * time.Second

// byOurClock returns what was told now with our clock's times: the age of the
// cache is what the spoke's clock knows.
func byOurClock(reported stream.SpokeInfo, now time.Time) stream.SpokeInfo {
	info := reported
	info.SentAt = time.Time{}
	if !reported.SentAt.IsZero() && !reported.CacheSynced.IsZero() && now.Sub(reported.SentAt).Abs() >= clockTolerance {
		info.CacheSynced = now.Add(-max(reported.SentAt.Sub(reported.CacheSynced), 0)).Truncate(time.Second)
	}
	return info
}

// Forget drops what is known of an agent that is no longer registered.
func (s *Sessions) Forget(name identity.AgentName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.caches, name)
	a := s.agents[name]
	if a == nil {
		return
	}
	if a.forgotten = true; a.open == 0 {
		delete(s.agents, name)
		s.touch(name)
	}
}

// Session implements controller.Sessions.
func (s *Sessions) Session(name identity.AgentName) controller.Session {
	state, counted := s.Cascades.State(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	var info controller.Session
	a := s.agents[name]
	if a != nil {
		info = a.info
	}
	if info.CascadesKnown = counted; counted {
		info.Cascades = cascadesOf(state)
	}
	if a == nil {
		return info
	}
	if info.Connected {
		info.ObservedAt = time.Now()
	}
	info.CacheMismatch, info.CacheKnown = s.caches[name]
	return info
}

// Subscribe implements controller.Sessions.
func (s *Sessions) Subscribe(changed func(identity.AgentName)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &subscriber{changed}
	s.subscribers[one] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, one)
	}
}

// Changed returns a channel that is closed when what is known of some agent changes
// next.
func (s *Sessions) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed.Next()
}

// notify tells that something changed. It is called with mu locked.
func (s *Sessions) notify() {
	s.changed.Notify()
}

// touch tells of a change of an agent's controller.Session. It is called with mu
// locked.
func (s *Sessions) touch(name identity.AgentName) {
	s.notify()
	for one := range s.subscribers {
		one.changed(name)
	}
}

// reasonOf is a refusal in the form of a condition's reason.
func reasonOf(k stream.RefusalKind) string {
	switch k {
	case stream.RefusalInvalid:
		return "Invalid"
	case stream.RefusalNotOwned:
		return "NotOwned"
	case stream.RefusalUnavailable:
		return "Unavailable"
	case stream.RefusalHeld:
		return "Held"
	case stream.RefusalOutdated:
		return "Outdated"
	case stream.RefusalUnsupported:
		return "Unsupported"
	case stream.RefusalDenied:
		return "Denied"
	case stream.RefusalContested:
		return "Contested"
	case stream.RefusalKept:
		return "Kept"
	case stream.RefusalOverLimit:
		return "OverLimit"
	case stream.RefusalNotCascaded:
		return "NotCascaded"
	}
	return "Unknown"
}
