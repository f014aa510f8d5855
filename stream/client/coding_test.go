package client_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// bare is a principal that greets anyone who speaks to it in a coding it knows. It
// records the codings of the calls, and those of its answers.
type bare struct {
	streampb.UnimplementedStreamServer
	known       []string
	mu          sync.Mutex // guards what follows
	in, out     []string
	connections int
}

func (b *bare) Connect(s grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	frame, err := s.Recv()
	if err != nil {
		return err
	}
	hello, err := stream.ParseHello(frame)
	if err != nil {
		return err
	}
	if err := s.Send(stream.WelcomeFrame(stream.Welcome{
		Protocol: stream.Protocol, Agent: hello.Agent, HubUID: "hub", Connection: "c",
	})); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// refuse answers as gRPC does for a coding that is not installed.
func (b *bare) refuse(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	transport, ok := grpc.ServerTransportStreamFromContext(s.Context()).(interface{ RecvCompress() string })
	if !ok || !slices.Contains(b.known, transport.RecvCompress()) {
		return status.Error(codes.Unimplemented, "grpc: Decompressor is not installed")
	}
	return handler(server, s)
}

func (b *bare) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (b *bare) HandleRPC(_ context.Context, s stats.RPCStats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s := s.(type) {
	case *stats.InHeader:
		b.in = append(b.in, s.Compression)
	case *stats.OutHeader:
		b.out = append(b.out, s.Compression)
	}
}

func (b *bare) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (b *bare) HandleConn(_ context.Context, s stats.ConnStats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := s.(*stats.ConnBegin); ok {
		b.connections++
	}
}

// Both directions use the best coding that the principal knows, found on one
// connection.
func TestAgreesOnCoding(t *testing.T) {
	for name, tt := range map[string]struct {
		known, in []string
		out       string
	}{
		"one of this release":         {[]string{"zstd", "gzip", "identity"}, []string{"zstd"}, "zstd"},
		"one without zstd":            {[]string{"gzip", "identity"}, []string{"zstd", "gzip"}, "gzip"},
		"one that compresses nothing": {[]string{"identity"}, []string{"zstd", "gzip", "identity"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bare{known: tt.known}
			server := grpc.NewServer(grpc.StreamInterceptor(b.refuse), grpc.StatsHandler(b))
			streampb.RegisterStreamServer(server, b)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			kit.Serve(t, server, l)
			cfg := client.Config{
				Target: l.Addr().String(), Credentials: insecure.NewCredentials(),
				Hello: stream.Hello{Protocol: stream.Protocol, Agent: edge1Name(t), Mode: stream.Managed},
			}
			a := run(t, cfg)
			a.served.wait(t, "the connection", func(open, _, _ int) bool { return open == 1 })
			b.mu.Lock()
			defer b.mu.Unlock()
			if diff := cmp.Diff(tt.in, b.in); diff != "" {
				t.Errorf("codings of the calls (-want +got):\n%s", diff)
			}
			if got := b.out[len(b.out)-1]; got != tt.out {
				t.Errorf("the answer is in coding %q, want %q", got, tt.out)
			}
			if b.connections != 1 {
				t.Errorf("%d connections, want 1", b.connections)
			}
		})
	}
}
