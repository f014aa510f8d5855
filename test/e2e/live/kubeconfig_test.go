//go:build linux

package live

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/accessrequests"
	"github.com/argomesh/argomesh/internal/sealed"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// people are those who ask for a kubeconfig. They are no one's in any other test.
type people struct {
	t *testing.T
	w *env.Live
}

// may lets a user of the hub do something in Argo CD's namespace.
func (p people) may(user string, rules ...map[string]any) {
	p.t.Helper()
	var all []any
	for _, rule := range rules {
		all = append(all, rule)
	}
	name, v1 := "kubeconfig-"+user, rbacv1.SchemeGroupVersion
	role := env.Object(v1.String(), "Role", harness.ArgoCDNamespace, name, map[string]any{"rules": all})
	binding := env.Object(v1.String(), "RoleBinding", harness.ArgoCDNamespace, name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": name},
		"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": "User", "name": user}},
	})
	if err := errors.Join(p.w.Hub.Apply(p.t.Context(), role), p.w.Hub.Apply(p.t.Context(), binding)); err != nil {
		p.t.Fatal(err)
	}
}

// asks runs agentctl kubeconfig as a user, and returns the file that it makes.
func (p people) asks(user, agent string, args ...string) (file string, err error) {
	p.t.Helper()
	out, err := p.w.Harness.Agentctl(p.t.Context(), p.w.Hub, append([]string{"kubeconfig", agent, "--as", user}, args...)...)
	if err != nil {
		return "", err
	}
	file = filepath.Join(p.t.TempDir(), "kubeconfig")
	return file, os.WriteFile(file, []byte(out), 0o600)
}

// refused asks until the answer is a refusal that says so: roles take effect a moment later.
func (p people) refused(says, user, agent string) {
	p.t.Helper()
	env.Eventually(p.t, user+" is refused", func() error {
		_, err := p.asks(user, agent)
		if err == nil || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("want %q: %w", says, errors.Join(err, errors.New("that is not it")))
		}
		return nil
	})
}

// granted asks until there is a kubeconfig.
func (p people) granted(user, agent string, args ...string) string {
	p.t.Helper()
	var file string
	env.Eventually(p.t, user+" has a kubeconfig", func() (err error) {
		file, err = p.asks(user, agent, args...)
		return err
	})
	return file
}

// What people need to ask, and to have it granted for one agent.
var (
	mayAsk = map[string]any{"apiGroups": []any{"argomesh.io"}, "resources": []any{"accessrequests"}, "verbs": []any{"create", "get", "delete"}}
	mayUse = func(agent string) map[string]any {
		return map[string]any{"apiGroups": []any{"argomesh.io"}, "resources": []any{"agents/access"}, "resourceNames": []any{agent}, "verbs": []any{"create"}}
	}
)

// agentctl kubeconfig gives a person a token of one agent that names her, if the hub's RBAC lets
// her have one, and no one else in her name.
func TestLiveKubeconfig(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	p := people{t, w}
	mine, other := w.Agent(t, "of-people", env.Everything, env.Everything), w.Agents[env.Managed]

	p.refused("accessrequests", "jane", mine.Name) // she may not even ask
	p.may("jane", mayAsk)
	p.refused("refused (NotGuarded)", "jane", mine.Name) // no one says that she is jane
	guard(t, w)
	p.refused("refused (NotAllowed): jane may not create agents/access of Agent of-people", "jane", mine.Name)
	p.refused("refused (NotAllowed)", "jane", "not-there")
	p.may("jane", mayAsk, mayUse(mine.Name), mayUse("not-there"))
	p.refused("refused (NoSuchAgent)", "jane", "not-there")
	file := p.granted("jane", mine.Name, "--duration", "10m")
	p.refused("refused (NotAllowed)", "jane", other.Name)

	t.Run("what she does has her name", func(t *testing.T) {
		c := &env.Caller{T: t, Agent: mine, Kubeconfig: file, Folder: t.TempDir()}
		c.Run("", "create", "configmap", "of-jane", "-n", "default")
		record := w.Recorded(t, mine.Name, map[string]any{"user": "jane", "verb": "create", "resource": "configmaps", "status": 201})
		if record["subject"] != mine.Name || record["token_id"] == "" {
			t.Errorf("the record says %v", record)
		}
		c.Run("", "delete", "configmap", "of-jane", "-n", "default")
	})
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("it is for one agent", func(t *testing.T) {
		elsewhere := rest.CopyConfig(config)
		elsewhere.Host = strings.Replace(config.Host, "/agents/"+mine.Name, "/agents/"+other.Name, 1)
		if r, err := env.FetchOne(t.Context(), elsewhere, "/version"); err != nil || r.Status != http.StatusForbidden {
			t.Errorf("another agent: %d %s %v", r.Status, r.Body, err)
		}
	})
	t.Run("no one asks for another", func(t *testing.T) { p.in(t).forge(mine.Name) })
	t.Run("nothing is left behind", func(t *testing.T) {
		list, err := w.Hub.Resource(v1alpha1.AccessRequestResource, harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), mine.Name) {
				t.Errorf("request %s is still there", o.GetName())
			}
		}
	})
	t.Run("it ends", func(t *testing.T) {
		if out, err := w.Harness.Agentctl(t.Context(), w.Hub, "agent", "revoke-tokens", mine.Name); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		env.Eventually(t, "her token is refused", func() error {
			r, err := env.FetchOne(t.Context(), config, "/version")
			if err == nil && r.Status != http.StatusUnauthorized {
				err = fmt.Errorf("%d %s", r.Status, r.Body)
			}
			return err
		})
	})
}

// in returns p in a subtest.
func (p people) in(t *testing.T) people { return people{t, p.w} }

// guard installs what the chart has to say who asks.
func guard(t *testing.T, w *env.Live) {
	t.Helper()
	for _, o := range charts.Render(t, charts.Principal, "") {
		if o.GetName() == accessrequests.GuardName(harness.ArgoCDNamespace) {
			if err := w.Hub.Apply(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// forge asks in the name, or with the groups, of someone else.
func (p people) forge(agent string) {
	t := p.t
	t.Helper()
	p.may("mallory", mayAsk)
	config := rest.CopyConfig(p.w.Hub.REST())
	config.Impersonate = rest.ImpersonationConfig{UserName: "mallory"}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	key, err := sealed.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string]map[string]any{
		"another's name":   {"username": "jane", "groups": []any{"system:authenticated"}},
		"another's groups": {"username": "mallory", "groups": []any{"system:authenticated", "system:masters"}},
		"no groups":        {"username": "mallory"},
		"a uid":            {"username": "mallory", "uid": "1", "groups": []any{"system:authenticated"}},
		"more":             {"username": "mallory", "groups": []any{"system:authenticated"}, "extra": map[string]any{"a": []any{"b"}}},
	} {
		request := env.Object(v1alpha1.SchemeGroupVersion.String(), "AccessRequest", harness.ArgoCDNamespace, "forged", map[string]any{
			"spec": map[string]any{"agent": agent, "user": user, "publicKey": base64.StdEncoding.EncodeToString(key.Public())},
		})
		env.Eventually(t, name+" is denied", func() error {
			_, err := client.Resource(v1alpha1.AccessRequestResource).Namespace(harness.ArgoCDNamespace).Create(t.Context(), request, metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("%w is not a denial", errors.Join(err, errors.New("this")))
			}
			if !strings.Contains(err.Error(), "a person asks for herself alone") {
				return err // her role is not known yet
			}
			return nil
		})
	}
}
