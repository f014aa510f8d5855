package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// stay is a stretch of a trip inside one file.
type stay struct {
	File  string
	Doors []string // the functions that were entered in it, in order
}

// trip is what a value passes.
type trip struct {
	Stays []stay
}

// Files is in how many files the value was.
func (t trip) Files() int {
	files := make(map[string]bool)
	for _, s := range t.Stays {
		files[s.File] = true
	}
	return len(files)
}

// Returns is how often it came into a file that it had left before.
func (t trip) Returns() int { return len(t.Stays) - t.Files() }

// walk follows the parameter that a start names.
func (c *calls) walk(start string) (trip, error) {
	name, param, ok := strings.Cut(start, ":")
	b := c.byName[name]
	if !ok || b == nil {
		return trip{}, fmt.Errorf("no function %s: a start is package.Type.method:parameter", name)
	}
	i := slices.IndexFunc(b.Params, func(p *types.Var) bool { return p.Name() == param })
	if i < 0 {
		return trip{}, fmt.Errorf("%s has no parameter %s", name, param)
	}
	w := &walker{calls: c, passed: make(map[token.Pos]map[guise]bool)}
	w.enter(b, []guise{{param: i}})
	return w.trip, nil
}

// walker is the value under way.
type walker struct {
	*calls
	trip   trip
	passed map[token.Pos]map[guise]bool // functions walked already, with what it came as
}

// guise is a parameter that the value came as. Where that is an interface and the value's
// own type is known, a switch over types is walked in that type's case alone.
type guise struct {
	param int
	own   types.Type // nil is not known, or no interface
}

// enter goes into a function with the value as the given parameters. Code that it was in
// before, in no other guise, is not entered again: no one has to read it twice.
func (w *walker) enter(b *body, as []guise) {
	before := w.passed[b.pos]
	if before == nil {
		before = make(map[guise]bool)
		w.passed[b.pos] = before
	}
	news := false
	for _, g := range as {
		news = news || !before[g] && !before[guise{param: g.param}]
		before[g] = true
	}
	if !news {
		return
	}
	if !w.asksItself(b, as) {
		w.stay(b)
	}
	inside := &passage{walker: w, carries: make(map[types.Object]bool), own: make(map[types.Object]types.Type)}
	for _, g := range as {
		inside.carries[b.Params[g.param]] = true
		if g.own != nil {
			inside.own[b.Params[g.param]] = g.own
		}
	}
	inside.walk(b.Block)
}

// asksItself says that the value is only the receiver of a method that stands beside its
// type: that is no journey, though what the method calls may be one. In another file than
// its type the method is a place like any other.
func (w *walker) asksItself(b *body, as []guise) bool {
	if !b.HasRecv || len(as) > 1 || as[0].param != 0 {
		return false
	}
	named := namedOf(b.Params[0].Type())
	return named != nil && w.t.fileOf(named.Obj().Pos()) == b.File
}

func (w *walker) stay(b *body) {
	if n := len(w.trip.Stays); n > 0 && w.trip.Stays[n-1].File == b.File.Name {
		w.trip.Stays[n-1].Doors = append(w.trip.Stays[n-1].Doors, b.Name)
		return
	}
	w.trip.Stays = append(w.trip.Stays, stay{File: b.File.Name, Doors: []string{b.Name}})
}

// passage is the value's way through one function, in the order in which it is written.
// Branches are walked one after the other, literals where they stand.
//
// The value is carried on by variables that are assigned from it, from a part of it, or
// from what was made of it: the result of a call that it was handed to is the value in
// another form, unless it is an error or a bool. It is handed over as an argument or a
// receiver. What is put into a field of something older, or into a channel, is put down
// there and not followed. A function that came as a parameter is not followed: who calls
// with it has its body in view.
type passage struct {
	*walker
	carries map[types.Object]bool       // variables that are the value, or made of it
	own     map[types.Object]types.Type // of those that are interfaces, where it is known
}

func (p *passage) walk(n ast.Node) {
	if n == nil || absent(n) {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			p.assign(n.Lhs, n.Rhs)
			return false
		case *ast.ValueSpec:
			names := make([]ast.Expr, len(n.Names))
			for i, id := range n.Names {
				names[i] = id
			}
			p.assign(names, n.Values)
			return false
		case *ast.RangeStmt:
			p.walkRange(n)
			return false
		case *ast.TypeSwitchStmt:
			p.walkTypeSwitch(n)
			return false
		case *ast.CallExpr:
			p.call(n)
			return false
		}
		return true
	})
}

func (p *passage) assign(lhs, rhs []ast.Expr) {
	for _, e := range rhs {
		p.walk(e)
	}
	for _, e := range lhs {
		p.walk(e)
	}
	for i, e := range lhs {
		from := rhs
		if len(lhs) == len(rhs) {
			from = rhs[i : i+1]
		}
		if slices.ContainsFunc(from, p.isMe) {
			p.carry(e)
		}
	}
}

