// Package stream is the vocabulary of the sync core: modes and sides, the
// collections that flow between a hub and a spoke, entries and their versions,
// the messages of a connection, error kinds, and the mapping of all of them to
// the wire (package streampb).
//
// It holds values and pure functions only. Which message follows which is
// stream/link's business, sockets are stream/server's and stream/client's, and
// what an entry means to Kubernetes is backends/mirror's.
//
// What a peer sends is one of three things:
//
//   - Known and well formed: a Message.
//   - Not known to this release: a frame without a body that we know, an attribute,
//     a collection, a kind or verb of an event, a refusal, a reason for a goodbye. It
//     is passed over, the connection goes on, and an event is answered by its id with
//     RefusalUnsupported, so that its sender neither waits for it nor sends it again
//     soon. An unknown CloudEvent needs no more than an id, the specversion 1.0 and a
//     type.
//   - A Violation: what is known but not as it must be, such as a name that no object
//     can have, a list that is too long, a hash that is not that of the data. It ends
//     the connection: anyone who sends it is not the peer we know, and what it holds is
//     not what it says. Receivers count it by kind, the peer gets InvalidArgument
//     with the kind or GoodbyeProtocol, and an agent connects again only after a
//     longer pause.
//
// What is well formed, but about an object that is not the link's, is neither: a
// sink answers it with RefusalNotOwned.
//
//	msg, err := stream.ParseFrame(frame) // values of the wire are checked here, once
//	frame = stream.FrameOf(stream.Heartbeat{Digests: digests})
package stream
