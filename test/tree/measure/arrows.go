package main

import (
	"go/ast"
	"go/types"
)

// graph are the files of one package and who names whom.
type graph struct {
	Files []string
	names [][]bool // names[a][b]: file a names something that file b declares
}

// arrow is a pair of files; From names something that To declares.
type arrow struct{ From, To string }

// arrows reads who names whom among the counted files of a unit.
func (t *tree) arrows(u *unit) graph {
	files := u.counted()
	index := make(map[*source]int)
	var g graph
	for i, s := range files {
		index[s] = i
		g.Files = append(g.Files, s.Name)
		g.names = append(g.names, make([]bool, len(files)))
	}
	for i, s := range files {
		ast.Inspect(s.Syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if obj := declared(t.Info.Uses[id]); obj != nil && obj.Pkg() == u.Types {
					if j, ok := index[t.fileOf(obj.Pos())]; ok && j != i {
						g.names[i][j] = true
					}
				}
			}
			return true
		})
	}
	return g
}

// declared is what an identifier names, if that stands outside of functions: a name of the
// package, a method or a field.
func declared(obj types.Object) types.Object {
	switch o := obj.(type) {
	case nil:
		return nil
	case *types.Func:
		return o.Origin()
	case *types.Var:
		if o.IsField() {
			return o.Origin()
		}
	}
	if obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return nil
	}
	return obj
}

// all is the number of arrows.
func (g graph) all() int {
	n := 0
	for _, row := range g.names {
		for _, names := range row {
			if names {
				n++
			}
		}
	}
	return n
}

// back are the arrows that run back up, in the order of files that [graph.order] finds.
func (g graph) back() []arrow {
	var found []arrow
	order := g.order()
	for i, above := range order {
		for _, below := range order[i+1:] {
			if g.names[below][above] {
				found = append(found, arrow{From: g.Files[below], To: g.Files[above]})
			}
		}
	}
	return found
}

// order puts the files from top to bottom so that as few arrows as can be run back up. It
// depends on the arrows and not on what the files are called, but for ties.
//
// It peels as a topological sort does: what names no one goes to the bottom, what no one
// names to the top. Where only circles are left, the file that has most more arrows out
// than in goes to the top (Eades, Lin and Smyth, 1993). Then each file is moved to the place
// that leaves fewest arrows, until no move helps. So what is counted is close to the fewest
// that any order of these files has.
func (g graph) order() []int {
	order := g.peel()
	for moved := true; moved; {
		moved = false
		for v := range order {
			moved = g.settle(order, v) || moved
		}
	}
	return order
}

// peel makes the order that order begins with.
func (g graph) peel() []int {
	left := make(map[int]bool)
	for v := range g.Files {
		left[v] = true
	}
	var top, bottom []int // bottom from below
	for len(left) > 0 {
		best, most := -1, 0
		for v := range g.Files {
			if !left[v] {
				continue
			}
			out, in := g.degree(v, left)
			if out == 0 {
				best = -1
				bottom = append(bottom, v)
				delete(left, v)
				break
			}
			if in == 0 {
				out = len(g.Files) + 1
			}
			if best < 0 || out-in > most {
				best, most = v, out-in
			}
		}
		if best >= 0 {
			top = append(top, best)
			delete(left, best)
		}
	}
	for i := len(bottom) - 1; i >= 0; i-- {
		top = append(top, bottom[i])
	}
	return top
}

// degree counts the arrows of a file from and to those that are left.
func (g graph) degree(v int, left map[int]bool) (out, in int) {
	for u := range left {
		if g.names[v][u] {
			out++
		}
		if g.names[u][v] {
			in++
		}
	}
	return out, in
}

// settle moves file v to the place in the order that leaves fewest arrows back up, and
// says whether that were fewer than before.
func (g graph) settle(order []int, v int) bool {
	at := 0
	for order[at] != v {
		at++
	}
	best, place := 0, at
	for step := range [2]int{} {
		change, by := 0, 2*step-1
		for i := at + by; i >= 0 && i < len(order); i += by {
			// To pass u upwards turns v's arrows to u down and u's arrows to v up.
			gain := count(g.names[order[i]][v]) - count(g.names[v][order[i]])
			change -= by * gain
			if change < best {
				best, place = change, i
			}
		}
	}
	for ; at > place; at-- {
		order[at-1], order[at] = order[at], order[at-1]
	}
	for ; at < place; at++ {
		order[at], order[at+1] = order[at+1], order[at]
	}
	return best < 0
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
