package mirror

import (
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestReview is what an owner is told before the policy of a release is in force.
func TestReview(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	project := func(spec m) object { return copyOf(t, r, makeEvent(stream.AppProjects, "u", 9, m{"spec": spec}), nil) }
	app := func(namespace string) object {
		return copyOf(t, r, makeEvent(stream.Applications, "u", 9, m{"spec": m{"project": "web", "destination": m{"namespace": namespace}, "source": m{"repoURL": "https://git/shop/a"}}}), nil)
	}
	wide := m{"destinations": []any{destination("web")}, "clusterResourceWhitelist": []any{m{"group": "*", "kind": "*"}}}
	reviewing := r
	reviewing.HubUID, reviewing.Policy = "", bounding()
	other := reviewing
	var err error
	if other.Agent, err = identity.ParseAgentName("edge-2"); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		rules Rules
		o     object
		want  string
	}{
		"a project that admits more": {reviewing, project(wide), `is left without spec.clusterResourceWhitelist[0]: policy.cluster_resources of the spoke does not allow cluster resource "*/*" of the project`},
		"one that fits":              {reviewing, project(m{"destinations": []any{destination("web")}}), ""},
		"the owner's own":            {reviewing, makeObject(t, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, nil, m{"spec": wide}), ""},
		"another agent's":            {other, project(wide), ""},
		"an Application beyond":      {reviewing, app("kube-system"), `stays as it is, and its next change or sync is refused: policy.destination_namespaces of the spoke does not allow namespace "kube-system"`},
		"one that is admitted":       {reviewing, app("web"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.rules.Review(test.o.fields); got != test.want {
				t.Errorf("Review() = %q, want %q", got, test.want)
			}
		})
	}
}
