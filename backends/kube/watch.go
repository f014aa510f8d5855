package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// mostAway is how long a watch that cannot be opened is tried again from where it stood. A
// list would show what is there, and not who of the others was deleted.
const mostAway = time.Minute

// undecoded is with what client-go marks the error of a watch that it could not read on:
// the connection broke, in another way than by its end.
const undecoded metav1.CauseType = "ClientWatchDecoding"

var errWatchTimeout = errors.New("the api server did not answer a watch in time")

func (i *informer) open(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	opening := time.AfterFunc(i.store.timeout, cancel)
	w, err := i.resource.Watch(ctx, opts)
	if !opening.Stop() {
		if err == nil {
			w.Stop()
		}
		cancel()
		return nil, errWatchTimeout
	}
	if err != nil {
		cancel()
		return nil, err
	}
	opened := &openWatch{
		Interface: w, cancel: cancel, events: make(chan watch.Event), stopped: make(chan struct{}),
		lists: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	go opened.pass(func() { i.store.metrics.expired.WithLabelValues(string(i.kind)).Inc() })
	return opened, nil
}

// goOn returns the error of a watch that could not be opened as the reflector is to have it.
// By itself it goes on from where the watch stood only when no one listens at the API
// server, and lists for every other error.
func (i *informer) goOn(err error) error {
	if isExpired(err) || reasonOf(err) != unavailable {
		return err
	}
	if i.away.IsZero() {
		i.away = time.Now()
	}
	if time.Since(i.away) > mostAway {
		return err
	}
	return fmt.Errorf("%s, as if: %w", statement(err), syscall.ECONNREFUSED)
}

// openWatch is a watch that frees its context when it is stopped, tells when the API server
// has forgotten where it stood, and ends when its connection breaks, however that does: the
// reflector then goes on from where it stood, where it would list for an error. One that
// begins with the list stands nowhere before that is whole: until then its end is an error, or
// a reflector would have the list streamed again at once, and again.
type openWatch struct {
	watch.Interface
	cancel  context.CancelFunc
	lists   bool // of pass: the list has not come to its end
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

// pass passes events on until the watch ends or is stopped.
func (w *openWatch) pass(expired func()) {
	defer close(w.events)
	for event := range w.Interface.ResultChan() {
		switch event.Type {
		case watch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.HasStatusCause(err, undecoded) && !w.lists {
				return
			}
			if isExpired(err) {
				expired()
			}
		case watch.Bookmark:
			w.lists = w.lists && !endsList(event.Object)
		}
		if !w.send(event) {
			return
		}
	}
	if w.lists {
		w.send(watch.Event{Type: watch.Error, Object: &errCutList.ErrStatus})
	}
}

// errCutList is a list that did not come to its end.
var errCutList = apierrors.NewInternalError(errors.New("the streamed list broke off"))

// send passes one event on; false when the watch is stopped.
func (w *openWatch) send(event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-w.stopped:
		return false
	}
}

// endsList reports whether a bookmark is the end of a streamed list.
func endsList(bookmark runtime.Object) bool {
	o, err := meta.Accessor(bookmark)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// ResultChan implements watch.Interface.
func (w *openWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *openWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
	w.cancel()
}
