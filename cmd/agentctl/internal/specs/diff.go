// Package specs compares the specs of Agents, field by field. It is pure.
package specs

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Diff returns what differs between the spec on the hub and the one wanted,
// one entry per field, in the order of their names.
func Diff(have, want v1alpha1.AgentSpec) ([]string, error) {
	a, err := leaves(have)
	if err != nil {
		return nil, err
	}
	b, err := leaves(want)
	if err != nil {
		return nil, err
	}
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	var out []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if !reflect.DeepEqual(a[path], b[path]) {
			out = append(out, fmt.Sprintf("%s is %s, not %s", path, show(a[path]), show(b[path])))
		}
	}
	return out, nil
}

// leaves returns the fields of spec by their path, the defaults of the CRD
// filled in.
func leaves(spec v1alpha1.AgentSpec) (map[string]any, error) {
	if spec.DeletionPolicy == "" {
		spec.DeletionPolicy = v1alpha1.DeletionOrphan
	}
	if spec.ProjectRoles == "" {
		spec.ProjectRoles = v1alpha1.ProjectRolesIgnore
	}
	if spec.CascadeHold == nil {
		spec.CascadeHold = new(v1alpha1.DefaultCascadeHold)
	}
	if spec.ChildApplications == "" {
		spec.ChildApplications = v1alpha1.ChildApplicationsIgnore
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	out := map[string]any{}
	flatten(out, "spec", tree)
	return out, nil
}

// flatten puts the leaves of node into out. The lists of a spec are sets, so
// their order is dropped.
func flatten(out map[string]any, path string, node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, child := range node {
			flatten(out, path+"."+key, child)
		}
	case []any:
		set := make([]string, len(node))
		for i, item := range node {
			set[i] = show(item)
		}
		slices.Sort(set)
		out[path] = json.RawMessage(fmt.Appendf(nil, "[%s]", strings.Join(set, ",")))
	default:
		out[path] = node
	}
}

// show returns a value as JSON, which quotes strings, or "unset".
func show(value any) string {
	if value == nil {
		return "unset"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it came from JSON
	}
	return string(raw)
}
