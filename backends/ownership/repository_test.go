package ownership

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

func secretKey(r Rules, name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Secret, Namespace: r.Namespace, Name: name}
}

// secretData is the data of a Secret by its plain values.
func secretData(pairs ...string) m {
	data := m{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = base64.StdEncoding.EncodeToString([]byte(pairs[i+1]))
	}
	return data
}

func ofType(secretType string) m { return m{"labels": m{object.SecretTypeKey: secretType}} }

func TestContentOfARepository(t *testing.T) {
	plain := ruleSet(t, stream.Hub, stream.Managed)
	writes := plain
	writes.WriteCredentials = true
	data := secretData("url", "https://git.test/a", "project", "web", "password", "hunter2")
	tests := map[string]struct {
		rules Rules
		meta  m
		want  m // nil: it is not sent
	}{
		"a repository": {plain, m{
			"labels":      m{object.SecretTypeKey: object.RepositoryType, "team": "a"},
			"annotations": m{"managed-by": "argocd.argoproj.io", object.LastAppliedKey: "{}"},
			"finalizers":  []any{"x"},
		}, m{
			"labels": m{object.SecretTypeKey: object.RepositoryType, "team": "a"}, "annotations": m{"managed-by": "argocd.argoproj.io"}, "data": data,
		}},
		"a template":                           {plain, ofType(object.TemplateType), m{"labels": m{object.SecretTypeKey: object.TemplateType}, "annotations": m{}, "data": data}},
		"ignore-sync":                          {plain, m{"labels": m{object.SecretTypeKey: object.RepositoryType, object.IgnoreSyncKey: "true"}}, nil},
		"a cluster":                            {writes, ofType("cluster"), nil},
		"a Secret without a type":              {writes, m{}, nil},
		"a copy of another hub":                {plain, m{"labels": m{object.SecretTypeKey: object.RepositoryType}, "annotations": m{object.SourceUIDKey: "u"}}, nil},
		"write credentials for a common spoke": {plain, ofType(object.WriteRepositoryType), nil},
		"write templates for a common spoke":   {plain, ofType(object.WriteTemplateType), nil},
		"write credentials where they may be": {writes, ofType(object.WriteRepositoryType),
			m{"labels": m{object.SecretTypeKey: object.WriteRepositoryType}, "annotations": m{}, "data": data}},
		"on an autonomous agent's hub nothing is said, see Source": {ruleSet(t, stream.Hub, stream.Autonomous), ofType(object.RepositoryType), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, secretKey(test.rules, "repo-1"), test.meta, m{"type": "kubernetes.io/service-account-token", "data": data})
			got, ok := test.rules.Content(stream.Repositories, o, operations.Requests{})
			if ok != (test.want != nil) {
				t.Fatalf("Content() = %s, %t", got.Data, ok)
			}
			if ok && !bytes.Equal(got.Data, object.Encode(test.want)) {
				t.Errorf("Content() = %s, want %s", got.Data, object.Encode(test.want))
			}
		})
	}
}

func TestRepositoryKeys(t *testing.T) {
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		r := ruleSet(t, side, stream.Managed)
		want := []stream.EntryKey{{Collection: stream.Repositories, Name: "repo-1"}}
		if diff := cmp.Diff(want, r.Keys(secretKey(r, "repo-1"))); diff != "" {
			t.Errorf("%s: Keys() (-want +got):\n%s", side, diff)
		}
		if got, ok := r.Local(want[0]); !ok || got != secretKey(r, "repo-1") {
			t.Errorf("%s: Local() = %s, %t", side, got, ok)
		}
		other := stream.ResourceKey{Kind: stream.Secret, Namespace: "edge-1", Name: "repo-1"}
		if got := r.Keys(other); got != nil {
			t.Errorf("%s: a Secret of another namespace is %v", side, got)
		}
		autonomous := ruleSet(t, side, stream.Autonomous)
		if got := autonomous.Keys(secretKey(r, "repo-1")); got != nil {
			t.Errorf("%s: of an autonomous agent it is %v", side, got)
		}
		if got, ok := autonomous.Local(want[0]); ok {
			t.Errorf("%s: an autonomous peer may name %s", side, got)
		}
	}
}

