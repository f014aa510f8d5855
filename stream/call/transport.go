package call

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/wire"
)

// MaxStreams is how many calls one TCP connection may carry at a time.
const MaxStreams = 64

const (
	// readBuffer is what gRPC reads into at either end of a TCP connection, in bytes. An
	// idle connection keeps it, and behind TLS, which holds a record at a time by itself, a
	// larger one only adds a copy: what is longer is read to where it goes.
	readBuffer = 2 << 10
	// streamWindow is how many bytes of one call may be on their way, or wait to be read:
	// twice what a connection of the tunnel has in its own window, so that this one is
	// never what it waits for. connWindow is that for all calls of a TCP connection, each
	// of which may use half of its own before they share it.
	//
	// Both are constant. Where gRPC finds them out by itself it pings whenever a message
	// comes, which for connections that are mostly idle is three packets in place of one
	// for each heartbeat.
	streamWindow = 512 << 10
	connWindow   = MaxStreams * streamWindow / 2
)

// ServerOptions are what the principal's gRPC server has in common with its clients.
// Messages on their way take room of q.
func ServerOptions(q *quota.Quota) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.ChainStreamInterceptor(wire.Intercept(q)),
		grpc.ReadBufferSize(readBuffer),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(MaxStreams),
	}
}

// DialOptions are those of an agent's TCP connections to the principal, or to anyone who
// terminates TLS before it. Nothing is tried again: a call fails with the reason for which its
// connection did.
func DialOptions(creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})),
	}
}
