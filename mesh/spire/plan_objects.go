package spire

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/identity"
)

// nameOfObject is how kubectl names obj.
func nameOfObject(obj *unstructured.Unstructured) string {
	return strings.ToLower(obj.GetKind()) + "." + GroupVersion.Group + "/" + obj.GetName()
}

// PlanObjects returns what makes the objects of the registration name those of
// desired, which [Registration.Objects] made. Observed holds at least all objects with
// the registration's label, and those with a kind and name of desired. With no desired
// ones it takes the registration back. Objects without our labels are never changed.
func PlanObjects(name identity.AgentName, desired, observed []*unstructured.Unstructured) []Change[*unstructured.Unstructured] {
	return planObjects(desired, observed, func(obj *unstructured.Unstructured) bool {
		owner, ours := RegistrationOf(obj)
		return ours && owner == name
	})
}

// planObjects plans for the objects that are ours.
func planObjects(desired, observed []*unstructured.Unstructured, ours func(*unstructured.Unstructured) bool) []Change[*unstructured.Unstructured] {
	have := make(map[string]*unstructured.Unstructured, len(observed))
	for _, obj := range observed {
		have[nameOfObject(obj)] = obj
	}
	var plan []Change[*unstructured.Unstructured]
	wanted := make(map[string]bool, len(desired))
	for _, want := range desired {
		key := nameOfObject(want)
		wanted[key] = true
		plan = append(plan, planObject(want, have[key], ours))
	}
	for key, obj := range have {
		if !wanted[key] && ours(obj) && obj.GetDeletionTimestamp() == nil {
			plan = append(plan, Change[*unstructured.Unstructured]{Action: Delete, Name: key, Have: obj})
		}
	}
	sortPlan(plan)
	return plan
}

func planObject(want, have *unstructured.Unstructured, ours func(*unstructured.Unstructured) bool) Change[*unstructured.Unstructured] {
	change := Change[*unstructured.Unstructured]{Name: nameOfObject(want), Have: have, Want: want}
	if have == nil {
		change.Action, change.Differences = Create, diffObjects(nil, want)
		return change
	}
	change.Differences = diffObjects(have, want)
	switch {
	case !ours(have):
		change.Action = Refuse
		change.Reason = "an object of that name was made by somebody else, and is never touched: delete it first, or choose another name"
	case have.GetDeletionTimestamp() != nil:
		change.Action, change.Reason = Refuse, "it is being deleted: try again when it is gone"
	case len(change.Differences) == 0:
		change.Action = Keep
	default:
		change.Action = Update
	}
	return change
}

// ObjectFields returns the fields of an object's spec that are set, as differences
// from nothing.
func ObjectFields(obj *unstructured.Unstructured) []Difference { return diffObjects(nil, obj) }

// diffObjects returns the fields of the spec in which want differs from have, by
// their paths. What is empty is as what is absent.
func diffObjects(have, want *unstructured.Unstructured) []Difference {
	a, b := leavesOf(have), leavesOf(want)
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	var out []Difference
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if a[path] != b[path] {
			out = append(out, Difference{Field: path, Have: a[path], Want: b[path]})
		}
	}
	return out
}

// leavesOf returns the fields of an object's spec as text, by their paths.
func leavesOf(obj *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	if obj != nil {
		flatten(out, "spec", obj.Object["spec"])
	}
	return out
}

func flatten(out map[string]string, path string, node any) {
	switch node := node.(type) {
	case nil:
	case map[string]any:
		for key, child := range node {
			flatten(out, path+"."+key, child)
		}
	case []any:
		items := make([]string, len(node))
		for i, item := range node {
			items[i] = fmt.Sprint(item)
		}
		if slices.Contains(sets, path) {
			slices.Sort(items)
			items = slices.Compact(items)
		}
		if len(items) > 0 {
			out[path] = strings.Join(items, ", ")
		}
	case bool:
		if node {
			out[path] = "true"
		}
	default:
		if text := canonicalLeaf(path, node); text != "" {
			out[path] = text
		}
	}
}
