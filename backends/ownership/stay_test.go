package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/stream"
)

// TestClosed says which projects of the hub are never for a spoke, not even closed.
func TestClosed(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	for name, test := range map[string]struct {
		meta m
		want string
	}{
		"any":                                 {m{"labels": m{"team": "a"}}, `{"annotations":{},"labels":{"team":"a"},"spec":{"clusterResourceWhitelist":[],"destinations":[],"sourceRepos":["*"]}}`},
		"the mirror of an autonomous agent's": {m{"annotations": m{object.SourceUIDKey: "uid-9"}}, ""},
		"one that is not to be mirrored":      {m{"labels": m{object.IgnoreSyncKey: "true"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, projectKey(hub, "web"), test.meta, m{"spec": m{
				"sourceRepos": []any{"*"}, "destinations": []any{m{"server": "*"}}, "roles": []any{m{"name": "r"}}, "sourceNamespaces": []any{"*"},
				"clusterResourceWhitelist": []any{}, "syncWindows": []any{m{"kind": "deny"}},
			}})
			if diff := cmp.Diff(test.want, string(hub.Closed(o).Data)); diff != "" {
				t.Errorf("closed() (-want +got)\n%s", diff)
			}
		})
	}
}
