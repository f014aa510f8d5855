package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

func trustEvent(name string, revision uint64, data m) stream.Event {
	o := object.Object{Key: stream.ResourceKey{Kind: stream.ConfigMap, Namespace: "argocd", Name: name}, Fields: m{"data": data}}
	sent, _ := trustContent(Rules{}, o, operations.Requests{})
	e := objecttest.Apply(stream.Trust, "hub-cm", revision, sent)
	e.Key.Name = name
	return e
}

// TestTrust walks through the life of a ConfigMap of the spoke. Each step plans one
// event on what the step before left, perhaps changed by people of the spoke.
func TestTrust(t *testing.T) {
	type step struct {
		hub   m              // data on the hub; nil: there is none
		local func(data m) m // what people of the spoke made of it before
		want  m              // data of the spoke then
	}
	hosts := func(lines string) m { return m{object.KnownHostsKey: lines} }
	tests := map[string]struct {
		name  string
		start m // data on the spoke; nil: it has no such ConfigMap
		steps []step
	}{
		"keys come, change and go; the ConfigMap stays": {object.GPGKeysConfigMap, nil, []step{
			{m{"A": "1"}, nil, m{"A": "1"}},
			{m{"A": "2", "B": "1"}, nil, m{"A": "2", "B": "1"}},
			{m{"B": "1"}, nil, m{"B": "1"}},
			{nil, nil, m{}},
		}},
		"keys of the spoke's own stay": {object.GPGKeysConfigMap, m{"MINE": "x"}, []step{
			{m{"A": "1"}, nil, m{"A": "1", "MINE": "x"}},
			{m{}, nil, m{"MINE": "x"}},
			{nil, nil, m{"MINE": "x"}},
		}},
		"what was there already, the same, stays when the hub's goes": {object.TLSCertificatesConfigMap, m{"git.test": "cert"}, []step{
			{m{"git.test": "cert", "other.test": "c"}, nil, m{"git.test": "cert", "other.test": "c"}},
			{m{"git.test": "cert"}, nil, m{"git.test": "cert"}},
			{nil, nil, m{"git.test": "cert"}},
		}},
		"what was there otherwise is the hub's": {object.TLSCertificatesConfigMap, m{"git.test": "old"}, []step{
			{m{"git.test": "cert"}, nil, m{"git.test": "cert"}},
			{nil, nil, m{}},
		}},
		"local edits of ours are undone, those of others are not": {object.GPGKeysConfigMap, m{"MINE": "x"}, []step{
			{m{"A": "1", "B": "1"}, nil, m{"A": "1", "B": "1", "MINE": "x"}},
			{m{"A": "1", "B": "1"}, func(m) m { return m{"A": "evil", "MINE": "y", "NEW": "n"} }, m{"A": "1", "B": "1", "MINE": "y", "NEW": "n"}},
			{nil, nil, m{"MINE": "y", "NEW": "n"}},
		}},
		"what was found is ours once the spoke took it away": {object.GPGKeysConfigMap, m{"A": "1"}, []step{
			{m{"A": "1"}, nil, m{"A": "1"}},
			{m{"A": "1"}, func(m) m { return m{} }, m{"A": "1"}},
			{nil, nil, m{}},
		}},
		"lines of known hosts": {object.KnownHostsConfigMap, hosts("# ours\ngit.test ssh-rsa AAA\n\nmine.test ssh-rsa BBB\n"), []step{
			{hosts("git.test ssh-rsa AAA\nhub.test ssh-rsa CCC\n"), nil,
				hosts("# ours\ngit.test ssh-rsa AAA\n\nmine.test ssh-rsa BBB\nhub.test ssh-rsa CCC\n")},
			{hosts("hub.test ssh-rsa DDD\n# a comment of the hub\n"), nil,
				hosts("# ours\ngit.test ssh-rsa AAA\n\nmine.test ssh-rsa BBB\nhub.test ssh-rsa DDD\n")},
			{nil, nil, hosts("# ours\ngit.test ssh-rsa AAA\n\nmine.test ssh-rsa BBB\n")},
		}},
		"lines where there were none": {object.KnownHostsConfigMap, nil, []step{
			{hosts("hub.test ssh-rsa CCC"), nil, hosts("hub.test ssh-rsa CCC\n")},
			{nil, nil, hosts("")},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spoke := ruleSet(t, stream.Spoke, stream.Managed)
			key := stream.ResourceKey{Kind: stream.ConfigMap, Namespace: "argocd", Name: test.name}
			var current *object.Object
			if test.start != nil {
				o := objecttest.Object(t, key, m{"labels": m{"app": "argocd"}}, m{"data": test.start})
				current = &o
			}
			for i, s := range test.steps {
				if s.local != nil {
					current.Fields["data"] = s.local(current.Child("data"))
				}
				e := stream.Event{ID: "c.1", Key: stream.EntryKey{Collection: stream.Trust, Name: test.name}, Verb: stream.Delete}
				if s.hub != nil {
					e = trustEvent(test.name, uint64(10+i), s.hub)
				}
				writes, refusal := spoke.Plan(e, key, current, operations.Requests{})
				if refusal != nil {
					t.Fatalf("step %d is refused: %+v", i, refusal)
				}
				if len(writes) > 0 {
					for _, w := range writes {
						if w.Op == Delete {
							t.Fatalf("step %d deletes the ConfigMap", i)
						}
					}
					o := stored(t, key, writes, nil)
					current = &o
				}
				got := current.Child("data")
				if got == nil {
					got = m{}
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Fatalf("after step %d (-want +got):\n%s", i, diff)
				}
				want := e.Version
				if held := spoke.Stored(stream.Trust, *current, nil); held != want {
					t.Fatalf("after step %d it holds %v, want %v", i, held, want)
				}
				if again, _ := spoke.Plan(e, key, current, operations.Requests{}); len(again) > 0 {
					t.Fatalf("step %d is written twice: %s", i, again[0].Raw)
				}
			}
		})
	}
}

