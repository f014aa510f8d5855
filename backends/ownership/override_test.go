package ownership

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// TestOverride is what a command may bring that the Application on the spoke does not
// say, by who owns the Application and by what the spoke's owner allows.
func TestOverride(t *testing.T) {
	const commit, older = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	source := func() m { return m{"repoURL": "https://git/a", "path": "a", "targetRevision": "main"} }
	other := m{"repoURL": "https://git/b", "path": "a", "targetRevision": "main"}
	one := m{"source": source()}
	two := m{"sources": []any{source(), m{"repoURL": "https://charts", "chart": "c", "targetRevision": "1.*"}}}
	hydrated := m{"sourceHydrator": m{"drySource": m{"repoURL": "https://git/a", "path": "dry"}, "syncSource": m{"targetBranch": "env", "path": "wet"}}}
	shows := func(revision string, compared m) m { return m{"sync": m{"revision": revision, "comparedTo": compared}} }
	shown := shows(commit, m{"source": source(), "destination": m{}})
	both := m{"sync": m{"revisions": []any{commit, "1.2.0"}, "comparedTo": m{"sources": two["sources"], "source": m{"repoURL": ""}}}}
	sync := func(fields m) m { return m{"sync": fields} }
	tests := map[string]struct {
		operation, spec, status m
		overrides               string // what it has of its own; empty for a sync
	}{
		"nothing":                        {sync(m{}), one, nil, ""},
		"what argocd-server writes":      {m{"sync": m{"source": source(), "revision": commit, "resources": []any{}}, "initiatedBy": m{"username": "ann"}, "info": []any{}, "retry": m{}}, one, shown, ""},
		"what it writes of several":      {sync(m{"sources": two["sources"], "revisions": []any{commit, "1.2.0"}}), two, both, ""},
		"with the empty one of rollback": {sync(m{"sources": two["sources"], "source": m{"repoURL": ""}, "revisions": []any{commit, "1.2.0"}}), two, both, ""},
		"what it writes of a hydrator":   {sync(m{"source": m{"repoURL": "https://git/a", "path": "wet", "targetRevision": "env"}}), hydrated, nil, ""},
		"all that a person chooses": {m{"sync": m{"prune": true, "dryRun": true, "resources": []any{m{"kind": "ConfigMap", "name": "x"}}, "syncStrategy": m{"hook": m{"force": true}},
			"syncOptions": []any{"Replace=true"}, "autoHealAttemptsCount": 1}, "retry": m{"limit": 3}, "info": []any{m{"name": "Reason", "value": "x"}}}, one, nil, ""},
		"what RollingSync writes":            {m{"sync": m{"prune": true}, "initiatedBy": m{"username": "applicationset-controller", "automated": true}}, one, nil, ""},
		"the revision that the source names": {sync(m{"revision": "main"}), one, nil, ""},
		"HEAD, where it names none":          {sync(m{"revision": "HEAD"}), m{"source": m{"repoURL": "https://git/a"}}, nil, ""},
		"a source in another form":           {sync(m{"source": m{"repoURL": "https://git/a", "path": "a", "targetRevision": "main", "directory": m{"jsonnet": m{}}, "chart": ""}}), one, nil, ""},
		"no manifests":                       {sync(m{"manifests": []any{}}), one, nil, ""},

		"manifests":                          {sync(m{"manifests": []any{"{}"}}), one, nil, "manifests"},
		"manifests beside all that is right": {sync(m{"manifests": []any{"{}"}, "source": source(), "revision": commit}), one, shown, "manifests"},
		"another source":                     {sync(m{"source": other}), one, nil, "sources"},
		"a parameter more":                   {sync(m{"source": m{"repoURL": "https://git/a", "path": "a", "targetRevision": "main", "helm": m{"parameters": []any{m{"name": "x", "value": "y"}}}}}), one, nil, "sources"},
		"several sources for one":            {sync(m{"sources": []any{source()}}), one, nil, "sources"},
		"several beside the right one":       {sync(m{"sources": []any{other}, "source": source()}), one, nil, "sources"},
		"one source for several":             {sync(m{"source": source()}), two, nil, "sources"},
		"one of several":                     {sync(m{"sources": []any{source()}}), two, nil, "sources"},
		"several in another order":           {sync(m{"sources": []any{two["sources"].([]any)[1], source()}}), two, nil, "sources"},
		"the dry source of a hydrator":       {sync(m{"source": m{"repoURL": "https://git/a", "path": "dry"}}), hydrated, nil, "sources"},
		"one revision for several":           {sync(m{"revision": commit}), two, both, "revisions"},
		"a revision too few":                 {sync(m{"revisions": []any{commit}}), two, both, "revisions"},
		"several revisions for one":          {sync(m{"revisions": []any{commit}}), one, shown, "revisions"},
		"a field of a later Argo CD":         {sync(m{"overlay": "x"}), one, nil, `"sync.overlay"`},
		"one of the operation":               {m{"sync": m{}, "apply": m{"x": "y"}}, one, nil, `"apply"`},

		"another revision":                {sync(m{"source": source(), "revision": older}), one, shown, "revision"},
		"a rollback":                      {sync(m{"source": source(), "revision": older, "prune": true}), one, shown, "revision"},
		"one that is shown of no sources": {sync(m{"revision": commit}), one, shows(commit, nil), "revision"},
		"one that is shown of others":     {sync(m{"revision": commit}), one, shows(commit, m{"source": other}), "revision"},
		"one of two":                      {sync(m{"revisions": []any{commit, "1.3.0"}}), two, both, "revision"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for who, mode := range map[string]stream.Mode{"managed": stream.Managed, "autonomous": stream.Autonomous} {
				r := ruleSet(t, stream.Spoke, mode)
				allowed := policy.Default()
				if mode == stream.Managed {
					allowed.Operations = []string{policy.OperationSync}
				}
				r.Policy = &allowed
				rest := m{"spec": test.spec}
				if test.status != nil {
					rest["status"] = test.status
				}
				o := objecttest.Object(t, appKey(r), m{"annotations": m{object.ResolvedKey: "c-1"}}, rest)
				operation, _ := normal(t, test.operation).(map[string]any)
				refusal := overrides(r, o, "c-1", operation)
				switch {
				case test.overrides == "" && refusal != nil, test.overrides != "" && (refusal == nil || refusal.Kind != stream.RefusalDenied || !strings.Contains(refusal.Message, test.overrides)):
					t.Errorf("%s: %s, want an override for %q", who, refusalText(refusal), test.overrides)
				}
				all := policy.Default()
				if r.Policy = &all; mode == stream.Managed && overrides(r, o, "c-1", operation) != nil {
					t.Errorf("%s: refused, although the policy has override", who)
				}
			}
		})
	}
}

