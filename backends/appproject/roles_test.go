package appproject

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func line(parts ...string) string { return "p, " + strings.Join(parts, ", ") }

func TestMirroredPolicy(t *testing.T) {
	one := []mapping.Pair(nil)
	several := []mapping.Pair{{Hub: "edge-1-apps"}, {Spoke: "team-a", Hub: "edge-1-a"}}
	teamOnly := []mapping.Pair{{Spoke: "team-a", Hub: "edge-1-a"}}
	const form, resources = `it is not of the form "p, subject, resource, action, object, effect"`, "the hub mirrors nothing of that resource, but applications, logs and exec"
	const foreign, noApplication = "its object is not of this project", "its object names no Application"
	const unmapped = "the hub has no namespace of the agent's for its object"
	mine := func(resource, action, object, effect string) string {
		return line("proj:web:admin", resource, action, object, effect)
	}
	theirs := func(resource, action, object, effect string) string {
		return line("proj:edge-1-web:admin", resource, action, object, effect)
	}
	tests := map[string]struct {
		pairs  []mapping.Pair
		policy string
		want   []string // nil for a problem
		why    string
	}{
		"all of a project":                  {one, mine("applications", "*", "web/*", "allow"), []string{theirs("applications", "*", "edge-1-web/edge-1/*", "allow")}, ""},
		"one Application":                   {one, mine("applications", "sync", "web/shop", "allow"), []string{theirs("applications", "sync", "edge-1-web/edge-1/shop", "allow")}, ""},
		"a pattern of names":                {one, mine("logs", "get", "web/shop-*.v_1", "deny"), []string{theirs("logs", "get", "edge-1-web/edge-1/shop-*.v_1", "deny")}, ""},
		"exec":                              {one, mine("exec", "create", "web/shop", "allow"), []string{theirs("exec", "create", "edge-1-web/edge-1/shop", "allow")}, ""},
		"an action of a resource":           {one, mine("applications", "action/apps/Deployment/restart", "web/*", "allow"), []string{theirs("applications", "action/apps/Deployment/restart", "edge-1-web/edge-1/*", "allow")}, ""},
		"a fine-grained deletion":           {one, mine("applications", "delete/*/Pod/*/*", "web/*", "allow"), []string{theirs("applications", "delete/*/Pod/*/*", "edge-1-web/edge-1/*", "allow")}, ""},
		"other spaces, as Argo CD takes":    {one, "p,  proj:web:admin ,applications,get,  web/*,allow ", []string{theirs("applications", "get", "edge-1-web/edge-1/*", "allow")}, ""},
		"several namespaces, all":           {several, mine("applications", "get", "web/*", "allow"), []string{theirs("applications", "get", "edge-1-web/edge-1-apps/*", "allow"), theirs("applications", "get", "edge-1-web/edge-1-a/*", "allow")}, ""},
		"several namespaces, Argo CD's own": {several, mine("applications", "get", "web/shop", "allow"), []string{theirs("applications", "get", "edge-1-web/edge-1-apps/shop", "allow")}, ""},
		"several namespaces, one of them":   {several, mine("applications", "get", "web/team-a/*", "deny"), []string{theirs("applications", "get", "edge-1-web/edge-1-a/*", "deny")}, ""},
		"several namespaces, a pattern that could mean each": {several, mine("applications", "get", "web/t*", "deny"), nil,
			"its object may mean several namespaces of the agent: name one"},
		"all, and not Argo CD's own":                {teamOnly, mine("applications", "get", "web/**", "allow"), []string{theirs("applications", "get", "edge-1-web/edge-1-a/*", "allow")}, ""},
		"one in Argo CD's own, which is not mapped": {teamOnly, mine("applications", "get", "web/shop", "allow"), nil, unmapped},
		"a namespace that is not mapped":            {one, mine("applications", "get", "web/team-a/shop", "allow"), nil, unmapped},
		"a hub's namespace":                         {one, mine("applications", "get", "web/edge-1/shop", "allow"), nil, unmapped},
		"a pattern of namespaces":                   {one, mine("applications", "get", "web/*/shop", "allow"), nil, "its object names no namespace"},
		"no namespace":                              {one, mine("applications", "get", "web//shop", "allow"), nil, "its object names no namespace"},

		"a field less":                  {one, line("proj:web:admin", "applications", "get", "web/*"), nil, form},
		"a field more":                  {one, mine("applications", "get", "web/*", "allow") + ",", nil, form},
		"nothing":                       {one, "", nil, form},
		"a comment":                     {one, "#" + mine("applications", "get", "web/*", "allow"), nil, form},
		"a group":                       {one, "g, evil, role:admin", nil, form},
		"a group in the form of a line": {one, "g, proj:web:admin, applications, *, web/*, allow", nil, form},
		"two lines in one":              {one, mine("applications", "get", "web/*", "allow") + "\ng, evil, role:admin", nil, form},
		"two lines in one, counted well": {one, "p, proj:web:admin, applications, get, web/*\np, allow", nil,
			noApplication},
		"an end of line in the effect": {one, mine("applications", "get", "web/*", "allow\n"), nil, "its effect is neither allow nor deny"},
		"another role":                 {one, line("proj:web:other", "applications", "get", "web/*", "allow"), nil, "its subject is not this role"},
		"another project's role":       {one, line("proj:edge-1-web:admin", "applications", "get", "web/*", "allow"), nil, "its subject is not this role"},
		"the hub's admins":             {one, line("role:admin", "applications", "get", "web/*", "allow"), nil, "its subject is not this role"},
		"a quoted subject":             {one, line(`"proj:web:admin"`, "applications", "get", "web/*", "allow"), nil, "its subject is not this role"},
		"ApplicationSets":              {one, mine("applicationsets", "get", "web/*", "allow"), nil, resources},
		"repositories":                 {one, mine("repositories", "get", "web/*", "allow"), nil, resources},
		"clusters":                     {one, mine("clusters", "get", "web/*", "allow"), nil, resources},
		"projects":                     {one, mine("projects", "update", "web", "allow"), nil, resources},
		"every resource":               {one, mine("*", "get", "web/*", "allow"), nil, resources},
		"another action":               {one, mine("applications", "invoke", "web/*", "allow"), nil, "it has no action that Argo CD knows"},
		"a pattern of actions":         {one, mine("applications", "[a-z]*", "web/*", "allow"), nil, "it has no action that Argo CD knows"},
		"an action that Argo CD finds somewhere": {one, mine("applications", "x action/y", "web/*", "allow"), nil,
			"it has no action that Argo CD knows"},
		"an action of many patterns": {one, mine("applications", "action/"+strings.Repeat("*a", 7), "web/*", "allow"), nil,
			"it has no action that Argo CD knows"},
		"another project":                {one, mine("applications", "get", "other/*", "allow"), nil, foreign},
		"a project that begins so":       {one, mine("applications", "get", "web-2/*", "allow"), nil, foreign},
		"every project":                  {one, mine("applications", "get", "*/*", "allow"), nil, foreign},
		"everything":                     {one, mine("applications", "get", "*", "allow"), nil, foreign},
		"four parts":                     {one, mine("applications", "get", "web/a/b/c", "allow"), nil, foreign},
		"alternatives":                   {one, mine("applications", "get", "web/{a}", "allow"), nil, noApplication},
		"one character":                  {one, mine("applications", "get", "web/?", "allow"), nil, noApplication},
		"no Application":                 {one, mine("applications", "get", "web/", "allow"), nil, noApplication},
		"many patterns":                  {one, mine("applications", "get", "web/"+strings.Repeat("*a", 7), "allow"), nil, noApplication},
		"another effect":                 {one, mine("applications", "get", "web/*", "Allow"), nil, "its effect is neither allow nor deny"},
		"an effect that is not there":    {one, mine("applications", "get", "web/*", ""), nil, "its effect is neither allow nor deny"},
		"tabs, which Argo CD keeps":      {one, "p,\tproj:web:admin, applications, get, web/*, allow", nil, "its subject is not this role"},
		"a parent folder":                {one, mine("applications", "get", "web/../shop", "allow"), nil, unmapped},
		"another kind of line, p2":       {one, "p2, proj:web:admin, applications, get, web/*, allow", nil, form},
		"a letter that is not in ASCII":  {one, mine("applications", "get", "web/ſhop", "allow"), nil, noApplication},
		"a zero byte":                    {one, mine("applications", "get", "web/shop\x00", "allow"), nil, noApplication},
		"a carriage return":              {one, mine("applications", "get", "web/shop\r", "allow"), nil, noApplication},
		"an end of line in an action":    {one, mine("applications", "action/a\n", "web/*", "allow"), nil, "it has no action that Argo CD knows"},
		"an end of line before a role":   {one, line("proj:web:admin\n", "applications", "get", "web/*", "allow"), nil, "its subject is not this role"},
		"an end of line after a project": {one, mine("applications", "get", "web\n/*", "allow"), nil, foreign},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := autonomous(t)
			r.MirrorsRoles, r.Pairs = true, test.pairs
			got, why := r.mirroredPolicy("web", "admin", test.policy)
			if diff := cmp.Diff(test.want, got); diff != "" || why != test.why {
				t.Errorf("mirroredPolicy(%q), problem %q, want %q (-want +got)\n%s", test.policy, why, test.why, diff)
			}
		})
	}
}

