package sim

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// What a drawn history of settings is to try comes about.
func TestSettingsReach(t *testing.T) {
	t.Parallel()
	reached := map[string]int{}
	for _, seed := range []uint64{1, 2, 4, 6, 10, 15} {
		log := logOf(t, GenerateSettings(seed))
		defaults := map[string]marks{} // what each spoke has
		for _, e := range log.Entries {
			if e.Note != "" {
				continue
			}
			o := parse(e.Raw)
			now, agent := o.marks(), e.Place
			switch {
			case e.Place != hubPlace && e.Key == defaultKey() && e.Writer == AgentSide:
				was := defaults[agent]
				switch {
				case was.source == "" && now.adopted != "":
					reached["default is adopted"]++
				case was.source == "" && now.source != "":
					reached["default is made"]++
				case was.adopted != "" && now.source == "":
					reached["default is given back"]++
				case was.source != "" && now.source == "":
					reached["default is given up"]++
				}
			case e.Place == hubPlace && e.Key.Kind == stream.AppProject && strings.Contains(e.Key.Name, "-project-"):
				if len(rolesAt(kindObject{application: o})) > 0 {
					reached["a mirror with roles"]++
				} else {
					reached["a mirror without roles"]++
				}
			case e.Place == hubPlace && o.annotation(keepAnnotation) != "":
				reached["workloads are kept"]++
			}
			if e.Key == defaultKey() {
				defaults[agent] = now
			}
		}
	}
	for _, what := range []string{
		"default is adopted", "default is made", "default is given back", "default is given up",
		"a mirror with roles", "a mirror without roles", "workloads are kept",
	} {
		if reached[what] == 0 {
			t.Errorf("no history has it: %s; reached are %v", what, reached)
		}
	}
	t.Log(reached)
}
