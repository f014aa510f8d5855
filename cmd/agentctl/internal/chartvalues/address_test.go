package chartvalues_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
)

func TestOfAddress(t *testing.T) {
	t.Parallel()
	got, err := chartvalues.OfAddress("hub.example:443")
	want := map[string]any{"service": map[string]any{"annotations": map[string]any{"argomesh.io/address": "hub.example:443"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, none := range []string{"hub.example", ":443", "hub.example:"} {
		if _, err := chartvalues.OfAddress(none); err == nil {
			t.Errorf("%q is an address", none)
		}
	}
}