func TestTrustTellsDrift(t *testing.T) {
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	e := trustEvent(object.GPGKeysConfigMap, 9, m{"A": "1"})
	for name, test := range map[string]struct {
		change func(object.Object)
		drift  bool
	}{
		"a key of the spoke": {func(o object.Object) { o.Ensure("data")["MINE"] = "x" }, false},
		"a label":            {func(o object.Object) { o.Ensure("metadata", "labels")["x"] = "y" }, false},
		"a key of the hub":   {func(o object.Object) { o.Ensure("data")["A"] = "x" }, true},
		"a key is gone":      {func(o object.Object) { delete(o.Child("data"), "A") }, true},
	} {
		held := spoke.Stored(stream.Trust, copyOf(t, spoke, e, test.change), nil)
		if held.Absent() || (held != e.Version) != test.drift {
			t.Errorf("%s: it holds %v", name, held)
		}
	}
}

func TestTrustTakesNoOtherConfigMap(t *testing.T) {
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		r := ruleSet(t, side, stream.Managed)
		for _, name := range []string{"argocd-cm", "argocd-rbac-cm", "argomesh-hub", "argomesh-agent"} {
			if got, ok := r.Local(stream.EntryKey{Collection: stream.Trust, Name: name}); ok {
				t.Errorf("the peer of the %s may name %s", side, got)
			}
			if got := r.Keys(stream.ResourceKey{Kind: stream.ConfigMap, Namespace: r.Namespace, Name: name}); got != nil {
				t.Errorf("%s on the %s is %v", name, side, got)
			}
		}
	}
	spoke := ruleSet(t, stream.Spoke, stream.Managed)
	for name, items := range map[string]m{
		"two lines in one": {"0": "a\nb"}, "a line under another id": {"0": "hub.test ssh-rsa CCC"}, "no text": {"0": m{}},
	} {
		e := objecttest.Apply(stream.Trust, "hub-cm", 9, m{"items": items})
		e.Key.Name = object.KnownHostsConfigMap
		key, _ := spoke.Local(e.Key)
		if writes, refusal := spoke.Plan(e, key, nil, operations.Requests{}); refusal == nil || refusal.Kind != stream.RefusalInvalid || len(writes) > 0 {
			t.Errorf("%s: Plan() = %v, %+v", name, writes, refusal)
		}
	}
}

func TestTrustContent(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	key := stream.ResourceKey{Kind: stream.ConfigMap, Namespace: "argocd", Name: object.GPGKeysConfigMap}
	o := objecttest.Object(t, key, m{"labels": m{"app": "argocd"}}, m{"data": m{"A": "1"}})
	got, ok := hub.Content(stream.Trust, o, operations.Requests{})
	if !ok || string(got.Data) != `{"items":{"A":"1"}}` || got.Version.SourceUID != "uid-1" {
		t.Errorf("Content() = %s, %t", got.Data, ok)
	}
	o.Ensure("metadata", "labels")[object.IgnoreSyncKey] = "true"
	if got, ok := hub.Content(stream.Trust, o, operations.Requests{}); ok {
		t.Errorf("with ignore-sync it is %s", got.Data)
	}
}
