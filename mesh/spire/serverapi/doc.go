// Package serverapi reads and writes entries, bundles and federation relationships at the API
// of one SPIRE server, as an administrator of it: package spire decides what has to change.
//
//	client, err := serverapi.NewClient(serverapi.ClientConfig{Address: "unix:///run/spire/api.sock"})
//	observed, err := client.Observe(ctx, edge1, entries)
//	changes := spire.PlanEntries(edge1, entries, observed.Entries)
//	err = client.ApplyEntries(ctx, changes, func(diff.Change[spire.Entry]) {})
//
// [Pusher] does one thing unasked, where it is told to: it keeps the bundles of other trust
// domains at a server up to date.
//
// Errors are those of package spire. What a server answers is counted before it is decoded.
package serverapi
