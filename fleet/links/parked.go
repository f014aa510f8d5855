package links

import (
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/stream"
)

// splitParked takes child applications of which none are shown, by where they are on the
// spoke, out of what is parked: they are told together, in a condition.
func splitParked(rules ownership.Rules,
	parked map[stream.EntryKey]stream.Refusal) (rest map[stream.EntryKey]stream.Refusal,
	elsewhere controller.ChildrenElsewhere) {
	var names []string
	rest = make(map[stream.EntryKey]stream.Refusal, len(parked))
	for key, refusal := range parked {
		if rules.ChildElsewhere(key) {
			names = append(names, key.Namespace+"/"+key.Name)
			continue
		}
		rest[key] = refusal
	}
	slices.Sort(names)
	elsewhere.Total = int64(len(names))
	elsewhere.Names = strings.Join(names[:min(len(names), controller.MaxNamed)], ", ")
	if len(names) > controller.MaxNamed {
		elsewhere.Names += " and more"
	}
	return rest, elsewhere
}
