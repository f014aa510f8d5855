package objects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/internal/diff"
)

// Change is one step of a plan. Its name is that of [Name].
type Change = diff.Change[*unstructured.Unstructured]

// Plan returns what makes the objects of manager those of want, at most one change for
// each object. Have holds at least what there is of want, and of what manager has
// applied before.
func Plan(want, have []*unstructured.Unstructured, manager string) []Change {
	to := func(have, want *unstructured.Unstructured, _ bool) Change {
		return change(Name(want), have, want, manager)
	}
	return diff.Changes(want, have, Name, to, func(o *unstructured.Unstructured) bool {
		return AppliedBy(o, manager) && o.GetDeletionTimestamp() == nil
	})
}

func change(name string, have, want *unstructured.Unstructured, manager string) Change {
	c := Change{Name: name, Have: have, Want: want}
	if have == nil {
		c.Action, c.Fields = diff.Create, Compare(&unstructured.Unstructured{}, want)
		return c
	}
	c.Fields = Compare(have, want)
	mine := AppliedBy(have, manager)
	switch other := otherHub(have, manager); {
	case have.GetDeletionTimestamp() != nil:
		c.Action, c.Reason = diff.Refuse, "it is being deleted: it is created again when it is gone"
	case !mine && other != "":
		c.Action, c.Reason = diff.Refuse,
			fmt.Sprintf("it is of the hub in namespace %s: give the Service of one of the two principals another name", other)
	case !mine && !labelled(have, want):
		c.Action, c.Reason = diff.Refuse,
			"an object of that name was made by another writer and is never changed: delete it, or give the principal's Service another name"
	case !mine:
		c.Action, c.Reason = diff.Update, "taken over from another field manager"
	case len(c.Fields) == 0:
		c.Action = diff.Keep
	default:
		c.Action = diff.Update
	}
	return c
}

// labelled reports whether have has all labels of want, of which there is one at least:
// someone has applied what was rendered.
func labelled(have, want *unstructured.Unstructured) bool {
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return len(want.GetLabels()) > 0
}
