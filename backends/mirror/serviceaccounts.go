package mirror

import "slices"

// accountsFor are the service accounts of a project, by which Argo CD syncs where
// impersonation is on, as they hold on the other side. The first entry whose server and
// namespace match is the one, so their order stays; those whose server is ours, which is
// called here on the other side, are kept. Argo CD goes no further than an entry whose
// patterns do not parse, so that stays too.
func accountsFor(accounts []any, ours func(server string) bool, here string) []any {
	var kept []any
	for _, a := range accounts {
		account, ok := a.(map[string]any)
		if !ok {
			continue // no schema lets it be
		}
		server, namespace := stringAt(account, "server"), stringAt(account, "namespace")
		switch {
		case !parses(server):
		case ours(server):
			account["server"] = here
		case parses(namespace):
			continue
		}
		if !slices.ContainsFunc(kept, func(k any) bool {
			earlier, _ := k.(map[string]any)
			return stringAt(earlier, "server") == stringAt(account, "server") && stringAt(earlier, "namespace") == namespace
		}) {
			kept = append(kept, account)
		}
	}
	return kept
}
