package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"strings"
)

// kind says what a type is for.
type kind int

const (
	// state is what lives and acts: every struct that is none of the others.
	state kind = iota
	// settings are what someone else fills in before an owner is made, and no one changes.
	settings
	// record is data under way: parsed, sent, stored or returned.
	record
	// api is what the Kubernetes API server stores.
	api
	// plain is no struct.
	plain
)

func (k kind) String() string {
	return [...]string{"state", "settings", "record", "api", "plain"}[k]
}

// structure is a type with what hangs on it.
type structure struct {
	Name    string // package.Type
	Kind    kind
	Fields  int // with those of structs of the same package that it embeds, and of structs without a name
	Methods int // in all files of its package, with those of structs of the same package that it embeds
}

// structures returns the types declared in the counted files of a unit, but interfaces.
func (t *tree) structures(u *unit, changed map[*types.TypeName]bool) []structure {
	var all []structure
	for _, name := range u.Types.Scope().Names() {
		obj, ok := u.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok || obj.IsAlias() || types.IsInterface(obj.Type()) || t.fileOf(obj.Pos()).Generated {
			continue
		}
		named, ok := obj.Type().(*types.Named)
		if !ok {
			continue
		}
		s := structure{Name: u.Path + "." + name, Kind: plain, Methods: named.NumMethods()}
		if shape, ok := named.Underlying().(*types.Struct); ok {
			s.Fields, s.Methods = members(named, shape)
			s.Kind = kindOf(u.Path, shape, changed[obj], s.Methods)
		}
		all = append(all, s)
	}
	return all
}

// members counts. To move fields or methods into an embedded struct, or into one without a
// name, changes nothing: it is used as one thing still.
func members(named *types.Named, shape *types.Struct) (fields, methods int) {
	if named != nil {
		methods = named.NumMethods()
	}
	for f := range shape.Fields() {
		if inner := namedOf(f.Type()); f.Embedded() && inner != nil && inner.Obj().Pkg() == f.Pkg() {
			if embedded, ok := inner.Underlying().(*types.Struct); ok {
				n, m := members(inner, embedded)
				fields, methods = fields+n, methods+m
				continue
			}
		}
		if unnamed, ok := f.Type().(*types.Struct); ok {
			n, _ := members(nil, unnamed)
			fields += n
			continue
		}
		fields++
	}
	return fields, methods
}

// kindOf tells what a struct is for by what it can do:
//
//   - what is declared below api/ is of the Kubernetes API;
//   - what has a channel, or something of sync or sync/atomic, is state;
//   - what has more methods than the goal allows acts, and is state;
//   - of the rest, a record is what has an encoding tag at every field: it is written out whole;
//   - what no code changes through a pointer after it was made is settings if all its
//     fields are exported, so that another package fills them, or else a record;
//   - everything else is state.
func kindOf(path string, shape *types.Struct, changed bool, methods int) kind {
	if path == "api" || strings.HasPrefix(path, "api/") {
		return api
	}
	exported, tagged, alive := true, shape.NumFields() > 0, false
	for i := range shape.NumFields() {
		f, tag := shape.Field(i), reflect.StructTag(shape.Tag(i))
		exported = exported && f.Exported()
		tagged = tagged && (tag.Get("json") != "" || tag.Get("yaml") != "" || tag.Get("koanf") != "")
		alive = alive || living(f.Type())
	}
	switch {
	case alive || methods > maxMethods:
		return state
	case tagged:
		return record
	case changed:
		return state
	case exported:
		return settings
	}
	return record
}

// living says that a field is for more than one goroutine.
func living(t types.Type) bool {
	switch x := types.Unalias(t).(type) {
	case *types.Chan:
		return true
	case *types.Named:
		pkg := x.Obj().Pkg()
		return pkg != nil && (pkg.Path() == "sync" || pkg.Path() == "sync/atomic")
	}
	return false
}

// changed are the structs of which some code writes a field, or an element of one, through
// a pointer.
func (t *tree) changed() map[*types.TypeName]bool {
	found := make(map[*types.TypeName]bool)
	for _, u := range t.Units {
		for _, s := range u.counted() {
			ast.Inspect(s.Syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if n.Tok != token.DEFINE {
						for _, e := range n.Lhs {
							t.write(e, found)
						}
					}
				case *ast.IncDecStmt:
					t.write(n.X, found)
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
						t.write(n.Args[0], found)
					}
				}
				return true
			})
		}
	}
	return found
}

// write notes the structs that a write to an expression changes through a pointer.
func (t *tree) write(e ast.Expr, found map[*types.TypeName]bool) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if sel := t.Info.Selections[x]; sel != nil && sel.Kind() == types.FieldVal {
				_, pointer := types.Unalias(sel.Recv()).(*types.Pointer)
				if named := namedOf(sel.Recv()); pointer && named != nil {
					found[named.Origin().Obj()] = true
				}
			}
			e = x.X
		default:
			return
		}
	}
}
