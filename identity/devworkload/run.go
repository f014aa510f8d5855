package devworkload

import (
	"context"
	"errors"
	"fmt"
	"net"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// Run serves on l until ctx is done, then cuts every stream and returns nil. It
// closes l in every case. It may be called again, with another listener, after
// it has returned.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(requireHeaderUnary), grpc.StreamInterceptor(requireHeaderStream))
	workload.RegisterSpiffeWorkloadAPIServer(server, &workloadAPI{server: s})
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secretDiscovery{server: s})

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("devworkload: serve: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		s.refreshWhenDue(ctx)
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		server.Stop() // streams never end by themselves, so there is nothing to wait for
		return nil
	})
	s.log.Info().Stringer("listener", l.Addr()).Int("entries", len(s.currentEntries())).Msg("Workload API is being served")
	return g.Wait()
}
