package links

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/stream"
)

// Children elsewhere are counted and named, as many as a message names, and are not parked.
func TestChildrenElsewhere(t *testing.T) {
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Namespace: "argocd", ByDestination: true, ChildNamespace: "edge-1"}}}
	parked := map[stream.EntryKey]stream.Refusal{
		{Collection: stream.Applications, Namespace: "team", Name: "a"}: {},
		{Collection: stream.Children, Name: "b"}:                        {},
	}
	rest, elsewhere := splitParked(rules, parked)
	if diff := cmp.Diff(parked, rest); diff != "" || elsewhere != (controller.ChildrenElsewhere{}) {
		t.Errorf("elsewhere %+v, parked (-want +got):\n%s", elsewhere, diff)
	}
	for i := range controller.MaxNamed + 1 {
		parked[stream.EntryKey{Collection: stream.Children, Namespace: "team", Name: fmt.Sprintf("c-%02d", i)}] = stream.Refusal{}
	}
	rest, elsewhere = splitParked(rules, parked)
	want := controller.ChildrenElsewhere{
		Total: 11, Names: "team/c-00, team/c-01, team/c-02, team/c-03, team/c-04, team/c-05, team/c-06, team/c-07, team/c-08, team/c-09 and more",
	}
	if len(rest) != 2 || elsewhere != want {
		t.Errorf("%d parked, elsewhere %+v", len(rest), elsewhere)
	}
	rules.ByDestination = false
	if rest, elsewhere = splitParked(rules, parked); len(rest) != len(parked) || elsewhere.Total != 0 {
		t.Errorf("by namespace %d parked, elsewhere %+v", len(rest), elsewhere)
	}
}
