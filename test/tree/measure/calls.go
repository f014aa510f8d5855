package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// body is a function with its code: declared, or a literal that a table or a field holds.
type body struct {
	Name    string // package.Type.method; a literal is named by its place
	File    *source
	Params  []*types.Var // the receiver first, where there is one
	HasRecv bool
	Block   *ast.BlockStmt
	pos     token.Pos
}

// calls knows who may be called where.
type calls struct {
	t       *tree
	byObj   map[*types.Func]*body
	byName  map[string]*body
	fields  map[*types.Var][]*body      // functions that a field, a variable or its elements were given
	sources map[*types.Var][]*types.Var // other fields and variables that it was given functions of
	linked  map[string]bool             // units that are part of the program, or nil for all
	methods map[*types.Func][]*body
}

func newCalls(t *tree) *calls {
	c := &calls{
		t: t, byObj: make(map[*types.Func]*body), byName: make(map[string]*body),
		fields: make(map[*types.Var][]*body), sources: make(map[*types.Var][]*types.Var), methods: make(map[*types.Func][]*body),
	}
	for _, u := range t.Units {
		for _, s := range u.Files {
			for _, decl := range s.Syntax.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
					c.declare(u, s, f)
				}
			}
		}
	}
	for _, u := range t.Units {
		for _, s := range u.Files {
			ast.Inspect(s.Syntax, func(n ast.Node) bool { c.note(n); return true })
		}
	}
	return c
}

func (c *calls) declare(u *unit, s *source, f *ast.FuncDecl) {
	obj, ok := c.t.Info.Defs[f.Name].(*types.Func)
	if !ok {
		return
	}
	b := &body{Name: u.Path + "." + memberName(obj), File: s, Block: f.Body, pos: f.Pos()}
	if recv := obj.Signature().Recv(); recv != nil {
		b.HasRecv = true
		b.Params = append(b.Params, recv)
	}
	for p := range obj.Signature().Params().Variables() {
		b.Params = append(b.Params, p)
	}
	c.byObj[obj], c.byName[b.Name] = b, b
}

// ordered are the functions once each, by name.
func ordered(all []*body) []*body {
	slices.SortFunc(all, func(a, b *body) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.pos, b.pos)) })
	return slices.CompactFunc(all, func(a, b *body) bool { return a.pos == b.pos })
}

// note remembers a function that is put into a field or a table.
func (c *calls) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		c.noteFields(n)
	case *ast.AssignStmt:
		if len(n.Lhs) == len(n.Rhs) {
			for i := range n.Lhs {
				c.hold(c.holder(n.Lhs[i]), n.Rhs[i])
			}
		}
	case *ast.RangeStmt:
		if n.Value != nil {
			c.hold(c.holder(n.Value), n.X)
		}
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) {
			for i := range n.Names {
				c.hold(c.holder(n.Names[i]), n.Values[i])
			}
		}
	}
}

func (c *calls) noteFields(lit *ast.CompositeLit) {
	typ := c.t.Info.TypeOf(lit)
	if p, ok := typ.Underlying().(*types.Pointer); ok {
		typ = p.Elem()
	}
	shape, ok := typ.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok {
				c.hold(c.variable(id), kv.Value)
			}
		} else if i < shape.NumFields() {
			c.hold(shape.Field(i).Origin(), e)
		}
	}
}

// holder is the variable or field whose value, or whose elements, an expression names.
func (c *calls) holder(e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return c.variable(e)
	case *ast.SelectorExpr:
		return c.variable(e.Sel)
	case *ast.IndexExpr:
		return c.holder(e.X)
	}
	return nil
}

func (c *calls) variable(id *ast.Ident) *types.Var {
	obj := c.t.Info.Uses[id]
	if obj == nil {
		obj = c.t.Info.Defs[id]
	}
	if v, ok := obj.(*types.Var); ok {
		return v.Origin()
	}
	return nil
}

// hold remembers what functions an expression puts into a holder: one, or those of a
// table (a map, a slice or an array of functions), or those that another holder has.
func (c *calls) hold(holder *types.Var, e ast.Expr) {
	if holder == nil {
		return
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if kv, ok := element.(*ast.KeyValueExpr); ok {
				element = kv.Value
			}
			if f := c.value(element); f != nil {
				c.fields[holder] = append(c.fields[holder], f)
			}
		}
	default:
		if f := c.value(e); f != nil {
			c.fields[holder] = append(c.fields[holder], f)
		} else if from := c.holder(e); from != nil && from != holder && holdsFunctions(from.Type()) {
			c.sources[holder] = append(c.sources[holder], from)
		}
	}
}

