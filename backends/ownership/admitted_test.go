package ownership

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// bounding is a policy that restrains everything about projects.
func bounding() *policy.Policy {
	p := policy.Default()
	p.Projects = []string{"guest*", "web"}
	p.DestinationNamespaces = []string{"web", "team-*"}
	p.ServiceAccounts = []string{"web:*"}
	p.SourceRepos = []string{"https://git/shop/*"}
	return &p
}

func destination(namespace string) m {
	return m{"server": object.InClusterServer, "namespace": namespace}
}

// TestBounded is what is left of a project whose owner's policy admits less than it.
func TestBounded(t *testing.T) {
	kinds := bounding()
	kinds.ClusterResources = []string{"/Namespace", "apiextensions.k8s.io/*"}
	open := policy.Default()
	web := []any{destination("web")}
	tests := map[string]struct {
		policy  *policy.Policy
		name    string
		spec    m
		want    m
		missing []string
	}{
		"all of it":                       {bounding(), "web", m{"destinations": web, "sourceRepos": []any{"https://git/shop/a"}}, nil, nil},
		"no policy":                       {nil, "any", m{"destinations": []any{destination("*")}}, nil, nil},
		"projects are the owner's":        {&policy.Policy{}, "web", m{"destinations": []any{destination("*")}}, nil, nil},
		"cluster-scoped kinds":            {bounding(), "web", m{"destinations": web, "clusterResourceWhitelist": []any{m{"group": "*", "kind": "*"}}}, m{"destinations": web}, []string{"spec.clusterResourceWhitelist[0]"}},
		"they stay, where namespaces are": {&open, "web", m{"destinations": []any{destination("*")}, "clusterResourceWhitelist": []any{m{"group": "*", "kind": "*"}}}, nil, nil},
		"those that are named stay": {kinds, "web", m{"destinations": web, "clusterResourceWhitelist": []any{m{"group": "", "kind": "Namespace", "name": "web"}, m{"group": "apiextensions.k8s.io", "kind": "*"}, m{"group": "", "kind": "N*"}}},
			m{"destinations": web, "clusterResourceWhitelist": []any{m{"group": "", "kind": "Namespace", "name": "web"}, m{"group": "apiextensions.k8s.io", "kind": "*"}}}, []string{"spec.clusterResourceWhitelist[2]"}},
		"what denies stays": {bounding(), "web", m{"destinations": []any{destination("web"), destination("*"), m{"server": "!" + object.InClusterServer, "namespace": "x"}}, "clusterResourceBlacklist": []any{m{"group": "*", "kind": "*"}}, "namespaceResourceWhitelist": []any{}},
			m{"destinations": []any{destination("web"), m{"server": "!" + object.InClusterServer, "namespace": "x"}}, "clusterResourceBlacklist": []any{m{"group": "*", "kind": "*"}}, "namespaceResourceWhitelist": []any{}}, []string{"spec.destinations[1]"}},
		"what denies and permits":            {bounding(), "web", m{"destinations": []any{destination("web"), destination("!team-a")}}, m{}, []string{"spec.destinations"}},
		"a repository that denies":           {bounding(), "web", m{"destinations": web, "sourceRepos": []any{"!https://git/shop/a", "https://git/shop/b"}}, m{"sourceRepos": []any{"!https://git/shop/a", "https://git/shop/b"}}, []string{"spec.destinations"}},
		"repositories":                       {bounding(), "web", m{"destinations": web, "sourceRepos": []any{"*", "https://git/shop/a", "https://git/shop/*", "https://git/shop/a/b", "https://git/shop/.."}}, m{"destinations": web, "sourceRepos": []any{"https://git/shop/a", "https://git/shop/*"}}, []string{"spec.sourceRepos[0]", "spec.sourceRepos[3]", "spec.sourceRepos[4]"}},
		"no repository is none, not all":     {bounding(), "web", m{"destinations": web, "sourceRepos": []any{"*"}}, m{"destinations": web}, []string{"spec.sourceRepos[0]"}},
		"accounts, up to the first that not": {bounding(), "web", m{"destinations": web, "destinationServiceAccounts": []any{m{"defaultServiceAccount": "web:a"}, m{"defaultServiceAccount": "kube-system:b"}, m{"defaultServiceAccount": "web:c"}}}, m{"destinations": web, "destinationServiceAccounts": []any{m{"defaultServiceAccount": "web:a"}}}, []string{"spec.destinationServiceAccounts[1]", "spec.destinationServiceAccounts[2]"}},
		"another name":                       {bounding(), "other", m{"destinations": web}, m{}, []string{"spec.destinations"}},
		"no destination is left":             {bounding(), "web", m{"destinations": []any{destination("kube-system")}}, m{}, []string{"spec.destinations[0]"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec, _ := normal(t, test.spec).(map[string]any)
			before := object.Encode(spec)
			bounded, missing := test.policy.Bounded(test.name, spec)
			want := test.want
			if want == nil {
				want = test.spec
			}
			if diff := cmp.Diff(normal(t, want), any(bounded)); diff != "" {
				t.Errorf("Bounded() (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(test.missing, missing); diff != "" {
				t.Errorf("Bounded() misses (-want +got)\n%s", diff)
			}
			if !bytes.Equal(before, object.Encode(spec)) {
				t.Error("Bounded() changes what it is given")
			}
			if len(test.missing) == 0 {
				return
			}
			if test.policy.Admits(test.name, spec) == nil {
				t.Error("a new project like it is not refused")
			}
			if _, again := test.policy.Bounded(test.name, bounded); len(again) > 0 && test.name == "web" && bounded["destinations"] != nil {
				t.Errorf("of what is left it misses %v", again)
			}
		})
	}
}

// TestProjectThatIsThere follows a project through a narrower policy, a change on the hub,
// and a wider policy.
func TestProjectThatIsThere(t *testing.T) {
	wide := m{"destinations": []any{destination("web"), destination("kube-system")}}
	event := objecttest.Apply(stream.AppProjects, "u", 9, m{"spec": wide})
	r := ruleSet(t, stream.Spoke, stream.Managed)
	o := copyOf(t, r, event, nil)
	if _, needed := r.PlanHubUpdate(o, LinkState{}); needed {
		t.Error("without a policy it is cut")
	}
	held := r.Stored(stream.AppProjects, o, nil)

	narrow := r
	narrow.Policy = bounding()
	unmet := narrow
	unmet.HubUID = "" // before the first connection
	raw, needed := unmet.PlanHubUpdate(o, LinkState{})
	if !needed {
		t.Fatal("it goes on admitting what the policy does not")
	}
	fields, err := object.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	cut := object.Object{Key: o.Key, Fields: fields}
	if diff := cmp.Diff(normal(t, m{"destinations": []any{destination("web")}}), any(cut.Child("spec"))); diff != "" {
		t.Errorf("what it keeps (-want +got)\n%s", diff)
	}
	if _, again := narrow.PlanHubUpdate(cut, LinkState{}); again {
		t.Error("it is cut again")
	}
	if diff := cmp.Diff([]string{"spec.destinations[1]"}, narrow.Dropped(stream.AppProjects, cut)); diff != "" {
		t.Errorf("what the hub is told (-want +got)\n%s", diff)
	}
	if got := narrow.Stored(stream.AppProjects, cut, nil); got != held {
		t.Error("the spoke does not hold what it was sent, and it would be sent for ever")
	}

	change := objecttest.Apply(stream.AppProjects, "u", 10, m{"spec": m{"destinations": []any{destination("web"), destination("default")}}})
	if writes, refusal := narrow.Plan(change, cut.Key, &cut, operations.Requests{}); len(writes) > 0 || refusal == nil || refusal.Kind != stream.RefusalDenied {
		t.Errorf("a change that admits more: %d writes, %s", len(writes), refusalText(refusal))
	}
	fits := objecttest.Apply(stream.AppProjects, "u", 11, m{"spec": m{"destinations": []any{destination("team-a")}}})
	writes, refusal := narrow.Plan(fits, cut.Key, &cut, operations.Requests{})
	if refusal != nil || len(narrow.Dropped(stream.AppProjects, stored(t, cut.Key, writes, nil))) > 0 {
		t.Errorf("a change that fits: %d writes, %s", len(writes), refusalText(refusal))
	}

	wider := narrow
	wider.Policy = bounding()
	wider.Policy.DestinationNamespaces = []string{"*"}
	wider.Policy.SourceRepos = []string{"*"}
	if got := wider.Stored(stream.AppProjects, cut, nil); got == held {
		t.Error("under another policy it does not want the project anew")
	}
	wider.Policy.Projects = []string{"*"}
	writes, refusal = wider.Plan(event, cut.Key, &cut, operations.Requests{})
	if refusal != nil || len(writes) != 1 {
		t.Fatalf("the same again: %d writes, %s", len(writes), refusalText(refusal))
	}
	if diff := cmp.Diff(normal(t, wide), any(stored(t, cut.Key, writes, nil).Child("spec"))); diff != "" {
		t.Errorf("under a wider policy (-want +got)\n%s", diff)
	}
	writes, refusal = narrow.Plan(event, o.Key, &o, operations.Requests{})
	if refusal != nil || len(writes) != 1 || len(narrow.Dropped(stream.AppProjects, stored(t, o.Key, writes, nil))) != 1 {
		t.Errorf("the same content is refused, or whole: %d writes, %s", len(writes), refusalText(refusal))
	}
	if writes, refusal = narrow.Plan(event, o.Key, nil, operations.Requests{}); len(writes) > 0 || refusal == nil {
		t.Error("a new project that admits more is taken")
	}
	changed := o.Clone()
	changed.Fields["spec"] = map[string]any{"description": "mine", "destinations": []any{destination("kube-system")}}
	raw, _ = narrow.PlanHubUpdate(changed, LinkState{})
	if fields, err = object.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if got := narrow.Stored(stream.AppProjects, object.Object{Key: o.Key, Fields: fields}, nil); got == held {
		t.Error("what somebody changed on the spoke is taken for what the hub sent")
	}
}

// TestApplicationBeyondThePolicy: an Application that is there when the policy becomes
// narrower stays, and no command is run for it.
func TestApplicationBeyondThePolicy(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	app := m{"spec": m{"project": "web", "destination": m{"namespace": "kube-system"}, "source": m{"repoURL": "https://git/shop/a"}}}
	o := copyOf(t, r, objecttest.Apply(stream.Applications, "u", 9, app), nil)
	r.Policy = bounding()
	for what, data := range map[string]m{
		"operation": {"operation": operation("c-1", "10")}, "hydrate": {"hydrate": m{"type": "normal", "id": "h-1"}},
	} {
		writes, refusal := r.Plan(objecttest.Apply(stream.Commands, "u", 12, data), o.Key, &o, operations.Requests{})
		if len(writes) > 0 || refusal == nil || !strings.Contains(refusal.Message, "policy.destination_namespaces") {
			t.Errorf("%s: %d writes, %s", what, len(writes), refusalText(refusal))
		}
	}
	if _, needed := r.PlanHubUpdate(o, LinkState{}); needed {
		t.Error("it is changed")
	}
	other := m{"operation": m{"sync": m{"source": m{"repoURL": "https://evil/x"}}, "info": operation("c-2", "10")["info"]}}
	app["spec"].(m)["destination"] = m{"namespace": "web"}
	o = copyOf(t, r, objecttest.Apply(stream.Applications, "u", 9, app), nil)
	if _, refusal := r.Plan(objecttest.Apply(stream.Commands, "u", 12, other), o.Key, &o, operations.Requests{}); refusal == nil || !strings.Contains(refusal.Message, "policy.source_repos") {
		t.Errorf("an override from another repository: %s", refusalText(refusal))
	}
	app["spec"].(m)["source"] = m{"repoURL": "https://evil/x"}
	if writes, refusal := r.Plan(objecttest.Apply(stream.Applications, "u", 10, app), o.Key, &o, operations.Requests{}); len(writes) > 0 || refusal == nil || !strings.Contains(refusal.Message, "policy.source_repos") {
		t.Errorf("an Application from another repository: %s", refusalText(refusal))
	}
}
