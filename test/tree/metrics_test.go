package tree

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestMetricsReferenceGolden$" -update .

// metricsFile is the reference of all metrics, from the module's root.
const metricsFile = "docs/reference/metrics.md"

// metric is one family, as the code makes it.
type metric struct {
	name, kind, help string
	labels           []string
	pkg              string
}

// The reference names every metric that the principal or an agent may have. It is read
// from the source and not from a registry: that has only what one configuration
// registers, and says neither type nor labels of what has no value yet. An end-to-end
// test holds it against what running processes serve.
func TestMetricsReferenceGolden(t *testing.T) {
	var all []metric
	linked := map[string][]string{} // package to the programs it is in
	for _, program := range []string{"principal", "agent"} {
		for _, p := range closure(t, "cmd/"+program) {
			if linked[p.rel()] == nil {
				all = append(all, metricsOf(t, p)...)
			}
			linked[p.rel()] = append(linked[p.rel()], program)
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d metrics were found: mend this test", len(all))
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.pkg, b.pkg)) })
	var out bytes.Buffer
	out.WriteString("# Metrics\n\nMade from the code by `make generate`. Both programs serve them at `/metrics` of `admin.listen`, beside those of the Go runtime and of the\n" +
		"process. What is in a program is there when its configuration switches it on.\n\n" +
		"| Name | Type | Labels | Meaning | Part of |\n|---|---|---|---|---|\n")
	for i, m := range all {
		if i > 0 && all[i-1].name == m.name && all[i-1].kind != m.kind {
			t.Errorf("%s is a %s in %s and a %s in %s", m.name, all[i-1].kind, all[i-1].pkg, m.kind, m.pkg)
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, labels,
			strings.ReplaceAll(m.help, "|", `\|`), strings.Join(linked[m.pkg], ", "))
	}
	golden.Compare(t, filepath.Join(root, metricsFile), out.Bytes())
}

// A metric that a page of docs names is one that the reference has.
func TestMetricsOfDocumentsExist(t *testing.T) {
	known := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(argomesh_\\w+)` \\| (\\w+) ").FindAllSubmatch(read(t, metricsFile), -1) {
		known[string(row[1])] = true
		if string(row[2]) == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				known[string(row[1])+part] = true
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range pages {
		name := filepath.Join("docs", filepath.Base(page))
		for _, word := range regexp.MustCompile(`argomesh_\w+`).FindAllString(string(read(t, name)), -1) {
			seen++
			if !known[word] && !strings.HasSuffix(word, "_") { // which begins the names of several
				t.Errorf("%s names metric %s, which there is not", name, word)
			}
		}
	}
	if seen < 30 {
		t.Fatalf("only %d names were found: mend this test", seen)
	}
}

// closure returns the package and what it imports of ours.
func closure(t *testing.T, name string) []pkg {
	t.Helper()
	named := byName(t)
	found := map[string]pkg{}
	var visit func(string)
	visit = func(name string) {
		p, ok := named[name]
		if _, seen := found[name]; seen || !ok {
			return
		}
		found[name] = p
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				visit(ours)
			}
		}
	}
	visit(name)
	if len(found) < 2 {
		t.Fatalf("%s imports nothing: mend this test", name)
	}
	out := make([]pkg, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[name])
	}
	return out
}

// metricsOf finds the calls of prometheus.New… in a package. What it cannot read is an
// error: a name, a help text and labels are written where the metric is made.
func metricsOf(t *testing.T, p pkg) []metric {
	t.Helper()
	var found []metric
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		declared := map[string]*ast.CompositeLit{} // the latest of a variable, in the order of the source
		ast.Inspect(file, func(n ast.Node) bool {
			if assigned, ok := n.(*ast.AssignStmt); ok && len(assigned.Lhs) == 1 {
				if variable, ok := assigned.Lhs[0].(*ast.Ident); ok {
					declared[variable.Name], _ = assigned.Rhs[0].(*ast.CompositeLit)
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			made, ok := selected(call.Fun, "prometheus")
			kind := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(made, "New"), "Vec"), "Func")
			if !ok || !slices.Contains([]string{"Counter", "Gauge", "Histogram", "Summary", "Desc"}, kind) {
				return true
			}
			m := metric{kind: strings.ToLower(kind), pkg: p.rel()}
			if problem := m.read(call, strings.HasSuffix(made, "Vec"), declared); problem != "" {
				t.Errorf("%v: %s", fset.Position(call.Pos()), problem)
			}
			found = append(found, m)
			return true
		})
	}
	return found
}

// read fills in what the arguments say, and returns what keeps it from that. declared
// are the literals of variables.
func (m *metric) read(call *ast.CallExpr, vector bool, declared map[string]*ast.CompositeLit) (problem string) {
	opts, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return "the options of a metric are written where it is made"
	}
	for _, element := range opts.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return "the options of a metric have names"
		}
		switch key := field.Key.(*ast.Ident).Name; key {
		case "Name", "Help":
			text, ok := literal(field.Value)
			if !ok {
				return key + " of a metric is a literal"
			}
			if key == "Name" {
				m.name = text
			} else {
				m.help = text
			}
		case "ConstLabels":
			labels, ok := field.Value.(*ast.CompositeLit)
			if variable, isVariable := field.Value.(*ast.Ident); isVariable {
				labels = declared[variable.Name]
				ok = labels != nil
			}
			if !ok {
				return "the constant labels of a metric are written in the function that makes it"
			}
			for _, label := range labels.Elts {
				text, ok := literal(label.(*ast.KeyValueExpr).Key)
				if !ok {
					return "a constant label of a metric is a literal"
				}
				m.labels = append(m.labels, text)
			}
		case "Namespace", "Subsystem":
			return "the name of a metric is in one piece"
		}
	}
	if vector {
		labels, ok := call.Args[1].(*ast.CompositeLit)
		if !ok {
			return "the labels of a metric are written where it is made"
		}
		for _, label := range labels.Elts {
			text, ok := literal(label)
			if !ok {
				return "a label of a metric is a literal"
			}
			m.labels = append(m.labels, text)
		}
	}
	switch {
	case !strings.HasPrefix(m.name, "argomesh_"):
		return fmt.Sprintf("the name of metric %q does not begin with argomesh_ (docs/contributing/conventions.md, logs, metrics, traces)", m.name)
	case m.help == "":
		return m.name + " has no help text"
	case (m.kind == "counter") != strings.HasSuffix(m.name, "_total"):
		return m.name + ": counters end in _total, and nothing else does (docs/contributing/conventions.md, logs, metrics, traces)"
	}
	return ""
}

// selected returns the name in pkg.Name.
func selected(e ast.Expr, pkg string) (name string, ok bool) {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x, ok := s.X.(*ast.Ident)
	return s.Sel.Name, ok && x.Name == pkg
}

// literal returns the text of a string literal, or of several joined by +.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		right, also := literal(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
