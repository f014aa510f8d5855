package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// The AppProjects of an autonomous agent, with roles. The hub has mirrors of them, which have
// the roles where the Agent says so (spec.projectRoles): each line about the mirror, and no
// role that has a line that does not travel, which is told.

// writeRoles is a person on an autonomous agent's spoke who writes an AppProject, or deletes
// it.
func (w *Fleet) writeRoles(s *spoke, c Command) {
	key, store := s.at(stream.Spoke, s.projectOf()), w.store(s, stream.Spoke, People)
	o, there := store.Get(key)
	project := application{map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": string(key.Kind), "metadata": map[string]any{"name": key.Name, "namespace": key.Namespace},
	}}
	if there {
		project = parse(o.Raw)
	}
	project.fields["spec"] = map[string]any{
		"description": s.mark(c), "sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}},
		"roles": rolesOf(key.Name, c.N),
	}
	var err error
	switch {
	case there && c.Off:
		err = store.Delete(w.ctx, key, backends.Preconditions{UID: o.UID})
	case there:
		_, err = store.Update(w.ctx, o, project.raw())
	case !c.Off:
		_, err = store.Create(w.ctx, key, project.raw())
	}
	w.live(c, err)
}

// strayResource is that of a line that does not travel: the hub has nothing of it.
const strayResource = "clusters"

// rolesOf are some roles of a project: none, one that travels, with a token or without, and
// one that does not.
func rolesOf(project string, n int) []any {
	role := func(name, resource, action string) map[string]any {
		return map[string]any{
			"name": name, "groups": []any{"team-" + name},
			"policies": []any{fmt.Sprintf("p, proj:%s:%s, %s, %s, %s/*, allow", project, name, resource, action, project)},
		}
	}
	dev, stray := role("dev", "applications", []string{"get", "sync"}[n%2]), role("stray", strayResource, "get")
	if n%3 == 0 {
		dev["jwtTokens"] = []any{map[string]any{"iat": int64(n)}}
	}
	return [][]any{{}, {dev}, {dev, stray}, {stray}}[n%4]
}

// mirrorOf is the name on the hub of an autonomous agent's project.
func (a Agent) mirrorOf(project string) string { return a.Name + "-" + project }

// projectWanted follows the AppProjects of an autonomous agent.
func (v *view) projectWanted(i int, e Entry, before kindObject, was bool) {
	if v.Mode != stream.Autonomous || e.Key.Kind != stream.AppProject {
		return
	}
	if was && before.uid != e.UID {
		v.lost(i, before.uid) // a restore replaces objects
	}
	v.want(i, e.Writer, e.UID, !e.Gone)
	name := string(e.Key.Kind) + "/" + e.Key.Name
	if delete(v.removed, name); e.Gone && e.Writer == People {
		v.removed[name] = true
	}
}

// projectMirrored is I4 and I6 for mirrors of AppProjects on the hub.
func (c *checker) projectMirrored(e Entry, before kindObject, was bool, after kindObject) {
	for _, v := range c.agents {
		project, of := strings.CutPrefix(e.Key.Name, v.Name+"-")
		if v.Mode != stream.Autonomous || e.Key.Kind != stream.AppProject || !of {
			continue
		}
		c.isolated(v, e)
		var last *object
		if was {
			last = &object{application: before.application}
		}
		c.behaves(v, e, last, &object{application: after.application})
		if e.Writer != Principal {
			continue
		}
		source := after.sourceUID()
		switch {
		case e.Gone && !v.asked(v.intents[source]) && !v.removed[string(e.Key.Kind)+"/"+project]:
			c.breaks("I4", v, "the principal deleted the mirror of a project that nobody took away: %s", e)
		case !e.Gone && !v.allowed(e, setRoles, stream.Hub) && len(rolesAt(after)) > 0:
			c.breaks("I4", v, "a mirror gets roles, which the Agent does not allow: %s", e)
		}
	}
}

func rolesAt(project kindObject) []any {
	roles, _ := project.child("spec")["roles"].([]any)
	return roles
}

// travelling are the roles of a project as its mirror is to have them, and whether one is
// left out.
func (v *view) travelling(project string, roles []any) (mirrored []any, short bool) {
	name := v.mirrorOf(project)
	for _, one := range roles {
		role, _ := one.(map[string]any)
		policies, _ := role["policies"].([]any)
		line, _ := policies[0].(string)
		if strings.Contains(line, strayResource) {
			short = true
			continue
		}
		line = strings.Replace(line, "proj:"+project+":", "proj:"+name+":", 1)
		line = strings.Replace(line, ", "+project+"/*,", ", "+name+"/"+v.Name+"/*,", 1)
		mirrored = append(mirrored, map[string]any{"name": role["name"], "groups": role["groups"], "policies": []any{line}})
	}
	return mirrored, short
}

// compareRoles is I1 and I8 for the AppProjects of an autonomous agent, at the end.
func (k kinds) compareRoles(c *checker, v *view, now time.Duration) {
	for key, o := range k[v.place()] {
		if key.Kind != stream.AppProject || key.Namespace != v.home() {
			continue
		}
		mirrorKey := stream.ResourceKey{Kind: key.Kind, Namespace: argocdNamespace, Name: v.mirrorOf(key.Name)}
		copied, there := k[hubPlace][mirrorKey]
		if c.excused(v, now, stream.AppProjects, key.Name) {
			continue
		}
		var want []any
		short := false
		if v.switched[setting{setRoles, stream.Hub}].on {
			want, short = v.travelling(key.Name, rolesAt(o))
		}
		if diff := cmp.Diff(o.content(), copied.content()) + cmp.Diff(want, rolesAt(copied)); !there || diff != "" {
			c.breaks("I1", v, "%s has not reached the hub (-spoke +hub):\n%s", key, diff)
		}
		if refusal, is := v.names.of(stream.Hub, stream.AppProjects, key.Name); is != short {
			c.breaks("I8", v, "%s lacks roles: %t, and what is said of it is %q", mirrorKey, short, refusal.Message)
		}
	}
	if v.held > 0 {
		return
	}
	for key, copied := range k[hubPlace] {
		project, of := strings.CutPrefix(key.Name, v.Name+"-")
		if key.Kind != stream.AppProject || !of || !copied.marks().ours(v.Name, true) {
			continue
		}
		key.Name = project
		if _, there := k[v.place()][v.at(stream.Spoke, key)]; !there {
			c.breaks("I8", v, "the mirror of %s is still on the hub", key)
		}
	}
}
