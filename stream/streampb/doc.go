// Package streampb is the generated wire of package stream and of stream/tunnel: the
// gRPC services argomesh.stream.v1.Stream with its frames, of which stream.proto is
// the source, and argomesh.stream.v1.Tunnel with its chunks, of which tunnel.proto
// is. Packages stream and tunnel turn their messages into values and back.
package streampb

//go:generate ./generate.sh
