package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/stream"
)

var events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

const (
	// applicationController is who says what the hub is told of.
	applicationController = "argocd-application-controller"
	// mostEventRetry bounds the pause after Events could not be read: it is an older role
	// that most often does not allow it, and it may stay so for long.
	mostEventRetry = time.Minute
)

// controllerEvents tells the hub what the spoke's Argo CD says of Applications, in the
// namespaces that the agent watches; of none of them it is all.
type controllerEvents struct {
	client     dynamic.Interface
	namespaces []string
	report     func(ctx context.Context, uid string, e appevents.Event)
	log        zerolog.Logger
}

// Run tells of what is said from now on, until ctx is done. Where the role of the agent does not
// let it see Events it says so once, and goes on without.
func (c controllerEvents) Run(ctx context.Context) error {
	namespaces := c.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	selector := fields.Set{"involvedObject.kind": string(stream.Application), "source": applicationController}
	var wg sync.WaitGroup
	for _, namespace := range namespaces {
		wg.Go(func() {
			reflector.Follow(ctx, reflector.Config{
				Resource: c.client.Resource(events).Namespace(namespace), What: "events of applications", Fields: selector.String(),
				Answered: c.answered(namespace), MostRetry: mostEventRetry,
			}, func(what watch.EventType, o *unstructured.Unstructured) {
				if uid, e, is := applicationEvent(what, o, time.Now()); is {
					c.report(ctx, uid, e)
				}
			})
		})
	}
	wg.Wait()
	return nil
}

// answered is reflector.Config.Answered. An API server that does not answer others tell of.
func (c controllerEvents) answered(namespace string) func(context.Context, error) {
	refused := false
	return func(ctx context.Context, err error) {
		if ctx.Err() != nil {
			return
		}
		forbidden := apierrors.IsForbidden(err)
		switch {
		case forbidden && !refused:
			c.log.Warn().Err(err).Str("namespace", namespace).
				Str("cure", "apply what `agentctl agent role` prints, which grants list and watch on events").
				Msg("Events cannot be read, so the hub does not show what Argo CD says of Applications")
		case err == nil && refused:
			c.log.Info().Str("namespace", namespace).Msg("Events can be read again")
		}
		if forbidden || err == nil {
			refused = forbidden
		}
	}
}

// applicationEvent is what an Event says, at the time at which it was seen, and the UID of
// its Application; false for one that is not told: of another kind, by someone else, or of
// another form than Argo CD's. When it was said by the clock of its writer does not count.
func applicationEvent(what watch.EventType, o *unstructured.Unstructured,
	now time.Time) (uid string, e appevents.Event, ok bool) {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, path...) // of another form it is none
		return s
	}
	if text("involvedObject", "kind") != string(stream.Application) ||
		text("source", "component") != applicationController ||
		!strings.HasPrefix(text("involvedObject", "apiVersion"), "argoproj.io/") ||
		text("involvedObject", "namespace") != o.GetNamespace() {
		return "", e, false
	}
	count := int64(1)
	if what == watch.Added { // a change of one says it once more
		count, _, _ = unstructured.NestedInt64(o.Object, "count")
	}
	e = appevents.Event{
		Application: stream.ResourceKey{Kind: stream.Application, Namespace: o.GetNamespace(),
			Name: text("involvedObject", "name")},
		EventText: stream.EventText{
			Type: stream.EventType(text("type")), Reason: text("reason"), Message: stream.EventMessage(text("message")),
		},
		Count: int(min(max(count, 1), stream.MaxEventCount)), First: now, Last: now,
	}
	known := e.Type == stream.EventNormal || e.Type == stream.EventWarning
	return text("involvedObject", "uid"), e, known && stream.ValidEventReason(e.Reason)
}
