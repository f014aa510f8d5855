package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
)

var customResourceDefinitions = runtimeschema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// mostDefinitionRetry bounds the pause after the definitions could not be read: it is
// an older role that most often does not allow it, and it may stay so for long.
const mostDefinitionRetry = 10 * time.Second

// Definitions knows the definitions of Applications and AppProjects of one API server,
// by a watch of each by its name, so that a role can grant just these. One that cannot
// be read is not known; that is said in the log, once, and tried again. It implements
// mirror.Schemas.
type Definitions struct {
	client dynamic.Interface
	log    zerolog.Logger
	asked  chan struct{}

	mu          sync.Mutex // guards what follows
	of          map[stream.Kind]*definition
	subscribers []*definitionSubscriber
	unasked     int // definitions of which the API server has said nothing yet
}

type definitionSubscriber struct{ changed func() }

// definition is the store of a reflector: that of one definition. Definitions.mu guards
// what of it changes.
type definition struct {
	all     *Definitions
	kind    stream.Kind
	schema  *schema.Schema
	answers bool   // the API server has said something
	failing reason // empty while it can be read
}

// NewDefinitions starts nothing.
func NewDefinitions(client dynamic.Interface, log zerolog.Logger) *Definitions {
	d := &Definitions{client: client, log: log, asked: make(chan struct{}), of: map[stream.Kind]*definition{}}
	for _, kind := range []stream.Kind{stream.Application, stream.AppProject} {
		d.of[kind] = &definition{all: d, kind: kind}
	}
	d.unasked = len(d.of)
	return d
}

// Run watches until ctx is done and then returns nil. It is called once.
func (d *Definitions) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, def := range d.of {
		wg.Go(func() {
			reflector.Run(ctx, reflector.Config{
				Resource: selected{d.client.Resource(customResourceDefinitions), backends.Selector{Name: def.name()}},
				What:     "definition of " + string(def.kind), Answered: def.answered, MostRetry: mostDefinitionRetry,
			}, def)
		})
	}
	wg.Wait()
	return nil
}

// SchemasAsked implements mirror.Schemas.
func (d *Definitions) SchemasAsked() <-chan struct{} { return d.asked }

// Schema implements mirror.Schemas.
func (d *Definitions) Schema(kind stream.Kind) *schema.Schema {
	d.mu.Lock()
	defer d.mu.Unlock()
	if def := d.of[kind]; def != nil {
		return def.schema
	}
	return nil
}

// SubscribeSchemas implements mirror.Schemas.
func (d *Definitions) SubscribeSchemas(changed func()) (cancel func()) {
	sub := &definitionSubscriber{changed}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers = append(slices.Clip(d.subscribers), sub)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.subscribers = slices.DeleteFunc(slices.Clone(d.subscribers),
			func(other *definitionSubscriber) bool { return other == sub })
	}
}

// name is that of the definition.
func (f *definition) name() string { return resourceOf(f.kind).GroupResource().String() }

// set takes a schema; nil for one that is not known.
func (f *definition) set(s *schema.Schema) {
	d := f.all
	d.mu.Lock()
	if !f.answers {
		f.answers = true
		if d.unasked--; d.unasked == 0 {
			close(d.asked)
		}
	}
	if s != nil && f.schema != nil && s.ID() == f.schema.ID() {
		s = f.schema
	}
	var told []*definitionSubscriber
	if s != f.schema {
		f.schema, told = s, d.subscribers
	}
	d.mu.Unlock()
	for _, sub := range told {
		sub.changed()
	}
}

// answered is reflector.Config.Answered.
func (f *definition) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	why := reason("")
	if err != nil {
		why = reasonOf(err)
	}
	switch why {
	case unavailable: // the informers say so; what was known is most likely as it was
		return
	case f.failing:
	case "":
		f.all.log.Info().Str("definition", f.name()).Msg("custom resource definition can be read again")
	case missingCRD, refused:
		f.all.log.Warn().Str("definition", f.name()).Str("error", statement(err)).
			Msg("custom resource definition cannot be read")
	default:
		f.all.log.Warn().Str("definition", f.name()).Str("error", statement(err)).
			Str("cure",
				fmt.Sprintf("grant list and watch on %s with resourceName %s", customResourceDefinitions.GroupResource(),
					f.name())).
			Msg("custom resource definition cannot be read: content with a field that the API server may not know is refused as a whole")
	}
	f.failing = why
	if why != "" {
		f.set(nil)
	}
}

// Add implements cache.ReflectorStore.
func (f *definition) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f *definition) Update(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("watch of definitions yields a %T", obj)
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return fmt.Errorf("marshal definition %s: %w", f.name(), err)
	}
	s, err := schema.Parse(raw, resourceOf(f.kind).Version)
	if err != nil {
		f.all.log.Error().Str("definition", f.name()).Err(err).Msg("custom resource definition is not one of Argo CD's")
	}
	f.set(s)
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *definition) Delete(any) error {
	f.set(nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *definition) Replace(list []any, _ string) error {
	if len(list) == 0 {
		f.set(nil)
		return nil
	}
	return f.Update(list[0])
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (f *definition) Resync() error { return nil }

var _ cache.ReflectorStore = (*definition)(nil)
