// Package link is one agent link as a pure state machine. It goes on across
// connections, and it owns what must be sent, what the peer is known to hold,
// and what was answered.
//
// Each collection has a source on one side and a sink on the other. The source
// keeps two versions of each entry: the desired one, which its own store shows,
// and the believed one, which is what the sink last said it holds. Whatever
// differs is sent, the newest content at the moment of sending, within a window.
// Since a sink reports every change of what it holds on the same ordered stream,
// belief and truth are equal at each point of that stream; digests of both prove
// it when a connection begins and with every heartbeat, and where they differ
// only the differing buckets are listed and repaired.
//
// The source is authoritative. A missing entry may be a deletion or a loss, so the guard
// at the hub's end lets deletions pass only after the history was checked, and never many
// at once.
//
// There is no goroutine, clock, socket, store or logger inside. The caller has
// one goroutine that feeds inputs, carries out actions and sends messages:
//
//	for _, action := range l.Step(now, link.Received{Message: m}) { … }
//	for _, m := range l.Flush(now, load) { connection.Send(m) }
//	timer.Reset(l.Next())
package link
