package workload_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"path/filepath"
	"testing"

	pb "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream/protolimit"
	"github.com/argomesh/argomesh/test/heap"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// raw sends bytes as they are, and reads nothing.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

// answering is a Workload API that answers each call with those bytes, and returns its
// socket.
func answering(t *testing.T, answer []byte) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
	kit.Serve(t, server, l)
	return "unix://" + path
}

// An answer of the Workload API that would decode to hundreds of megabytes is refused
// before, and told like any other that cannot be read.
func TestHeapOfWorkloadReplies(t *testing.T) {
	const longest, most = 4<<20 - 64, 64 << 20 // what gRPC takes, and what one message may
	for what, answer := range map[string][]byte{
		"empty SVIDs":    bytes.Repeat([]byte{0x0a, 0}, longest/2),
		"revoked":        bytes.Repeat([]byte{0x12, 0}, longest/2),
		"empty bundles":  bytes.Repeat([]byte{0x1a, 0}, longest/2),
		"unlike bundles": bundles(longest),
	} {
		t.Run(what, func(t *testing.T) {
			socket := answering(t, answer)
			if took := heap.Of(func() {
				s := run(t, workload.Config{Socket: socket})
				s.log.Wait(t, "error", protolimit.ErrTooLarge.Error())
				if s.Ready() == nil {
					t.Error("it is ready")
				}
			}); took > most {
				t.Errorf("%d bytes take %d of heap", len(answer), took)
			}
		})
	}
}

// bundles are empty ones of so many trust domains as fit.
func bundles(size int) []byte {
	var b []byte
	for i := 0; len(b)+7 < size; i++ {
		b = append(b, 0x1a, 5, 0x0a, 3, byte(i)&0x7f, byte(i>>7)&0x7f, byte(i>>14)&0x7f)
	}
	return b
}

// withNames is a root of a partner with as many one-letter names as take so many bytes.
func withNames(t *testing.T, td spiffeid.TrustDomain, size int) *x509.Certificate {
	t.Helper()
	names := []*url.URL{td.ID().URL()}
	for range (size - 1000) / 5 {
		names = append(names, &url.URL{Path: "/ab"})
	}
	root := certkit.New(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign, URIs: names,
	})
	return root.Certificate
}

// A certificate takes far more than its bytes once it is read, and a partner chooses its roots: those of one that
// has too many bytes are not read, and all others hold.
func TestLongBundlesOfPartners(t *testing.T) {
	const most = 64 << 20
	long, usual := spiffeid.RequireTrustDomainFromString("long.test"), spiffeid.RequireTrustDomainFromString("usual.test")
	own := certkit.NewRoot(t, domain, elliptic.P256())
	svid := own.SVID(t, principal)
	chain, key, err := svid.MarshalRaw()
	if err != nil {
		t.Fatal(err)
	}
	giant := withNames(t, long, 2<<20)
	answer, err := proto.Marshal(&pb.X509SVIDResponse{
		Svids: []*pb.X509SVID{{SpiffeId: principal.String(), X509Svid: chain, X509SvidKey: key, Bundle: own.Certificate.Raw}},
		FederatedBundles: map[string][]byte{
			long.IDString(): giant.Raw, usual.IDString(): certkit.NewRoot(t, usual, elliptic.P256()).Certificate.Raw,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := answering(t, answer)
	var s *testSource
	if took := heap.Of(func() { s = ready(t, workload.Config{Socket: socket}) }); took > most {
		t.Errorf("%d bytes take %d of heap", len(answer), took)
	}
	for td, held := range map[spiffeid.TrustDomain]bool{long: false, usual: true, domain: true} {
		if _, err := s.GetX509BundleForTrustDomain(td); (err == nil) != held {
			t.Errorf("the bundle of %s is held: %v, want %t", td, err, held)
		}
	}
	if n, _ := s.metric(t, "argomesh_identity_long_bundles_total", ""); n != 1 {
		t.Errorf("%v bundles are counted, want 1", n)
	}
	s.log.Wait(t, "trust_domain", "long.test")
}
