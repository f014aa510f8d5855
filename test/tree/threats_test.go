package tree

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// threats is the page that says which test shows which threat to be held.
const threats = "docs/threat-model.md"

var (
	shownBy = regexp.MustCompile("\\[`(Test\\w+)`\\]\\(\\.\\./([^)]+)\\)")
	anyLink = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// Each line of the threat model names tests that exist, in the files that it links.
func TestThreatsAreShown(t *testing.T) {
	tests := map[string]map[string]bool{} // by file
	lines := 0
	for i, line := range bytes.Split(read(t, threats), []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("| ")) || bytes.HasPrefix(line, []byte("| Threat ")) {
			continue
		}
		lines++
		shown := shownBy.FindAllSubmatch(line, -1)
		if len(shown) == 0 || len(shown) != len(anyLink.FindAll(line, -1)) {
			t.Errorf("%s:%d: no test is linked, or something else is", threats, i+1)
		}
		for _, s := range shown {
			name, file := string(s[1]), string(s[2])
			if tests[file] == nil {
				tests[file] = testsIn(t, file)
			}
			if !tests[file][name] {
				t.Errorf("%s:%d: %s has no test %s", threats, i+1, file, name)
			}
		}
	}
	if lines < 20 {
		t.Errorf("%s has %d lines: mend this test, or the page", threats, lines)
	}
}

// testsIn returns the names of the tests in a file; none when there is no such file.
func testsIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Errorf("%s links %v", threats, err)
		return names
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			names[f.Name.Name] = true
		}
	}
	return names
}
