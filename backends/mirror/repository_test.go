package mirror

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func ofType(secretType string) m { return m{"labels": m{secretTypeKey: secretType}} }

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
			"labels":      m{secretTypeKey: typeRepository, "team": "a"},
			"annotations": m{"managed-by": "argocd.argoproj.io", lastAppliedKey: "{}"},
			"finalizers":  []any{"x"},
		}, m{
			"labels": m{secretTypeKey: typeRepository, "team": "a"}, "annotations": m{"managed-by": "argocd.argoproj.io"}, "data": data,
		}},
		"a template":                           {plain, ofType(typeTemplate), m{"labels": m{secretTypeKey: typeTemplate}, "annotations": m{}, "data": data}},
		"ignore-sync":                          {plain, m{"labels": m{secretTypeKey: typeRepository, ignoreSyncKey: "true"}}, nil},
		"a cluster":                            {writes, ofType("cluster"), nil},
		"a Secret without a type":              {writes, m{}, nil},
		"a copy of another hub":                {plain, m{"labels": m{secretTypeKey: typeRepository}, "annotations": m{sourceUIDKey: "u"}}, nil},
		"write credentials for a common spoke": {plain, ofType(typeWriteRepository), nil},
		"write templates for a common spoke":   {plain, ofType(typeWriteTemplate), nil},
		"write credentials where they may be": {writes, ofType(typeWriteRepository),
			m{"labels": m{secretTypeKey: typeWriteRepository}, "annotations": m{}, "data": data}},
		"on an autonomous agent's hub nothing is said, see Source": {ruleSet(t, stream.Hub, stream.Autonomous), ofType(typeRepository), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := makeObject(t, secretKey(test.rules, "repo-1"), test.meta, m{"type": "kubernetes.io/service-account-token", "data": data})
			got, ok := test.rules.Content(stream.Repositories, o, Requests{})
			if ok != (test.want != nil) {
				t.Fatalf("Content() = %s, %t", got.Data, ok)
			}
			if ok && !bytes.Equal(got.Data, encode(test.want)) {
				t.Errorf("Content() = %s, want %s", got.Data, encode(test.want))
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
		return makeEvent(stream.Repositories, "hub-secret", 9, m{"labels": m{secretTypeKey: secretType, "team": "a"}, "annotations": m{}, "data": data})
	}
	first := of(typeRepository)
	key, _ := spoke.Local(first.Key)
	there := func(meta m, rest m) *object {
		o := makeObject(t, key, meta, rest)
		return &o
	}
	copied := func(change func(object)) *object {
		o := copyOf(t, spoke, first, change)
		return &o
	}
	tests := map[string]struct {
		rules   Rules
		event   stream.Event
		current *object
		ops     []Op
		refusal string // how it begins
	}{
		"nothing is there":                            {spoke, first, nil, []Op{Create}, ""},
		"it is there":                                 {spoke, first, copied(nil), nil, ""},
		"another password here":                       {spoke, first, copied(func(o object) { o.ensure("data")["password"] = "ZWxzZQ==" }), []Op{Update}, ""},
		"a field was added here":                      {spoke, first, copied(func(o object) { o.ensure("data")["insecure"] = "dHJ1ZQ==" }), []Op{Update}, ""},
		"its label was taken here":                    {spoke, first, copied(func(o object) { delete(o.child("metadata", "labels"), secretTypeKey) }), []Op{Update}, ""},
		"adoption of a repository of the spoke's own": {adopting(spoke), first, there(ofType(typeRepository), m{"data": secretData("url", "x")}), []Op{Keep, Update}, ""},
		"a repository of the spoke's own":             {spoke, first, there(ofType(typeRepository), m{"data": secretData("url", "x")}), nil, "not-owned: the Secret of that name on the spoke is its owner's:"},
		"a Secret of the spoke that is no repository": {spoke, first, there(m{}, m{"data": secretData("admin.password", "x")}), nil, "not-owned:"},
		"a cluster of the spoke":                      {spoke, first, there(ofType("cluster"), m{}), nil, "not-owned:"},
		"it is being deleted":                         {spoke, first, there(m{"labels": m{secretTypeKey: typeRepository}, "deletionTimestamp": now}, m{}), nil, "unavailable:"},
		"a hub that sends a cluster":                  {spoke, of("cluster"), nil, nil, "invalid:"},
		"a hub that sends what has no type":           {spoke, of(""), nil, nil, "invalid:"},
		"a hub that sends write credentials unasked":  {spoke, of(typeWriteRepository), nil, nil, "denied: policy.kinds"},
		"no data":                           {spoke, makeEvent(stream.Repositories, "hub-secret", 9, m{"labels": m{secretTypeKey: typeRepository}}), nil, nil, "invalid:"},
		"it goes":                           {spoke, removal(stream.Repositories), copied(nil), []Op{Update, Delete}, ""},
		"it went already":                   {spoke, removal(stream.Repositories), nil, nil, ""},
		"a Secret of the spoke's own stays": {spoke, removal(stream.Repositories), there(ofType(typeRepository), m{}), nil, ""},
		"the copy of another hub stays": {spoke, removal(stream.Repositories), copied(func(o object) {
			o.setAnnotation(principalUIDKey, "hub-2")
		}), nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes, refusal := test.rules.Plan(test.event, key, test.current, Requests{})
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
			if diff := cmp.Diff(data, o.fields["data"]); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if o.label(secretTypeKey) != typeRepository || o.fields["apiVersion"] != "v1" && test.current == nil {
				t.Errorf("it is written as %s", encode(o.fields["metadata"]))
			}
			if got := test.rules.Held(stream.Repositories, o, nil); got != test.event.Version {
				t.Errorf("then it holds %v, want %v", got, test.event.Version)
			}
		})
	}
}

