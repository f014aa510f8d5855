package ownership

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestAdoptionIsAllowedByTheOwner: by name or at the object, and never wins.
func TestAdoptionIsAllowedByTheOwner(t *testing.T) {
	spoke, hub := ruleSet(t, stream.Spoke, stream.Managed), ruleSet(t, stream.Hub, stream.Autonomous)
	naming := func(r Rules, patterns ...string) Rules {
		r = adopting(r)
		if r.Side == stream.Hub {
			r.Adopt = patterns
		} else {
			r.Policy.Adopt = patterns
		}
		return r
	}
	further := naming(spoke, "application/team-a/*")
	further.Namespaces = []string{"team-*"}
	in := func(namespace string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "guestbook"}
	}
	secret := stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "guestbook"}
	says := func(policy string) m { return m{"annotations": m{object.AdoptionPolicyKey: policy}} }
	large := m{"spec": m{"x": strings.Repeat("x", object.MaxFound)}}
	tests := map[string]struct {
		rules   Rules
		key     stream.ResourceKey
		meta    m
		rest    m
		refused string // a part of it; empty when it is adopted
	}{
		"nothing is named":                          {naming(spoke), in("argocd"), nil, nil, "policy.adopt of the spoke does not name application/guestbook"},
		"no policy at all":                          {spoke, in("argocd"), nil, nil, "policy.adopt"},
		"it is named":                               {naming(spoke, "application/guestbook"), in("argocd"), nil, nil, ""},
		"it is named by a glob":                     {naming(spoke, "application/guest*"), in("argocd"), nil, nil, ""},
		"another kind is named":                     {naming(spoke, "appproject/*"), in("argocd"), nil, nil, "does not name application/guestbook"},
		"a further namespace":                       {further, in("team-a"), nil, nil, ""},
		"another further namespace":                 {further, in("team-b"), nil, nil, "does not name application/team-b/guestbook"},
		"the object says always":                    {naming(spoke), in("argocd"), says("always"), nil, ""},
		"the object says never":                     {naming(spoke, "*/*"), in("argocd"), says("never"), nil, "its annotation " + object.AdoptionPolicyKey + " is never"},
		"the object says what nobody knows":         {naming(spoke), in("argocd"), says("Always"), nil, "policy.adopt"},
		"larger than what can be kept":              {naming(spoke, "*/*"), in("argocd"), nil, large, "too large to be adopted"},
		"larger than what can be kept, and says so": {naming(spoke), in("argocd"), says("always"), large, "too large to be adopted"},
		"a repository":                              {naming(spoke, "repository/*"), secret, m{"labels": m{object.SecretTypeKey: object.RepositoryType}}, nil, ""},
		"a template, where repositories are named":  {naming(spoke, "repository/*"), secret, m{"labels": m{object.SecretTypeKey: object.TemplateType}}, nil, "does not name repo-creds/guestbook"},
		"a Secret that is no repository":            {naming(spoke, "*/*"), secret, says("always"), nil, "is not that of a repository"},
		"on the hub, nothing is named":              {naming(hub), in("edge-1"), nil, nil, "spec.adopt of the Agent does not name application/guestbook"},
		"on the hub, it is named":                   {naming(hub, "application/guestbook"), in("edge-1"), nil, nil, ""},
		"on the hub, the object says never":         {naming(hub, "*/*"), in("edge-1"), says("never"), nil, "is never"},
		"a copy that is ours is not asked":          {naming(spoke), in("argocd"), m{"annotations": m{object.AdoptionPolicyKey: "never", object.SourceUIDKey: "u", object.PrincipalUIDKey: "hub-1", object.RecordKey: "{}"}}, nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := objecttest.Apply(stream.Applications, "hub-app", 9, m{"spec": m{"project": "p"}})
			if test.key.Kind == stream.Secret {
				e = objecttest.Apply(stream.Repositories, "hub-secret", 9, m{"labels": m{object.SecretTypeKey: object.RepositoryType}, "data": m{"url": "eA=="}})
			}
			current := objecttest.Object(t, test.key, test.meta, test.rest)
			writes, refusal := test.rules.Plan(e, test.key, &current, operations.Requests{})
			got := refusalText(refusal)
			if (len(writes) > 0) != (test.refused == "") || !strings.Contains(got, test.refused) || (got == "") != (test.refused == "") {
				t.Errorf("Plan() = %d writes, %q, want %q", len(writes), got, test.refused)
			}
		})
	}
}

// TestTheProjectDefaultIsTakenWhereItIsNamed, also where there is none; what is the hub's
// already goes on.
func TestTheProjectDefaultIsTakenWhereItIsNamed(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Managed)
	e := objecttest.Apply(stream.AppProjects, "p-1", 4, m{"spec": m{}})
	e.Key.Name = object.DefaultProjectName
	key := projectKey(r, object.DefaultProjectName)
	if _, refusal := r.Plan(e, key, nil, operations.Requests{}); refusalText(refusal) != `denied: policy.adopt of the spoke does not allow project "default"` {
		t.Errorf("Plan() = %q", refusalText(refusal))
	}
	named := adopting(r)
	writes, refusal := named.Plan(e, key, nil, operations.Requests{})
	if refusal != nil || len(writes) != 1 {
		t.Fatalf("Plan() = %d writes, %q", len(writes), refusalText(refusal))
	}
	ours := stored(t, key, writes, nil)
	later := objecttest.Apply(stream.AppProjects, "p-1", 5, m{"spec": m{"description": "later"}})
	later.Key = e.Key
	if writes, refusal := r.Plan(later, key, &ours, operations.Requests{}); refusal != nil || len(writes) != 1 {
		t.Errorf("a later state of our copy: %d writes, %q", len(writes), refusalText(refusal))
	}
}

