package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

// The mirror of an autonomous agent's AppProject has the roles that travel where the Agent
// says so, and what it lacks is told.
func TestCheckRoles(t *testing.T) {
	const project, mirrored = "project-free", "free-project-free"
	line := func(p, object string) string {
		return "p, proj:" + p + ":dev, applications, sync, " + object + ", allow"
	}
	spec := func(roles ...any) m { return m{"description": "of/free/p/1", "roles": roles} }
	dev := func(policy string) m { return m{"name": "dev", "groups": []any{"team"}, "policies": []any{policy}} }
	stray := m{"name": "stray", "policies": []any{"p, proj:project-free:stray, clusters, get, project-free/*, allow"}}
	own, theirs := dev(line(project, project+"/*")), dev(line(mirrored, mirrored+"/free/*"))
	marks := m{"argocd.argoproj.io/source-uid": "p", "argomesh.io/source": `{"agent":"free"}`}
	history := func(allowed bool, has, shows m) *logbook {
		b := newLogbook()
		if allowed {
			b.switched("free", setRoles, true)
		}
		return b.project("free", People, project, "p", nil, has, false).project(hubPlace, Principal, mirrored, "m", marks, shows, false)
	}
	gone := func(b *logbook, mirrorToo bool) *logbook {
		b.project("free", People, project, "p", nil, spec(), true)
		if mirrorToo {
			b.project(hubPlace, Principal, mirrored, "m", marks, spec(), true)
		}
		return b
	}
	for name, c := range map[string]struct {
		log  *logbook
		told bool // that a role is left out
		want []string
	}{
		"without roles":                        {log: history(false, spec(own), spec())},
		"roles that the Agent does not allow":  {log: history(false, spec(own), spec(theirs)), want: []string{"I4", "I1"}},
		"rewritten":                            {log: history(true, spec(own), spec(theirs))},
		"not rewritten":                        {log: history(true, spec(own), spec(own)), want: []string{"I1"}},
		"of another namespace":                 {log: history(true, spec(own), spec(dev(line(mirrored, mirrored+"/*")))), want: []string{"I1"}},
		"left out, though it travels":          {log: history(true, spec(own), spec()), want: []string{"I1"}},
		"left out and told":                    {log: history(true, spec(own, stray), spec(theirs)), told: true},
		"left out, and nobody says so":         {log: history(true, spec(own, stray), spec(theirs)), want: []string{"I8"}},
		"told, and nothing is left out":        {log: history(true, spec(own), spec(theirs)), told: true, want: []string{"I8"}},
		"roles stay after the Agent took them": {log: history(true, spec(own), spec(theirs)).switched("free", setRoles, false), want: []string{"I1"}},
		"a project that never came":            {log: newLogbook().project("free", People, project, "p", nil, spec(), false), want: []string{"I1"}},
		"a mirror that goes with its original": {log: gone(history(true, spec(), spec()), true)},
		"a mirror that stays":                  {log: gone(history(true, spec(), spec()), false), want: []string{"I8"}},
		"a mirror that nobody took away": {
			log:  history(true, spec(), spec()).project(hubPlace, Principal, mirrored, "m", marks, spec(), true),
			want: []string{"I4", "I1"},
		},
		"a mirror that shows another agent's": {
			log:  history(true, spec(), spec()).project(hubPlace, Principal, mirrored, "m", marks, m{"description": "of/far/p/1"}, false),
			want: []string{"I6", "I1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
				e := Entry{Place: "free", Note: Knows, Side: side, Agreed: true}
				if c.told && side == stream.Hub {
					e.Refused = map[stream.EntryKey]stream.Refusal{{Collection: stream.AppProjects, Name: project}: {Kind: stream.RefusalInvalid, Message: "without role stray"}}
				}
				c.log.note(e)
			}
			log := c.log.note(Entry{Place: hubPlace, Note: Settled}).log
			if diff := cmp.Diff(c.want, found(log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(log)))
			}
		})
	}
}
