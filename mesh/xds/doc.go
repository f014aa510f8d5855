// Package xds programs the Envoy that runs beside a principal. [Render] turns a
// [mesh.Snapshot] into Envoy's resources, purely; [Server] hands them to Envoy
// by incremental xDS (delta ADS), and knows which token keys Envoy has taken;
// [Bootstrap] is the configuration Envoy starts with.
//
// Listeners are constant: neither their names nor their content depend on agents
// or token keys, since Envoy drains the connections of a listener that changes.
// An agent is one scoped route (SRDS) and the keys are the configuration of one
// HTTP filter (ECDS); both change under running requests, which go on.
//
// It leaves to others who may do what behind the front door (the principal checks
// every token again), and where snapshots come from.
//
//	server, err := xds.New(xds.Config{NodeID: "principal-0", Metrics: registry, Log: log})
//	g.Go(func() error { return server.Run(ctx, listener) })
//	err = server.Set(snapshot)                // the whole state, each time
//	keys, changed := server.Acknowledged()    // of which Envoy takes tokens now
package xds