// holdsFunctions says that a type is a function, or a table of functions.
func holdsFunctions(t types.Type) bool {
	switch t := t.Underlying().(type) {
	case *types.Signature:
		return true
	case *types.Map:
		return holdsFunctions(t.Elem())
	case *types.Slice:
		return holdsFunctions(t.Elem())
	case *types.Array:
		return holdsFunctions(t.Elem())
	}
	return false
}

// held are the functions that a field or variable may have, over any number of steps.
func (c *calls) held(holder *types.Var) []*body {
	var found []*body
	seen := make(map[*types.Var]bool)
	var add func(v *types.Var)
	add = func(v *types.Var) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		found = append(found, c.fields[v]...)
		for _, from := range c.sources[v] {
			add(from)
		}
	}
	add(holder)
	return ordered(found)
}

// value is the function that an expression is, without a call, or nil.
func (c *calls) value(e ast.Expr) *body {
	e = ast.Unparen(e)
	if lit, ok := e.(*ast.FuncLit); ok {
		s := c.t.fileOf(lit.Pos())
		b := &body{Name: s.Name + ":literal", File: s, Block: lit.Body, pos: lit.Pos()}
		if sig, ok := c.t.Info.TypeOf(lit).(*types.Signature); ok {
			b.Params = slices.Collect(sig.Params().Variables())
		}
		return b
	}
	return c.byObj[c.static(e)]
}

// static is the declared function that an expression names, or nil.
func (c *calls) static(e ast.Expr) *types.Func {
	var id *ast.Ident
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	case *ast.IndexExpr:
		return c.static(e.X)
	case *ast.IndexListExpr:
		return c.static(e.X)
	default:
		return nil
	}
	if f, ok := c.t.Info.Uses[id].(*types.Func); ok {
		return f.Origin()
	}
	return nil
}

// callees are the functions of ours that a call may enter, by name.
func (c *calls) callees(call *ast.CallExpr) []*body {
	if f := c.static(call.Fun); f != nil {
		if recv := f.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
			if c.t.fileOf(f.Pos()) == nil {
				return nil // of others, such as fmt.Stringer: who is meant cannot be told
			}
			return c.implementations(f)
		}
		if b := c.byObj[f]; b != nil && c.isLinked(b) {
			return []*body{b}
		}
		return nil
	}
	return slices.DeleteFunc(c.held(c.holder(call.Fun)), func(b *body) bool { return !c.isLinked(b) })
}

func (c *calls) isLinked(b *body) bool {
	return c.linked == nil || c.linked[unitOf(b.File.Name)]
}

func unitOf(file string) string {
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		return file[:i]
	}
	return "."
}

// implementations are the methods of our types that stand for a method of an interface.
func (c *calls) implementations(f *types.Func) []*body {
	if found, ok := c.methods[f]; ok {
		return found
	}
	named := namedOf(f.Signature().Recv().Type())
	var found []*body
	if named != nil && named.TypeParams().Len() == 0 {
		if asked, ok := named.Underlying().(*types.Interface); ok {
			found = c.implementing(asked, f)
		}
	}
	found = slices.DeleteFunc(ordered(found), func(b *body) bool { return !c.isLinked(b) })
	c.methods[f] = found
	return found
}

func (c *calls) implementing(asked *types.Interface, f *types.Func) []*body {
	var found []*body
	for _, u := range c.t.Units {
		for _, name := range u.Types.Scope().Names() {
			obj, ok := u.Types.Scope().Lookup(name).(*types.TypeName)
			if !ok || types.IsInterface(obj.Type()) {
				continue
			}
			if named, ok := obj.Type().(*types.Named); !ok || named.TypeParams().Len() > 0 {
				continue
			}
			pointer := types.NewPointer(obj.Type())
			if !types.Implements(pointer, asked) {
				continue
			}
			method, _, _ := types.LookupFieldOrMethod(pointer, true, f.Pkg(), f.Name())
			if m, ok := method.(*types.Func); ok {
				if b := c.byObj[m.Origin()]; b != nil {
					found = append(found, b)
				}
			}
		}
	}
	return found
}

// link keeps only the functions of what the program imports, over any number of steps.
// Without a program all may be called.
func (c *calls) link(program string) {
	c.methods = make(map[*types.Func][]*body)
	c.linked = nil
	if program == "" {
		return
	}
	imports := make(map[string][]string)
	for _, u := range c.t.Units {
		imports[u.Path] = u.Imports
	}
	c.linked = map[string]bool{}
	for todo := []string{program}; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if !c.linked[next] {
			c.linked[next] = true
			todo = append(todo, imports[next]...)
		}
	}
}
