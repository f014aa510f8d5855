package fleet_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

func TestReach(t *testing.T) {
	var r fleet.Registry
	name := func(s string) identity.AgentName {
		n, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := r.Reach(name("edge-1")); err == nil || errors.Is(err, identity.ErrDenied) {
		t.Errorf("before anything is known: %v", err)
	}
	gone := metav1.NewTime(time.Now())
	agent := func(name string, change func(*v1alpha1.Agent)) v1alpha1.Agent {
		a := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Spec: v1alpha1.AgentSpec{Mode: v1alpha1.ModeManaged}}
		change(&a)
		return a
	}
	r.Set([]v1alpha1.Agent{
		agent("edge-1", func(*v1alpha1.Agent) {}),
		agent("suspended", func(a *v1alpha1.Agent) { a.Spec.Suspended = true }),
		agent("leaving", func(a *v1alpha1.Agent) { a.DeletionTimestamp = &gone }),
		agent("cascading", func(a *v1alpha1.Agent) {
			a.DeletionTimestamp, a.Spec.DeletionPolicy = &gone, v1alpha1.DeletionCascade
		}),
	})
	if a, err := r.Reach(name("edge-1")); err != nil || a.UID != "uid" {
		t.Errorf("Reach(edge-1) = %v, %v", a.UID, err)
	}
	for _, other := range []string{"suspended", "leaving", "cascading", "unknown"} {
		if _, err := r.Reach(name(other)); !errors.Is(err, identity.ErrDenied) {
			t.Errorf("Reach(%s) = %v", other, err)
		}
	}
}
