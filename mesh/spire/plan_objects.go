package spire

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
)

// nameOfObject is how kubectl names obj.
func nameOfObject(obj *unstructured.Unstructured) string {
	return strings.ToLower(obj.GetKind()) + "." + GroupVersion.Group + "/" + obj.GetName()
}

// PlanObjects returns what makes the objects of the registration name those of
// desired, which [Registration.Objects] made. Observed holds at least all objects with
// the registration's label, and those with a kind and name of desired. With no desired
// ones it takes the registration back. Objects without our labels are never changed.
func PlanObjects(name identity.AgentName, desired,
	observed []*unstructured.Unstructured) []diff.Change[*unstructured.Unstructured] {
	return planObjects(desired, observed, func(obj *unstructured.Unstructured) bool {
		owner, ours := RegistrationOf(obj)
		return ours && owner == name
	})
}

// planObjects plans for the objects that are ours.
func planObjects(desired, observed []*unstructured.Unstructured,
	ours func(*unstructured.Unstructured) bool) []diff.Change[*unstructured.Unstructured] {
	change := func(have, want *unstructured.Unstructured, _ bool) diff.Change[*unstructured.Unstructured] {
		return planObject(want, have, ours)
	}
	return diff.Changes(desired, observed, nameOfObject, change, func(obj *unstructured.Unstructured) bool {
		return ours(obj) && obj.GetDeletionTimestamp() == nil
	})
}

func planObject(want, have *unstructured.Unstructured,
	ours func(*unstructured.Unstructured) bool) diff.Change[*unstructured.Unstructured] {
	change := diff.Change[*unstructured.Unstructured]{Name: nameOfObject(want), Have: have, Want: want}
	if have == nil {
		change.Action, change.Fields = diff.Create, diffObjects(nil, want)
		return change
	}
	change.Fields = diffObjects(have, want)
	switch {
	case !ours(have):
		change.Action = diff.Refuse
		change.Reason = "an object of that name was made by another writer and is never changed: delete it first, or choose another name"
	case have.GetDeletionTimestamp() != nil:
		change.Action, change.Reason = diff.Refuse, "it is being deleted: try again when it is gone"
	case len(change.Fields) == 0:
		change.Action = diff.Keep
	default:
		change.Action = diff.Update
	}
	return change
}

// diffObjects returns the fields of the spec in which want differs from have, by
// their paths. What is empty is as what is absent.
func diffObjects(have, want *unstructured.Unstructured) []diff.Field {
	return diff.Fields(leavesOf(have), leavesOf(want))
}

// leavesOf returns the fields of an object's spec as text, by their paths.
func leavesOf(obj *unstructured.Unstructured) map[string]string {
	if obj == nil {
		return nil
	}
	return diff.Leaves("spec", obj.Object["spec"], leaf)
}

// leaf returns the text of a field: lists are compared as a whole, and some are sets.
func leaf(path string, node any) (text string, ok bool) {
	switch node := node.(type) {
	case map[string]any:
		return "", false
	case []any:
		items := make([]string, len(node))
		for i, item := range node {
			items[i] = fmt.Sprint(item)
		}
		if slices.Contains(sets, path) {
			slices.Sort(items)
			items = slices.Compact(items)
		}
		return strings.Join(items, ", "), true
	case bool:
		if !node {
			return "", true
		}
	}
	return canonicalLeaf(path, node), true
}
