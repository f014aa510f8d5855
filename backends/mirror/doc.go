// Package mirror is the level-based reconciler between a Store and a link: one
// Mirror is one side of one agent link at work.
//
// What there is to do package ownership says. Mirror is the rim around that and around
// link.Link: it owns the goroutine, reads the store's cache, writes to the store, and speaks
// to a connection.
//
//	m, err := mirror.New(mirror.Config{Rules: rules, Store: store, …})
//	go m.Run(ctx)
//	err = m.Serve(ctx, connection) // as often as there are connections
//
// Who is the peer, and whether it may be, is decided before Serve.
package mirror
