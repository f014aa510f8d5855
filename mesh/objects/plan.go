package objects

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Action is what a change does.
type Action uint8

// The actions, in the order in which a plan has them: nothing is taken away before what
// replaces it is there.
const (
	// Refuse means that this must not be done; Reason says why. The rest of the plan may
	// be.
	Refuse Action = iota + 1
	Create
	Update
	Delete
	// Keep means that all is as it is wanted.
	Keep
)

// String returns the word for a, such as in logs and metrics.
func (a Action) String() string {
	switch a {
	case Refuse:
		return "refuse"
	case Create:
		return "create"
	case Update:
		return "update"
	case Delete:
		return "delete"
	case Keep:
		return "keep"
	}
	return "none"
}

// Change is one step of a plan.
type Change struct {
	Action Action
	// Name is that of [Name].
	Name string
	// Have is what is there, nil for Create. Want is what should be, nil for Delete.
	Have, Want *unstructured.Unstructured
	// Fields are those in which Have is not as Want.
	Fields []Field
	// Reason says why something is refused, or written although no field differs.
	Reason string
}

// Plan returns what makes the objects of manager those of want, at most one change for
// each object. Have holds at least what there is of want, and of what manager has
// applied before.
func Plan(want, have []*unstructured.Unstructured, manager string) []Change {
	there := make(map[string]*unstructured.Unstructured, len(have))
	for _, o := range have {
		there[Name(o)] = o
	}
	var plan []Change
	wanted := make(map[string]bool, len(want))
	for _, o := range want {
		name := Name(o)
		wanted[name] = true
		plan = append(plan, change(name, there[name], o, manager))
	}
	for name, o := range there {
		if !wanted[name] && AppliedBy(o, manager) && o.GetDeletionTimestamp() == nil {
			plan = append(plan, Change{Action: Delete, Name: name, Have: o})
		}
	}
	slices.SortFunc(plan, func(a, b Change) int {
		if a.Action != b.Action {
			return int(a.Action) - int(b.Action)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return plan
}

func change(name string, have, want *unstructured.Unstructured, manager string) Change {
	c := Change{Name: name, Have: have, Want: want}
	if have == nil {
		c.Action, c.Fields = Create, Compare(&unstructured.Unstructured{}, want)
		return c
	}
	c.Fields = Compare(have, want)
	mine := AppliedBy(have, manager)
	switch other := otherHub(have, manager); {
	case have.GetDeletionTimestamp() != nil:
		c.Action, c.Reason = Refuse, "it is being deleted: it is made anew when it is gone"
	case !mine && other != "":
		c.Action, c.Reason = Refuse, fmt.Sprintf("it is of the hub in namespace %s: give the Service of one of the two principals another name", other)
	case !mine && !labelled(have, want):
		c.Action, c.Reason = Refuse, "an object of that name was made by somebody else, and is never touched: delete it, or give the principal's Service another name"
	case !mine:
		c.Action, c.Reason = Update, "taken over from whoever applied what was rendered"
	case len(c.Fields) == 0:
		c.Action = Keep
	default:
		c.Action = Update
	}
	return c
}

// labelled reports whether have has all labels of want, of which there is one at least:
// somebody has applied what was rendered.
func labelled(have, want *unstructured.Unstructured) bool {
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return len(want.GetLabels()) > 0
}
