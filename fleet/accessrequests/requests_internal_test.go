package accessrequests

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/token"
)

// requests returns those of a hub whose API server has none, and what adds one.
func requests(t *testing.T) (r *Requests, add func(name, user string, age time.Duration, change func(*unstructured.Unstructured))) {
	t.Helper()
	r, err := New(Config{
		Client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{v1alpha1.AccessRequestResource: "AccessRequestList"}),
		Namespace: "argocd", ProxyURL: "https://p", MaxLifetime: time.Hour, Metrics: prometheus.NewRegistry(),
		Agent: func(identity.AgentName) (v1alpha1.Agent, bool) { return v1alpha1.Agent{}, false },
		Sign: func(*v1alpha1.Agent, string, time.Duration) (token.Signed, error) {
			return token.Signed{}, token.ErrNoKey
		},
		Authorities: func() ([]byte, bool) { return nil, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, func(name, user string, age time.Duration, change func(*unstructured.Unstructured)) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"user": map[string]any{"username": user}}}}
		o.SetName(name)
		o.SetNamespace("argocd")
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-age)))
		if change != nil {
			change(o)
		}
		if err := r.known.Add(o); err != nil {
			t.Fatal(err)
		}
	}
}

// Requests that do not go, and those of one person, leave room for those of others.
func TestRequestsOfOnePersonLeaveRoom(t *testing.T) {
	r, add := requests(t)
	for i := range 2 * mostWaiting {
		add(fmt.Sprint("stays-", i), "mallory", 10*time.Minute, func(o *unstructured.Unstructured) {
			now := metav1.Now()
			o.SetDeletionTimestamp(&now)
			o.SetFinalizers([]string{"evil.test/stay"})
		})
		add(fmt.Sprint("flood-", i), "mallory", time.Minute, nil)
	}
	add("honest", "alice", time.Second, nil)
	add("old", "alice", 10*time.Minute, nil)
	add("answered", "alice", time.Minute, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"decision": "Granted"}
	})
	answer, drop := sorted(r.known.All(), time.Now())
	of, dropped := map[string]int{}, map[string]bool{}
	for _, w := range answer {
		of[w.user]++
	}
	for _, w := range drop {
		dropped[w.name] = true
	}
	if of["mallory"] != mostOfOne || of["alice"] != 1 {
		t.Errorf("to be answered are %v, want %d and 1", of, mostOfOne)
	}
	if len(drop) != 2*mostWaiting-mostOfOne+1 || !dropped["old"] || dropped["answered"] || dropped["stays-0"] {
		t.Errorf("%d are to go, the old one: %t, the answered one: %t, one that goes already: %t", len(drop), dropped["old"],
			dropped["answered"], dropped["stays-0"])
	}
}

// However many persons ask, so many wait at most.
func TestSoManyRequestsWait(t *testing.T) {
	r, add := requests(t)
	for i := range mostWaiting + 5 {
		add(fmt.Sprint("of-", i), fmt.Sprint("user-", i), time.Minute, nil)
	}
	if answer, drop := sorted(r.known.All(), time.Now()); len(answer) != mostWaiting || len(drop) != 5 {
		t.Errorf("%d are to be answered and %d are to go", len(answer), len(drop))
	}
}
