package argocd

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"

	"github.com/argomesh/argomesh/backends/appspec"
)

// TestSameSource holds which sources a sync may name beside those of the spec against
// what Argo CD takes for the same: each field alone against itself, against what says
// nothing and against nothing at all, and sources of several fields, of which one is
// changed.
func TestSameSource(t *testing.T) {
	var groups [][]map[string]any
	for _, f := range fieldsOf(reflect.TypeFor[v1alpha1.ApplicationSource]()) {
		group := []map[string]any{{}}
		for _, value := range f.values() {
			group = append(group, f.alone(value))
		}
		groups = append(groups, group)
	}
	compared, same := 0, 0
	compare := func(a, b map[string]any) {
		compared++
		want := argoSource(t, a) == argoSource(t, b)
		if want {
			same++
		}
		if got := appspec.SameSource(plain(t, a), plain(t, b)); got != want {
			t.Errorf("SameSource() = %t, to Argo CD %t\n%s\n%s", got, want, text(t, a), text(t, b))
		}
		// What the hub's argocd-server writes is what its types make of the spec.
		var written map[string]any
		typed(t, json.RawMessage(argoSource(t, a)), &written)
		if !appspec.SameSource(plain(t, a), written) {
			t.Errorf("what argocd-server writes is another source\n%s\n%s", text(t, a), text(t, written))
		}
	}
	for _, group := range groups {
		for _, a := range group {
			for _, b := range group {
				compare(a, b)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	some := func() map[string]any {
		group := groups[random.IntN(len(groups))]
		return group[random.IntN(len(group))]
	}
	for range 20000 {
		base := map[string]any{"repoURL": "https://git/a"}
		for range random.IntN(4) {
			base = merged(base, some())
		}
		compare(base, merged(base, some()))
	}
	if same < 1000 || compared-same < 1000 {
		t.Errorf("of %d pairs %d are the same: the others are too few, or they are", compared, same)
	}
}

// argoSource is a source as Argo CD stores it, by its types and in its normal form. Its
// Equals, on top of that, takes the order of a plugin's environment for nothing, which
// we do not.
func argoSource(t *testing.T, source map[string]any) string {
	t.Helper()
	var original v1alpha1.ApplicationSpec
	typed(t, map[string]any{"source": source}, &original)
	stored := text(t, argo.NormalizeApplicationSpec(&original).Source)
	var again v1alpha1.ApplicationSource
	typed(t, json.RawMessage(stored), &again)
	return text(t, &again)
}

// plain is a value as it is decoded from JSON.
func plain(t *testing.T, v any) map[string]any {
	t.Helper()
	var out map[string]any
	typed(t, v, &out)
	return out
}

// merged is a with all that is in b.
func merged(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range a {
		out[name] = value
	}
	for name, value := range b {
		below, isMap := value.(map[string]any)
		under, wasMap := out[name].(map[string]any)
		if isMap && wasMap {
			value = merged(under, below)
		}
		out[name] = value
	}
	return out
}