func TestPlanOfARepository(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	data := secretData("url", "https://git.test/a", "password", "hunter2")
	of := func(secretType string) stream.Event {
		return objecttest.Apply(stream.Repositories, "hub-secret", 9, m{"labels": m{object.SecretTypeKey: secretType, "team": "a"}, "annotations": m{}, "data": data})
	}
	first := of(object.RepositoryType)
	key, _ := spoke.Local(first.Key)
	there := func(meta m, rest m) *object.Object {
		o := objecttest.Object(t, key, meta, rest)
		return &o
	}
	copied := func(change func(object.Object)) *object.Object {
		o := copyOf(t, spoke, first, change)
		return &o
	}
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current *object.Object
		ops     []Op
		refusal string // how it begins
	}{
		"nothing is there":                            {spoke, first, nil, []Op{Create}, ""},
		"it is there":                                 {spoke, first, copied(nil), nil, ""},
		"another password here":                       {spoke, first, copied(func(o object.Object) { o.Ensure("data")["password"] = "ZWxzZQ==" }), []Op{Update}, ""},
		"a field was added here":                      {spoke, first, copied(func(o object.Object) { o.Ensure("data")["insecure"] = "dHJ1ZQ==" }), []Op{Update}, ""},
		"its label was taken here":                    {spoke, first, copied(func(o object.Object) { delete(o.Child("metadata", "labels"), object.SecretTypeKey) }), []Op{Update}, ""},
		"adoption of a repository of the spoke's own": {adopting(spoke), first, there(ofType(object.RepositoryType), m{"data": secretData("url", "x")}), []Op{SaveFound, Update}, ""},
		"a repository of the spoke's own":             {spoke, first, there(ofType(object.RepositoryType), m{"data": secretData("url", "x")}), nil, "not-owned: the Secret of that name on the spoke is its owner's:"},
		"a Secret of the spoke that is no repository": {spoke, first, there(m{}, m{"data": secretData("admin.password", "x")}), nil, "not-owned:"},
		"a cluster of the spoke":                      {spoke, first, there(ofType("cluster"), m{}), nil, "not-owned:"},
		"it is being deleted":                         {spoke, first, there(m{"labels": m{object.SecretTypeKey: object.RepositoryType}, "deletionTimestamp": now}, m{}), nil, "unavailable:"},
		"a hub that sends a cluster":                  {spoke, of("cluster"), nil, nil, "invalid:"},
		"a hub that sends what has no type":           {spoke, of(""), nil, nil, "invalid:"},
		"a hub that sends write credentials unasked":  {spoke, of(object.WriteRepositoryType), nil, nil, "denied: policy.kinds"},
		"no data":                           {spoke, objecttest.Apply(stream.Repositories, "hub-secret", 9, m{"labels": m{object.SecretTypeKey: object.RepositoryType}}), nil, nil, "invalid:"},
		"it goes":                           {spoke, objecttest.Removal(stream.Repositories), copied(nil), []Op{Update, Delete}, ""},
		"it went already":                   {spoke, objecttest.Removal(stream.Repositories), nil, nil, ""},
		"a Secret of the spoke's own stays": {spoke, objecttest.Removal(stream.Repositories), there(ofType(object.RepositoryType), m{}), nil, ""},
		"the copy of another hub stays": {spoke, objecttest.Removal(stream.Repositories), copied(func(o object.Object) {
			o.SetAnnotation(object.PrincipalUIDKey, "hub-2")
		}), nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes, refusal := test.rules.Plan(test.event, key, test.current, operations.Requests{})
			var ops []Op
			for _, w := range writes {
				ops = append(ops, w.Op)
			}
			if !slices.Equal(ops, test.ops) {
				t.Errorf("writes %v, want %v", ops, test.ops)
			}
			if got := refusalText(refusal); !strings.HasPrefix(got, test.refusal) || (test.refusal == "") != (got == "") {
				t.Errorf("refusal %q, want %q", got, test.refusal)
			}
			if refusal != nil && strings.Contains(refusal.Message, "hunter2") {
				t.Errorf("the refusal tells the password: %q", refusal.Message)
			}
			if test.event.Verb != stream.Apply || len(writes) == 0 {
				return
			}
			o := stored(t, key, writes, nil)
			if diff := cmp.Diff(data, o.Fields["data"]); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if o.Label(object.SecretTypeKey) != object.RepositoryType || o.Fields["apiVersion"] != "v1" && test.current == nil {
				t.Errorf("it is written as %s", object.Encode(o.Fields["metadata"]))
			}
			if got := test.rules.Stored(stream.Repositories, o, nil); got != test.event.Version {
				t.Errorf("then it holds %v, want %v", got, test.event.Version)
			}
		})
	}
}

// What is written beside a Secret tells nothing of its values.
func TestRecordOfARepositoryHoldsNoValue(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	e := objecttest.Apply(stream.Repositories, "hub-secret", 9, m{
		"labels": m{object.SecretTypeKey: object.RepositoryType}, "data": secretData("password", "hunter2"),
	})
	o := copyOf(t, spoke, e, nil)
	meta := object.Encode(o.Fields["metadata"])
	if bytes.Contains(meta, []byte("hunter2")) || bytes.Contains(meta, []byte(base64.StdEncoding.EncodeToString([]byte("hunter2")))) {
		t.Errorf("metadata tells the password: %s", meta)
	}
}
