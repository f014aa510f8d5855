// Package budget decides how much one peer may have us write to the API server of our
// side, and which of what it has us write goes first. An etcd keeps every revision until
// it is compacted, so a peer that rewrites a few objects at full speed would fill it.
//
//   - A [Peer] has so many writes and so many bytes a second, after a burst for a first
//     sync that fills up again over an hour.
//   - All peers of a hub have one [Common] budget of bytes, shared in turn among those
//     that have something to write: who asks for less than an equal share waits for
//     no one.
//   - An object may be written twelve times at once, then once in two seconds ([Objects]).
//   - Within a peer, what has a lower [Class] goes first ([Line]).
//
// What is over budget waits where it is, or with its source: nothing here holds content.
// Nothing here reads a clock either: a time is an argument, and one that is earlier than
// the one before lets no time pass.
//
// golang.org/x/time/rate has one bucket, which fills at its rate. Here the burst fills
// more slowly than the rate, from what of the rate was not used, so that burst plus rate
// times time is never exceeded; a write is paid for in full when its bytes are known; what
// is left survives a restart; and several peers take turns.
//
//	granted, wait := peer.Acquire(now, estimate)
//	if granted {
//		// write
//		peer.Charge(now, estimate, writes, bytes)
//	}
package budget
