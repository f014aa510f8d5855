//go:build linux

package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Secrets that either side masks show keys and sizes to kubectl, and no value in whatever
// form it asks.
func TestLiveMaskedSecrets(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	for name, access := range map[string][2]any{"masks-hub": {"masked", true}, "masks-spoke": {true, "masked"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := func(secrets any) map[string]any {
				return map[string]any{"enabled": true, "writes": true, "secrets": secrets}
			}
			a := w.Agent(t, name, with(access[0]), with(access[1]))
			c := a.Caller(t)
			// Applied as people do it, so that its values are in an annotation and in managed fields too.
			a.Direct(t).Run(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","annotations":{"note":"`+env.MaskedPassword+`"}},"stringData":{"password":"`+env.MaskedPassword+`","user":"shop"}}`,
				"--namespace", name, "apply", "-f", "-")
			in := func(args ...string) []string { return append([]string{"--namespace", name}, args...) }
			for _, output := range []string{"", "wide", "yaml", "json", "name", "go-template={{.data.password}}"} {
				args := in("get", "secret", "db", "--show-managed-fields")
				if output != "" {
					args = append(args, "-o", output)
				}
				env.RevealsPassword(t, output, c.Run("", args...))
			}
			var got corev1.Secret
			if err := json.Unmarshal([]byte(c.Run("", in("get", "secret", "db", "-o", "json", "--show-managed-fields")...)), &got); err != nil {
				t.Fatal(err)
			}
			if string(got.Data["password"]) != strings.Repeat("*", len(env.MaskedPassword)) || len(got.ManagedFields) > 0 || got.Annotations["note"] != "masked" ||
				got.Annotations[masking.Annotation] != "password: 21 bytes, user: 4 bytes" || got.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
				t.Errorf("it is %+v", got)
			}
			if out := c.Run("", in("get", "secrets")...); !strings.Contains(strings.Join(strings.Fields(out), " "), "NAME TYPE DATA AGE db Opaque 2 ") {
				t.Errorf("kubectl get prints\n%s", out)
			}
			if out := c.Run("", in("describe", "secret", "db")...); !strings.Contains(out, "password:  21 bytes") {
				t.Errorf("kubectl describe prints\n%s", out)
			} else {
				env.RevealsPassword(t, "describe", out)
			}
			env.RevealsPassword(t, "sorted", c.Run("", in("get", "secrets", "--sort-by", ".type", "--field-selector", "type=Opaque", "--chunk-size", "1", "-o", "yaml")...))
			path := "/api/v1/namespaces/" + name + "/secrets"
			for _, raw := range []string{path, path + "/db", path + "?includeObject=Object", path + "?resourceVersion=0", path + "?limit=1"} {
				env.RevealsPassword(t, raw, c.Run("", "get", "--raw", raw))
			}
			c.Refused("", []string{"is masked: Secrets are read one by one or as a list, and neither watched nor changed"}, in("get", "secrets", "--watch-only")...)
			c.Refused("", []string{"is masked"}, in("patch", "secret", "db", "--dry-run=server", "-p", `{"metadata":{"labels":{"a":"b"}}}`, "-o", "yaml")...)
			c.Refused("", []string{"is masked"}, in("delete", "secret", "db", "--dry-run=server")...)
			c.Refused("", []string{"BadRequest"}, "get", "--raw", path+"?fieldSelector=data.password%3Dcorrect")
			c.Refused("", []string{`secrets "none" not found`}, in("get", "secret", "none")...)
			typed, err := c.Clients().CoreV1().Secrets(name).Get(t.Context(), "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			env.RevealsPassword(t, "client-go", fmt.Sprintf("%+v %s", typed, typed.Data["password"]))
			// What a hub that masks asks for: an agent of a release that does not mask passes it on, to this answer.
			_, err = a.Direct(t).Clients().CoreV1().RESTClient().Get().Namespace(name).Resource("secrets").Name("db").SetHeader("Accept", masking.MediaType).DoRaw(t.Context())
			if !apierrors.IsNotAcceptable(err) {
				t.Errorf("an API server answers what is asked of an agent that masks: %v", err)
			}
			side := map[bool]string{true: "hub", false: "spoke"}[name == "masks-hub"]
			w.Recorded(t, a.Name, map[string]any{"verb": "get", "resource": "secrets", "decision": "allow", "masked": side, "status": 200})
		})
	}
}

// testMaskedSecret shows a Secret of an Application in Argo CD, from the spoke's cache and
// from the spoke itself.
func (w *liveArgoEnv) testMaskedSecret(t *testing.T, name string) {
	ctx := t.Context()
	if err := w.Agents[env.Managed].Allow(ctx, map[string]any{"secrets": "masked"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.argo.Repository.Commit(ctx, "a Secret", map[string]string{
		harness.GuestbookPath + "/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: " + env.MaskedPassword + "}\n",
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := w.argo.HubArgo.CLI(ctx, "app", "get", w.namespace+"/"+name, "--refresh"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.tree(t, name, node{Kind: "Secret", Name: "db"})
	var one struct{ Manifest string }
	path := fmt.Sprintf("applications/%s/resource?appNamespace=%s&namespace=%s&resourceName=db&version=v1&kind=Secret", name, w.namespace, name)
	env.Eventually(t, "argocd-server shows the Secret", func() error { return w.session.Call(ctx, http.MethodGet, path, nil, &one) })
	env.RevealsPassword(t, "the panel", one.Manifest)
	for _, want := range []string{`"kind":"Secret"`, `"password":"++++++++"`, `"argomesh.io/masked":"password: 21 bytes"`} {
		if !strings.Contains(one.Manifest, want) {
			t.Errorf("the panel has no %s: %s", want, one.Manifest)
		}
	}
	var managedResources struct {
		Items []struct{ Kind, LiveState, TargetState string }
	}
	env.Eventually(t, "argocd-server has the Secret's live state", func() error {
		if err := w.session.Call(ctx, http.MethodGet, "applications/"+name+"/managed-resources?appNamespace="+w.namespace, nil, &managedResources); err != nil {
			return err
		}
		for _, item := range managedResources.Items {
			if item.Kind == "Secret" && strings.Contains(item.LiveState, "++++++++") {
				env.RevealsPassword(t, "managed-resources", item.LiveState+item.TargetState)
				return nil
			}
		}
		return fmt.Errorf("it has %d", len(managedResources.Items))
	})
	w.Recorded(t, env.Managed, map[string]any{"verb": "get", "resource": "secrets", "name": "db", "masked": "hub", "status": 200})
}