// What is written beside a Secret tells nothing of its values.
func TestRecordOfARepositoryHoldsNoValue(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	e := makeEvent(stream.Repositories, "hub-secret", 9, m{
		"labels": m{secretTypeKey: typeRepository}, "data": secretData("password", "hunter2"),
	})
	o := copyOf(t, spoke, e, nil)
	meta := encode(o.fields["metadata"])
	if bytes.Contains(meta, []byte("hunter2")) || bytes.Contains(meta, []byte(base64.StdEncoding.EncodeToString([]byte("hunter2")))) {
		t.Errorf("metadata tells the password: %s", meta)
	}
}

func TestSameRepository(t *testing.T) {
	same := [][]string{
		{"https://git.test/Org/a.git", "https://git.test/org/a", " https://user:pw@git.test/org/a/ "},
		{"git@git.test:org/a.git", "ssh://git@git.test/org/a", "ssh://git.test/org/a.git"},
	}
	for _, group := range same {
		for _, url := range group {
			if got, want := sameRepository(url), sameRepository(group[0]); got != want {
				t.Errorf("sameRepository(%q) = %q, want %q", url, got, want)
			}
		}
	}
	if sameRepository("https://git.test/a") == sameRepository("ssh://git.test/a") {
		t.Error("another way to it is another repository: it has other credentials")
	}
}

// Whoever may name the URL of a repository must not get what is another host's by it.
func TestCoverage(t *testing.T) {
	tests := map[string]struct {
		template, used string
		want           bool
	}{
		"the same":                          {"https://git.test/org", "https://git.test/org.git", true},
		"below":                             {"https://git.test/org", "https://git.test/org/a.git", true},
		"that begins alike":                 {"https://git.test/org", "https://git.test/organ/a", true},
		"below a slash":                     {"https://git.test/org/", "https://git.test/org/a", true},
		"that begins alike, after a slash":  {"https://git.test/org/", "https://git.test/organ/a", false},
		"of a host":                         {"https://git.test", "https://git.test/org/a", true},
		"of a host with a slash":            {"https://git.test/", "https://git.test/org/a", true},
		"of a host, on another port":        {"https://git.test", "https://git.test:8443/org/a", true},
		"of a longer host":                  {"https://git.test", "https://git.test.example/org/a", false},
		"of a longer host, after a slash":   {"https://git.test/", "https://git.test.example/org/a", false},
		"of a host by SSH":                  {"git@git.test", "git@git.test:org/a.git", true},
		"of a longer host by SSH":           {"ssh://git@git.test", "git@git.test.example:org/a.git", false},
		"of a registry, without a scheme":   {"registry.test/charts", "registry.test/charts/web", true},
		"of another, with the host as user": {"https://git.test", "https://git.test@git.example/a", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := coverage(test.template)(sameRepository(test.used)); got != test.want {
				t.Errorf("coverage(%q)(%q) = %t", test.template, test.used, got)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	r := ruleSet(t, stream.Hub, stream.Managed)
	n := newNeeds()
	if !n.admit("web", true) || n.admit("web", true) || n.admit("shop", false) {
		t.Error("admit does not tell what is news")
	}
	if !n.use("a", []string{sameRepository("https://git.test/org/a.git")}) || n.use("a", []string{"https://git.test/org/a"}) {
		t.Error("use does not tell what is news")
	}
	tests := map[string]struct {
		secretType string
		data       m
		shared     bool
		want       bool
	}{
		"of a project that the agent gets":               {typeRepository, secretData("project", "web", "url", "https://git.test/x"), false, true},
		"of a project that it does not get, though used": {typeRepository, secretData("project", "shop", "url", "https://git.test/org/a"), true, false},
		"without a project, used, not shared":            {typeRepository, secretData("url", "https://git.test/org/a"), false, false},
		"without a project, used, shared":                {typeRepository, secretData("url", "https://git.test/org/a"), true, true},
		"without a project, shared, not used":            {typeRepository, secretData("url", "https://git.test/org/b"), true, false},
		"a template by its prefix":                       {typeTemplate, secretData("url", "https://git.test/org"), true, true},
		"a template that is not used":                    {typeTemplate, secretData("url", "https://git.test/other"), true, false},
		"without a URL it is a template of everything":   {typeTemplate, secretData("password", "p"), true, false},
		"a repository is no template":                    {typeRepository, secretData("url", "https://git.test/org"), true, false},
		"a project that cannot be read is none":          {typeRepository, m{"project": "%%%"}, true, false},
		"a template of a project that the agent gets":    {typeTemplate, secretData("project", "web", "url", "https://git.test/"), false, true},
		"a write template of a project it does not get":  {typeWriteTemplate, secretData("project", "shop"), true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := makeObject(t, secretKey(r, "s"), ofType(test.secretType), m{"data": test.data})
			if got := n.wants(o, test.shared); got != test.want {
				t.Errorf("wants() = %t", got)
			}
		})
	}
	if !n.use("a", nil) || len(n.urls)+len(n.byApp) > 0 {
		t.Errorf("after its last Application went it still knows %v %v", n.urls, n.byApp)
	}
}
