//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// seen is what a view keeps of an Application. The zero value is none.
type seen struct {
	spec   string // spec.source.targetRevision
	status string // status.sync.revision
}

func ofSpec(s seen) string   { return s.spec }
func ofStatus(s seen) string { return s.status }

// view follows the Applications of one namespace by a watch of its own. Its methods
// may be called concurrently.
type view struct {
	where dynamic.ResourceInterface

	mu       sync.Mutex // guards what follows
	apps     map[string]seen
	writes   int // changes told by the watch, lists apart
	lists    int
	expected map[*expectation]struct{}
	failure  error
	failed   chan struct{}

	stop context.CancelFunc
	done sync.WaitGroup
}

// openView returns when the view holds what there is.
func openView(ctx context.Context, where dynamic.ResourceInterface) (*view, error) {
	v := &view{where: where, apps: map[string]seen{}, expected: map[*expectation]struct{}{}, failed: make(chan struct{})}
	ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	events, err := v.open(ctx)
	if err != nil {
		v.stop()
		return nil, err
	}
	v.done.Go(func() {
		for {
			v.follow(ctx, events)
			if ctx.Err() != nil {
				return
			}
			// An API server ends the watch of a client that it finds too slow.
			if events, err = v.open(ctx); err != nil {
				v.fail(fmt.Errorf("watch again: %w", err))
				return
			}
		}
	})
	return v, nil
}

// open lists, and watches from there on.
func (v *view) open(ctx context.Context) (watch.Interface, error) {
	list, err := v.where.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	there := make(map[string]seen, len(list.Items))
	for i := range list.Items {
		there[list.Items[i].GetName()] = look(&list.Items[i])
	}
	v.mu.Lock()
	v.lists++
	for name := range v.apps {
		if _, still := there[name]; !still {
			v.set(name, seen{}, now)
		}
	}
	for name, s := range there {
		v.set(name, s, now)
	}
	v.mu.Unlock()
	return v.where.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
}

// follow returns when the watch ends, or ctx is done.
func (v *view) follow(ctx context.Context, events watch.Interface) {
	defer events.Stop()
	for {
		var e watch.Event
		var more bool
		select {
		case e, more = <-events.ResultChan():
		case <-ctx.Done():
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		if !more || !ok {
			return // an error among the events; listing again tells whether it lasts
		}
		s := look(o)
		if e.Type == watch.Deleted {
			s = seen{}
		}
		v.mu.Lock()
		v.writes++
		v.set(o.GetName(), s, time.Now())
		v.mu.Unlock()
	}
}

// set is called with mu locked. The zero seen is gone.
func (v *view) set(name string, s seen, now time.Time) {
	if v.apps[name] = s; s == (seen{}) {
		delete(v.apps, name)
	}
	for x := range v.expected {
		x.meet(name, s, now)
		if len(x.left) == 0 {
			delete(v.expected, x)
		}
	}
}

func (v *view) close() {
	v.stop()
	v.done.Wait()
}

func look(o *unstructured.Unstructured) seen {
	field := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, path...) // not there yet
		return s
	}
	return seen{spec: field("spec", "source", "targetRevision"), status: field("status", "sync", "revision")}
}

func (v *view) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failure = err
	close(v.failed)
}

// count returns how many changes the watch told so far, and how often it began:
// between two of its lives changes are not counted.
func (v *view) count() (writes, lists int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.writes, v.lists
}

// expectation is what a view is to see.
type expectation struct {
	view  *view
	field func(seen) string
	left  map[string]string    // by name; guarded by view.mu
	when  map[string]time.Time // each came true; guarded by view.mu
	met   chan struct{}        // closed when nothing is left
}

// expect waits for a field of some Applications to have a value; an Application that
// is not there has none.
func (v *view) expect(field func(seen) string, want map[string]string) *expectation {
	x := &expectation{view: v, field: field, left: maps.Clone(want), when: make(map[string]time.Time, len(want)), met: make(chan struct{})}
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range want {
		x.meet(name, v.apps[name], now)
	}
	if len(x.left) > 0 {
		v.expected[x] = struct{}{}
	}
	return x
}

// meet is called with view.mu locked.
func (x *expectation) meet(name string, s seen, now time.Time) {
	want, open := x.left[name]
	if !open || x.field(s) != want {
		return
	}
	delete(x.left, name)
	x.when[name] = now
	if len(x.left) == 0 {
		close(x.met)
	}
}

// wait returns when the last came true.
func (x *expectation) wait(ctx context.Context) (time.Time, error) {
	select {
	case <-x.met:
	case <-x.view.failed:
		return time.Time{}, x.view.failure
	case <-ctx.Done():
		x.view.mu.Lock()
		defer x.view.mu.Unlock()
		left := slices.Sorted(maps.Keys(x.left))
		return time.Time{}, fmt.Errorf("%d of %d Applications did not get there, such as %v: %w",
			len(left), len(left)+len(x.when), left[:min(len(left), 3)], context.Cause(ctx))
	}
	x.view.mu.Lock()
	defer x.view.mu.Unlock()
	var last time.Time
	for _, at := range x.when {
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

// all makes the want of expect: the same value for each name.
func all(of []string, value string) map[string]string {
	want := make(map[string]string, len(of))
	for _, name := range of {
		want[name] = value
	}
	return want
}
