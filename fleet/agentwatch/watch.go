// Package agentwatch keeps the registry equal to the Agents of the hub, and says what of an
// Agent concerns its link, other programs and the metrics.
package agentwatch

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Watch keeps the registry equal to the Agents of the hub. It is the store
// of a client-go reflector.
type Watch struct {
	Client    dynamic.Interface
	Namespace string
	Registry  *fleet.Registry
	// Note is told of an Agent that says something new to its own link alone, once the
	// registry has it. It does not block.
	Note func(identity.AgentName)
	Log  zerolog.Logger

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
func (w *Watch) Run(ctx context.Context) error {
	w.mu.Lock()
	w.agents = map[string]v1alpha1.Agent{}
	w.mu.Unlock()
	defer w.stop()
	reflector.Run(ctx, reflector.Config{
		Resource: w.Client.Resource(v1alpha1.AgentResource).Namespace(w.Namespace), What: "agents", Streams: w.Client, Answered: w.answered,
	}, w)
	return nil
}

// All calls yield with each Agent.
func (w *Watch) All(yield func(v1alpha1.Agent)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.agents {
		yield(a)
	}
}

// answered says once that the Agents cannot be read, and once that they can.
func (w *Watch) answered(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil || (err != nil) == w.away:
	case err != nil:
		w.away = true
		w.Log.Warn().Err(err).Msg("the hub's agents cannot be read, trying again; known ones stay admitted")
	default:
		w.away = false
		w.Log.Info().Msg("the hub's agents can be read again")
	}
}

// Add implements cache.ReflectorStore.
func (w *Watch) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *Watch) Update(obj any) error {
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
	case w.due == nil && (SaidBy(before) != SaidBy(a) || ShownBy(before) != ShownBy(a)): // else it is said with the rest
		w.Registry.Note(a)
		if name, err := identity.ParseAgentName(a.Name); err == nil {
			w.Note(name)
		}
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *Watch) Delete(obj any) error {
	a, _ := w.agent(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.agents, a.Name)
	w.publish()
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *Watch) Replace(list []any, _ string) error {
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
func (w *Watch) Resync() error { return nil }

// publish lets the registry know, now or soon. It is called with mu locked.
func (w *Watch) publish() {
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
func (w *Watch) publishNow() {
	all := make([]v1alpha1.Agent, 0, len(w.agents))
	for _, a := range w.agents {
		all = append(all, a)
	}
	w.Registry.Set(all)
	w.published = time.Now()
}

// stop lets nothing be published any more.
func (w *Watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due != nil {
		w.due.Stop()
		w.due = nil
	}
}

// agent returns an Agent, of which only the name is good when it is false: the
// object is not as its definition says, and one such must not hide the others.
func (w *Watch) agent(obj any) (a v1alpha1.Agent, ok bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return a, false // the dynamic client returns nothing else
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		w.Log.Error().Err(err).Str("agent", u.GetName()).Msg("agent is not as its definition says and is not admitted")
		a = v1alpha1.Agent{}
		a.Name = u.GetName()
		return a, false
	}
	return a, true
}
