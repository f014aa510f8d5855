//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/bench/report"
)

// A pair has as many Applications as the size says, and in the end both sides have the same.
func TestAtSizes(t *testing.T) {
	t.Parallel()
	var had []int
	a := unchangedReconnect()
	a.sizes = []int{2, 5}
	a.parts = []func(context.Context, sized[*memoryPair]) error{filled, func(ctx context.Context, z sized[*memoryPair]) error {
		had = append(had, len(z.pair.hub.store.List(stream.Application, edge)))
		all, err := reconnects(ctx, z.pair, 1)
		if err == nil && (all[0].bytes == 0 || all[0].took == 0) {
			err = errors.New("nothing passed")
		}
		return err
	}}
	s := &report.Scenario{}
	if err := a.run(t.Context(), &bench{progress: io.Discard}, s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(had, a.sizes) || s.Setup != a.setup {
		t.Errorf("it was measured at %v: %s", had, s.Setup)
	}
}
