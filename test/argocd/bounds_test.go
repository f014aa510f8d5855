package argocd

import (
	"math/rand/v2"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/backends/policy"
)

// TestBoundedProject holds what is left of a generated project, under a policy, against
// Argo CD: it permits nothing that the policy does not, and nothing that the whole
// project does not.
func TestBoundedProject(t *testing.T) {
	policy := policy.Default()
	policy.DestinationNamespaces = []string{"web", "team-*"}
	policy.ClusterResources = []string{"/Namespace", "apiextensions.k8s.io/*"}
	policy.SourceRepos = []string{"https://git/shop/*", "https://git/one.git"}
	local := v1alpha1.Cluster{Name: "in-cluster", Server: v1alpha1.KubernetesInternalAPIServerAddr}
	namespaces := map[string]bool{"web": true, "team-a": true, "team-b": true, "kube-system": false, "other": false, "": false}
	kinds := map[schema.GroupKind]bool{
		{Kind: "Namespace"}: true, {Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true,
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: false, {Kind: "PersistentVolume"}: false, {Kind: "Node"}: false,
	}
	repositories := map[string]bool{
		"https://git/shop/a": true, "https://git/shop/b": true, "https://git/one.git": true, "https://git/shop/a/b": false, "https://evil/x": false, "git@git:shop/a": false,
	}
	random := rand.New(rand.NewPCG(1, 2))
	some := func(of ...string) string { return of[random.IntN(len(of))] }
	kept, cut := 0, 0
	for range 20000 {
		var p v1alpha1.AppProject
		for range random.IntN(4) {
			p.Spec.Destinations = append(p.Spec.Destinations, v1alpha1.ApplicationDestination{
				Name: some("", "in-cluster", "*", "!in-cluster", "!edge-2"), Server: some("", "*", local.Server, local.Server, "!"+local.Server, "!*", "!https://other"),
				Namespace: some("", "*", "web", "team-*", "team-a", "team-?", "t*", "!web", "!team-a", "!kube-system", "{web,other}", "[k-o]*", "kube-system"),
			})
		}
		for range random.IntN(4) {
			item := v1alpha1.ClusterResourceRestrictionItem{
				Group: some("", "*", "apiextensions.k8s.io", "api*", "rbac.authorization.k8s.io"), Kind: some("*", "Namespace", "N*", "ClusterRole", "{Namespace,Node}", "CustomResourceDefinition"), Name: some("", "", "x"),
			}
			if random.IntN(4) == 0 {
				p.Spec.ClusterResourceBlacklist = append(p.Spec.ClusterResourceBlacklist, item)
			} else {
				p.Spec.ClusterResourceWhitelist = append(p.Spec.ClusterResourceWhitelist, item)
			}
		}
		for range random.IntN(4) {
			p.Spec.SourceRepos = append(p.Spec.SourceRepos, some("*", "https://git/shop/*", "https://git/shop/a", "https://git/shop/**", "!https://git/shop/a", "!https://evil/*", "https://git/one.git", "https://git/*/a", "https://evil/x", "git@git:shop/a"))
		}
		bounded, missing := policy.Bounded("web", plain(t, p.Spec))
		kept++
		if len(missing) > 0 {
			cut++
		}
		left := v1alpha1.AppProject{}
		typed(t, bounded, &left.Spec)
		describe := func() string { return text(t, p.Spec) + "\nleaves " + text(t, left.Spec) }
		inSome := false
		for namespace, may := range namespaces {
			if !permits(t, &left, local, namespace) {
				continue
			}
			if inSome = true; !may || !permits(t, &p, local, namespace) {
				t.Fatalf("namespace %q is permitted: %s", namespace, describe())
			}
		}
		if !inSome {
			continue // without a destination the rest is of no use
		}
		for kind, may := range kinds {
			for _, name := range []string{"x", "y"} {
				if left.IsGroupKindNamePermitted(kind, name, false) && (!may || !p.IsGroupKindNamePermitted(kind, name, false)) {
					t.Fatalf("%s %s is permitted: %s", kind, name, describe())
				}
			}
		}
		for url, may := range repositories {
			source := v1alpha1.ApplicationSource{RepoURL: url}
			if left.IsSourcePermitted(source) && (!may || !p.IsSourcePermitted(source)) {
				t.Fatalf("repository %s is permitted: %s", url, describe())
			}
		}
	}
	if cut < 1000 || kept-cut < 100 {
		t.Errorf("%d of %d projects are cut: too few, or nearly all", cut, kept)
	}
}
