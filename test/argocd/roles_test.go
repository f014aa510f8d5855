package argocd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	applisters "github.com/argoproj/argo-cd/v3/pkg/client/listers/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/server/rbacpolicy"
	"github.com/argoproj/argo-cd/v3/util/assets"
	"github.com/argoproj/argo-cd/v3/util/rbac"
	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/heap"
)

// mirrorOf is what the hub makes of the roles of a spoke's project "web": its mirror, as
// Argo CD reads it.
func mirrorOf(t testing.TB, pairs []mapping.Pair, roles any) *v1alpha1.AppProject {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}, "spec": map[string]any{"roles": roles}})
	if err != nil {
		t.Fatal(err)
	}
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: theAgent(t), Namespace: argocd, Pairs: pairs}}, ProjectRoles: true}
	event := stream.Event{
		Key: stream.EntryKey{Collection: stream.AppProjects, Name: "web"}, Verb: stream.Apply, Data: raw,
		Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(raw)}, Revision: 1,
	}
	var (
		writes  []ownership.Write
		refusal *stream.Refusal
	)
	heap.Bound(t, len(raw), func() { writes, refusal = rules.Plan(event, projectKey(agentName+"-web"), nil, operations.Requests{}) })
	if refusal != nil || len(writes) != 1 {
		t.Fatalf("the mirror is not written: %v", refusal)
	}
	var p v1alpha1.AppProject
	if err := json.Unmarshal(writes[0].Raw, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.ValidateProject(); err != nil {
		t.Fatalf("Argo CD refuses the mirror: %v\n%s", err, writes[0].Raw)
	}
	return &p
}

