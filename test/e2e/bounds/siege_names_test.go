//go:build linux

package bounds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// oldToken returns how Argo CD called the cluster of an Agent which was deleted since, so that
// another may have its name.
func oldToken(t *testing.T, w *env.Bare, name string) *rest.Config {
	t.Helper()
	ctx := t.Context()
	w.Register(t, name, "managed")
	agents := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	env.Patch(t, agents, name, map[string]any{"spec": map[string]any{"access": map[string]any{"enabled": true}}})
	config, err := w.Harness.ClusterAccess(ctx, w.Hub, name)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = strings.Replace(config.Host, "https://", "http://", 1)
	if err := agents.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	secrets := w.Hub.Resource(env.Secrets, harness.ArgoCDNamespace)
	env.Eventually(t, "Agent "+name+" and its cluster Secret are gone", func() error {
		_, agent := agents.Get(ctx, name, metav1.GetOptions{})
		_, secret := secrets.Get(ctx, "cluster-"+name, metav1.GetOptions{})
		if !apierrors.IsNotFound(agent) || !apierrors.IsNotFound(secret) {
			return fmt.Errorf("Agent: %v, Secret: %v", agent, secret) //nolint:errorlint // either may be nil
		}
		return nil
	})
	return config
}

// next is an honest autonomous agent whose name begins with that of an attacker and a dash, so
// that the attacker can name projects whose names on the hub are those of the agent.
type next struct{ *env.BareAgent }

// itsProject is the one that it has, and itsRepos what that admits. The attacker asks for it, too.
const itsProject, itsRepos = "project-0", "https://git.example.com/*"

func newNext(t *testing.T, w *env.Bare, attacker string) next {
	t.Helper()
	n := next{w.Connect(t, attacker+"-next", "autonomous")}
	o := env.ProjectNamed(itsProject)
	if err := unstructured.SetNestedStringSlice(o.Object, []string{itsRepos}, "spec", "sourceRepos"); err != nil {
		t.Fatal(err)
	}
	env.Create(t, n.Projects(), o)
	env.Eventually(t, "the hub shows the AppProject of "+n.Name, func() error { return n.shown(t.Context()) })
	return n
}

// shown is a check that the hub has the project as the agent has it.
func (n next) shown(ctx context.Context) error {
	o, err := n.Env.HubProjects().Get(ctx, n.Name+"-"+itsProject, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if repos := fmt.Sprint(o.Object["spec"].(map[string]any)["sourceRepos"]); repos != "["+itsRepos+"]" {
		return errors.New("it admits " + repos)
	}
	return nil
}

// kept fails the test when the hub has another project under a name of the agent than the
// agent's.
func (n next) kept(t *testing.T) {
	t.Helper()
	if err := n.shown(t.Context()); err != nil {
		t.Errorf("AppProject of agent %s: %v", n.Name, err)
	}
	list, err := n.Env.HubProjects().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), n.Name+"-") && o.GetName() != n.Name+"-"+itsProject {
			t.Errorf("AppProject %s on the hub is none of agent %s", o.GetName(), n.Name)
		}
	}
}
