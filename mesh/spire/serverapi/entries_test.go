package serverapi_test

import (
	"strings"
	"testing"

	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"

	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

// What Managers says is what happens.
func TestEntriesBesideAControllerManager(t *testing.T) {
	for prefix, survives := range map[string]bool{"": false, "edge": true, "argomesh": false} {
		server, client := start(t)
		foreign(t, server, func(e *types.Entry) {
			e.Id, e.SpiffeId.Path = strings.TrimPrefix(prefix+".0001", "."), "/pod"
			e.Selectors = append(e.GetSelectors(), &types.Selector{Type: "k8s", Value: "pod-uid:1"})
		})
		if _, err := reconcile(t, client, edge, spiretest.Entries(t, spiretest.Registration(nil))); err != nil {
			t.Fatal(err)
		}
		seen, err := client.Observe(t.Context(), edge, nil)
		if err != nil || len(seen.Entries) != 1 {
			t.Fatalf("Observe() = %v, %v", seen, err)
		}
		server.Collect(prefix, strings.TrimPrefix(prefix+".0001", "."))
		if got := len(server.Entries()) == 2; got != survives || seen.Managers.Deletes(seen.Entries[0].ID) == survives {
			t.Errorf("prefix %q: the entry survives: %t, want %t", prefix, got, survives)
		}
	}
}