// enforcer is Argo CD's own, in a cluster with these projects.
func enforcer(t testing.TB, mode string, projects ...*v1alpha1.AppProject) *rbac.Enforcer {
	t.Helper()
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range projects {
		if err := known.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	e := rbac.NewEnforcer(nil, argocd, "argocd-rbac-cm", nil)
	if err := e.SetBuiltinPolicy(assets.BuiltinPolicyCSV); err != nil {
		t.Fatal(err)
	}
	e.SetMatchMode(mode)
	e.SetClaimsEnforcerFunc(rbacpolicy.NewRBACPolicyEnforcer(e, applisters.NewAppProjectLister(known).AppProjects(argocd)).EnforceClaims)
	return e
}

// callers are those to whom a role may give something: a person of a group, and anyone who
// has a token of the role.
func callers(project string) []jwt.MapClaims {
	return []jwt.MapClaims{
		{"sub": "mallory", "groups": []any{"evil", "x"}},
		{"sub": "proj:" + project + ":admin"},
	}
}

// resources and actions are those of Argo CD that a project's role may be about, and some
// that none may.
var (
	resources = []string{
		rbac.ResourceApplications, rbac.ResourceLogs, rbac.ResourceExec, rbac.ResourceApplicationSets, rbac.ResourceRepositories, rbac.ResourceClusters,
		rbac.ResourceProjects, rbac.ResourceAccounts,
	}
	actions = []string{rbac.ActionGet, rbac.ActionCreate, rbac.ActionUpdate, rbac.ActionSync, "action/apps/Deployment/restart", "delete/apps/Deployment/web/x"}
)

// objects of the hub: inside are the agent's own, and outside are of other projects, of
// other namespaces, and the hub's.
func objects() (inside, outside []string) {
	inside = []string{"edge-1-web/edge-1/shop", "edge-1-web/edge-1/a"}
	outside = []string{
		"edge-1-web/shop", "edge-1-web/edge-1shop", // in Argo CD's own namespace
		"edge-1-web/https://git/repo", "https://git/repo", "edge-2", "https://proxy:9090/agents/edge-2", "web", "default", "x",
	}
	for _, project := range []string{"web", "default", "edge-1", "edge-1-web-2", "edge-1-we"} {
		outside = append(outside, project+"/shop", project+"/edge-1/shop", project+"/edge-1-web/edge-1")
	}
	for _, namespace := range []string{"edge-2", "edge-10", "argocd", "edge", "team-a", "web"} {
		outside = append(outside, "edge-1-web/"+namespace+"/shop")
	}
	return inside, outside
}

// hubWith are the projects of a hub with a mirror among them.
func hubWith(p *v1alpha1.AppProject) []*v1alpha1.AppProject {
	all := []*v1alpha1.AppProject{p}
	for _, name := range []string{"web", "default", "edge-1", "edge-1-web-2", "edge-1-we"} {
		other := project([]string{"*"})
		other.Name, other.Spec.Roles = name, nil
		all = append(all, other)
	}
	return all
}

// checkRoles fails when what a spoke says of its project's roles gives a right on the
// hub to anything but the agent's own mirrors. It returns what it gives to these.
func checkRoles(t testing.TB, roles any) (given []string) {
	t.Helper()
	p := mirrorOf(t, nil, roles)
	if len(p.Spec.Roles) == 0 {
		return nil
	}
	e := enforcer(t, rbac.GlobMatchMode, hubWith(p)...)
	inside, outside := objects()
	for _, caller := range callers(p.Name) {
		for _, resource := range resources {
			for _, action := range actions {
				for _, object := range outside {
					if e.Enforce(caller, resource, action, object) {
						t.Errorf("%v may %s %s %s by roles %v of the mirror, which are %v of the spoke", caller, action, resource, object, p.Spec.Roles, roles)
					}
				}
				for _, object := range inside {
					if !e.Enforce(caller, resource, action, object) {
						continue
					}
					if !slices.Contains([]string{rbac.ResourceApplications, rbac.ResourceLogs, rbac.ResourceExec}, resource) {
						t.Errorf("%v may %s %s %s, of which there are no mirrors, by roles %v", caller, action, resource, object, p.Spec.Roles)
					}
					given = append(given, fmt.Sprint(caller["sub"], action, resource, object))
				}
			}
		}
	}
	return given
}

func role(policies ...string) []map[string]any {
	return []map[string]any{{"name": "admin", "policies": policies, "groups": []string{"evil"}}}
}

// TestMirroredRolesAreConfined: no line gives a right on another project or namespace,
// or to what is the hub's.
func TestMirroredRolesAreConfined(t *testing.T) {
	if given := checkRoles(t, role("p, proj:web:admin, applications, *, web/*, allow")); len(given) == 0 {
		t.Fatal("a role of the documentation gives nothing: the test shows nothing")
	}
	for _, group := range []string{"role:admin", "x\ng, evil, role:admin", `x", "y`, "x, role:admin", "evil\np, evil, *, *, *, allow", "evil # x", " evil", "evil\r", "\"evil\ng, evil, role:admin\""} {
		checkRoles(t, []map[string]any{{"name": "admin", "policies": []string{"p, proj:web:admin, applications, *, web/*, allow"}, "groups": []string{group, "evil"}}})
	}
	for _, name := range []string{"admin\ng, evil, role:admin", "admin, projects, *, *, allow\n", "a:b", "*", ""} {
		checkRoles(t, []map[string]any{{"name": name, "policies": []string{"p, proj:web:" + name + ", applications, *, web/*, allow"}, "groups": []string{"evil"}}})
	}
	// Lines of parts that Argo CD, casbin or a reader of CSV might take for more than
	// they are.
	parts := [6][]string{
		{"p", "g", "p2", "#p", "p\np", `"p"`},
		{"proj:web:admin", "proj:edge-1-web:admin", "proj:web:*", "evil", "role:admin", "*", `"proj:web:admin"`, "proj:web:admin\ng, evil, role:admin\np, x"},
		{"applications", "logs", "exec", "applicationsets", "clusters", "repositories", "projects", "accounts", "*", "application*", "{applications,clusters}", "applications\n"},
		{"*", "get", "sync", "delete/*", "action/*", "action/apps/Deployment/restart", "invoke", "x action/y", "action/\ng", "{get,sync}", "[a-z]*", ".*"},
		{
			"web/*", "web/shop", "web/edge-1/*", "web/**", "web/*/*", "*", "*/*", "web*", "web/", "web//shop", "web/../*", "we?/*", "{web,default}/*", "[a-z]*/*", "edge-1-web/*", "edge-2-web/edge-2/*",
			"default/*", "web/shop\np, evil, *, *, *, allow", `"web/shop"`, "web/sh*p", "web/edge-2/shop", "web/*-1", "web/.*", "web/shop|default",
		},
		{"allow", "deny", "Allow", "", "allow\ng, evil, role:admin", `"allow"`},
	}
	generator := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // so that a failure repeats
	written := 0
	for range 400 {
		var line []string
		for _, choice := range parts {
			pick := choice[0] // often, so that one part at a time is odd
			if generator.IntN(4) == 0 {
				pick = choice[generator.IntN(len(choice))]
			}
			line = append(line, pick)
		}
		separator := []string{", ", ",", " ,  "}[generator.IntN(3)]
		if len(checkRoles(t, role(strings.Join(line, separator)))) > 0 {
			written++
		}
	}
	if written == 0 {
		t.Error("no line was written")
	}
}

// mirroredRole is a role of a spoke's project web and where the hub shows the Applications.
type mirroredRole struct {
	pairs    []mapping.Pair
	policies []string
}

func mirroredRoles() map[string]mirroredRole {
	line := func(resource, action, object, effect string) string {
		return fmt.Sprintf("p, proj:web:admin, %s, %s, %s, %s", resource, action, object, effect)
	}
	return map[string]mirroredRole{
		"everything":             {nil, []string{line("applications", "*", "web/*", "allow")}},
		"everything but":         {nil, []string{line("applications", "*", "web/*", "allow"), line("applications", "delete", "web/shop", "deny"), line("applications", "delete/*", "web/*", "deny")}},
		"a pattern":              {nil, []string{line("applications", "get", "web/shop*", "allow"), line("logs", "get", "web/*-1", "allow")}},
		"exec":                   {nil, []string{line("exec", "create", "web/shop", "allow"), line("applications", "action/apps/*", "web/shop", "allow")}},
		"several namespaces":     {[]mapping.Pair{{Hub: "edge-1"}, {Spoke: "team-a", Hub: "edge-1-a"}}, []string{line("applications", "*", "web/*", "allow"), line("applications", "sync", "web/team-a/*", "deny"), line("applications", "get", "web/shop", "deny")}},
		"one of them":            {[]mapping.Pair{{Hub: "edge-1"}, {Spoke: "team-a", Hub: "edge-1-a"}}, []string{line("applications", "get", "web/team-a/sh*", "allow")}},
		"not Argo CD's own only": {[]mapping.Pair{{Spoke: "team-a", Hub: "edge-1-a"}}, []string{line("applications", "get", "web/*", "allow")}},
	}
}

// TestMirroredRolesMeanTheSame: a role that is mirrored gives on the hub what it gives on
// the spoke, Application by Application, with denials and in several namespaces.
func TestMirroredRolesMeanTheSame(t *testing.T) {
	for name, test := range mirroredRoles() {
		t.Run(name, func(t *testing.T) {
			original := project([]string{"*"})
			original.Spec.Roles = []v1alpha1.ProjectRole{{Name: "admin", Policies: test.policies, Groups: []string{"evil"}}}
			if err := original.ValidateProject(); err != nil {
				t.Fatalf("Argo CD refuses the original: %v", err)
			}
			mirrored := mirrorOf(t, test.pairs, original.Spec.Roles)
			if len(mirrored.Spec.Roles) != 1 {
				t.Fatal("the role is left out")
			}
			spoke, hub := enforcer(t, rbac.GlobMatchMode, original), enforcer(t, rbac.GlobMatchMode, mirrored)
			pairs := test.pairs
			if pairs == nil {
				pairs = []mapping.Pair{{Hub: agentName}}
			}
			given := 0
			for _, pair := range pairs {
				for _, app := range []string{"shop", "shop-1", "a"} {
					there, here := "web/"+app, "edge-1-web/"+pair.Hub+"/"+app
					if pair.Spoke != "" {
						there = "web/" + pair.Spoke + "/" + app
					}
					for i, caller := range callers("web") {
						for _, resource := range resources {
							for _, action := range actions {
								want, got := spoke.Enforce(caller, resource, action, there), hub.Enforce(callers("edge-1-web")[i], resource, action, here)
								if want != got {
									t.Errorf("%v, %s %s: %t for %s on the spoke, %t for %s on the hub", caller, action, resource, want, there, got, here)
								}
								if want {
									given++
								}
							}
						}
					}
				}
			}
			if given == 0 {
				t.Error("it gives nothing on either side")
			}
		})
	}
}

// FuzzMirroredRoles holds whatever a spoke may write against Argo CD's enforcer.
func FuzzMirroredRoles(f *testing.F) {
	f.Add("admin", "p, proj:web:admin, applications, *, web/*, allow", "evil")
	f.Add("admin", "p, proj:web:admin, exec, create, web/team-a/shop, deny", `"cn=evil,dc=x"`)
	f.Add("admin\ng, evil, role:admin", "p, proj:web:admin, clusters, *, *, allow", "x\ng, evil, role:admin")
	f.Fuzz(func(t *testing.T, name, policy, group string) {
		checkRoles(t, []map[string]any{{"name": name, "policies": []string{policy}, "groups": []string{group, "evil"}}})
	})
}
