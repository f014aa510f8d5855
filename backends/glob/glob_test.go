package glob

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gobwas/glob"

	"github.com/argomesh/argomesh/test/heap"
)

func TestGlobThatPanics(t *testing.T) {
	for _, pattern := range []string{"edge-1{", "edge-?{", "{", strings.Repeat("{", 1<<20), strings.Repeat("{a,", MaxLength/3), strings.Repeat("[", MaxLength)} {
		if Matches(pattern, "edge-1") {
			t.Errorf("%.10q matches", pattern)
		}
	}
}

// A pattern that Argo CD's library would read or match for longer than anybody waits has
// its meaning all the same.
func TestGlobOfManyStars(t *testing.T) {
	for _, tt := range []struct {
		part, text string
		want       bool
	}{
		{"[a-z]*", "a", true}, {"[a-z]*", "A", false}, {"*a?", "ab", true}, {"*a?", "b", false},
		{"a?", "ab", true}, {"a?", "ba", false}, {"{a,b}*", "b", true}, {"{a,b}*", "c", false}, {"{,}", "", true}, {"?*", "ab", true}, {"{a*,b}{c,d}", "axc", true},
	} {
		for _, n := range []int{40, 100, 700} {
			text := strings.Repeat(tt.text, n)
			if got := Matches(strings.Repeat(tt.part, n), text); got != tt.want {
				t.Errorf("%s %d times matches %s as often: %t", tt.part, n, tt.text, got)
			}
		}
	}
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"*a*", strings.Repeat("b", 1<<16) + "a", true}, {"*a*b", strings.Repeat("a", 1<<16), false}, {"{" + strings.Repeat("a,", 2000) + "b}", "b", true},
	} {
		if got := Matches(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%.20s matches %d bytes: %t", tt.pattern, len(tt.text), got)
		}
	}
}

// A pattern is read as Argo CD's library reads it, and the regular expression of the same
// meaning, which takes several times as much, is made for those that need it only.
func TestGlobIsReadOnce(t *testing.T) {
	for _, pattern := range []string{"team-*", "https://git.example.com/{shop,web}/*", "[a-z]?*", "no-pattern"} {
		library := testing.AllocsPerRun(100, func() { glob.MustCompile(pattern, '/') })
		if got := testing.AllocsPerRun(100, func() {
			if matches, err := Compile(pattern, '/'); err != nil || matches("TEAM") {
				t.Errorf("%s: %v", pattern, err)
			}
		}); got > library+5 {
			t.Errorf("%s is read with %v allocations, the library needs %v", pattern, got, library)
		}
	}
}

// BenchmarkGlob reads and matches patterns as projects have them.
func BenchmarkGlob(b *testing.B) {
	for _, pattern := range []string{"team-*", "https://git.example.com/{shop,web}/*", strings.Repeat("[a-z]*", 20)} {
		b.Run(fmt.Sprintf("%.10s", pattern), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Matches(pattern, "https://git.example.com/web/app.git")
			}
		})
	}
}

// Each part of a pattern means in a long one what it means in a short one.
func TestPartsOfGlobs(t *testing.T) {
	const many = "{?,?}{?,?}{?,?}" // too many for the library
	for _, tt := range []struct {
		part      string
		yes, no   []string
		separator bool
	}{
		{"a.b", []string{"a.b"}, []string{"axb", "a.bb", ""}, false},
		{`\*`, []string{"*"}, []string{"a", ""}, false},
		{"*x", []string{"x", "a/x"}, []string{"xa"}, false},
		{"*x", []string{"x", "ax"}, []string{"a/x"}, true},
		{"**x", []string{"x", "a/x"}, []string{"a/xa"}, true},
		{"?x", []string{"ax", "/x"}, []string{"x"}, false},
		{"?x", []string{"ax"}, []string{"/x", "x"}, true},
		{"[a-c]", []string{"a", "c"}, []string{"d", "-"}, false},
		{"[!a-c]", []string{"d"}, []string{"a"}, false},
		{"[^]", []string{"^"}, []string{"a", ""}, false},
		{"[!ab]", []string{"c"}, []string{"a"}, false},
		{"{a,{b,c}*}", []string{"a", "b", "cd"}, []string{"ad", ""}, false},
		{"(a|b)$", []string{"(a|b)$"}, []string{"a", "b"}, false},
		{"é", []string{"é"}, []string{"e"}, false},
	} {
		var separators []rune
		if tt.separator {
			separators = []rune{'/'}
		}
		for _, before := range []string{"", many} {
			text := strings.Repeat("z", len(before)/5)
			matches, err := Compile(before+tt.part, separators...)
			if err != nil {
				t.Errorf("%s%s: %v", before, tt.part, err)
				continue
			}
			for _, yes := range tt.yes {
				if !matches(text + yes) {
					t.Errorf("%s%s does not match %s%s", before, tt.part, text, yes)
				}
			}
			for _, no := range tt.no {
				if matches(text + no) {
					t.Errorf("%s%s matches %s%s", before, tt.part, text, no)
				}
			}
		}
	}
}

// FuzzGlob matches what anybody may write.
func FuzzGlob(f *testing.F) {
	for _, pattern := range []string{"{a,b}", "[!a-z]", "*{,}?", `\`, "{{a},[b-c]*}", "**", "[]a]", "{a,{b,c}}*?[x]", "edge-1{", "[a-z]*[a-z]*[a-z]*", `[\^-]`, "a.b|c(d)*"} {
		f.Add(pattern, "edge-1")
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		const most = 8 << 20
		if took := heap.Of(func() { Matches(pattern, s) }); took > most {
			t.Errorf("%d bytes take %d of heap", len(pattern), took)
		}
	})
}
