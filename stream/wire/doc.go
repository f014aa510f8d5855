// Package wire is what stands between gRPC and what a peer says: a message is measured
// before any of it is decoded. It owns the limits of each field of our wire, how a
// compressed message is unpacked, and the room that messages on their way to the
// principal take; what a message means is left to package stream.
//
// gRPC by itself has one limit for all its calls, takes a message whole before anyone
// can say that there is no room for it, and decodes as much as it was sent. So the
// server's calls read by themselves:
//
//	grpc.NewServer(grpc.ChainStreamInterceptor(wire.Intercept(quota)), …)
//	m := wire.Message{Into: &streampb.Frame{}, Most: stream.MaxFrameBytes, Peer: agent}
//	err := wire.Receive(call, &m)
//
// A client has few calls, each with a limit of its own, and needs the codec only:
//
//	grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}))
package wire