func TestMirroredRoles(t *testing.T) {
	get := func(project, object string) string {
		return line("proj:"+project+":reader", "applications", "get", object, "allow")
	}
	reader := func(change m) m {
		role := m{"name": "reader", "policies": []any{get("web", "web/*")}}
		for key, value := range change {
			role[key] = value
		}
		return role
	}
	mirrored := m{"name": "reader", "policies": []any{get("edge-1-web", "edge-1-web/edge-1/*")}}
	with := func(change m) m {
		role := m{}
		for key, value := range mirrored {
			role[key] = value
		}
		for key, value := range change {
			role[key] = value
		}
		return role
	}
	groups := func(names ...any) m { return reader(m{"groups": names}) }
	tests := map[string]struct {
		roles   any
		want    []any
		leftOut []string
	}{
		"none":                        {nil, nil, nil},
		"no list":                     {m{}, nil, nil},
		"a role":                      {[]any{reader(nil)}, []any{mirrored}, nil},
		"its description":             {[]any{reader(m{"description": "reads"})}, []any{with(m{"description": "reads"})}, nil},
		"its tokens stay":             {[]any{reader(m{"jwtTokens": []any{m{"iat": 1, "id": "x"}}})}, []any{mirrored}, nil},
		"what we do not know stays":   {[]any{reader(m{"clusterRoles": []any{"admin"}})}, []any{mirrored}, nil},
		"its groups":                  {[]any{groups("team:web", `"cn=web,dc=example"`, "Ünïts of web")}, []any{with(m{"groups": []any{"team:web", `"cn=web,dc=example"`, "Ünïts of web"}})}, nil},
		"no policies":                 {[]any{m{"name": "empty"}}, []any{m{"name": "empty"}}, nil},
		"the same line twice is once": {[]any{reader(m{"policies": []any{get("web", "web/*"), get("web", "web/**")}})}, []any{mirrored}, nil},
		"one line of another form leaves the role out, and no other": {
			[]any{reader(nil), m{"name": "admin", "policies": []any{line("proj:web:admin", "applications", "*", "web/*", "allow"), line("proj:web:admin", "repositories", "get", "web/*", "allow")}}},
			[]any{mirrored}, []string{`role "admin": policy "p, proj:web:admin, repositories, get, web/*, allow": the hub mirrors nothing of that resource, but applications, logs and exec`},
		},
		"several of a name":       {[]any{reader(nil), reader(nil)}, nil, []string{`role "reader": there are several of that name`, `role "reader": there are several of that name`}},
		"no role":                 {[]any{"reader"}, nil, []string{`role "": it has no name that Argo CD takes`}},
		"a name with a colon":     {[]any{reader(m{"name": "reader:x"})}, nil, []string{`role "reader:x": it has no name that Argo CD takes`}},
		"a name of several lines": {[]any{reader(m{"name": "reader\ng, evil, role:admin"})}, nil, []string{`role "reader\ng, evil, role:admin": it has no name that Argo CD takes`}},
		"policies that are one":   {[]any{reader(m{"policies": get("web", "web/*")})}, nil, []string{`role "reader": its policies are not a list of lines`}},
		"a policy of numbers":     {[]any{reader(m{"policies": []any{1}})}, nil, []string{`role "reader": its policies are not a list of lines`}},
		"a group of numbers":      {[]any{groups(1)}, nil, []string{`role "reader": its groups are not a list of names`}},
		"a group that is a role":  {[]any{groups("role:readonly")}, nil, []string{`role "reader": group "role:readonly": it is a role, not a group of people`}},
		"the same in quotes":      {[]any{groups(`"role:readonly"`)}, nil, []string{`role "reader": group "\"role:readonly\"": it is a role, not a group of people`}},
		"a role of a project":     {[]any{groups("proj:other:admin")}, nil, []string{`role "reader": group "proj:other:admin": it is a role, not a group of people`}},
		"a comma without quotes":  {[]any{groups("x, role:admin")}, nil, []string{`role "reader": group "x, role:admin": Argo CD takes one with a comma in quotes alone`}},
		"a quote within quotes":   {[]any{groups(`"x", "y"`)}, nil, []string{`role "reader": group "\"x\", \"y\"": it is not a name that Argo CD accepts`}},
		"a group of several lines": {[]any{groups("x\ng, evil, role:admin")}, nil, []string{
			`role "reader": group "x\ng, evil, role:admin": Argo CD takes one with a comma in quotes alone`}},
		"the same in quotes, of several lines": {[]any{groups("\"x\ny\"")}, nil, []string{`role "reader": group "\"x\ny\"": it is not a name that Argo CD accepts`}},
		"a group twice":                        {[]any{groups("x", "x")}, nil, []string{`role "reader": group "x" is there twice`}},
		"a group without a name":               {[]any{groups("")}, nil, []string{`role "reader": group "": it is not a name that Argo CD accepts`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := autonomous(t)
			spec := m{"roles": test.roles}
			if got, leftOut := r.MirroredRoles("web", spec); got != nil || leftOut != nil {
				t.Errorf("unasked the mirror has roles: %v, %v", got, leftOut)
			}
			r.MirrorsRoles = true
			got, leftOut := r.MirroredRoles("web", spec)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mirroredRoles() (-want +got)\n%s", diff)
			}
			for i, text := range leftOut {
				leftOut[i] = strings.ReplaceAll(text, "\n", `\n`)
			}
			if diff := cmp.Diff(test.leftOut, leftOut); diff != "" {
				t.Errorf("left out (-want +got)\n%s", diff)
			}
		})
	}
	r := autonomous(t)
	r.MirrorsRoles = true
	for _, project := range []string{"we:b", "web\n", "we*", "Web", ""} {
		if roles, leftOut := r.MirroredRoles(project, m{"roles": []any{m{"name": "reader"}}}); roles != nil || len(leftOut) != 1 {
			t.Errorf("project %q has roles %v", project, roles)
		}
	}
	many := slices.Repeat([]any{m{"name": strings.Repeat("x", 1000)}}, 100)
	if _, leftOut := r.MirroredRoles("web", m{"roles": many}); len(leftOut) != maxShownRoles || len(strings.Join(leftOut, "")) > maxShownRoles*2*object.MaxQuotedBytes {
		t.Errorf("%d sentences are told", len(leftOut))
	}
}

type m = map[string]any

// autonomous are the rules of an autonomous agent's projects on the hub.
func autonomous(t *testing.T) Rules {
	t.Helper()
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: agent, Namespace: "argocd"}}
}
