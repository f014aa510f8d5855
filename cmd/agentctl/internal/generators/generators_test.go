package generators

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWhichApplicationSetsSelectACluster(t *testing.T) {
	cluster := map[string]string{"env": "prod", "argocd.argoproj.io/secret-type": "cluster"}
	for name, test := range map[string]struct {
		generators string
		want       Choice
	}{
		"every cluster":               {"[{clusters: {}}]", Selected},
		"by a label":                  {"[{clusters: {selector: {matchLabels: {env: prod}}}}]", Selected},
		"by another label":            {"[{clusters: {selector: {matchLabels: {env: test}}}}]", NotSelected},
		"by an expression":            {"[{clusters: {selector: {matchExpressions: [{key: env, operator: In, values: [prod, test]}]}}}]", Selected},
		"by an expression, not":       {"[{clusters: {selector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}}]", NotSelected},
		"by the second generator":     {"[{list: {elements: []}}, {clusters: {}}]", Selected},
		"in a matrix":                 {"[{matrix: {generators: [{git: {}}, {clusters: {selector: {matchLabels: {env: prod}}}}]}}]", Selected},
		"in a merge within a matrix":  {"[{matrix: {generators: [{merge: {generators: [{clusters: {}}]}}, {git: {}}]}}]", Selected},
		"by a parameter of a matrix":  {"[{matrix: {generators: [{git: {}}, {clusters: {selector: {matchLabels: {env: '{{path.basename}}'}}}}]}}]", MaybeSelected},
		"of what is generated":        {"[{clusters: {}, selector: {matchLabels: {name: edge-9}}}]", MaybeSelected},
		"none of clusters":            {"[{git: {}}, {list: {elements: [{cluster: edge-1}]}}]", NotSelected},
		"a selector that is broken":   {"[{clusters: {selector: {matchExpressions: [{key: env, operator: Like}]}}}]", MaybeSelected},
		"generators that are no list": {"{clusters: {}}", NotSelected},
	} {
		t.Run(name, func(t *testing.T) {
			var spec map[string]any
			if err := yaml.Unmarshal([]byte("generators: "+test.generators), &spec); err != nil {
				t.Fatal(err)
			}
			if got := Chooses(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}, cluster); got != test.want {
				t.Errorf("chooses() = %d, want %d", got, test.want)
			}
		})
	}
}
