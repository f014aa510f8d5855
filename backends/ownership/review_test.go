package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestReview is what an owner is told before the policy of a release is in force.
func TestReview(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	project := func(spec m) object.Object {
		return copyOf(t, r, objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": spec}), nil)
	}
	app := func(namespace string) object.Object {
		return copyOf(t, r, objecttest.Apply(stream.Applications, "u", 9, m{"spec": m{"project": "web", "destination": m{"namespace": namespace}, "source": m{"repoURL": "https://git/shop/a"}}}), nil)
	}
	wide := m{"destinations": []any{destination("web")}, "clusterResourceWhitelist": []any{m{"group": "*", "kind": "*"}}}
	reviewing := r
	reviewing.HubUID, reviewing.Policy = "", bounding()
	unnamed := bounding()
	unnamed.Projects = []string{"*"}
	anyProject := reviewing
	anyProject.Policy = unnamed
	other := reviewing
	var err error
	if other.Agent, err = identity.ParseAgentName("edge-2"); err != nil {
		t.Fatal(err)
	}
	hubs := project(m{}).Fields
	tests := map[string]struct {
		rules Rules
		o     object.Object
		want  string
		named m // the project that the Application names
	}{
		"a project that admits more": {rules: reviewing, o: project(wide), want: `is left without spec.clusterResourceWhitelist[0]: policy.cluster_resources of the spoke does not allow cluster resource "*/*" of the project`},
		"one that fits":              {rules: reviewing, o: project(m{"destinations": []any{destination("web")}})},
		"the owner's own":            {rules: reviewing, o: objecttest.Object(t, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, nil, m{"spec": wide})},
		"another agent's":            {rules: other, o: project(wide)},
		"an Application beyond":      {rules: reviewing, o: app("kube-system"), named: hubs, want: `stays as it is, and its next change or sync is refused: policy.destination_namespaces of the spoke does not allow namespace "kube-system"`},
		"one that is admitted":       {rules: anyProject, o: app("web"), named: hubs},
		"one of a project of the owner's": {rules: anyProject, o: app("web"), named: m{"metadata": m{"name": "web"}},
			want: `stays as it is, and its next change or sync is refused: policy.projects of the spoke does not allow project "web" by its very name, and the one on the spoke is not the hub's`},
		"one of a project that is not there": {rules: anyProject, o: app("web"),
			want: `stays as it is, and its next change or sync is refused: AppProject "web" of the hub is not on the spoke yet`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.rules.Review(test.o.Fields, func(string) map[string]any { return test.named }); got != test.want {
				t.Errorf("Review() = %q, want %q", got, test.want)
			}
		})
	}
}
