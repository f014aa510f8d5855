package appproject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
)

// roleName is that of Argo CD.
var roleName = regexp.MustCompile(`^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// mirroredResources are those of Argo CD of which a project can speak and of which the
// hub has mirrors. The others of a project, applicationsets, repositories and clusters,
// are the hub's own: anyone who may create one makes the hub's controllers and servers act
// with the hub's credentials.
var mirroredResources = []string{"applications", "exec", "logs"}

// mirroredActions are those of Argo CD that have no resource behind them.
var mirroredActions = []string{"get", "create", "update", "delete", "sync", "override", "*"}

// actionOn is an action with what it is on: action/apps/Deployment/restart. Argo CD
// takes anything that has such a beginning somewhere.
var actionOn = regexp.MustCompile(`^(action|update|delete)(/[-*.\w]+)+$`)

// applicationPattern is what Argo CD takes for the name of an Application in a policy.
var applicationPattern = regexp.MustCompile(`^[-*.\w]+$`)

// maxStars bounds the wildcards of one pattern, since the time that Argo CD takes to
// match one grows with the power of their number.
const maxStars = 6

// maxShownRoles is of how many roles it is shown that a mirror lacks them.
const maxShownRoles = 16

// MirroredRoles are the roles of an autonomous agent's project as its mirror has them.
// lacks says, one sentence each, which have none and why.
func (r Rules) MirroredRoles(project string, spec map[string]any) (roles []any, lacks []string) {
	list, _ := spec["roles"].([]any)
	if !r.MirrorsRoles {
		return nil, nil
	}
	named := map[string]int{}
	for _, item := range list {
		role, _ := item.(map[string]any)
		named[object.StringAt(role, "name")]++
	}
	for _, item := range list {
		role, _ := item.(map[string]any)
		name := object.StringAt(role, "name")
		mirrored, problem := r.mirroredRole(project, role)
		if named[name] > 1 {
			problem = "there are several of that name"
		}
		switch {
		case problem == "":
			roles = append(roles, mirrored)
		case len(lacks) < maxShownRoles:
			lacks = append(lacks, fmt.Sprintf("role %s: %s", object.Quoted(name), problem))
		}
	}
	return roles, lacks
}

// mirroredRole is one role; problem says why there is none. Its tokens stay on the
// spoke: which tokens of a project the hub's Argo CD takes is for the hub to say, whose
// key signs them.
func (r Rules) mirroredRole(project string, role map[string]any) (mirrored map[string]any, problem string) {
	name := object.StringAt(role, "name")
	mirrored = map[string]any{"name": name}
	if description := object.StringAt(role, "description"); description != "" {
		mirrored["description"] = description
	}
	if !roleName.MatchString(name) || len(validation.IsDNS1123Subdomain(project)) > 0 {
		return nil, "it has no name that Argo CD takes"
	}
	policies, ok := object.StringsAt(role, "policies")
	if !ok {
		return nil, "its policies are not a list of lines"
	}
	var lines []string
	there := map[string]bool{} // lines, and then groups
	for _, policy := range policies {
		rewritten, problem := r.mirroredPolicy(project, name, policy)
		if problem != "" {
			return nil, fmt.Sprintf("policy %s: %s", object.Quoted(policy), problem)
		}
		for _, line := range rewritten {
			if !there[line] { // Argo CD takes none twice
				there[line] = true
				lines = append(lines, line)
			}
		}
	}
	groups, ok := object.StringsAt(role, "groups")
	if !ok {
		return nil, "its groups are not a list of names"
	}
	clear(there)
	for _, group := range groups {
		if problem := groupProblem(group); problem != "" {
			return nil, fmt.Sprintf("group %s: %s", object.Quoted(group), problem)
		}
		if there[group] {
			return nil, fmt.Sprintf("group %s is there twice", object.Quoted(group))
		}
		there[group] = true
	}
	if len(lines) > 0 {
		mirrored["policies"] = object.AnyList(lines)
	}
	if len(groups) > 0 {
		mirrored["groups"] = object.AnyList(groups)
	}
	return mirrored, ""
}

// mirroredPolicy is a line of a role, "p, proj:NAME:ROLE, resource, action, object,
// effect", as the mirror has it: a line for each namespace that its object is about.
func (r Rules) mirroredPolicy(project, role, policy string) (lines []string, problem string) {
	fields := strings.Split(policy, ",")
	for i := range fields {
		fields[i] = strings.Trim(fields[i], " ") // as Argo CD does
	}
	if len(fields) != 6 || fields[0] != "p" {
		return nil, `it is not of the form "p, subject, resource, action, object, effect"`
	}
	subject, resource, action, on, effect := fields[1], fields[2], fields[3], fields[4], fields[5]
	switch {
	case subject != "proj:"+project+":"+role:
		return nil, "its subject is not this role"
	case !slices.Contains(mirroredResources, resource):
		return nil, "the hub mirrors nothing of that resource, but applications, logs and exec"
	case !slices.Contains(mirroredActions, action) &&
		(!actionOn.MatchString(action) || strings.Count(action, "*") > maxStars):
		return nil, "it has no action that Argo CD knows"
	case effect != "allow" && effect != "deny":
		return nil, "its effect is neither allow nor deny"
	}
	objects, problem := r.mirroredObjects(project, on)
	if problem != "" {
		return nil, problem
	}
	mirror := r.ProjectPrefix() + project
	for _, o := range objects {
		lines = append(lines,
			fmt.Sprintf("p, proj:%s:%s, %s, %s, %s/%s, %s", mirror, role, resource, action, mirror, o, effect))
	}
	return lines, ""
}

// mirroredObjects are what an object of a policy, NAME/APPLICATION or
// NAME/NAMESPACE/APPLICATION, is on the hub, less the mirror's name: there an
// Application is never in Argo CD's own namespace, so each object has the namespace. To
// Argo CD a star stands for slashes too.
func (r Rules) mirroredObjects(project, on string) (objects []string, problem string) {
	parts := strings.Split(on, "/")
	application := parts[len(parts)-1]
	switch {
	case len(parts) < 2 || len(parts) > 3 || parts[0] != project:
		return nil, "its object is not of this project"
	case !applicationPattern.MatchString(application) || strings.Count(application, "*") > maxStars:
		return nil, "its object names no Application"
	case len(parts) == 2 && strings.Trim(application, "*") == "":
		for _, namespace := range r.LocalNamespaces() {
			objects = append(objects, namespace+"/*")
		}
		return objects, ""
	case len(parts) == 2 && strings.Contains(application, "*") && len(r.NamespacePairs()) > 1:
		return nil, "its object may mean several namespaces of the agent: name one"
	}
	spoke := ""
	if len(parts) == 3 {
		if spoke = parts[1]; spoke == "" || strings.Contains(spoke, "*") {
			return nil, "its object names no namespace"
		}
	}
	namespace, mapped := r.Here(spoke)
	if !mapped {
		return nil, "the hub has no namespace of the agent's for its object"
	}
	return []string{namespace + "/" + application}, ""
}

// groupProblem says why a group does not travel; empty when it does. Argo CD writes it
// into a line of its policy as it is.
func groupProblem(group string) string {
	name := group
	if quoted := len(group) > 2 && strings.HasPrefix(group, `"`) && strings.HasSuffix(group, `"`); quoted {
		name = group[1 : len(group)-1]
	} else if strings.Contains(group, ",") {
		return "Argo CD takes one with a comma in quotes alone"
	}
	switch {
	case name == "" || name != strings.TrimSpace(name) || strings.Contains(name, `"`) || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "it is not a name that Argo CD accepts"
	case strings.HasPrefix(name, "role:"), strings.HasPrefix(name, "proj:"):
		return "it is a role, not a group of people"
	}
	return ""
}

// Shaping is what of the rules, beside the spoke's project, shapes its mirror. Where
// that has changed, the mirror is written again; empty is what it was before there was
// anything to choose.
func (r Rules) Shaping() string {
	if !r.Prefixed() {
		return ""
	}
	var parts []string
	if pairs := r.NamespacePairs(); !slices.Equal(pairs, []mapping.Pair{{Hub: r.Agent.String()}}) {
		for _, p := range pairs {
			parts = append(parts, p.Spoke+"="+p.Hub)
		}
	}
	if r.MirrorsRoles {
		parts = append(parts, "roles")
	}
	return strings.Join(parts, " ")
}
