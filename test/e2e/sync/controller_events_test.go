//go:build linux

package sync

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// That a sync failed is said on the spoke by its Argo CD's controller, and the hub's
// argocd-server shows it among the events of the hub's Application.
func TestEventsOfControllers(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	a := w.API(t)
	for _, agent := range []string{env.Managed, env.Autonomous} {
		t.Run(agent, func(t *testing.T) {
			name := "eventful-" + agent
			where, namespace, destination := w.OnHub(env.Managed), env.Managed, env.Managed
			if agent == env.Autonomous {
				where, namespace, destination = w.OnSpoke(env.Autonomous), harness.ArgoCDNamespace, ""
			}
			app := w.Plain(name, namespace, destination)
			delete(app.Object["spec"].(map[string]any), "syncPolicy") // no one makes its namespace, so its sync fails
			env.Create(t, where, app)
			t.Cleanup(func() { _ = where.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) }) // it is in no one's way
			env.Eventually(t, "the Application on both sides", func() error {
				_, err := w.OnHub(agent).Get(ctx, name, metav1.GetOptions{})
				if err == nil {
					_, err = w.OnSpoke(agent).Get(ctx, name, metav1.GetOptions{})
				}
				return err
			})
			env.Patch(t, where, name, map[string]any{"operation": map[string]any{"sync": map[string]any{}}})
			env.Eventually(t, "the failure among the events", func() error {
				var list struct{ Items []env.Event }
				if err := a.Call(ctx, http.MethodGet, fmt.Sprintf("applications/%s/events?appNamespace=%s", name, agent), nil, &list); err != nil {
					return err
				}
				for _, e := range list.Items {
					if e.Reason == "OperationCompleted" && strings.Contains(e.Message, "failed") {
						return nil
					}
				}
				return fmt.Errorf("there are %+v", list.Items)
			})
		})
	}
}
