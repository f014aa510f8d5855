package ownership

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// TestReviewOfTheHub is what the people of a hub are told before a release stops sending
// what no AppProject admits. It says what the gate of a link says.
func TestReviewOfTheHub(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	autonomous := ruleSet(t, stream.Hub, stream.Autonomous)
	meta := func(name string) m { return m{"name": name, "namespace": "argocd", "labels": m{"team": "a"}} }
	project := func(name string, spec m) m { return m{"metadata": meta(name), "spec": spec} }
	all := m{"sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}}}
	closed := m{"sourceRepos": []any{"*"}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}}}
	scoped := m{"sourceNamespaces": []any{"*"}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}}}
	secret := func(project string) []map[string]any {
		return []map[string]any{{"metadata": m{"name": "r", "labels": m{object.SecretTypeKey: object.RepositoryType}}, "data": m{"project": project, "url": "aHR0cHM6Ly9naXQudGVzdC93ZWI="}}}
	}
	settings := func(value string) m {
		return m{"metadata": m{"name": admission.SettingsName}, "data": m{"globalProjects": value}}
	}
	global := settings("- projectName: open\n  labelSelector: {matchLabels: {team: a}}\n")
	app := func(change func(o m)) m {
		o := m{
			"metadata": m{"name": "shop", "namespace": "edge-1", "uid": "u", "resourceVersion": "7"},
			"spec":     m{"project": "web", "destination": m{"name": "edge-1", "namespace": "web"}, "source": m{"repoURL": "https://git.test/web"}},
		}
		if change != nil {
			change(o)
		}
		return o
	}
	marked := func(field string, value any) m {
		return app(func(o m) { o["metadata"].(m)[field] = value })
	}
	tests := map[string]struct {
		rules    Rules
		app      m
		projects []map[string]any
		secrets  []map[string]any
		settings m
		want     string
	}{
		"admitted":                        {rules: hub, app: app(nil), projects: []map[string]any{project("web", all)}},
		"no such project":                 {rules: hub, app: app(nil), projects: []map[string]any{project("other", all)}, want: `AppProject "web" does not exist on the hub`},
		"not its namespace":               {rules: hub, app: app(nil), projects: []map[string]any{project("web", closed)}, want: "add edge-1 to its spec.sourceNamespaces"},
		"not its repository":              {rules: hub, app: app(nil), projects: []map[string]any{project("web", scoped)}, want: "(spec.sourceRepos)"},
		"a repository that is scoped":     {rules: hub, app: app(nil), projects: []map[string]any{project("web", scoped)}, secrets: secret("d2Vi")},
		"one that is scoped to another":   {rules: hub, app: app(nil), projects: []map[string]any{project("web", scoped)}, secrets: secret("b3RoZXI="), want: "(spec.sourceRepos)"},
		"a global project permits it":     {rules: hub, app: app(nil), projects: []map[string]any{project("web", scoped), project("open", all)}, settings: global},
		"global projects cannot be read":  {rules: hub, app: app(nil), projects: []map[string]any{project("web", all)}, settings: settings("{"), want: "cannot be told"},
		"of an autonomous agent":          {rules: autonomous, app: app(nil)},
		"in another namespace":            {rules: hub, app: marked("namespace", "elsewhere")},
		"another destination":             {rules: hub, app: app(func(o m) { o["spec"].(m)["destination"] = m{"name": "edge-2"} })},
		"one that is to stay on the hub":  {rules: hub, app: marked("labels", m{object.IgnoreSyncKey: "true"})},
		"one that is being deleted":       {rules: hub, app: marked("deletionTimestamp", "2026-01-01T00:00:00Z")},
		"a mirror of a child application": {rules: hub, app: marked("annotations", m{object.SourceUIDKey: "u", object.RecordKey: `{"child":true,"agent":"edge-1"}`})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := test.rules.ReviewHub(test.app, admission.NewHubProjects("argocd", test.projects, test.secrets, test.settings))
			if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("ReviewHub() = %q, want %q", got, test.want)
			}
		})
	}
}
