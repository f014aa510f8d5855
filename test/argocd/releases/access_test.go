package argocd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/server/rbacpolicy"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/assets"
	"github.com/argoproj/argo-cd/v3/util/db"
	"github.com/argoproj/argo-cd/v3/util/glob"
	"github.com/argoproj/argo-cd/v3/util/rbac"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

const (
	namespace     = "argocd"
	agentName     = "edge-1"
	clusterServer = "https://proxy:9090/agents/edge-1"
)

func lister(t *testing.T, projects ...*v1alpha1.AppProject) applisters.AppProjectLister {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range projects {
		if err := index.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return applisters.NewAppProjectLister(index)
}

// impersonated is whom a sync is impersonated by: deriveServiceAccountToImpersonate in
// controller/sync.go of these releases, which is theirs alone.
func impersonated(p *v1alpha1.AppProject, server, namespace string) (string, error) {
	for _, item := range p.Spec.DestinationServiceAccounts {
		byServer, err := glob.MatchWithError(item.Server, server)
		if err != nil {
			return "", err
		}
		byNamespace, err := glob.MatchWithError(item.Namespace, namespace)
		if err != nil {
			return "", err
		}
		switch {
		case !byServer || !byNamespace:
		case strings.Trim(item.DefaultServiceAccount, " ") == "" || strings.ContainsAny(item.DefaultServiceAccount, "!*[]{}\\/"):
			return "", errors.New("it has other characters")
		case strings.Contains(item.DefaultServiceAccount, ":"):
			return item.DefaultServiceAccount, nil
		default:
			return namespace + ":" + item.DefaultServiceAccount, nil
		}
	}
	return "", errors.New("there is none")
}

// A sync is impersonated by the same account on both sides, or by none.
func TestServiceAccounts(t *testing.T) {
	for _, a := range read(t).Accounts {
		found := 0
		for _, p := range a.Projects {
			for _, in := range []string{"web", "db"} {
				want, wantErr := impersonated(&p.Original, a.There, in)
				got, err := impersonated(&p.Stored, a.Here, in)
				if got != want || (err != nil) != (wantErr != nil) {
					t.Errorf("accounts %v for namespace %s: %q, %v; at their source %q, %v", p.Original.Spec.DestinationServiceAccounts, in, got, err, want, wantErr)
				}
				if got != "" {
					found++
				}
			}
		}
		if found == 0 {
			t.Error("there is no service account for anything")
		}
	}
}

// A project that permits clusters of its own alone permits the spoke where it does so on the
// hub.
func TestScopedClusters(t *testing.T) {
	for _, s := range read(t).Scoped {
		cluster := v1alpha1.Cluster{Name: agentName, Server: clusterServer, Project: s.Scope}
		want, err := s.Original.IsDestinationPermitted(&cluster, "web", func(project string) ([]*v1alpha1.Cluster, error) {
			if project != s.Scope {
				return nil, nil
			}
			return []*v1alpha1.Cluster{&cluster}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got := false
		if s.Stored != nil {
			local := v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}
			if got, err = s.Stored.IsDestinationPermitted(&local, "web", nil); err != nil {
				t.Fatal(err)
			}
		}
		if got != want {
			t.Errorf("the cluster is of project %q: the spoke permits it: %t, the hub %t", s.Scope, got, want)
		}
	}
}

func enforcer(t *testing.T, p *v1alpha1.AppProject) *rbac.Enforcer {
	t.Helper()
	e := rbac.NewEnforcer(nil, namespace, "argocd-rbac-cm", nil)
	if err := e.SetBuiltinPolicy(assets.BuiltinPolicyCSV); err != nil {
		t.Fatal(err)
	}
	e.SetMatchMode(rbac.GlobMatchMode)
	e.SetClaimsEnforcerFunc(rbacpolicy.NewRBACPolicyEnforcer(e, lister(t, p).AppProjects(namespace)).EnforceClaims)
	return e
}

// A role of a spoke's project gives on the hub what it gives there, and for nothing else.
func TestMirroredRoles(t *testing.T) {
	for _, r := range read(t).Roles {
		spoke, hub := enforcer(t, r.Original), enforcer(t, r.Stored)
		callers := func(project string) []jwt.MapClaims {
			return []jwt.MapClaims{{"sub": "mallory", "groups": []any{"evil", "x"}}, {"sub": "proj:" + project + ":admin"}}
		}
		given := 0
		for _, resource := range []string{"applications", "logs", "exec", "applicationsets", "repositories", "clusters", "projects", "accounts"} {
			for _, action := range []string{"get", "create", "update", "sync", "action/apps/Deployment/restart", "delete/apps/Deployment/web/x"} {
				for i, caller := range callers(r.Stored.Name) {
					for _, objects := range r.Objects {
						want, got := spoke.Enforce(callers(r.Original.Name)[i], resource, action, objects[0]), hub.Enforce(caller, resource, action, objects[1])
						if got != want {
							t.Errorf("%v, %s %s: %t for %s on the spoke, %t for %s on the hub", caller, action, resource, want, objects[0], got, objects[1])
						}
						if got {
							given++
						}
					}
					for _, outside := range []string{"edge-1-web/shop", "edge-1-web/edge-2/shop", "edge-1-web/argocd/shop", "web/shop", "web/edge-1/shop", "default/shop", "edge-2", "x"} {
						if hub.Enforce(caller, resource, action, outside) {
							t.Errorf("%v may %s %s %s by roles %v", caller, action, resource, outside, r.Stored.Spec.Roles)
						}
					}
				}
			}
		}
		if given == 0 {
			t.Errorf("roles %v give nothing on either side", r.Original.Spec.Roles)
		}
	}
}

// What leaves the hub is what Argo CD of this release admits there.
func TestAdmission(t *testing.T) {
	a := read(t).Admission
	partOf := map[string]string{"app.kubernetes.io/part-of": "argocd"}
	client := fake.NewClientset(a.Scoped,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-cm", Labels: partOf}, Data: map[string]string{"globalProjects": a.Settings}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-secret", Labels: partOf}, Data: map[string][]byte{"server.secretkey": []byte("x")}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "cluster-" + agentName,
				Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}, Annotations: map[string]string{"managed-by": "argocd.argoproj.io"},
			},
			Data: map[string][]byte{"name": []byte(agentName), "server": []byte(clusterServer), "config": []byte("{}")},
		})
	manager := settings.NewSettingsManager(t.Context(), client, namespace)
	asked, projects := db.NewDB(namespace, manager, client), lister(t, a.Projects...)
	admits := func(app *v1alpha1.Application) (why string) {
		p, err := argo.GetAppProject(t.Context(), app, projects, namespace, manager, asked)
		if err != nil {
			return err.Error()
		}
		conditions, err := argo.ValidatePermissions(t.Context(), &app.Spec, p, asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conditions {
			why += c.Message + "; "
		}
		return why
	}
	admitted := 0
	for _, app := range a.Apps {
		want, ours := admits(app), a.Refused[app.Name]
		if (ours == "") != (want == "") {
			t.Errorf("Argo CD says %q of %s, we say %q\nof sources %s", want, app.Name, ours, fmt.Sprint(app.Spec.GetSources(), app.Spec.SourceHydrator))
		}
		if want == "" {
			admitted++
		}
	}
	if admitted < len(a.Apps)/50 || admitted > len(a.Apps)*49/50 {
		t.Errorf("%d of %d are admitted, which tells little", admitted, len(a.Apps))
	}
}
