// Package removal says, before an uninstall, what it takes away, and what stays.
//
//	for _, line := range (removal.Removal{Chart: charts.Agent, Namespace: "argocd", Objects: objects}).Lines() {
//		fmt.Println(line)
//	}
package removal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/charts"
)

// policy is the annotation by which Helm leaves an object where it is, if it has the value keep.
const policy, keep = "helm.sh/resource-policy", "keep"

// Removal is what an uninstall is about to do.
type Removal struct {
	// Chart is one of ours; the namespace is that of its release.
	Chart, Version, Namespace string
	// Objects are those of the release.
	Objects []*unstructured.Unstructured
	// Around says what is done beside the release; none for nothing.
	Around []string
}

// Lines say all of it to people.
func (r Removal) Lines() []string {
	goes, stays := split(r.Objects)
	lines := []string{fmt.Sprintf("%s %s will be removed from namespace %s:", r.Chart, r.Version, r.Namespace)}
	lines = append(lines, byKind(goes)...)
	lines = append(append(lines, r.Around...), "these stay:")
	lines = append(lines, byKind(stays)...)
	if r.Chart == charts.Principal {
		lines = append(lines,
			"  Applications and their workloads, on hub and spokes; what the hub shows of spokes goes only by"+
				" \"agentctl agent delete\" before this",
			"  Agents, and the agents on spokes")
	} else {
		lines = append(lines,
			"  Applications and their workloads, and Argo CD",
			"  the Agent on the hub: \"agentctl agent delete\"")
	}
	return append(lines, "  what is registered with SPIRE: \"agentctl identity revoke\"")
}

// split returns which objects of a release go with it, and which Helm leaves.
func split(objects []*unstructured.Unstructured) (goes, stays []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetAnnotations()[policy] == keep {
			stays = append(stays, o)
		} else {
			goes = append(goes, o)
		}
	}
	return goes, stays
}

// byKind returns a line for each kind, with the names of its objects, sorted.
func byKind(objects []*unstructured.Unstructured) (lines []string) {
	names := map[string][]string{}
	for _, o := range objects {
		names[o.GetKind()] = append(names[o.GetKind()], o.GetName())
	}
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[kind])
		lines = append(lines, "  "+kind+" "+strings.Join(slices.Compact(names[kind]), ", "))
	}
	return lines
}
