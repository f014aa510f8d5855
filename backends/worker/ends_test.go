package worker

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/stream"
)

// TestEndsHaveALimit: who takes the finalizers of a great many copies away fills no memory.
// What is beyond the limit is counted, and what is remembered stays.
func TestEndsHaveALimit(t *testing.T) {
	rules := ownershiptest.Rules(t, stream.Spoke, stream.Managed)
	lost := 0
	ends := NewEnds(EndsConfig{Store: memory.New(memory.Config{}), Namespace: rules.Namespace, Lost: func() { lost++ }, Log: zerolog.Nop()})
	leaving := objecttest.Apply(stream.Applications, "hub-app", 15, map[string]any{"leaving": []any{object.CascadeFinalizer}, "spec": map[string]any{"project": "web"}})
	last := ownershiptest.Planned(t, rules, objecttest.Apply(stream.Applications, "hub-app", 9, map[string]any{"spec": map[string]any{"project": "web"}}), nil)
	last = ownershiptest.Planned(t, rules, leaving, &last)
	last.Ensure("metadata")["deletionTimestamp"] = "2026-11-01T12:00:00Z"
	last.SetFinalizers([]string{object.CascadeFinalizer, object.PostDeleteFinalizer})
	end := func(i int) {
		last.SetAnnotation(object.SourceUIDKey, fmt.Sprint("hub-app-", i))
		ends.See(backends.Deletion{Last: backends.Object{Key: last.Key, Raw: object.Encode(last.Fields)}})
	}
	ended := func(i int) bool {
		return ends.Answer(last.Key, stream.Event{Version: stream.Version{SourceUID: fmt.Sprint("hub-app-", i)}}) != nil
	}
	for i := range maxEnds {
		end(i)
	}
	end(0) // it is remembered already
	if lost != 0 || len(ends.known) != maxEnds || !ended(maxEnds-1) {
		t.Errorf("at the limit %v are counted, %d remembered", lost, len(ends.known))
	}
	end(maxEnds)
	if lost != 1 || len(ends.known) != maxEnds || ended(maxEnds) || !ended(0) {
		t.Errorf("beyond it %v are counted, %d remembered", lost, len(ends.known))
	}
}
