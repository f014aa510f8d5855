// Package mirror is the level-based reconciler between a Store and a link: one
// Mirror is one side of one agent link at work.
//
// Rules says, in pure functions, what a side's source sends of an object
// (Content), what its sink holds (Held), which writes make a local object what
// an event says (Plan), and which upkeep an object of ours needs (Tend). Mirror
// is the rim around them and around link.Link: it owns the goroutine, reads the
// store's cache, writes to the store, and speaks to a connection.
//
//	m, err := mirror.New(mirror.Config{Rules: rules, Store: store, …})
//	go m.Run(ctx)
//	err = m.Serve(ctx, connection) // as often as there are connections
//
// Who is the peer, and whether it may be, is decided before Serve.
package mirror
