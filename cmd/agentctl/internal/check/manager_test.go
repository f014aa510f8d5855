package check

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestParseManager(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file string
		want Manager
		is   bool
	}{
		{"kind: ControllerManagerConfig\nclassName: spire\nwatchClassless: true\n", Manager{Class: "spire", Classless: true}, true},
		{"kind: ControllerManagerConfig\n", Manager{}, true},
		{"kind: ControllerManagerConfig\nclassName: ${CLASS}\n", Manager{Class: "${CLASS}"}, false},
		{"kind: Other\nclassName: spire\n", Manager{}, false},
		{"server {\n  trust_domain = \"x\"\n}\n", Manager{}, false},
	} {
		if got, is := parseManager(tc.file); is != tc.is || got != tc.want {
			t.Errorf("%q is %+v, %t, want %+v, %t", tc.file, got, is, tc.want, tc.is)
		}
	}
}

// Of which class a registration has to be, the managers of the cluster say; without them those of others; else it is
// not known.
func TestClasses(t *testing.T) {
	t.Parallel()
	class := func(o *unstructured.Unstructured, is string) { o.Object["spec"].(map[string]any)["className"] = is }
	brought := Manager{About: "StatefulSet spire-system/argomesh-spire-server", Class: "argomesh-spire", Classless: true}
	for _, tc := range []struct {
		class, federation string
		managers          []Manager
		alone             bool // no registrations of others
		err               error
		level             Level
		says, cure        string
	}{
		{class: "argomesh-spire", managers: []Manager{brought}, level: Fine, says: "by StatefulSet spire-system/argomesh-spire-server"},
		{class: "", managers: []Manager{brought}, level: Fine, says: "is looked after"},
		// What others have does not count where a manager is seen.
		{class: "spire", managers: []Manager{brought}, level: Problem,
			says: `is of class "spire", and StatefulSet spire-system/argomesh-spire-server looks after class argomesh-spire and those of no class`,
			cure: "--class-name argomesh-spire"},
		{class: "spire", managers: []Manager{brought, {About: "Deployment x/y", Class: "spire"}}, level: Fine, says: "by Deployment x/y"},
		{class: "", managers: []Manager{{About: "Deployment x/y", Class: "spire"}}, level: Problem, says: "Deployment x/y looks after class spire:",
			cure: "--class-name spire"},
		{class: "spire", managers: []Manager{{About: "Deployment x/y"}}, level: Problem, says: "looks after those of no class", cure: "take spec.className away"},
		{federation: "other", managers: []Manager{brought}, level: Problem, says: `is of class "other"`, cure: "have its spec.className be argomesh-spire"},
		{class: "spire", level: Fine, says: "is of the class that the others have"},
		{class: "spire", err: errors.New("forbidden"), level: Fine, says: "is of the class that the others have"},
		{class: "spire", alone: true, level: Unknown, says: "neither a spire-controller-manager nor", cure: "compare it"},
		{class: "spire", alone: true, err: errors.New("forbidden"), level: Unknown, says: "forbidden", cure: "may read it"},
	} {
		f := healthy(Spoke)
		f.SPIRE.Managers.is, f.SPIRE.Managers.err = tc.managers, tc.err
		class(f.SPIRE.IDs.is[1], tc.class)
		class(f.SPIRE.Federations.is[0], tc.federation)
		if tc.alone {
			f.SPIRE.IDs.is = f.SPIRE.IDs.is[1:]
		}
		all := classes(f)
		if len(all) == 0 {
			t.Errorf("%+v: nothing is found", tc)
			continue
		}
		Sort(all)
		if got := all[0]; got.Level != tc.level || !strings.Contains(got.Says, tc.says) || !strings.Contains(got.Cure, tc.cure) {
			t.Errorf("%+v: found is %+v", tc, got)
		}
		if slices.ContainsFunc(all, func(f Finding) bool { return f.Word != "WrongClass" }) {
			t.Errorf("%+v: found are %+v", tc, all)
		}
	}
}
