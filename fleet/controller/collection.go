package controller

import (
	"context"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube/reflector"
)

// collection keeps the objects of one kind of a namespace as their Go type, up to
// date with the API server.
type collection[T metav1.Object] struct {
	kind      string
	client    dynamic.Interface
	resource  dynamic.ResourceInterface
	selector  string
	namespace string
	// convert returns the Go type of an object.
	convert func(*unstructured.Unstructured) (T, error)
	// changed is called with every state that an object had or has, from one
	// goroutine, after the collection shows the new one.
	changed func(T)
	log     zerolog.Logger

	index  cache.Indexer
	listed chan struct{} // closed after the first list
	once   sync.Once     // closes listed
	away   bool          // the last attempt failed; belongs to the reflector's goroutine
}

// run keeps the collection until ctx is done.
func (c *collection[T]) run(ctx context.Context) {
	reflector.Run(ctx, reflector.Config{
		Resource: c.resource, What: c.kind, Selector: c.selector, Streams: c.client, Answered: c.answered,
	}, c)
}

// answered says once that the API server is away and once that it is back.
func (c *collection[T]) answered(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.away:
		c.away = true
		c.log.Warn().Err(err).Str("kind", c.kind).Msg("objects of the hub cannot be read, trying again")
	case err == nil && c.away:
		c.away = false
		c.log.Info().Str("kind", c.kind).Msg("objects of the hub can be read again")
	}
}

// get returns the object of that name.
func (c *collection[T]) get(name string) (T, bool) {
	obj, exists, err := c.index.GetByKey(c.namespace + "/" + name)
	if err != nil || !exists {
		var none T
		return none, false
	}
	object, ok := obj.(T)
	return object, ok
}

// names returns the names of all objects.
func (c *collection[T]) names() []string {
	keys := c.index.ListKeys()
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, c.namespace+"/")
	}
	return keys
}

// by returns the objects that an index has under a value. They are shared.
func (c *collection[T]) by(index, value string) []T {
	objs, err := c.index.ByIndex(index, value)
	if err != nil {
		panic("index " + index + ": " + err.Error()) // we made it
	}
	out := make([]T, 0, len(objs))
	for _, obj := range objs {
		if object, ok := obj.(T); ok {
			out = append(out, object)
		}
	}
	return out
}

// parse returns obj as its Go type. One that does not fit is left out, so that it
// does not stop the others.
func (c *collection[T]) parse(obj any) (T, bool) {
	raw, ok := obj.(*unstructured.Unstructured)
	if !ok {
		var none T
		return none, false // unreachable: the client is dynamic
	}
	object, err := c.convert(raw)
	if err != nil {
		c.log.Error().Err(err).Str("resource", c.kind+" "+raw.GetName()).Msg("object cannot be read")
		return object, false
	}
	return object, true
}

// toAgent returns what is needed of an Agent.
func toAgent(raw *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	agent := &v1alpha1.Agent{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, agent)
	agent.ManagedFields = nil
	return agent, err
}

// toSecret returns a Secret with its managed fields, which tell what is ours.
func toSecret(raw *unstructured.Unstructured) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, secret)
	return secret, err
}

// Add implements cache.ReflectorStore.
func (c *collection[T]) Add(obj any) error { return c.Update(obj) }

// Update implements cache.ReflectorStore.
func (c *collection[T]) Update(obj any) error {
	after, ok := c.parse(obj)
	if !ok {
		return nil
	}
	before, was := c.get(after.GetName())
	if err := c.index.Update(after); err != nil {
		return err
	}
	if was {
		c.changed(before)
	}
	c.changed(after)
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *collection[T]) Delete(obj any) error {
	last, ok := c.parse(obj)
	if !ok {
		return nil
	}
	before, was := c.get(last.GetName())
	if !was {
		return nil
	}
	if err := c.index.Delete(before); err != nil {
		return err
	}
	c.changed(before)
	return nil
}

// Replace implements cache.ReflectorStore.
func (c *collection[T]) Replace(list []any, resourceVersion string) error {
	before := c.index.List()
	after := make([]any, 0, len(list))
	for _, obj := range list {
		if object, ok := c.parse(obj); ok {
			after = append(after, object)
		}
	}
	if err := c.index.Replace(after, resourceVersion); err != nil {
		return err
	}
	c.once.Do(func() { close(c.listed) })
	for _, obj := range append(before, after...) {
		if object, ok := obj.(T); ok {
			c.changed(object)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (c *collection[T]) Resync() error { return nil }
