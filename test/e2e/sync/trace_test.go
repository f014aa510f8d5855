//go:build linux

package sync

import (
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// TestTracesShowAChangeAndItsStatus: a change of the hub is one trace on both sides. What the
// spoke says of it is a trace of the hub's own, since no spoke decides what the hub samples,
// with a link to the first.
func TestTracesShowAChangeAndItsStatus(t *testing.T) {
	t.Parallel()
	w := env.SharedArgo(t)
	env.Create(t, w.OnHub(env.Managed), w.Guestbook("traced", env.Managed, env.Managed))
	env.Eventually(t, "a trace from the hub's API to the spoke's, and one back", func() error {
		return w.Traces.Has([]env.Span{
			{Service: "argomesh-principal", Name: "mirror.observe", Resource: "application traced"},
			{Service: "argomesh-agent", Name: "mirror.apply", Resource: "application traced"},
			{Service: "argomesh-agent", Name: "HTTP POST"},
			{Service: "argomesh-agent", Name: "mirror.observe", Resource: "status traced"},
		}, []env.Span{
			{Service: "argomesh-principal", Name: "mirror.apply", Resource: "status traced"},
			{Service: "argomesh-principal", Name: "HTTP PUT"},
		})
	})
}
