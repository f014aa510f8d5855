package main

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// agentWatch keeps the registry equal to the Agents of the hub. It is the store
// of a client-go reflector.
type agentWatch struct {
	client    dynamic.Interface
	namespace string
	registry  *fleet.Registry
	// note is told of an Agent that says something new to its own link alone, once the
	// registry has it. It does not block.
	note func(identity.AgentName)
	log  zerolog.Logger

	mu        sync.Mutex // guards what follows
	agents    map[string]v1alpha1.Agent
	away      bool // the last call failed
	published time.Time
	due       *time.Timer // publishes; nil when all is published
}

// publishPause is how far apart two publications are. Whoever follows the registry
// looks at all Agents, so that a thousand of them that are registered at once must not
// be a thousand changes. A revocation is late by so much at most.
const publishPause = 100 * time.Millisecond

// Run watches until ctx is done. A watch that ends is opened again within a
// second, so that a revocation is never minutes late.
func (w *agentWatch) Run(ctx context.Context) error {
	w.mu.Lock()
	w.agents = map[string]v1alpha1.Agent{}
	w.mu.Unlock()
	defer w.stop()
	reflector.Run(ctx, reflector.Config{
		Resource: w.client.Resource(v1alpha1.AgentResource).Namespace(w.namespace), What: "agents", Streams: w.client, Answered: w.answered,
	}, w)
	return nil
}

// all calls yield with each Agent.
func (w *agentWatch) all(yield func(v1alpha1.Agent)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.agents {
		yield(a)
	}
}

// answered says once that the Agents cannot be read, and once that they can.
func (w *agentWatch) answered(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil || (err != nil) == w.away:
	case err != nil:
		w.away = true
		w.log.Warn().Err(err).Msg("the hub's agents cannot be read, trying again; known ones stay admitted")
	default:
		w.away = false
		w.log.Info().Msg("the hub's agents can be read again")
	}
}

// Add implements cache.ReflectorStore.
func (w *agentWatch) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *agentWatch) Update(obj any) error {
	a, ok := w.agent(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.agents[a.Name]
	if !ok {
		delete(w.agents, a.Name) // what cannot be read admits nobody
		w.publish()
		return nil
	}
	w.agents[a.Name] = a
	switch {
	case !known || registersAnew(before, a):
		w.publish()
	case w.due == nil && (saidBy(before) != saidBy(a) || shownBy(before) != shownBy(a)): // else it is said with the rest
		w.registry.Note(a)
		if name, err := identity.ParseAgentName(a.Name); err == nil {
			w.note(name)
		}
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *agentWatch) Delete(obj any) error {
	a, _ := w.agent(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.agents, a.Name)
	w.publish()
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *agentWatch) Replace(list []any, _ string) error {
	agents := make(map[string]v1alpha1.Agent, len(list))
	for _, obj := range list {
		if a, ok := w.agent(obj); ok {
			agents[a.Name] = a
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents = agents
	w.publish()
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *agentWatch) Resync() error { return nil }

// publish lets the registry know, now or soon. It is called with mu locked.
func (w *agentWatch) publish() {
	if w.due != nil {
		return
	}
	pause := publishPause - time.Since(w.published)
	if pause <= 0 {
		w.publishNow()
		return
	}
	var due *time.Timer
	due = time.AfterFunc(pause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.due == due { // else it was stopped too late
			w.due = nil
			w.publishNow()
		}
	})
	w.due = due
}

// publishNow is called with mu locked.
func (w *agentWatch) publishNow() {
	all := make([]v1alpha1.Agent, 0, len(w.agents))
	for _, a := range w.agents {
		all = append(all, a)
	}
	w.registry.Set(all)
	w.published = time.Now()
}

// stop lets nothing be published any more.
func (w *agentWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due != nil {
		w.due.Stop()
		w.due = nil
	}
}

// agent returns an Agent, of which only the name is good when it is false: the
// object is not as its definition says, and one such must not hide the others.
func (w *agentWatch) agent(obj any) (a v1alpha1.Agent, ok bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return a, false // the dynamic client returns nothing else
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		w.log.Error().Err(err).Str("agent", u.GetName()).Msg("agent is not as its definition says and is not admitted")
		a = v1alpha1.Agent{}
		a.Name = u.GetName()
		return a, false
	}
	return a, true
}

// registersAnew reports whether a change of an Agent may concern others than its link:
// who may connect, and what belongs to whom.
func registersAnew(before, after v1alpha1.Agent) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

// agentSays is what a link is told of its Agent.
type agentSays struct {
	held     bool
	history  stream.History
	accepted string
	link     presence.LinkState
	limits   budget.Limits
	bounds   bounds.Bounds
	left     budget.Levels
}

// saidBy is what an Agent says to its link. Its history moves on every minute.
func saidBy(a v1alpha1.Agent) agentSays {
	return agentSays{
		held: !clusterSecretSettled(a), history: historyOf(a.Status.History, 0),
		accepted: a.Annotations[v1alpha1.AcceptDeletionsAnnotation],
		link:     linkStateOf(a.Status), limits: limitsOf(a.Spec.Limits), bounds: boundsOf(a.Spec.Limits), left: levelsOf(a.Status.Budget),
	}
}

// agentShows is what of an Agent's status is shown elsewhere: as the state of its cluster,
// and by its Applications.
type agentShows struct {
	connected bool
	since     time.Time
	held      int64
	reason    v1alpha1.HoldReason
	parked    int64
}

func shownBy(a v1alpha1.Agent) agentShows {
	shows := agentShows{connected: a.Status.Connected, parked: a.Status.Counts.Parked}
	if since := a.Status.Since; since != nil {
		shows.since = since.UTC()
	}
	if held := a.Status.DeletionsHeld; held != nil {
		shows.held, shows.reason = held.Total, held.Reason
	}
	return shows
}

// linkStateOf is what a status says of the agent's link, whichever principal has it.
func linkStateOf(s v1alpha1.AgentStatus) presence.LinkState {
	var state presence.LinkState
	if s.Link != nil {
		state.Epoch = s.Link.Epoch
	}
	if s.ObservedAt != nil {
		state.ObservedAt = s.ObservedAt.UTC()
	}
	return state
}

// clusterSecretSettled says whether Argo CD knows the agent's cluster, and by no
// other Secret than ours. Before it does, nothing is sent, so that no hub
// controller takes an Application of the agent for its own.
func clusterSecretSettled(a v1alpha1.Agent) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionClusterSecretReady) &&
		!meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionClusterSecretConflict)
}
