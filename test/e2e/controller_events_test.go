//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/test/harness"
)

// That a sync failed is said on the spoke by its Argo CD's controller, and the hub's
// argocd-server shows it among the events of the hub's Application.
func TestEventsOfControllers(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	a := w.api(t)
	for _, agent := range []string{managed, autonomous} {
		t.Run(agent, func(t *testing.T) {
			name := "eventful-" + agent
			where, namespace, destination := w.onHub(managed), managed, managed
			if agent == autonomous {
				where, namespace, destination = w.onSpoke(autonomous), harness.ArgoCDNamespace, ""
			}
			app := w.plain(name, namespace, destination)
			delete(app.Object["spec"].(map[string]any), "syncPolicy") // nobody makes its namespace, so its sync fails
			create(t, where, app)
			t.Cleanup(func() { _ = where.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) }) // it is in nobody's way
			eventually(t, "the Application on both sides", func() error {
				_, err := w.onHub(agent).Get(ctx, name, metav1.GetOptions{})
				if err == nil {
					_, err = w.onSpoke(agent).Get(ctx, name, metav1.GetOptions{})
				}
				return err
			})
			patch(t, where, name, map[string]any{"operation": map[string]any{"sync": map[string]any{}}})
			eventually(t, "the failure among the events", func() error {
				var list struct{ Items []event }
				if err := a.call(ctx, http.MethodGet, fmt.Sprintf("applications/%s/events?appNamespace=%s", name, agent), nil, &list); err != nil {
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
