//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

var v1Events = corev1.SchemeGroupVersion.WithResource("events")

// eventfulSpoke has an Application of which its Argo CD says something.
type eventfulSpoke struct {
	*remote
	t *testing.T
}

// runs makes an Application, and says of it what nobody shows.
func (s eventfulSpoke) runs() {
	s.t.Helper()
	create(s.t, s.hub, s.application("shop"))
	eventually(s.t, "the Application of "+s.name+" on the spoke", func() error { return there(s.t.Context(), s.spoke, "shop") })
	s.says("unheard")
	s.goesOn("Synced")
}

// says has the spoke's Argo CD say something of the Application.
func (s eventfulSpoke) says(name string) {
	s.t.Helper()
	create(s.t, s.w.spoke.Resource(v1Events, s.namespace), controllerEvent(get(s.t, s.spoke, "shop"), name))
}

// goesOn waits until a status of the Application has come to the hub.
func (s eventfulSpoke) goesOn(status string) {
	s.t.Helper()
	patch(s.t, s.spoke, "shop", map[string]any{"status": map[string]any{"sync": map[string]any{"status": status}}})
	eventually(s.t, "a status of "+s.name+" on the hub", func() error {
		return field(s.t.Context(), s.hub, "shop", status, "status", "sync", "status")
	})
}

// shown is how often something was said of the Application, as the hub shows it.
func (s eventfulSpoke) shown(ctx context.Context) (int64, error) {
	list, err := s.w.hub.Resource(v1Events, s.name).List(ctx, metav1.ListOptions{FieldSelector: "reason=OperationCompleted"})
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
	w, ctx := theQuietWorld(t), t.Context()
	old := eventfulSpoke{w.register(t, "events-old", "managed"), t}
	old.program = "agent-before-adoption"
	old.start(t)
	barred := eventfulSpoke{w.register(t, "events-barred", "managed"), t}
	install(t, w.spoke, agentChart, barred.namespace, agentValues)
	withEvents := w.withoutEvents(t, barred.namespace)
	barred.settings = harness.Settings{"kubernetes.kubeconfig": accountConfig(t, w.h, w.spoke, barred.namespace, "argomesh-agent")}
	barred.start(t)

	since := map[string]string{}
	for _, s := range []eventfulSpoke{old, barred} {
		s.runs()
		connected, err := w.connection(ctx, s.name)
		if err != nil {
			t.Fatal(err)
		}
		since[s.name] = connected
	}
	eventually(t, "the agent says what its role lacks", func() error {
		log, err := os.ReadFile(barred.agent.LogFile())
		if err == nil && !strings.Contains(string(log), "apply what `agentctl agent role` prints, which grants list and watch on events") {
			err = errors.New("it does not")
		}
		return err
	})
	for _, s := range []eventfulSpoke{old, barred} {
		s.goesOn("OutOfSync")
		if n, err := s.shown(ctx); err != nil || n != 0 {
			t.Errorf("the hub shows %d events of %s: %v", n, s.name, err)
		}
		if connected, err := w.connection(ctx, s.name); err != nil || connected != since[s.name] {
			t.Errorf("%s is connected since %s, was since %s: %v", s.name, connected, since[s.name], err)
		}
	}

	withEvents(t)
	said := 0
	eventually(t, "what Argo CD says is shown once the agent may read it", func() error {
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
func (w *quietWorld) connection(ctx context.Context, name string) (string, error) {
	o, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	status, _ := o.Object["status"].(map[string]any)
	return fmt.Sprint(status["connected"], " ", status["since"]), nil
}

// withoutEvents takes the right to read Events from the roles of a namespace, as they were
// before there was one, and returns what gives it back.
func (w *quietWorld) withoutEvents(t *testing.T, namespace string) (restore func(*testing.T)) {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.spoke.REST())
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