func TestValidateAdopt(t *testing.T) {
	for _, good := range []string{"application/*", "appproject/default", "*/*", "repo*/x", "application/team-?/x"} {
		if err := policy.ValidateAdopt(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "*", "default", "application/", "applications/x", "configmap/x", "application/[a", "application/" + strings.Repeat("a", glob.MaxLength)} {
		if err := policy.ValidateAdopt(bad); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	for line := range strings.Lines((&policy.Policy{Adopt: []string{"a", "b"}}).Validate().Error()) {
		if !strings.HasPrefix(line, "adopt: ") {
			t.Errorf("%q does not name its key", line)
		}
	}
}

// TestWhatWasFoundIsLost: the object is its owner's all the same, and grants nothing.
func TestWhatWasFoundIsLost(t *testing.T) {
	spoke := adopting(ruleSet(t, stream.Spoke, stream.Managed))
	data := map[stream.Collection]m{
		stream.Applications: {"labels": m{"team": "hub"}, "spec": m{"project": "hub", "syncPolicy": m{"automated": m{"prune": true}}}},
		stream.AppProjects:  {"labels": m{"team": "hub"}, "spec": m{"sourceRepos": []any{"*"}, "destinations": []any{m{"server": "*"}}}},
		stream.Repositories: {"labels": m{"team": "hub", object.SecretTypeKey: object.RepositoryType}, "data": m{"password": "aHVi"}},
	}
	want := map[stream.Collection]any{
		stream.Applications: m{"project": "hub", "destination": m{"name": "in-cluster"}},
		stream.AppProjects:  m{"sourceRepos": []any{"*"}},
		stream.Repositories: nil,
	}
	for c, content := range data {
		t.Run(c.String(), func(t *testing.T) {
			e := objecttest.Apply(c, "hub-object", 9, content)
			key, _ := spoke.Local(e.Key)
			current := objecttest.Object(t, key, m{"labels": m{"mine": "m", object.SecretTypeKey: object.RepositoryType}}, m{})
			writes, refusal := spoke.Plan(e, key, &current, operations.Requests{})
			if refusal != nil {
				t.Fatal(refusalText(refusal))
			}
			o := stored(t, key, writes, nil)
			rec, _ := record.Of(o)
			rec.Quiescing, rec.Releasing = &record.Quiescing{Done: true}, true // the wait is over
			stamp(o, rec)
			if writes, _ = spoke.Plan(objecttest.Removal(c), key, &o, operations.Requests{}); len(writes) != 1 || writes[0].Op != LoadFound {
				t.Fatalf("Plan() = %v", ops(writes))
			}
			o.Found = &object.Found{UID: rec.Adopted, Lost: true}
			writes, _ = spoke.Plan(objecttest.Removal(c), key, &o, operations.Requests{})
			if diff := cmp.Diff([]Op{Update, RemoveFound}, ops(writes)); diff != "" {
				t.Fatalf("Plan() (-want +got)\n%s", diff)
			}
			left := stored(t, key, writes, nil)
			if record.Has(left) || left.Label("team") != "" || left.Label("mine") != "m" || !strings.Contains(writes[1].Note, "is lost") {
				t.Errorf("left is %v, told %q", left.Fields, writes[1].Note)
			}
			if diff := cmp.Diff(want[c], left.Fields[object.ContentField(key.Kind)]); diff != "" {
				t.Errorf("left (-want +got)\n%s", diff)
			}
		})
	}
}

// TestWhatWasFoundComesBackWithoutLabels: someone has taken all labels off the copy before it
// is given back.
func TestWhatWasFoundComesBackWithoutLabels(t *testing.T) {
	spoke := adopting(ruleSet(t, stream.Spoke, stream.Managed))
	e := objecttest.Apply(stream.AppProjects, "hub-project", 9, m{"labels": m{"team": "hub"}, "spec": m{}})
	key, _ := spoke.Local(e.Key)
	current := objecttest.Object(t, key, m{"labels": m{"team": "mine"}}, m{})
	writes, refusal := spoke.Plan(e, key, &current, operations.Requests{})
	if refusal != nil {
		t.Fatal(refusalText(refusal))
	}
	o := stored(t, key, writes, func(o object.Object) { delete(o.Child("metadata"), "labels") })
	rec, _ := record.Of(o)
	was := object.FoundOf(current)
	was.UID, o.Found = rec.Adopted, &was
	writes, refusal = spoke.Plan(objecttest.Removal(stream.AppProjects), key, &o, operations.Requests{})
	if refusal != nil {
		t.Fatal(refusalText(refusal))
	}
	if left := stored(t, key, writes, nil); left.Label("team") != "mine" {
		t.Errorf("left is %v", left.Fields)
	}
}
