package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/golden"
)

// Operators search for what is logged, and alert by it: a change of a sentence is seen as one.
func TestGoldenLogMessages(t *testing.T) {
	logs := messages{t: t, fset: token.NewFileSet(), syntax: map[string][]*ast.File{}}
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.rel()+"/", "test/") {
			logs.parse(p)
		}
	}
	for name, files := range logs.syntax {
		for _, file := range files {
			logs.collect(name, file)
		}
	}
	slices.Sort(logs.found)
	golden.Compare(t, filepath.Join("testdata", "log-messages.txt"), strings.Join(slices.Compact(logs.found), "\n")+"\n")
}

// messages finds the texts that are given to zerolog. It knows the syntax alone: a text that is
// handed on is followed to where it is written, as far as the code does that.
type messages struct {
	t      *testing.T
	fset   *token.FileSet
	syntax map[string][]*ast.File // by the package
	found  []string               // package: text
}

func (m *messages) parse(p pkg) {
	m.t.Helper()
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(m.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			m.t.Fatal(err)
		}
		m.syntax[p.rel()] = append(m.syntax[p.rel()], file)
	}
}

// collect looks at the calls of Msg and Msgf in a file.
func (m *messages) collect(in string, file *ast.File) {
	eachCall(file, func(call *ast.CallExpr, function *ast.FuncDecl) {
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ok && (method.Sel.Name == "Msg" || method.Sel.Name == "Msgf") && len(call.Args) > 0 {
			m.add(in, call.Args[0], function)
		}
	})
}

// add finds what an expression can be, in a function of a package.
func (m *messages) add(in string, e ast.Expr, function *ast.FuncDecl) {
	if text, ok := m.text(in, e); ok {
		m.found = append(m.found, in+": "+text)
		return
	}
	var from []ast.Expr
	switch e := e.(type) {
	case *ast.Ident:
		if n := parameter(function, e.Name); n >= 0 {
			m.handed(in, function.Name.Name, n)
			return
		}
	case *ast.SelectorExpr: // of a value that is made somewhere in the package
		from = m.given(in, func(name string) bool { return name == e.Sel.Name })
	case *ast.IndexExpr: // of a table
		if table, ok := e.X.(*ast.Ident); ok {
			from = members(m.declared(in, table.Name), func(string) bool { return true })
		}
	}
	if len(from) == 0 {
		m.t.Errorf("%v: the message of a log line is no text that can be found: have it be one", m.fset.Position(e.Pos()))
	}
	for _, one := range from {
		m.add(in, one, nil)
	}
}

// text returns a text that is written in a package. What is added to it is not known.
func (m *messages) text(in string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, known := m.text(in, e.X)
		right, also := m.text(in, e.Y)
		if !also {
			right = "…"
		}
		return left + right, known
	case *ast.Ident:
		if value := m.declared(in, e.Name); value != nil {
			return m.text(in, value)
		}
	}
	return "", false
}

// declared is the value of a constant or variable of a package, nil for none.
func (m *messages) declared(in, name string) (value ast.Expr) {
	for _, file := range m.syntax[in] {
		for _, d := range file.Decls {
			values, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range values.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				at := slices.IndexFunc(spec.Names, func(n *ast.Ident) bool { return n.Name == name })
				if at >= 0 && at < len(spec.Values) {
					value = spec.Values[at]
				}
			}
		}
	}
	return value
}

// handed adds what the nth parameter of a function is called with, in its package and, where
// it is exported, in others.
func (m *messages) handed(of, function string, nth int) {
	calls := 0
	for name, files := range m.syntax {
		for _, file := range files {
			eachCall(file, func(call *ast.CallExpr, caller *ast.FuncDecl) {
				if len(call.Args) > nth && isCallOf(call, name == of, path.Base(of), function) {
					calls++
					m.add(name, call.Args[nth], caller)
				}
			})
		}
	}
	if calls == 0 {
		m.t.Errorf("%s logs what %s is called with, and nothing calls it", of, function)
	}
}

// isCallOf reports whether a call is one of a function, or of a method of that name, of a
// package; inside says whether it stands there.
func isCallOf(call *ast.CallExpr, inside bool, pkg, function string) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return inside && f.Name == function
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return f.Sel.Name == function && (inside || ok && x.Name == pkg && ast.IsExported(function))
	}
	return false
}

// given are the values of a field in the composite literals of a package.
func (m *messages) given(in string, field func(name string) bool) (values []ast.Expr) {
	for _, file := range m.syntax[in] {
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok {
				values = append(values, members(literal, field)...)
			}
			return true
		})
	}
	return values
}

// members are the values of a composite literal whose keys are names that count.
func members(literal ast.Expr, counts func(name string) bool) (values []ast.Expr) {
	of, ok := literal.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, e := range of.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && counts(key.Name) {
				values = append(values, pair.Value)
			}
		}
	}
	return values
}

// eachCall shows the calls of a file, with the function that each stands in; nil for none.
func eachCall(file *ast.File, show func(call *ast.CallExpr, function *ast.FuncDecl)) {
	for _, d := range file.Decls {
		function, _ := d.(*ast.FuncDecl)
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				show(call, function)
			}
			return true
		})
	}
}

// parameter is the number of a function's parameter, -1 for none of that name.
func parameter(function *ast.FuncDecl, name string) int {
	n := 0
	if function == nil {
		return -1
	}
	for _, field := range function.Type.Params.List {
		for _, of := range field.Names {
			if of.Name == name {
				return n
			}
			n++
		}
		if len(field.Names) == 0 {
			n++
		}
	}
	return -1
}
