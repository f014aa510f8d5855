package check

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
)

// The roles of our program are those that its release says. Of what was applied as files they are those that the chart has
// by the configuration, if it is of the chart that this agentctl has.
func TestRolesOf(t *testing.T) {
	t.Parallel()
	asFiles := func(side Side) *Facts {
		f := healthy(side)
		f.Release.is.Revision = 0
		f.Deployment.is.Labels = map[string]string{"helm.sh/chart": side.chart() + "-" + f.Chart.Version}
		return f
	}
	needs := func(f *Facts) []rights.Right {
		t.Helper()
		objects, err := rolesOf(f)
		if err != nil {
			t.Fatal(err)
		}
		out, err := rights.OfRoles(objects)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	live := rights.Right{Verb: "list", Resource: "configmaps"}
	for side, want := range map[Side]rights.Right{
		Hub:   {Verb: "watch", Resource: "secrets", Namespace: "argocd"},
		Spoke: {Verb: "update", Group: "argoproj.io", Resource: "applications", Namespace: "argocd"},
	} {
		if got := needs(asFiles(side)); !slices.Contains(got, want) || slices.Contains(got, live) != (side == Spoke) {
			t.Errorf("of a %s that was applied as files they are %+v", side, got)
		}
		other := asFiles(side)
		other.Deployment.is.Labels["helm.sh/chart"] = side.chart() + "-0.0.1"
		if got := needs(other); len(got) > 0 {
			t.Errorf("of a %s of another chart they are %+v", side, got)
		}
	}
	own := asFiles(Spoke)
	own.Config.is["access"] = map[string]any{"enabled": true, "rules": []any{map[string]any{"name": "web"}}}
	if got := needs(own); len(got) == 0 || slices.Contains(got, live) {
		t.Errorf("with rules of live access they are %+v", got)
	}
	of := healthy(Hub)
	of.Release.is.Manifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x, namespace: there}\n" +
		"rules: [{apiGroups: [a], resources: [b/c, d], verbs: [get]}]\n"
	if got := needs(of); !slices.Equal(got, []rights.Right{{Verb: "get", Group: "a", Resource: "b", Subresource: "c", Namespace: "there"}}) {
		t.Errorf("of a release they are %+v", got)
	}
}

// Few of many are named, and the cure is of who lacks them.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	lacks := []string{"a", "b", "c", "d", "e", "f", "g"}
	for cure, how := range map[string]func(*Facts){
		"agentctl hub install":                    func(*Facts) {},
		"apply its roles and their bindings":      func(f *Facts) { f.Release.is.Revision = 0 },
		"Ask an administrator of the cluster for": func(f *Facts) { f.Deployment.is = nil },
	} {
		f := healthy(Hub)
		f.Chart.Rights.Lacks.is = lacks
		how(f)
		got := missingRights(f)
		if len(got) != 1 || !strings.Contains(got[0].Cure, cure) || got[0].Says != "may not a; b; c; d; e; and 2 more" {
			t.Errorf("it says %+v, want the cure %q", got, cure)
		}
	}
}

// What a spoke's user is asked for is known before anyone has said which agent that will be.
func TestChartOfAnyAgent(t *testing.T) {
	t.Parallel()
	for _, side := range []Side{Hub, Spoke} {
		objects, err := beforeInstall(&Facts{Side: side, Namespace: "argocd"})
		if err != nil || !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" }) {
			t.Errorf("the %s has %d objects, %v", side, len(objects), err)
		}
	}
}
