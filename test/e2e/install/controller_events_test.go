//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

var v1Events = corev1.SchemeGroupVersion.WithResource("events")

// eventfulSpoke has an Application of which its Argo CD says something.
type eventfulSpoke struct {
	*env.BareAgent
	t *testing.T
}

// runs makes an Application, and says of it what no one shows.
func (s eventfulSpoke) runs() {
	s.t.Helper()
	env.Create(s.t, s.Hub, s.Application("shop"))
	env.Eventually(s.t, "the Application of "+s.Name+" on the spoke", func() error { return env.Exists(s.t.Context(), s.Spoke, "shop") })
	s.says("unheard")
	s.goesOn("Synced")
}

// says has the spoke's Argo CD say something of the Application.
func (s eventfulSpoke) says(name string) {
	s.t.Helper()
	env.Create(s.t, s.Env.Spoke.Resource(v1Events, s.Namespace), controllerEvent(env.Get(s.t, s.Spoke, "shop"), name))
}

// goesOn waits until a status of the Application has come to the hub.
func (s eventfulSpoke) goesOn(status string) {
	s.t.Helper()
	env.Patch(s.t, s.Spoke, "shop", map[string]any{"status": map[string]any{"sync": map[string]any{"status": status}}})
	env.Eventually(s.t, "a status of "+s.Name+" on the hub", func() error {
		return env.FieldIs(s.t.Context(), s.Hub, "shop", status, "status", "sync", "status")
	})
}

// shown is how often something was said of the Application, as the hub shows it.
func (s eventfulSpoke) shown(ctx context.Context) (int64, error) {
	list, err := s.Env.Hub.Resource(v1Events, s.Name).List(ctx, metav1.ListOptions{FieldSelector: "reason=OperationCompleted"})
	if err != nil {
		return 0, err
	}
	var n int64
	for _, e := range list.Items {
		count, _ := e.Object["count"].(int64)
		n += count
	}
	return n, nil
}

// TestEventsOfOlderAgents are agents that do not tell what their Argo CD says: one of an older
// release, which does not know how, and one with the role of an older release, which may not
// read Events. All else of both goes on, the latter says what it lacks, and tells once it has
// that.
func TestEventsOfOlderAgents(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	w, ctx := env.SharedBare(t), t.Context()
	old := eventfulSpoke{w.Register(t, "events-old", "managed"), t}
	old.Program = "agent-before-adoption"
	old.Start(t)
	barred := eventfulSpoke{w.Register(t, "events-barred", "managed"), t}
	install(t, w.Spoke, charts.Agent, barred.Namespace, charts.AgentValues)
	withEvents := withoutEvents(t, w, barred.Namespace)
	barred.Settings = harness.Settings{"kubernetes.kubeconfig": env.AccountConfig(t, w.Harness, w.Spoke, barred.Namespace, "argomesh-agent")}
	barred.Start(t)

	since := map[string]string{}
	for _, s := range []eventfulSpoke{old, barred} {
		s.runs()
		connected, err := connection(ctx, w, s.Name)
		if err != nil {
			t.Fatal(err)
		}
		since[s.Name] = connected
	}
	env.Eventually(t, "the agent says what its role lacks", func() error {
		log, err := os.ReadFile(barred.Agent.LogFile())
		if err == nil && !strings.Contains(string(log), "apply what `agentctl agent role` prints, which grants list and watch on events") {
			err = errors.New("it does not")
		}
		return err
	})
	for _, s := range []eventfulSpoke{old, barred} {
		s.goesOn("OutOfSync")
		if n, err := s.shown(ctx); err != nil || n != 0 {
			t.Errorf("the hub shows %d events of %s: %v", n, s.Name, err)
		}
		if connected, err := connection(ctx, w, s.Name); err != nil || connected != since[s.Name] {
			t.Errorf("%s is connected since %s, was since %s: %v", s.Name, connected, since[s.Name], err)
		}
	}

	withEvents(t)
	said := 0
	env.Eventually(t, "what Argo CD says is shown once the agent may read it", func() error {
		said++
		barred.says(fmt.Sprint("heard-", said)) // what was said before the agent can read is not told
		n, err := barred.shown(ctx)
		if err == nil && n == 0 {
			err = errors.New("nothing is")
		}
		return err
	})
}

// connection is since when an agent is connected.
func connection(ctx context.Context, w *env.Bare, name string) (string, error) {
	o, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	status, _ := o.Object["status"].(map[string]any)
	return fmt.Sprint(status["connected"], " ", status["since"]), nil
}

// withoutEvents takes the right to read Events from the roles of a namespace, as they were
// before there was one, and returns what gives it back.
func withoutEvents(t *testing.T, w *env.Bare, namespace string) (restore func(*testing.T)) {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.Spoke.REST())
	if err != nil {
		t.Fatal(err)
	}
	roles := client.RbacV1().Roles(namespace)
	list, err := roles.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var was []rbacv1.Role
	for _, role := range list.Items {
		older := *role.DeepCopy()
		older.Rules = slices.DeleteFunc(older.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
		if len(older.Rules) == len(role.Rules) {
			continue
		}
		was = append(was, role)
		if _, err := roles.Update(t.Context(), &older, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(was) == 0 {
		t.Fatal("no role of the agent grants Events")
	}
	return func(t *testing.T) {
		t.Helper()
		for _, role := range was {
			role.ResourceVersion = ""
			if _, err := roles.Update(t.Context(), &role, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
