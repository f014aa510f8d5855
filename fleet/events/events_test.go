package events

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// What is said again adds to the count of its Event; another agent's, another text's and
// another object's are others.
func TestShowEvent(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{Events: "EventList"})
	about := func(uid string) backends.Object {
		return backends.Object{Key: stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "guestbook"}, UID: uid, ResourceVersion: "7"}
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	show := func(agent, uid, message string, count int, at time.Time) {
		t.Helper()
		name, err := identity.ParseAgentName(agent)
		if err != nil {
			t.Fatal(err)
		}
		n, err := Show(client, name)(t.Context(), about(uid), appevents.Event{
			Application: about(uid).Key, Count: count, First: at.Add(-time.Minute), Last: at,
			EventText: stream.EventText{Type: stream.EventWarning, Reason: "OperationCompleted", Message: message},
		})
		if err != nil || n < len(message) || n > 1000+len(message) {
			t.Fatalf("it has %d bytes, %v", n, err)
		}
	}
	show("edge-1", "u1", "failed", 2, noon)
	show("edge-1", "u1", "failed", 3, noon.Add(time.Hour))
	show("edge-1", "u1", "failed otherwise", 1, noon)
	show("edge-1", "u2", "failed", 1, noon)
	show("edge-2", "u1", "failed", 1, noon)
	list, err := client.Resource(Events).Namespace("edge-1").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 4 {
		t.Errorf("there are %d Events, want 4", len(list.Items))
	}
	found := false
	for _, e := range list.Items {
		if e.Object["count"] != int64(5) {
			continue
		}
		found = true
		source, involved := e.Object["source"].(map[string]any), e.Object["involvedObject"].(map[string]any)
		if e.Object["firstTimestamp"] != "2026-01-01T11:59:00Z" || e.Object["lastTimestamp"] != "2026-01-01T13:00:00Z" ||
			source["component"] != "argomesh-principal" || source["host"] != "edge-1" || e.Object["reportingInstance"] != "edge-1" ||
			involved["uid"] != "u1" || involved["name"] != "guestbook" || involved["namespace"] != "edge-1" || !strings.HasPrefix(e.GetName(), "argomesh-") {
			t.Errorf("it is %v", e.Object)
		}
	}
	if !found {
		t.Error("none has the sum of the counts")
	}
	_, err = Show(client, identity.AgentName{})(t.Context(), backends.Object{Key: stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "s"}}, appevents.Event{})
	if err == nil {
		t.Error("an Event of a Secret is made")
	}
}
