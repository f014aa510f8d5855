// Package streampb is the generated wire of package stream: the gRPC service
// argomesh.stream.v1.Stream and its frames. stream.proto is its source; package
// stream turns its messages into values and back.
package streampb

//go:generate ./generate.sh
