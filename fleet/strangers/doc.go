// Package strangers keeps the SPIFFE IDs that were proven to a hub and belong to none of
// its Agents, in ConfigMap argomesh-unknown-ids: most often an agent whose ID was
// registered with a mistake, or not yet. It owns that ConfigMap and how many IDs it has;
// who is a stranger is for the caller to say.
//
//	k, err := strangers.New(strangers.Config{Client: client, Namespace: "argocd", Known: registry.Owns, Log: log})
//	k.Record(id, time.Now()) // by anyone who refuses; never blocks
//	err = k.Run(ctx)         // writes
package strangers
