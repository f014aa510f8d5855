package principalconfig

import (
	"strings"
	"testing"
)

func TestMappingValidate(t *testing.T) {
	for name, test := range map[string]struct {
		mapping Mapping
		want    string // of the problem; empty for none
	}{
		"the default":             {DefaultMapping(), ""},
		"by destination":          {Mapping{By: "destination", Namespaces: []string{"team-*", "/^x$/"}, Selector: "a=b,!c"}, ""},
		"by nothing":              {Mapping{Namespaces: []string{"a"}, Selector: "b"}, ""},
		"by something else":       {Mapping{By: "label"}, `by: "label" is neither`},
		"by namespace, with some": {Mapping{By: "namespace", Namespaces: []string{"a"}}, "namespaces: is for the mapping by destination"},
		"a bad pattern":           {Mapping{By: "destination", Namespaces: []string{"["}}, `namespaces: "[" is neither`},
		"a bad selector":          {Mapping{By: "namespace", Selector: "a in"}, `selector: "a in" is not`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.mapping.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Validate() = %v, want %q", err, test.want)
			}
		})
	}
}
