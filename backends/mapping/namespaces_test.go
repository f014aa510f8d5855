package mapping

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/test/heap"
)

func TestMatchesNamespace(t *testing.T) {
	for _, test := range []struct {
		patterns  []string
		namespace string
		want      bool
	}{
		{nil, "a", false}, {[]string{"a"}, "a", true}, {[]string{"a"}, "ab", false}, {[]string{"a*"}, "ab", true},
		{[]string{"/^a/"}, "ab", true}, {[]string{"/^a$/"}, "ab", false}, {[]string{"x", "*"}, "ab", true},
		{[]string{"[", "/(/"}, "[", true}, {[]string{"/(/"}, "(", false}, {[]string{""}, "", true},
	} {
		got, again := MatchesNamespace(test.patterns, test.namespace), NamespaceMatcher(test.patterns)(test.namespace)
		if got != test.want || again != test.want {
			t.Errorf("MatchesNamespace(%q, %q) = %t, and parsed before %t", test.patterns, test.namespace, got, again)
		}
	}
	for _, bad := range []string{"", "[", "/(/"} {
		if err := (Settings{Namespaces: []string{"web", bad}}).Validate(); err == nil {
			t.Errorf("%q passes for a pattern", bad)
		}
	}
	if err := (Settings{Namespaces: []string{"web", "a-*", "/^x/"}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestNamespacePatternThatPanics(t *testing.T) {
	for _, pattern := range []string{"edge-1{", "edge-?{", "{", strings.Repeat("{a,", glob.MaxLength/3), strings.Repeat("[", glob.MaxLength)} {
		if MatchesNamespace([]string{pattern}, "edge-1") {
			t.Errorf("%.10q matches", pattern)
		}
	}
}

// FuzzNamespaces reads and matches patterns that an Agent may have.
func FuzzNamespaces(f *testing.F) {
	for _, pattern := range []string{"{a,b}", "[!a-z]", `/^edge-\d+$/`, "edge-1{", "/(a+)+$/", "**"} {
		f.Add(pattern, "edge-1")
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		const most = 16 << 20
		if took := heap.Of(func() {
			MatchesNamespace([]string{pattern}, s)
			_ = ValidateNamespaces([]string{pattern})
		}); took > most {
			t.Errorf("%d bytes of a namespace take %d of heap", len(pattern), took)
		}
	})
}

func TestMappingWatched(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces, want []string
	}{
		"no further ones": {nil, []string{"argocd"}},
		"by name":         {[]string{"web", "argocd", "web"}, []string{"argocd", "web"}},
		"by a pattern":    {[]string{"web", "team-*"}, nil},
	} {
		if diff := cmp.Diff(test.want, Settings{Namespaces: test.namespaces}.Watched("argocd")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
