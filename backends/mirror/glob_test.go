package mirror

import (
	"strings"
	"testing"
)

func TestGlobThatPanics(t *testing.T) {
	for _, pattern := range []string{"edge-1{", "edge-?{", "{", strings.Repeat("{", 1<<20), strings.Repeat("{a,", maxGlob/3), strings.Repeat("[", maxGlob)} {
		if globMatches(pattern, "edge-1") || MatchesNamespace([]string{pattern}, "edge-1") {
			t.Errorf("%.10q matches", pattern)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, pattern := range []string{"{a,b}", "[!a-z]", "*{,}?", `\`, "{{a},[b-c]*}", "**", "[]a]", "{a,{b,c}}*?[x]", "edge-1{"} {
		f.Add(pattern, "edge-1")
	}
	f.Fuzz(func(_ *testing.T, pattern, s string) {
		globMatches(pattern, s)
		MatchesNamespace([]string{pattern}, s)
		_ = ValidateNamespaces([]string{pattern})
	})
}
