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
	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Config holds what a Watch needs. All fields are required.
type Config struct {
	Client    dynamic.Interface
	Namespace string
	Registry  *fleet.Registry
	// StatusChanged is told of an Agent that says something new to its own link alone, once the
	// registry has it. It does not block.
	StatusChanged func(identity.AgentName)
	Log           zerolog.Logger
}

// Watch keeps the registry equal to the Agents of the hub.
type Watch struct {
	cfg    Config
	agents *collection.Collection[v1alpha1.Agent]

	mu        sync.Mutex // guards what follows
	published time.Time
	due       *time.Timer // publishes; nil when all is published
}

// New starts nothing.
func New(cfg Config) *Watch {
	w := &Watch{cfg: cfg}
	w.agents = collection.New(collection.Config[v1alpha1.Agent]{
		Reflect: reflector.Config{Resource: cfg.Client.Resource(v1alpha1.AgentResource).
			Namespace(cfg.Namespace), What: "agents", Streams: cfg.Client},
		Value: w.agent, Changed: w.changed, Readable: w.readable,
	})
	return w
}

// publishPause is how far apart two publications are. Anyone who follows the registry
// looks at all Agents, so that a thousand of them that are registered at once must not
// be a thousand changes. A revocation is late by so much at most.
const publishPause = 100 * time.Millisecond

// Run watches until ctx is done. A watch that ends is opened again within a
// second, so that a revocation is never minutes late.
func (w *Watch) Run(ctx context.Context) error {
	defer w.stop()
	w.agents.Run(ctx)
	return nil
}

// All calls yield with each Agent.
func (w *Watch) All(yield func(v1alpha1.Agent)) {
	for _, a := range w.agents.All() {
		yield(a)
	}
}

// readable says once that the Agents cannot be read, and once that they can.
func (w *Watch) readable(err error) {
	if err != nil {
		w.cfg.Log.Warn().Err(err).Msg("cannot read the hub's Agents, retrying; known ones stay admitted")
		return
	}
	w.cfg.Log.Info().Msg("the hub's Agents can be read again")
}

// changed publishes what others must know of at once, and notes what an Agent says to its
// own link alone.
func (w *Watch) changed(changes []collection.Change[v1alpha1.Agent]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(changes) != 1 || !changes[0].Had || !changes[0].Has || affectsRegistry(changes[0].Before, changes[0].After) {
		w.publish()
		return
	}
	before, a := changes[0].Before, changes[0].After
	// else it is said with the rest
	if w.due == nil && (SettingsOf(before) != SettingsOf(a) || ShownBy(before) != ShownBy(a)) {
		w.cfg.Registry.UpdateStatus(a)
		if name, err := identity.ParseAgentName(a.Name); err == nil {
			w.cfg.StatusChanged(name)
		}
	}
}

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
	w.cfg.Registry.Set(w.agents.All())
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

// agent returns an Agent. One that does not match its CRD admits no one, and must not hide
// the others.
func (w *Watch) agent(u *unstructured.Unstructured) (a v1alpha1.Agent, ok bool, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		w.cfg.Log.Error().Err(err).Str("agent", u.GetName()).Msg("agent does not match its CRD and may not connect")
		return v1alpha1.Agent{}, false, nil
	}
	return a, true, nil
}
