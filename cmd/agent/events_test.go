package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/stream"
)

// said is an Event as Argo CD's controller makes it, with a change.
func said(path string, value any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "argocd", "name": "guestbook.17"},
		"involvedObject": map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "namespace": "argocd", "name": "guestbook", "uid": "u",
		},
		"type": "Normal", "reason": "OperationCompleted", "message": "Sync operation to 1 succeeded", "count": int64(1),
		"source": map[string]any{"component": "argocd-application-controller"},
	}}
	if path != "" {
		_ = unstructured.SetNestedField(o.Object, value, strings.Split(path, ".")...) // of a map it does not fail
	}
	return o
}

func TestApplicationEvent(t *testing.T) {
	now := time.Now()
	uid, e, ok := applicationEvent(watch.Added, said("", nil), now)
	if !ok || uid != "u" || e.Application != (stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "guestbook"}) ||
		e.Type != stream.EventNormal || e.Reason != "OperationCompleted" || e.Message != "Sync operation to 1 succeeded" || e.Count != 1 ||
		!e.First.Equal(now) || !e.Last.Equal(now) {
		t.Errorf("applicationEvent() = %q, %+v, %v", uid, e, ok)
	}
	for _, tt := range []struct {
		path  string
		value any
	}{
		{"involvedObject.kind", "AppProject"},
		{"involvedObject.apiVersion", "example.org/v1"},
		{"involvedObject.namespace", "elsewhere"},
		{"source.component", "argocd-server"},
		{"source.component", "argomesh-principal"},
		{"type", "Fatal"},
		{"type", int64(3)},
		{"reason", ""},
		{"reason", "sync failed"},
		{"reason", strings.Repeat("R", 129)},
	} {
		if _, e, ok := applicationEvent(watch.Added, said(tt.path, tt.value), now); ok {
			t.Errorf("with %s %v it is %+v", tt.path, tt.value, e)
		}
	}
	for _, tt := range []struct {
		what        watch.EventType
		count, want int64
	}{
		{watch.Added, 0, 1}, {watch.Added, -7, 1}, {watch.Added, 12, 12}, {watch.Added, 1 << 50, stream.MaxEventCount}, {watch.Modified, 12, 1},
	} {
		if _, e, ok := applicationEvent(tt.what, said("count", tt.count), now); !ok || int64(e.Count) != tt.want {
			t.Errorf("%s with a count of %d counts %d, want %d", tt.what, tt.count, e.Count, tt.want)
		}
	}
	if _, e, _ := applicationEvent(watch.Added, said("message", strings.Repeat("a\n", 1000)), now); len(e.Message) != 1024 || strings.Contains(e.Message, "\n") {
		t.Errorf("its message is %q", e.Message)
	}
}

// An agent whose role does not let it read Events says so once.
func TestEventsThatMayNotBeRead(t *testing.T) {
	var log bytes.Buffer
	answered := controllerEvents{log: zerolog.New(&log)}.answered("argocd")
	forbidden := apierrors.NewForbidden(events.GroupResource(), "", errors.New("no"))
	for _, err := range []error{forbidden, forbidden, errors.New("away"), forbidden, nil, nil} {
		answered(t.Context(), err)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 || !strings.Contains(log.String(), "agentctl agent role") {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "can be read again"); n != 1 {
		t.Errorf("the end of it is said %d times:\n%s", n, log.String())
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	log.Reset()
	answered(stopped, forbidden)
	if log.Len() > 0 {
		t.Errorf("when it stops it says %s", log.String())
	}
}
