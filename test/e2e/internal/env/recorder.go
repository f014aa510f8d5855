//go:build linux

package env

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Recorder follows the objects of one place by a watch, and keeps every state that
// the API server tells of. Methods may be called concurrently.
type Recorder struct {
	begin uint64 // the resourceVersion from which on everything is recorded

	mu     sync.Mutex // guards what follows
	now    map[string]*unstructured.Unstructured
	seen   map[string]uint64 // name to the newest resourceVersion that was told, also of what is gone
	events []watch.Event
	err    error
}

// Record begins a record, which ends with the test.
func Record(t *testing.T, where dynamic.ResourceInterface) *Recorder {
	t.Helper()
	list, err := where.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{begin: RevisionOf(t, list.GetResourceVersion()), now: map[string]*unstructured.Unstructured{}, seen: map[string]uint64{}}
	for i := range list.Items {
		o := &list.Items[i]
		r.now[o.GetName()], r.seen[o.GetName()] = o, RevisionOf(t, o.GetResourceVersion())
	}
	t.Cleanup(func() {
		if r.err != nil {
			t.Error(r.err)
		}
	})
	WatchFrom(t, where, list.GetResourceVersion(), r.take)
	return r
}

// WatchFrom calls take with each change after a resourceVersion, until the test ends: also
// after a loss of the API server. Cleanups that were registered before run after the last.
func WatchFrom(t *testing.T, where dynamic.ResourceInterface, resourceVersion string, take func(watch.Event)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := watchtools.NewRetryWatcherWithContext(ctx, resourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return where.Watch(ctx, opts)
		},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			take(event)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (r *Recorder) take(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		r.err = fmt.Errorf("the record ends, the API server says %s: %v", event.Type, event.Object)
		return
	}
	r.events = append(r.events, event)
	// What is deleted is told of with the resourceVersion of its deletion.
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%s: %w", o.GetName(), err)
		return
	}
	r.seen[o.GetName()] = version
	if event.Type == watch.Deleted {
		delete(r.now, o.GetName())
	} else {
		r.now[o.GetName()] = o
	}
}

// Objects returns what there is now, by name. The objects must not be changed.
func (r *Recorder) Objects() map[string]*unstructured.Unstructured {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.now)
}

// History returns what happened to one object since the record began, oldest first.
func (r *Recorder) History(name string) []watch.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []watch.Event
	for _, event := range r.events {
		if event.Object.(*unstructured.Unstructured).GetName() == name {
			events = append(events, event)
		}
	}
	return events
}

// Writes counts what happened to each object since the record began.
func (r *Recorder) Writes() map[string][]watch.EventType {
	r.mu.Lock()
	defer r.mu.Unlock()
	writes := map[string][]watch.EventType{}
	for _, event := range r.events {
		name := event.Object.(*unstructured.Unstructured).GetName()
		writes[name] = append(writes[name], event.Type)
	}
	return writes
}

// CaughtUp waits until the record holds all that the API server has seen by now.
func (r *Recorder) CaughtUp(t *testing.T, where dynamic.ResourceInterface) {
	t.Helper()
	list, err := where.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list.Items {
		want[o.GetName()] = o.GetResourceVersion()
	}
	Eventually(t, "the record is complete", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err != nil {
			return r.err
		}
		for name, o := range r.now {
			if _, ok := want[name]; !ok && RevisionOf(t, o.GetResourceVersion()) <= RevisionOf(t, list.GetResourceVersion()) {
				return fmt.Errorf("it has not seen %s go", name)
			}
		}
		for name, version := range want {
			if r.seen[name] < RevisionOf(t, version) {
				return fmt.Errorf("it has not seen %s at %s", name, version)
			}
		}
		return nil
	})
}

// RevisionOf is a resourceVersion as the number it is.
func RevisionOf(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Stands fails the test when anything but the status of an object was written after it was
// as given.
func (r *Recorder) Stands(t *testing.T, what string, before *unstructured.Unstructured) {
	t.Helper()
	bare := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		for _, field := range []string{"status", "operation"} {
			delete(o.Object, field)
		}
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		o.SetGeneration(0)
		annotations := o.GetAnnotations()
		delete(annotations, "argocd.argoproj.io/refresh")
		if len(annotations) == 0 {
			annotations = nil
		}
		o.SetAnnotations(annotations)
		return o.Object
	}
	for _, event := range r.History(before.GetName()) {
		if diff := cmp.Diff(bare(before), bare(event.Object.(*unstructured.Unstructured))); diff != "" {
			t.Errorf("%s is written, %s (-before +after):\n%s", before.GetName(), what, diff)
			return
		}
	}
}
