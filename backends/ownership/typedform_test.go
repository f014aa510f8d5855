package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// TestMirrorsAreAsArgoCDWritesThem of test/argocd holds the form against Argo CD's types.
func TestTypedForm(t *testing.T) {
	for name, test := range map[string]struct{ spec, want m }{
		"what says nothing goes": {
			m{"project": "", "info": []any{}, "ignoreDifferences": nil, "syncPolicy": m{"automated": m{"prune": false, "enabled": false}, "syncOptions": []any{}, "retry": m{"limit": 0}}},
			m{"project": "", "syncPolicy": m{"automated": m{"enabled": false}, "retry": m{}}},
		},
		"what becomes empty by that goes, too": {
			m{"source": m{"repoURL": "", "path": "", "directory": m{"recurse": false, "jsonnet": m{"libs": []any{}}}}},
			m{"source": m{"repoURL": "", "directory": m{}}},
		},
		"what people name stays": {
			m{"sources": []any{m{"helm": m{"valueFiles": []any{""}, "valuesObject": m{"a": nil, "b": ""}}, "kustomize": m{"commonLabels": m{"a": ""}, "commonAnnotations": m{}}}}},
			m{"sources": []any{m{"helm": m{"valueFiles": []any{""}, "valuesObject": m{"a": nil, "b": ""}}, "kustomize": m{"commonLabels": m{"a": ""}}}}},
		},
		"a dry source is a source": {
			m{"sourceHydrator": m{"drySource": m{"repoURL": "r", "helm": m{"skipCrds": false, "parameters": []any{m{"name": "a", "value": ""}}}}}},
			m{"sourceHydrator": m{"drySource": m{"repoURL": "r", "helm": m{"parameters": []any{m{"name": "a"}}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, stream.ResourceKey{Kind: stream.Application}, nil, m{"spec": test.spec})
			if appspec.IsTyped(o.Child("spec")) {
				t.Error("isTyped() of what is not")
			}
			appspec.MakeTyped(o.Child("spec"))
			if diff := cmp.Diff(test.want, o.Child("spec")); diff != "" {
				t.Errorf("typedForm() (-want +got)\n%s", diff)
			}
			if !appspec.IsTyped(o.Child("spec")) {
				t.Error("isTyped() = false of what is")
			}
		})
	}
}

// What an earlier release wrote is brought into the form by one write, and is no drift; what
// someone changed beside is left to the source.
func TestMirrorsOfEarlierReleasesAreReformed(t *testing.T) {
	for _, kind := range []string{"an Application", "a child application"} {
		t.Run(kind, func(t *testing.T) {
			test := mirrors(t)[kind]
			collection := test.event.Key.Collection
			earlier := copyOf(t, test.rules, test.event, func(o object.Object) {
				o.Child("spec")["syncPolicy"] = m{"automated": m{"prune": false}, "syncOptions": []any{}}
				rec, _ := record.Of(o)
				stamp(o, rec)
			})
			if got := test.rules.Stored(collection, earlier, nil); got != test.event.Version {
				t.Fatalf("before Held() = %v, want %v", got, test.event.Version)
			}
			raw, needed := test.rules.PlanHubUpdate(earlier, LinkState{})
			if !needed {
				t.Fatal("Tend() leaves it as it is")
			}
			reformed := object.Object{Key: earlier.Key, Fields: must(t, raw)}
			if diff := cmp.Diff(m{"automated": m{}}, reformed.Child("spec", "syncPolicy")); diff != "" {
				t.Errorf("spec.syncPolicy (-want +got)\n%s", diff)
			}
			if got := test.rules.Stored(collection, reformed, nil); got != test.event.Version {
				t.Errorf("Held() = %v, want %v", got, test.event.Version)
			}
			if again, needed := test.rules.PlanHubUpdate(reformed, LinkState{}); needed {
				t.Errorf("Tend() again = %s", again)
			}
			earlier.Child("spec")["project"] = "other"
			if raw, needed := test.rules.PlanHubUpdate(earlier, LinkState{}); needed {
				t.Errorf("Tend() of what somebody changed = %s", raw)
			}
		})
	}
}
