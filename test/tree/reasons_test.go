package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reasonsFile explains the words by which programs say what is wrong, from the module's root.
// It is made of the table of cmd/internal/reasons.
const reasonsFile = "docs/reference/errors.md"

// words are reasons, rules and error codes of the code, each with the package that has it.
type words map[string]string

var (
	camel     = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	ruleWord  = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	redisWord = regexp.MustCompile(`^AGENT[A-Z]+$`)
	ownType   = regexp.MustCompile(`^Argomesh[A-Z][A-Za-z]+$`)
	namedFor  = regexp.MustCompile(`^([rR]eason|Hold)[A-Z]`)
	namedRule = regexp.MustCompile(`^[rR]ule[A-Z]`)
)

// Each word by which a program says what is wrong is explained, with its cause and its cure,
// and nothing else is. Found are, in the code of the programs: constants called reason… or
// Hold…, what a field Reason is set to, what a function reasonOf returns, constants called
// rule… of the proxies, texts that are AGENT… of the Redis proxy, and types of conditions
// that begin with Argomesh; and what agentctl check finds: constants called word, and texts given
// to its functions found and well. So anyone who makes a new reason names it so.
func TestReasonsAreExplained(t *testing.T) {
	found := words{}
	for _, program := range []string{"principal", "agent"} {
		for _, p := range closure(t, "cmd/"+program) {
			for _, name := range p.GoFiles {
				file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				found.in(p.rel(), file)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(root, checkPackage, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found.inCheck(file)
	}
	if len(found) < 75 {
		t.Fatalf("only %d words were found: mend this test", len(found))
	}
	explained := explainedWords(t)
	for _, w := range slices.Sorted(maps.Keys(found)) {
		if !explained[w] {
			t.Errorf("%s of %s is not explained: give it an entry in cmd/internal/reasons, then make generate", w, found[w])
		}
	}
	for _, w := range slices.Sorted(maps.Keys(explained)) {
		if found[w] == "" {
			t.Errorf("%s is explained in %s, and no program says it: take it from cmd/internal/reasons", w, reasonsFile)
		}
	}
}

// explainedWords are the headings of the entries.
func explainedWords(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, reasonsFile))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		if heading, is := strings.CutPrefix(strings.TrimSpace(line), "### "); is {
			out[heading] = true
		}
	}
	return out
}

// checkPackage is that of agentctl check.
const checkPackage = "cmd/agentctl/internal/check"

// inCheck adds the words of a file of agentctl check. Those of conditions, which it repeats, are
// those of the programs.
func (w words) inCheck(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if name.Name == "word" && i < len(n.Values) {
					w.add(checkPackage, n.Values[i], camel, "")
				}
			}
		case *ast.AssignStmt:
			if name, is := n.Lhs[0].(*ast.Ident); is && name.Name == "word" {
				w.add(checkPackage, n.Rhs[0], camel, "")
			}
		case *ast.CallExpr:
			name, is := n.Fun.(*ast.Ident)
			if at, takes := map[string]int{"found": 1, "well": 0}[nameOf(name)]; is && takes {
				w.add(checkPackage, n.Args[at], camel, "")
			}
		case *ast.FuncDecl:
			if n.Name.Name == "wordOf" {
				ast.Inspect(n, func(in ast.Node) bool {
					if returned, is := in.(*ast.ReturnStmt); is {
						w.add(checkPackage, returned.Results[0], camel, "")
					}
					return true
				})
			}
		}
		return true
	})
}

// nameOf is that of an identifier; empty for none.
func nameOf(id *ast.Ident) string {
	if id == nil {
		return ""
	}
	return id.Name
}

// in adds the words of a file of a package.
func (w words) in(rel string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i >= len(n.Values) {
					break
				}
				switch {
				case namedFor.MatchString(name.Name):
					w.add(rel, n.Values[i], camel, "")
				case namedRule.MatchString(name.Name) && strings.HasPrefix(rel, "proxies/"):
					w.add(rel, n.Values[i], ruleWord, "rule ")
				}
			}
		case *ast.KeyValueExpr:
			if key, is := n.Key.(*ast.Ident); is && key.Name == "Reason" {
				w.add(rel, n.Value, camel, "")
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if field, is := left.(*ast.SelectorExpr); is && field.Sel.Name == "Reason" && len(n.Lhs) == len(n.Rhs) {
					w.add(rel, n.Rhs[i], camel, "")
				}
			}
		case *ast.FuncDecl:
			if n.Name.Name == "reasonOf" {
				ast.Inspect(n, func(in ast.Node) bool {
					if returned, is := in.(*ast.ReturnStmt); is {
						for _, result := range returned.Results {
							w.add(rel, result, camel, "")
						}
					}
					return true
				})
			}
		case *ast.BasicLit:
			w.add(rel, n, ownType, "")
			if rel == "proxies/redis" {
				w.add(rel, n, redisWord, "")
			}
		}
		return true
	})
}

// add notes what is a text of this form, with a prefix.
func (w words) add(rel string, value ast.Expr, form *regexp.Regexp, prefix string) {
	lit, is := value.(*ast.BasicLit)
	if !is || lit.Kind != token.STRING {
		return
	}
	if text, err := strconv.Unquote(lit.Value); err == nil && form.MatchString(text) {
		w[prefix+text] = rel
	}
}
