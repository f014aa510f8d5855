package argocd

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/settings"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// A spoke of this release leaves what an agent stores as it is, and would make the same
// of what the hub has. Before 3.5 it leaves lists of sources as they are.
func TestNormalForm(t *testing.T) {
	for _, spec := range read(t).Specs {
		stored := text(t, spec.Stored)
		if got := text(t, argo.NormalizeApplicationSpec(&spec.Stored)); got != stored && spec.Stored.Project != "" {
			t.Errorf("the spoke's controller makes %s of %s", got, stored)
		}
		if len(spec.Original.Sources) > 0 {
			continue
		}
		want := argo.NormalizeApplicationSpec(&spec.Original)
		want.Destination.Name, want.Destination.Server = "in-cluster", ""
		spec.Stored.Project = want.Project // which no schema lets be absent
		if got := text(t, spec.Stored); got != text(t, want) {
			t.Errorf("stored is %s, and Argo CD makes %s", got, text(t, want))
		}
	}
}

// The copy of a project is that of the one which this release makes of it and of its
// global projects.
func TestGlobalProjects(t *testing.T) {
	for _, v := range read(t).Virtual {
		index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		for _, p := range v.Projects {
			if err := index.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		const argocd = "argocd"
		partOf := map[string]string{"app.kubernetes.io/part-of": argocd}
		client := fake.NewClientset(
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-cm", Labels: partOf}, Data: map[string]string{"globalProjects": v.Settings}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-secret", Labels: partOf}, Data: map[string][]byte{"server.secretkey": []byte("x")}},
		)
		ctx, cancel := context.WithCancel(t.Context())
		merged, err := argo.GetAppVirtualProject(v.Projects[0], applisters.NewAppProjectLister(index), settings.NewSettingsManager(ctx, client, argocd))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		compare(t, merged, &v.Stored)
		for name, lists := range map[string][2]any{
			"clusterResourceBlacklist":   {merged.Spec.ClusterResourceBlacklist, v.Stored.Spec.ClusterResourceBlacklist},
			"clusterResourceWhitelist":   {merged.Spec.ClusterResourceWhitelist, v.Stored.Spec.ClusterResourceWhitelist},
			"namespaceResourceBlacklist": {merged.Spec.NamespaceResourceBlacklist, v.Stored.Spec.NamespaceResourceBlacklist},
			"namespaceResourceWhitelist": {merged.Spec.NamespaceResourceWhitelist, v.Stored.Spec.NamespaceResourceWhitelist},
			"sourceRepos":                {merged.Spec.SourceRepos, v.Stored.Spec.SourceRepos},
		} {
			if want, got := set(t, lists[0]), set(t, lists[1]); !slices.Equal(want, got) {
				t.Errorf("with %q %s are %v, and Argo CD's %v", v.Settings, name, got, want)
			}
		}
	}
}

// set are the elements of a list, each once.
func set(t *testing.T, list any) []string {
	t.Helper()
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(text(t, list)), &elements); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range elements {
		out = append(out, string(e))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