// carry makes a variable of this function a name for the value. What is put into a field
// of something older is put down there, and not followed.
func (p *passage) carry(e ast.Expr) {
	id, ok := root(e).(*ast.Ident)
	if !ok {
		return
	}
	v := p.variable(id)
	if v == nil || v.IsField() || !carriesValue(p.t.Info.TypeOf(e)) {
		return
	}
	if e != ast.Expr(id) && v.Kind() != types.LocalVar {
		return
	}
	p.carries[v] = true
	delete(p.own, v)
}

// root is the variable that an expression begins at.
func root(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return e
		}
	}
}

// carriesValue is false for what says something about a value and is not made of it.
func carriesValue(t types.Type) bool {
	if t == nil {
		return true
	}
	if types.Identical(t, types.Universe.Lookup("error").Type()) {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return !ok || b.Info()&types.IsBoolean == 0
}

func (p *passage) walkRange(n *ast.RangeStmt) {
	p.walk(n.X)
	if p.isMe(n.X) {
		for _, e := range []ast.Expr{n.Key, n.Value} {
			if e != nil {
				p.carry(e)
			}
		}
	}
	p.walk(n.Body)
}

func (p *passage) walkTypeSwitch(n *ast.TypeSwitchStmt) {
	p.walk(n.Init)
	var subject ast.Expr
	ast.Inspect(n.Assign, func(inner ast.Node) bool {
		if a, ok := inner.(*ast.TypeAssertExpr); ok {
			subject = a.X
		}
		return subject == nil
	})
	p.walk(subject)
	me := subject != nil && p.isMe(subject)
	for _, clause := range p.cases(subject, n.Body.List) {
		if v := p.t.Info.Implicits[clause]; me && v != nil {
			p.carries[v] = true
		}
		for _, s := range clause.Body {
			p.walk(s)
		}
	}
}

// cases are the cases of a switch over types that may be taken.
func (p *passage) cases(subject ast.Expr, list []ast.Stmt) []*ast.CaseClause {
	var all, other []*ast.CaseClause
	own := p.ownType(subject)
	for _, s := range list {
		clause, ok := s.(*ast.CaseClause)
		if !ok {
			continue
		}
		all = append(all, clause)
		if clause.List == nil {
			other = append(other, clause)
		}
		for _, e := range clause.List {
			if t := p.t.Info.TypeOf(e); own != nil && t != nil && types.AssignableTo(own, t) {
				return []*ast.CaseClause{clause}
			}
		}
	}
	if own != nil {
		return other
	}
	return all
}

// ownType is the type of what an expression is, where it is known and no interface.
func (p *passage) ownType(e ast.Expr) types.Type {
	if e == nil {
		return nil
	}
	t := p.t.Info.TypeOf(e)
	if t != nil && !types.IsInterface(t) {
		return t
	}
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		if v := p.variable(id); v != nil {
			return p.own[v]
		}
	}
	return nil
}

// call walks what stands in a call, and goes in where the value is handed over.
func (p *passage) call(n *ast.CallExpr) {
	var receiver ast.Expr
	if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
		receiver = sel.X
	}
	p.walk(n.Fun)
	for _, e := range n.Args {
		p.walk(e)
	}
	for _, b := range p.callees(n) {
		if as := p.handedOver(b, receiver, n.Args); len(as) > 0 {
			p.enter(b, as)
		}
	}
}

func (p *passage) handedOver(b *body, receiver ast.Expr, args []ast.Expr) []guise {
	var as []guise
	first := 0
	if b.HasRecv {
		first = 1
		if receiver != nil && p.isMe(receiver) {
			as = append(as, guise{param: 0})
		}
	}
	for i, e := range args {
		i = min(first+i, len(b.Params)-1) // the last may take many
		if i < 0 || !p.isMe(e) {
			continue
		}
		g := guise{param: i}
		if types.IsInterface(b.Params[i].Type()) {
			g.own = p.ownType(e)
		}
		as = append(as, g)
	}
	return as
}

// isMe says that an expression is the value, a part of it, or made of it.
func (p *passage) isMe(e ast.Expr) bool {
	if !carriesValue(p.t.Info.TypeOf(e)) {
		return false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v := p.variable(e)
		return v != nil && p.carries[v]
	case *ast.SelectorExpr:
		return p.isMe(e.X)
	case *ast.IndexExpr:
		return p.isMe(e.X)
	case *ast.SliceExpr:
		return p.isMe(e.X)
	case *ast.StarExpr:
		return p.isMe(e.X)
	case *ast.UnaryExpr:
		return p.isMe(e.X)
	case *ast.TypeAssertExpr:
		return p.isMe(e.X)
	case *ast.BinaryExpr:
		return p.isMe(e.X) || p.isMe(e.Y)
	case *ast.KeyValueExpr:
		return p.isMe(e.Value)
	case *ast.CompositeLit:
		return slices.ContainsFunc(e.Elts, p.isMe)
	case *ast.CallExpr:
		if sel, ok := ast.Unparen(e.Fun).(*ast.SelectorExpr); ok && p.isMe(sel.X) {
			return true
		}
		if id, ok := e.Fun.(*ast.Ident); ok && (id.Name == "len" || id.Name == "cap") {
			return false
		}
		return slices.ContainsFunc(e.Args, p.isMe)
	}
	return false
}
