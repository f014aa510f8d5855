//go:build linux

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const liveAccess = `access:
  enabled: true
  writes: true
  exec: true
  rules:
  - name: look
    verbs: [get, list, watch]
  - name: web
    namespaces: [web]
  - name: core
    verbs: [get, list]
    groups: [""]
    resources: ["*"]
    namespaces: [api]
  - name: scale
    groups: [apps]
    resources: ["*/scale"]
    namespaces: [api]
    names: [shop]
`

// liveConfig is liveAccess as the agent reads it.
var liveConfig = access.Config{
	Enabled: true, Writes: true, Exec: true,
	Rules: []access.Rule{
		{Name: "look", Verbs: []string{"get", "list", "watch"}},
		{Name: "web", Namespaces: []string{"web"}},
		{Name: "core", Verbs: []string{"get", "list"}, Groups: []string{""}, Resources: []string{"*"}, Namespaces: []string{"api"}},
		{Name: "scale", Groups: []string{"apps"}, Resources: []string{"*/scale"}, Namespaces: []string{"api"}, Names: []string{"shop"}},
	},
}

// With the roles that agentctl prints an agent does its work, and its service account
// may do what its configuration lets the hub do, and nothing else.
func TestAgentRole(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	ctx := t.Context()
	spoke, err := env.StartBareControlPlane(ctx, h, "spoke", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"web", "api", "other"} {
		if err := spoke.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	file := h.Path("access.yaml")
	if err := os.WriteFile(file, []byte(liveAccess), 0o600); err != nil {
		t.Fatal(err)
	}
	roles, err := h.Agentctl(ctx, spoke, "agent", "role", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	if err := spoke.ApplyYAML(ctx, []byte(roles)); err != nil {
		t.Fatal(err)
	}
	agent := serviceAccount(t, spoke)
	t.Run("rights", func(t *testing.T) { testRights(t, agent) })
	t.Run("work", func(t *testing.T) { testWork(t, h, spoke, agent) })
}

// serviceAccount makes the agent's account and returns a client of its own.
func serviceAccount(t *testing.T, spoke *harness.ControlPlane) *rest.Config {
	t.Helper()
	admin, err := kubernetes.NewForConfig(spoke.REST())
	if err != nil {
		t.Fatal(err)
	}
	accounts := admin.CoreV1().ServiceAccounts(harness.ArgoCDNamespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "argomesh-agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := accounts.CreateToken(t.Context(), "argomesh-agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(spoke.REST())
	config.BearerToken, config.QPS = issued.Status.Token, -1
	return config
}

// testRights asks the API server, as the agent, about each verb of each resource.
func testRights(t *testing.T, agent *rest.Config) {
	client, err := kubernetes.NewForConfig(agent)
	if err != nil {
		t.Fatal(err)
	}
	p, err := access.New(access.Spoke, liveConfig)
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(resource *authorizationv1.ResourceAttributes) (bool, error) {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: resource},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	yes := 0
	var refused []*authorizationv1.ResourceAttributes // asked last, when the API server knows all rights
	for group, resources := range map[string][]string{
		"": {
			"pods", "pods/log", "pods/exec", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers", "pods/eviction", "pods/binding",
			"secrets", "configmaps", "services", "nodes", "nodes/proxy", "serviceaccounts/token", "namespaces",
		},
		"apps":                      {"deployments", "deployments/scale", "deployments/status"},
		"authentication.k8s.io":     {"tokenreviews"},
		"rbac.authorization.k8s.io": {"clusterroles", "rolebindings"},
		"argomesh.io":               {"agents"},
	} {
		for _, resource := range resources {
			for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete", "deletecollection"} {
				for _, at := range []types.NamespacedName{{}, {Namespace: "web", Name: "shop"}, {Namespace: "api", Name: "shop"}, {Namespace: "api", Name: "other"}, {Namespace: "other"}} {
					r := access.Request{Method: "GET", Path: "/", Verb: verb, Group: group, Version: "v1", Namespace: at.Namespace, Name: at.Name}
					r.Resource, r.Subresource, _ = strings.Cut(resource, "/")
					attributes := &authorizationv1.ResourceAttributes{
						Verb: verb, Group: group, Version: "v1", Resource: r.Resource, Subresource: r.Subresource, Namespace: at.Namespace, Name: at.Name,
					}
					d := p.Decide(r)
					if !d.Allowed {
						refused = append(refused, attributes)
						continue
					}
					yes++
					// The API server decides by what it has heard of roles.
					env.Eventually(t, fmt.Sprintf("%v is allowed, as the agent says by rule %s", r, d.Rule), func() error {
						ok, err := allowed(attributes)
						if err == nil && !ok {
							err = errors.New("the API server says no")
						}
						return err
					})
				}
			}
		}
	}
	for _, attributes := range refused {
		if ok, err := allowed(attributes); err != nil || ok {
			t.Errorf("%v: the agent says no, the API server %v, %v", attributes, ok, err)
		}
	}
	if no := len(refused); yes < 50 || no < 50 {
		t.Errorf("%d allowed, %d refused: this compares too little", yes, no)
	}
}

// testWork runs an agent as its service account: it connects, remembers and mirrors.
func testWork(t *testing.T, h *harness.Harness, spoke *harness.ControlPlane, account *rest.Config) {
	ctx := t.Context()
	kubeconfig := h.Path("agent.kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["spoke"] = &clientcmdapi.Cluster{Server: account.Host, CertificateAuthorityData: account.CAData}
	config.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: account.BearerToken}
	config.Contexts["agent"] = &clientcmdapi.Context{Cluster: "spoke", AuthInfo: "agent"}
	config.CurrentContext = "agent"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	hub, err := env.StartBareControlPlane(ctx, h, "hub", nil)
	if err != nil {
		t.Fatal(err)
	}
	svids := map[string]*harness.WorkloadAPI{}
	for _, name := range []string{"principal", "edge-1"} {
		if svids[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: env.TrustDomain, CADir: h.Path("ca"), Entries: []string{env.SPIFFEID(name)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	principal, err := h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: hub, WorkloadAPI: svids["principal"]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Agentctl(ctx, hub, "agent", "create", "edge-1", "--mode", "managed", "--spiffe-id", env.SPIFFEID("edge-1"), "--wait"); err != nil {
		t.Fatal(err)
	}
	agent, err := h.StartAgent(ctx, harness.AgentConfig{
		Name: "edge-1", Mode: "managed", ControlPlane: spoke, WorkloadAPI: svids["edge-1"],
		PrincipalAddress: principal.Address, PrincipalIDs: []string{env.PrincipalID},
		Settings: harness.Settings{"kubernetes.kubeconfig": kubeconfig, "access.enabled": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.EnsureNamespace(ctx, "edge-1"); err != nil {
		t.Fatal(err)
	}
	w := &env.Argo{Hub: hub, Edge1: spoke, Repository: &harness.Repository{URL: "https://git.example.org/x"}}
	if err := w.ApplyProject(ctx); err != nil {
		t.Fatal(err)
	}
	onHub, onSpoke := hub.Resource(harness.Applications, "edge-1"), spoke.Resource(harness.Applications, harness.ArgoCDNamespace)
	env.Create(t, onHub, w.Idle("shop", "edge-1", "edge-1"))
	env.Eventually(t, "the Application is on the spoke", func() error {
		_, err := onSpoke.Get(ctx, "shop", metav1.GetOptions{})
		return err
	})
	env.Patch(t, onHub, "shop", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "next"}}})
	env.Eventually(t, "its change too", func() error {
		return env.FieldIs(ctx, onSpoke, "shop", "next", "spec", "source", "targetRevision")
	})
	env.Eventually(t, "the agent remembers the hub", func() error {
		_, err := spoke.Resource(env.ConfigMaps, harness.ArgoCDNamespace).Get(ctx, "argomesh-agent", metav1.GetOptions{})
		return err
	})
	if err := onHub.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "it is gone", func() error { return env.Gone(ctx, onSpoke, "shop") })
	refused(t, agent)
}

// refused fails the test when the agent's log tells of something that its role does
// not let it do.
func refused(t *testing.T, agent *harness.Agent) {
	t.Helper()
	if err := agent.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	content, err := os.ReadFile(agent.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	denied := regexp.MustCompile(`(?i)forbidden|cannot [a-z]+ resource`) // as the API server says it
	for _, line := range slices.DeleteFunc(lines, func(line string) bool { return !denied.MatchString(line) }) {
		t.Errorf("the agent's role lacks something: %s", line)
	}
}
