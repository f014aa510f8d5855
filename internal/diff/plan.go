package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Action is what a change does.
type Action uint8

// The actions, in the order in which a plan has them: nothing is taken away before what
// replaces it is there.
const (
	// Refuse means that this must not be done; Reason says why and what helps.
	Refuse Action = iota + 1
	// Create makes what is not there.
	Create
	// Update changes what is there.
	Update
	// Delete takes away what is there.
	Delete
	// Keep means that all is as it is wanted.
	Keep
)

var words = [...]struct{ verb, participle string }{
	Refuse: {"refuse", "refused"},
	Create: {"create", "created"},
	Update: {"update", "updated"},
	Delete: {"delete", "deleted"},
	Keep:   {"keep", "unchanged"},
}

// String returns the verb for a, as in logs and metrics; empty for no action.
func (a Action) String() string {
	if int(a) >= len(words) {
		return fmt.Sprintf("action %d", uint8(a))
	}
	return words[a].verb
}

// Participle returns a as kubectl says that it is done, such as "created" and "unchanged".
func (a Action) Participle() string {
	if int(a) >= len(words) {
		return a.String()
	}
	return words[a].participle
}

// Change is one step of a plan for things of type T.
type Change[T any] struct {
	Action Action
	// Name tells the thing from others of its kind.
	Name string
	// Have is what is there; zero for Create. Want is what should be; zero for Delete.
	Have, Want T
	// Fields are those in which Have is not as Want.
	Fields []Field
	// Reason says why something is refused, or kept or written although that does not
	// follow from the fields.
	Reason string
}

// Changes returns what makes have as want: by change for each thing that is wanted, with
// the one of its name that is there, if there is one, and a Delete for each other that
// goes. Two things are the same when they have the same name. They are in the order of
// actions and names.
func Changes[T any](want, have []T, name func(T) string, change func(have, want T, there bool) Change[T],
	goes func(T) bool) []Change[T] {
	there := make(map[string]T, len(have))
	for _, thing := range have {
		there[name(thing)] = thing
	}
	wanted := make(map[string]T, len(want))
	for _, thing := range want {
		wanted[name(thing)] = thing
	}
	var plan []Change[T]
	for name, thing := range wanted {
		before, found := there[name]
		plan = append(plan, change(before, thing, found))
	}
	for name, thing := range there {
		if _, stays := wanted[name]; !stays && goes(thing) {
			plan = append(plan, Change[T]{Action: Delete, Name: name, Have: thing})
		}
	}
	Sort(plan)
	return plan
}

// Sort puts a plan in the order of actions and names.
func Sort[T any](plan []Change[T]) {
	slices.SortStableFunc(plan, func(a, b Change[T]) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), strings.Compare(a.Name, b.Name))
	})
}

// IsNoOp reports whether plan changes nothing.
func IsNoOp[T any](plan []Change[T]) bool {
	return !slices.ContainsFunc(plan, func(c Change[T]) bool { return c.Action != Keep })
}