// TestRevisionIsLookedFor has the spoke's controller look once for a revision that the
// hub resolved, before the command that names it is checked.
func TestRevisionIsLookedFor(t *testing.T) {
	r := ruleSet(t, stream.Spoke, stream.Autonomous)
	source := m{"repoURL": "https://git/a", "targetRevision": "main"}
	operation := m{"sync": m{"source": source, "revision": "2"}, "info": []any{m{"name": object.CommandInfo, "value": "c-1"}, m{"name": object.AfterInfo, "value": "uid-1"}}}
	command := objecttest.Apply(stream.Commands, "uid-1", 12, m{"operation": operation})
	status := func(revision string) m { return m{"sync": m{"revision": revision, "comparedTo": m{"source": source}}} }
	looks := refusalText(&resolves)
	const denies = `denied: an autonomous agent syncs only what the Application on the spoke says, and the operation has revision "2", which the spoke's Argo CD does not show for the Application`
	tests := map[string]struct {
		annotations m
		shown       string
		want        []view
		refusal     string
	}{
		"it is asked":                       {nil, "1", []view{{Op: Update, Annotations: m{object.RefreshKey: "normal", object.ResolvedKey: "c-1"}}}, looks},
		"it looks":                          {m{object.RefreshKey: "normal", object.ResolvedKey: "c-1"}, "1", nil, looks},
		"it looks for somebody else":        {m{object.RefreshKey: "hard", object.ResolvedKey: "c-0"}, "1", nil, looks},
		"it looked for another":             {m{object.ResolvedKey: "c-0"}, "1", []view{{Op: Update, Annotations: m{object.RefreshKey: "normal", object.ResolvedKey: "c-1"}}}, looks},
		"it found it":                       {m{object.ResolvedKey: "c-1"}, "2", []view{{Op: Update, Annotations: m{object.ResolvedKey: "c-1", object.CommandsKey: `["c-1"]`}, Operation: normal(t, operation)}}, ""},
		"it shows it already":               {nil, "2", []view{{Op: Update, Annotations: m{object.CommandsKey: `["c-1"]`}, Operation: normal(t, operation)}}, ""},
		"it did not find it":                {m{object.ResolvedKey: "c-1"}, "1", nil, denies},
		"it found something newer meantime": {m{object.ResolvedKey: "c-1"}, "3", nil, denies},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i := range test.want {
				test.want[i].Spec, test.want[i].Status = m{"source": source}, status(test.shown)
			}
			checkPlan(t, r, command, func(t *testing.T) *object.Object {
				meta := m{}
				if test.annotations != nil {
					meta["annotations"] = test.annotations
				}
				o := objecttest.Object(t, appKey(r), meta, m{"spec": m{"source": source}, "status": status(test.shown)})
				return &o
			}, "", test.want, test.refusal)
		})
	}
}
