package appproject_test

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/backends/appproject"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// A project has as many entries as its owner likes, and no two of them are compared with each other: that would take
// an hour here.
func TestManyEntriesOfAProject(t *testing.T) {
	const n = 50_000
	list := func(one func(i int) any) []any {
		out := make([]any, 2*n) // each twice
		for i := range out {
			out[i] = one(i % n)
		}
		return out
	}
	project := func() map[string]any {
		return map[string]any{
			"destinations": list(func(i int) any { return map[string]any{"server": "*", "namespace": fmt.Sprint(i)} }),
			"syncWindows":  list(func(i int) any { return map[string]any{"kind": fmt.Sprint(i)} }),
			"destinationServiceAccounts": list(func(i int) any {
				return map[string]any{"server": "*", "namespace": fmt.Sprint(i)}
			}),
			"roles": []any{map[string]any{"name": "r", "policies": list(func(i int) any {
				return fmt.Sprintf("p, proj:shop:r, applications, get, shop/a-%d, allow", i)
			}), "groups": list(func(i int) any { return fmt.Sprint("group-", i) })[:n]}},
		}
	}
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	rules := appproject.Rules{
		Map: mapping.Map{Side: stream.Hub, Mode: stream.Autonomous, Agent: agent, Namespace: "argocd"}, MirrorsRoles: true,
	}
	mirror := rules.Mirror("shop", project())
	for _, field := range []string{"destinations", "syncWindows", "destinationServiceAccounts"} {
		if got, _ := mirror[field].([]any); len(got) != n {
			t.Errorf("a mirror has %d of %s, want %d", len(got), field, n)
		}
	}
	roles, _ := mirror["roles"].([]any)
	if len(roles) != 1 {
		t.Fatalf("a mirror has %d roles, want 1", len(roles))
	}
	role, _ := roles[0].(map[string]any)
	for _, field := range []string{"policies", "groups"} {
		if got, _ := role[field].([]any); len(got) != n {
			t.Errorf("a role has %d of %s, want %d", len(got), field, n)
		}
	}
}
