// Package events writes Events of Applications on the hub.
package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Events is the resource of Events.
var Events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// component is who says what the principal's Events say.
const component = "argomesh-principal"

// Timeout bounds the write of one Event.
const Timeout = 10 * time.Second

// eventOf is an Event of an Application, in its namespace, without a name. argocd-server
// finds it by name, namespace and UID.
func eventOf(about backends.Object, text stream.EventText, count int, first,
	last time.Time) (*unstructured.Unstructured, error) {
	if about.Key.Kind != stream.Application {
		return nil, fmt.Errorf("an Event of %s is not made", about.Key)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"namespace": about.Key.Namespace},
		"involvedObject": map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "namespace": about.Key.Namespace,
			"name": about.Key.Name,
			"uid":  about.UID, "resourceVersion": about.ResourceVersion,
		},
		"type": string(text.Type), "reason": text.Reason, "message": text.Message,
		"count": int64(count), "firstTimestamp": rfc3339(first), "lastTimestamp": rfc3339(last),
		"source": map[string]any{"component": component}, "reportingComponent": component,
	}}, nil
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Warn makes an Event of an Application, in its namespace.
func Warn(ctx context.Context, client dynamic.Interface, about backends.Object, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	now := time.Now()
	e, err := eventOf(about, stream.EventText{Type: stream.EventWarning, Reason: reason, Message: message}, 1, now, now)
	if err != nil {
		return err
	}
	e.SetGenerateName("argomesh-")
	if _, err := client.Resource(Events).Namespace(about.Key.Namespace).
		Create(ctx, e, metav1.CreateOptions{FieldManager: component}); err != nil {
		return fmt.Errorf("make an Event of %s: %w", about.Key, err)
	}
	return nil
}

// Show is mirror.Config.ShowEvent for an agent. What is said again is one Event, by a
// name that follows from what it says, with the sum of the counts.
func Show(client dynamic.Interface, agent identity.AgentName) func(context.Context, backends.Object,
	appevents.Event) (int, error) {
	return func(ctx context.Context, about backends.Object, e appevents.Event) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		made, err := eventOf(about, e.EventText, e.Count, e.First, e.Last)
		if err != nil {
			return 0, err
		}
		made.SetName(eventName(agent, about.UID, e.EventText))
		// Whose Argo CD says it: what a spoke says has reasons that the principal did not choose.
		made.Object["source"] = map[string]any{"component": component, "host": agent.String()}
		made.Object["reportingInstance"] = agent.String()
		written, err := putEvent(ctx, client.Resource(Events).Namespace(about.Key.Namespace), made)
		if err != nil {
			return 0, fmt.Errorf("show an event of %s: %w", about.Key, err)
		}
		raw, err := json.Marshal(written.Object)
		if err != nil {
			return 0, fmt.Errorf("show an event of %s: %w", about.Key, err)
		}
		return len(raw), nil
	}
}

// putEvent makes an Event, or adds to the count of the one that is there.
func putEvent(ctx context.Context, in dynamic.ResourceInterface,
	made *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	written, err := in.Create(ctx, made, metav1.CreateOptions{FieldManager: component})
	if !apierrors.IsAlreadyExists(err) {
		return written, err
	}
	there, err := in.Get(ctx, made.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	before, _, _ := unstructured.NestedInt64(there.Object, "count") // of another form it counts as none
	more, _, _ := unstructured.NestedInt64(made.Object, "count")
	there.Object["count"] = min(max(before, 0)+more, stream.MaxEventCount)
	there.Object["lastTimestamp"] = made.Object["lastTimestamp"]
	return in.Update(ctx, there, metav1.UpdateOptions{FieldManager: component})
}

// eventName tells what an agent says of an Application, which may be made again.
func eventName(agent identity.AgentName, uid string, text stream.EventText) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{agent.String(), uid, string(text.Type), text.Reason, text.Message},
		"\x00")))
	return "argomesh-" + hex.EncodeToString(sum[:10])
}
