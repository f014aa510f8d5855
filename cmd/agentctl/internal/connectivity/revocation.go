package connectivity

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// revocation registers an Agent that no one is, has a token of it made, and sees that the token
// counts for nothing once the Agent is deleted.
func (t *tester) revocation(ctx context.Context) (string, error) {
	name := "connectivity-" + t.id
	if err := t.register(ctx, name); err != nil {
		return "", err
	}
	granted, err := t.request(ctx, name)
	if err != nil {
		return "", skipError{"no token of another Agent: " + err.Error()}
	}
	proxy, err := t.doors.resourceProxy(ctx)
	if err != nil {
		return "", err
	}
	config, err := restOf(granted, name, proxy)
	if err != nil {
		return "", err
	}
	// It counts when the answer is that there is no such connection.
	if err := answers(ctx, config, func(code int) bool { return code >= http.StatusInternalServerError }); err != nil {
		return "", fmt.Errorf("the token never counted: %w", err)
	}
	begin := time.Now()
	if err := t.hub.Agents.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	refused := func(code int) bool {
		return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
	}
	if err := answers(ctx, config, refused); err != nil {
		return "", fmt.Errorf("the token goes on to count: %w", err)
	}
	return fmt.Sprintf("the token of Agent %s counted for nothing %s after the Agent was deleted", name, elapsed(begin)), nil
}

// register makes an Agent with a SPIFFE ID that no one has, which goes at the end.
func (t *tester) register(ctx context.Context, name string) error {
	domain := "argomesh.invalid"
	if ids := t.agent.Spec.Identity.SPIFFEIDs; len(ids) > 0 {
		if id, err := identity.ParseID(ids[0]); err == nil {
			domain = id.TrustDomain().String()
		}
	}
	agent := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"mode":     string(v1alpha1.ModeManaged),
		"identity": map[string]any{"spiffeIDs": []any{"spiffe://" + domain + "/argomesh/connectivity-test/" + t.id}},
	}}}
	agent.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	agent.SetName(name)
	agent.SetLabels(t.labels())
	if _, err := t.hub.Agents.Create(ctx, agent, metav1.CreateOptions{FieldManager: "agentctl"}); err != nil {
		return unlessForbidden(err, "register Agents")
	}
	t.later("Agent "+name, func(ctx context.Context) error {
		if err := t.hub.Agents.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := awaitGone(ctx, t.hub.Agents, name); err != nil {
			return err
		}
		return t.forgetNamespace(ctx, name)
	})
	return nil
}

// forgetNamespace deletes the namespace that the principal has made for an Agent of ours, if it
// did: it never deletes one itself.
func (t *tester) forgetNamespace(ctx context.Context, name string) error {
	namespaces := t.client.CoreV1().Namespaces()
	there, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return namespaces.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &there.UID}})
}

// answers calls until the status is one that ok accepts.
func answers(ctx context.Context, config *rest.Config, ok func(int) bool) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	last := "there was no answer"
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/version", http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // the last one is told
		}
		_ = resp.Body.Close() // the status says enough
		last = "the answer is " + resp.Status
		return ok(resp.StatusCode), nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", last, err)
	}
	return nil
}
