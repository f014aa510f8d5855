//go:build linux

package bounds

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// signing stands between a program and its Workload API, and keeps which JWT-SVIDs the
// program has signed there.
type signing struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	api workload.SpiffeWorkloadAPIClient

	mu     sync.Mutex     // guards signed
	signed map[string]int // by audience
}

func (s *signing) FetchJWTSVID(ctx context.Context, req *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	s.mu.Lock()
	for _, audience := range req.GetAudience() {
		s.signed[audience]++
	}
	s.mu.Unlock()
	return s.api.FetchJWTSVID(passed(ctx), req)
}

func (s *signing) FetchX509SVID(req *workload.X509SVIDRequest, to grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	from, err := s.api.FetchX509SVID(passed(to.Context()), req)
	return relay(from, to, err)
}

func (s *signing) FetchX509Bundles(req *workload.X509BundlesRequest, to grpc.ServerStreamingServer[workload.X509BundlesResponse]) error {
	from, err := s.api.FetchX509Bundles(passed(to.Context()), req)
	return relay(from, to, err)
}

func (s *signing) FetchJWTBundles(req *workload.JWTBundlesRequest, to grpc.ServerStreamingServer[workload.JWTBundlesResponse]) error {
	from, err := s.api.FetchJWTBundles(passed(to.Context()), req)
	return relay(from, to, err)
}

// passed has a call on with the metadata of the one that came.
func passed(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

func relay[R any](from grpc.ServerStreamingClient[R], to grpc.ServerStreamingServer[R], err error) error {
	for err == nil {
		var m *R
		if m, err = from.Recv(); err == nil {
			err = to.Send(m)
		}
	}
	return err
}

// watchSigning serves what passes on to a Workload API, at the address that it returns.
func watchSigning(t *testing.T, api *harness.WorkloadAPI) (*signing, string) {
	t.Helper()
	cc, err := grpc.NewClient(api.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sg") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := &signing{api: workload.NewSpiffeWorkloadAPIClient(cc), signed: map[string]int{}}
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, s)
	t.Cleanup(func() {
		if err := errors.Join(cc.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	kit.Serve(t, server, l)
	return s, "unix://" + socket
}

// TestProofsOfOneAgent has an agent's identity ask the principal for proofs as fast as it
// can, on ever new connections. The principal's Workload API signs ten a second for it,
// after as many at once; and another agent, which needs a proof too, connects meanwhile.
func TestProofsOfOneAgent(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	ctx := t.Context()
	w, err := env.StartBareControlPlanes(ctx, harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	api, err := w.Identify(ctx, env.PrincipalID)
	if err != nil {
		t.Fatal(err)
	}
	signed, socket := watchSigning(t, api)
	if err := w.StartPrincipal(ctx, "", harness.Settings{"identity.socket": socket}); err != nil {
		t.Fatal(err)
	}
	greedy, honest := w.Register(t, "greedy", "managed"), w.Register(t, "honest", "managed")
	token := env.TokenOf(t, devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain), CADir: w.CADir}, env.SPIFFEID(greedy.Name), env.PrincipalID)

	var mu sync.Mutex // guards asked
	asked := map[string]bool{}
	attacking, stop := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	defer stop()
	var g errgroup.Group
	begin := time.Now()
	for range 16 {
		g.Go(func() error {
			for attacking.Err() == nil {
				nonce := stream.Nonce(random(stream.NonceBytes))
				mu.Lock()
				asked[nonce.Audience()] = true
				mu.Unlock()
				if err := askForProof(attacking, w.ByTokenTLS, greedy.Name, nonce); err != nil {
					return err
				}
			}
			return nil
		})
	}
	count := func() (asks, signatures, twice int) {
		signed.mu.Lock()
		defer signed.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		for audience, n := range signed.signed {
			if asked[audience] {
				signatures++
				twice += min(n-1, 1)
			}
		}
		return len(asked), signatures, twice
	}
	const enough = 50 // of which the bound lets the last pass after four seconds
	env.Eventually(t, "the bound is reached", func() error {
		if _, n, _ := count(); n < enough {
			return errors.New("too few are signed")
		}
		return nil
	})
	honest.StartBy(t, w.ByTokenTLS, harness.Settings{"principal.method": identity.MethodJWT})
	asks, signatures, twice := count()
	most := 10 + int(10*time.Since(begin).Seconds()) + 1
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("of %d proofs for one agent %d were signed in %s", asks, signatures, time.Since(begin).Round(time.Second))
	if signatures > most || twice > 0 {
		t.Errorf("%d proofs were signed for one agent, want %d at most; %d connections had two", signatures, most, twice)
	}
}

// askForProof does what an agent of that name does first on a connection of its own. How
// it ends is the principal's affair.
func askForProof(ctx context.Context, target, name string, nonce stream.Nonce) error {
	agent, err := identity.ParseAgentName(name)
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, //nolint:gosec // the attacker does not care
	})))
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*env.HandshakePatience)
	defer cancel()
	frames, err := streampb.NewStreamClient(cc).Connect(ctx)
	if err != nil {
		return nil // refused, or the attack is over
	}
	if frames.Send(stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: agent, Mode: stream.Managed, Nonce: nonce})) == nil {
		_, _ = frames.Recv()
	}
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails, says its documentation
	return b
}
