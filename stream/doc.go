// Package stream is the vocabulary of the sync core: modes and sides, the
// collections that flow between a hub and a spoke, entries and their versions,
// the messages of a connection, error kinds, and the mapping of all of them to
// the wire (package streampb).
//
// It holds values and pure functions only. Which message follows which is
// stream/link's business, sockets are stream/server's and stream/client's, and
// what an entry means to Kubernetes is backends/mirror's.
//
//	msg, err := stream.ParseFrame(frame) // values of the wire are checked here, once
//	frame = stream.FrameOf(stream.Heartbeat{Digests: digests})
package stream
