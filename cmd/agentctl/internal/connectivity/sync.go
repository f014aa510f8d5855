package connectivity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// appRef names the Application of the test on the hub; there is none before step sync.
type appRef struct{ namespace, name string }

// noRepository is the repository of the Application, which deploys nothing. RFC 2606 keeps the name
// free.
const noRepository = "https://argomesh.invalid/connectivity.git"

// sync makes an Application on the hub and waits for what the spoke's Argo CD says of it.
func (t *tester) sync(ctx context.Context) (string, error) {
	if t.agent.Spec.Mode == v1alpha1.ModeAutonomous {
		return "", skipError{"the agent is autonomous: its Applications are made on the spoke"}
	}
	namespace, err := t.home(ctx)
	if err != nil {
		return "", err
	}
	if err := t.project(ctx, namespace); err != nil {
		return "", err
	}
	apps := t.objects.Resource(cli.ApplicationResource).Namespace(namespace)
	begin := time.Now()
	if _, err := apps.Create(ctx, t.application(namespace), metav1.CreateOptions{FieldManager: "agentctl"}); err != nil {
		return "", unlessForbidden(err, "create Applications in namespace "+namespace)
	}
	t.app = appRef{namespace, t.objectName()}
	t.later(fmt.Sprintf("Application %s/%s", namespace, t.objectName()), func(ctx context.Context) error {
		if err := apps.Delete(ctx, t.objectName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
		return awaitGone(ctx, apps, t.objectName())
	})
	done, otherwise := isReconciled, "the spoke's Argo CD has said nothing of it"
	if t.ask.repository != "" {
		done, otherwise = isDeployed, "it is not synced and healthy"
	}
	back, err := t.until(ctx, apps, otherwise, done)
	if err != nil {
		return "", err
	}
	status, _, _ := unstructured.NestedString(back.Object, "status", "sync", "status")
	return fmt.Sprintf("an Application went there and its status, %s, came back in %s", cmp.Or(status, "Unknown"),
		elapsed(begin)), nil
}

// isReconciled reports whether an Argo CD has looked at an Application.
func isReconciled(o *unstructured.Unstructured) bool {
	at, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt")
	return at != ""
}

// isDeployed reports whether what an Application deploys is there.
func isDeployed(o *unstructured.Unstructured) bool {
	status, _, _ := unstructured.NestedString(o.Object, "status", "sync", "status")
	health, _, _ := unstructured.NestedString(o.Object, "status", "health", "status")
	return status == "Synced" && health == "Healthy"
}

// home is the namespace of the hub in which the agent's Applications are.
func (t *tester) home(ctx context.Context) (string, error) {
	cm, err := t.hub.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if err != nil {
		return "", unlessForbidden(err, "read ConfigMap "+hubstate.ConfigMap)
	}
	by, _, _ := unstructured.NestedString(cm.Object, "data", hubstate.MappingKey)
	switch mapped := t.agent.Spec.Mapping; {
	case by == string(hubstate.ByDestination):
		return t.conn.Namespace, nil
	case mapped != nil && len(mapped.Namespaces) > 0:
		return mapped.Namespaces[0].Hub, nil
	}
	return t.name, nil
}

// project makes the AppProject of the Application.
func (t *tester) project(ctx context.Context, namespace string) error {
	projects := t.objects.Resource(cli.ProjectResource).Namespace(t.conn.Namespace)
	project := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cli.ProjectResource.GroupVersion().String(), "kind": "AppProject",
		"spec": map[string]any{
			"description":      "of \"agentctl connectivity test\"",
			"sourceRepos":      []any{cmp.Or(t.ask.repository, noRepository)},
			"sourceNamespaces": []any{namespace},
			"destinations":     []any{map[string]any{"name": t.name, "namespace": t.ask.namespace}},
		},
	}}
	project.SetName(t.objectName())
	project.SetLabels(t.labels())
	if _, err := projects.Create(ctx, project, metav1.CreateOptions{FieldManager: "agentctl"}); err != nil {
		return unlessForbidden(err, "create AppProjects in namespace "+t.conn.Namespace)
	}
	t.later("AppProject "+t.objectName(), func(ctx context.Context) error {
		return projects.Delete(ctx, t.objectName(), metav1.DeleteOptions{})
	})
	return nil
}

// application is what travels.
func (t *tester) application(namespace string) *unstructured.Unstructured {
	spec := map[string]any{
		"project":     t.objectName(),
		"destination": map[string]any{"name": t.name, "namespace": t.ask.namespace},
		"source":      map[string]any{"repoURL": noRepository, "path": ".", "targetRevision": "HEAD"},
	}
	app := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cli.ApplicationResource.GroupVersion().String(), "kind": "Application", "spec": spec,
	}}
	if t.ask.repository != "" {
		spec["source"] = map[string]any{
			"repoURL": t.ask.repository, "path": t.ask.path, "targetRevision": t.ask.revision,
		}
		spec["syncPolicy"] = map[string]any{"automated": map[string]any{}}
		app.SetFinalizers([]string{object.CascadeFinalizer})
	}
	app.SetNamespace(namespace)
	app.SetName(t.objectName())
	app.SetLabels(t.labels())
	return app
}

// until looks at the Application until done says so, and returns it. The error tells what the
// Application and its Agent say of it.
func (t *tester) until(ctx context.Context, apps dynamic.ResourceInterface, otherwise string,
	done func(*unstructured.Unstructured) bool) (last *unstructured.Unstructured, err error) {
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		o, err := apps.Get(ctx, t.objectName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = o
		return done(o), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return last, fmt.Errorf("%s%s: %w", otherwise, conditionsOf(last), err)
	}
	return last, err
}

// conditionsOf are the conditions of an Application, after a colon; empty for none.
func conditionsOf(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var all []string
	for _, one := range list {
		if c, is := one.(map[string]any); is {
			all = append(all, fmt.Sprintf("%v: %v", c["type"], c["message"]))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, "; ")
}

// awaitGone waits until an object is.
func awaitGone(ctx context.Context, at dynamic.ResourceInterface, name string) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		_, err := at.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}
