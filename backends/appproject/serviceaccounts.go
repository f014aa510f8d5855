package appproject

import (
	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
)

// accountsFor are the service accounts of a project, by which Argo CD syncs where
// impersonation is on, as they hold on the other side. The first entry whose server and
// namespace match is the one, so their order stays; those whose server is ours, which is
// called here on the other side, are kept. Argo CD goes no further than an entry whose
// patterns do not parse, so that stays too.
func accountsFor(accounts []any, ours func(server string) bool, here string) []any {
	var kept []any
	there := map[[2]string]bool{} // by server and namespace
	for _, a := range accounts {
		account, ok := a.(map[string]any)
		if !ok {
			continue // no schema lets it be
		}
		server, namespace := object.StringAt(account, "server"), object.StringAt(account, "namespace")
		switch {
		case !glob.Parses(server):
		case ours(server):
			account["server"] = here
		case glob.Parses(namespace):
			continue
		}
		of := [2]string{object.StringAt(account, "server"), namespace}
		if !there[of] {
			there[of] = true
			kept = append(kept, account)
		}
	}
	return kept
}
