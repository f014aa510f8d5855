package agentwatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// The history of each agent moves on every minute. With a thousand agents, anyone who
// follows the registry must not be woken by each of them.
func TestAgentWatchTellsOnlyWhomItConcerns(t *testing.T) {
	registered := func(change func(*v1alpha1.Agent)) *unstructured.Unstructured {
		a := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "spoke", UID: "1", Generation: 1}}
		a.Status.History = &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"first"}}
		change(&a)
		return watchedAgent(t, a)
	}
	tests := map[string]struct {
		change    func(*v1alpha1.Agent)
		published bool
		noted     bool
	}{
		"a token of its history": {change: func(a *v1alpha1.Agent) { a.Status.History.Tokens = []string{"second", "first"} }, noted: true},
		"its cluster Secret": {change: func(a *v1alpha1.Agent) {
			a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionClusterSecretReady, Status: metav1.ConditionTrue}}
		}, noted: true},
		"accepted deletions": {change: func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.AcceptDeletionsAnnotation: "x"} }, noted: true},
		"a count":            {change: func(a *v1alpha1.Agent) { a.Status.Counts.Applications = 7 }},
		"its connection":     {change: func(a *v1alpha1.Agent) { a.Status.Since = new(metav1.Now()) }, noted: true},
		"its parked objects": {change: func(a *v1alpha1.Agent) { a.Status.Counts.Parked = 1 }, noted: true},
		"why it is refused": {change: func(a *v1alpha1.Agent) {
			a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: "RefusedMode", Message: "refused"})
		}, noted: true},
		"its spec":      {change: func(a *v1alpha1.Agent) { a.Generation, a.Spec.Suspended = 2, true }, published: true},
		"its deletion":  {change: func(a *v1alpha1.Agent) { a.DeletionTimestamp = new(metav1.Now()) }, published: true},
		"another Agent": {change: func(a *v1alpha1.Agent) { a.UID = "2" }, published: true},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			var noted []identity.AgentName
			w := newWatch(func(name identity.AgentName) { noted = append(noted, name) })
			if err := w.agents.Add(registered(func(*v1alpha1.Agent) {})); err != nil {
				t.Fatal(err)
			}
			w.published = w.published.Add(-publishPause)
			changed := w.cfg.Registry.Changed()
			after := registered(tt.change)
			if err := w.agents.Update(after); err != nil {
				t.Fatal(err)
			}
			published := false
			select {
			case <-changed:
				published = true
			default:
			}
			if published != tt.published || (len(noted) == 1) != tt.noted {
				t.Errorf("published %t, want %t; told %d links, want it told: %t", published, tt.published, len(noted), tt.noted)
			}
			if !tt.noted {
				return
			}
			want, _, _ := w.agent(after)
			if got, _ := w.cfg.Registry.Agent(noted[0]); SettingsOf(got) != SettingsOf(want) || ShownBy(got) != ShownBy(want) {
				t.Errorf("the registry has %+v when the link is told, want %+v", SettingsOf(got), SettingsOf(want))
			}
		})
	}
}

// newWatch is a Watch that is not run: what the API server would say the test says.
func newWatch(note func(identity.AgentName)) *Watch {
	return New(Config{
		Client: dynamic.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1"}), Namespace: "argocd", Registry: &fleet.Registry{}, StatusChanged: note, Log: zerolog.Nop(),
	})
}

// watchedAgent is an Agent as a watch shows it.
func watchedAgent(t *testing.T, a v1alpha1.Agent) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&a)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// Many that are registered at once are few changes, and the first is not late.
func TestAgentWatchPublishesAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(func(identity.AgentName) {})
		register := func(name string) {
			t.Helper()
			if err := w.agents.Add(watchedAgent(t, v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})); err != nil {
				t.Fatal(err)
			}
		}
		register("first")
		if n := len(w.cfg.Registry.Agents()); n != 1 {
			t.Fatalf("%d agents are known at once, want the first", n)
		}
		changed := w.cfg.Registry.Changed()
		for i := range 50 {
			register(fmt.Sprint("more-", i))
		}
		select {
		case <-changed:
			t.Error("each of many is a change")
		default:
		}
		<-time.After(publishPause)
		synctest.Wait()
		if n := len(w.cfg.Registry.Agents()); n != 51 {
			t.Errorf("%d agents are known after the pause, want 51", n)
		}
		register("one-more")
		w.stop()
		<-time.After(publishPause)
		synctest.Wait()
		if n := len(w.cfg.Registry.Agents()); n != 51 {
			t.Errorf("%d agents are known after the end, want 51", n)
		}
	})
}
