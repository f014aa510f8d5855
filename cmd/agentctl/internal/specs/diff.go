// Package specs compares the specs of Agents, field by field. It is pure.
package specs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/internal/diff"
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
	var out []string
	for _, f := range diff.Fields(a, b) {
		out = append(out, fmt.Sprintf("%s is %s, not %s", f.Path, cmp.Or(f.Have, "unset"), cmp.Or(f.Want, "unset")))
	}
	return out, nil
}

// leaves returns the fields of spec by their path, the defaults of the CRD
// filled in.
func leaves(spec v1alpha1.AgentSpec) (map[string]string, error) {
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
	return diff.Leaves("spec", tree, leaf), nil
}

// leaf returns a value as JSON, which quotes strings. The lists of a spec are sets, so
// their order is dropped.
func leaf(_ string, node any) (text string, ok bool) {
	switch node := node.(type) {
	case map[string]any:
		return "", false
	case []any:
		set := make([]string, len(node))
		for i, item := range node {
			set[i] = show(item)
		}
		slices.Sort(set)
		return "[" + strings.Join(set, ",") + "]", true
	}
	return show(node), true
}

func show(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it came from JSON
	}
	return string(raw)
}
