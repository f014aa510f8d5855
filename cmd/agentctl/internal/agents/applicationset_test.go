package agents

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWhichApplicationSetsSelectACluster(t *testing.T) {
	cluster := map[string]string{"env": "prod", "argocd.argoproj.io/secret-type": "cluster"}
	for name, test := range map[string]struct {
		generators string
		want       choice
	}{
		"every cluster":               {"[{clusters: {}}]", selected},
		"by a label":                  {"[{clusters: {selector: {matchLabels: {env: prod}}}}]", selected},
		"by another label":            {"[{clusters: {selector: {matchLabels: {env: test}}}}]", notSelected},
		"by an expression":            {"[{clusters: {selector: {matchExpressions: [{key: env, operator: In, values: [prod, test]}]}}}]", selected},
		"by an expression, not":       {"[{clusters: {selector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}}]", notSelected},
		"by the second generator":     {"[{list: {elements: []}}, {clusters: {}}]", selected},
		"in a matrix":                 {"[{matrix: {generators: [{git: {}}, {clusters: {selector: {matchLabels: {env: prod}}}}]}}]", selected},
		"in a merge within a matrix":  {"[{matrix: {generators: [{merge: {generators: [{clusters: {}}]}}, {git: {}}]}}]", selected},
		"by a parameter of a matrix":  {"[{matrix: {generators: [{git: {}}, {clusters: {selector: {matchLabels: {env: '{{path.basename}}'}}}}]}}]", maybeSelected},
		"of what is generated":        {"[{clusters: {}, selector: {matchLabels: {name: edge-9}}}]", maybeSelected},
		"none of clusters":            {"[{git: {}}, {list: {elements: [{cluster: edge-1}]}}]", notSelected},
		"a selector that is broken":   {"[{clusters: {selector: {matchExpressions: [{key: env, operator: Like}]}}}]", maybeSelected},
		"generators that are no list": {"{clusters: {}}", notSelected},
	} {
		t.Run(name, func(t *testing.T) {
			var spec map[string]any
			if err := yaml.Unmarshal([]byte("generators: "+test.generators), &spec); err != nil {
				t.Fatal(err)
			}
			if got := chooses(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}, cluster); got != test.want {
				t.Errorf("chooses() = %d, want %d", got, test.want)
			}
		})
	}
}
