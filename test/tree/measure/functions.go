package main

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"
)

// function is one declared function or method.
type function struct {
	Name  string // package.Type.method, the package as its path inside the tree
	Lines int    // from the line of func to that of the last brace; comments above do not count
	Depth int    // see nesting
}

// functions returns what is declared in the counted files of the unit, in order.
func (t *tree) functions(u *unit) []function {
	var all []function
	for _, s := range u.counted() {
		for _, decl := range s.Syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			obj, ok := t.Info.Defs[f.Name].(*types.Func)
			if !ok {
				continue
			}
			all = append(all, function{
				Name:  u.Path + "." + memberName(obj),
				Lines: t.Fset.Position(f.End()).Line - t.Fset.Position(f.Pos()).Line + 1,
				Depth: nesting(f.Body),
			})
		}
	}
	return all
}

// memberName is the name of a function inside its package: Type.method, or function.
func memberName(f *types.Func) string {
	if recv := f.Signature().Recv(); recv != nil {
		if named := namedOf(recv.Type()); named != nil {
			return named.Obj().Name() + "." + f.Name()
		}
	}
	return f.Name()
}

// namedOf is the named type that a type or a pointer to it is, or nil.
func namedOf(t types.Type) *types.Named {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, _ := t.(*types.Named)
	return named
}

// nesting is how many statements that branch or repeat (if, for, switch, select) and
// function literals stand inside each other at the deepest place. An else if is as deep as
// its if, and the cases of a switch are as deep as the switch.
func nesting(n ast.Node) int {
	deepest := 0
	var enter func(n ast.Node, depth int)
	walk := func(n ast.Node, depth int) {
		deepest = max(deepest, depth)
		ast.Inspect(n, func(inner ast.Node) bool {
			if inner == nil || inner == n {
				return true
			}
			switch inner.(type) {
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
				enter(inner, depth)
				return false
			}
			return true
		})
	}
	enter = func(n ast.Node, depth int) {
		branch, ok := n.(*ast.IfStmt)
		if !ok {
			walk(n, depth+1)
			return
		}
		for _, part := range []ast.Node{branch.Init, branch.Cond, branch.Body} {
			if !absent(part) {
				walk(part, depth+1)
			}
		}
		switch other := branch.Else.(type) {
		case *ast.IfStmt:
			enter(other, depth)
		case *ast.BlockStmt:
			walk(other, depth+1)
		}
	}
	walk(n, 0)
	return deepest
}

func absent(n ast.Node) bool {
	s, ok := n.(ast.Stmt)
	return n == nil || ok && s == nil
}

// quantile is the value at the share q of the sorted numbers.
func quantile(sorted []int, q float64) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func numbersOf(all []function, of func(function) int) []int {
	numbers := make([]int, 0, len(all))
	for _, f := range all {
		numbers = append(numbers, of(f))
	}
	slices.SortFunc(numbers, cmp.Compare[int])
	return numbers
}
