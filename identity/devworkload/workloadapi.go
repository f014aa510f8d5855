package devworkload

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// workloadAPI answers the SPIFFE Workload API. Methods it does not have are
// answered with Unimplemented, as the standard says of optional profiles.
type workloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	server *Server
}

// FetchX509SVID sends all SVIDs and bundles now and after each change.
func (w *workloadAPI) FetchX509SVID(_ *workload.X509SVIDRequest,
	stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	return follow(w.server, stream, x509SVIDs)
}

// FetchX509Bundles sends all X.509 bundles now and after each change.
func (w *workloadAPI) FetchX509Bundles(_ *workload.X509BundlesRequest,
	stream grpc.ServerStreamingServer[workload.X509BundlesResponse]) error {
	return follow(w.server, stream, x509Bundles)
}

// FetchJWTBundles sends all JWT bundles now and after each change.
func (w *workloadAPI) FetchJWTBundles(_ *workload.JWTBundlesRequest,
	stream grpc.ServerStreamingServer[workload.JWTBundlesResponse]) error {
	return follow(w.server, stream, jwtBundles)
}

// FetchJWTSVID returns a JWT-SVID of every entry, or of the one asked for.
func (w *workloadAPI) FetchJWTSVID(_ context.Context, req *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	if len(req.GetAudience()) == 0 || slices.Contains(req.GetAudience(), "") {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	var only spiffeid.ID
	if text := req.GetSpiffeId(); text != "" {
		id, err := spiffeid.FromString(text)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, "spiffe id is malformed")
		}
		only = id
	}
	resp := &workload.JWTSVIDResponse{}
	for _, e := range w.server.currentEntries() {
		if !only.IsZero() && e.ID != only {
			continue
		}
		token, err := w.server.signJWT(e.ID, req.GetAudience())
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		resp.Svids = append(resp.Svids, &workload.JWTSVID{SpiffeId: e.ID.String(), Svid: token, Hint: e.Hint})
	}
	if len(resp.GetSvids()) == 0 {
		return nil, errNoIdentity
	}
	return resp, nil
}

// ValidateJWTSVID checks a token of the own or a federated trust domain.
func (w *workloadAPI) ValidateJWTSVID(_ context.Context,
	req *workload.ValidateJWTSVIDRequest) (*workload.ValidateJWTSVIDResponse, error) {
	switch {
	case req.GetAudience() == "":
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	case req.GetSvid() == "":
		return nil, status.Error(codes.InvalidArgument, "svid must be specified")
	}
	snap, _ := w.server.current()
	if len(snap.svids) == 0 {
		return nil, errNoIdentity
	}
	bundles := jwtbundle.NewSet(snap.own.JWTBundle())
	for _, b := range snap.federated {
		bundles.Add(b.JWTBundle())
	}
	svid, err := jwtsvid.ParseAndValidate(req.GetSvid(), bundles, []string{req.GetAudience()})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	claims, err := structpb.NewStruct(svid.Claims)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "claims: %v", err)
	}
	return &workload.ValidateJWTSVIDResponse{SpiffeId: svid.ID.String(), Claims: claims}, nil
}

// follow sends what render makes of each snapshot, when it differs from what
// was sent before, until the caller leaves or render fails.
func follow[R any, M interface {
	*R
	proto.Message
}](s *Server, stream grpc.ServerStreamingServer[R], render func(*snapshot) (M, error)) error {
	var sent M
	for {
		snap, changed := s.current()
		if len(snap.svids) == 0 {
			return errNoIdentity
		}
		resp, err := render(snap)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if sent == nil || !proto.Equal(sent, resp) {
			if err := stream.Send(resp); err != nil {
				return err
			}
			sent = resp
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-changed:
		}
	}
}

func x509SVIDs(snap *snapshot) (*workload.X509SVIDResponse, error) {
	own := concatDER(snap.own.X509Authorities())
	resp := &workload.X509SVIDResponse{FederatedBundles: make(map[string][]byte, len(snap.federated))}
	for _, svid := range snap.svids {
		certs, key, err := svid.MarshalRaw()
		if err != nil {
			return nil, fmt.Errorf("encode svid of %s: %w", svid.ID, err)
		}
		resp.Svids = append(resp.Svids, &workload.X509SVID{
			SpiffeId: svid.ID.String(), X509Svid: certs, X509SvidKey: key, Bundle: own, Hint: svid.Hint,
		})
	}
	for _, b := range snap.federated {
		resp.FederatedBundles[b.TrustDomain().IDString()] = concatDER(b.X509Authorities())
	}
	return resp, nil
}

func x509Bundles(snap *snapshot) (*workload.X509BundlesResponse, error) {
	resp := &workload.X509BundlesResponse{Bundles: make(map[string][]byte, 1+len(snap.federated))}
	for _, b := range snap.bundles() {
		resp.Bundles[b.TrustDomain().IDString()] = concatDER(b.X509Authorities())
	}
	return resp, nil
}

func jwtBundles(snap *snapshot) (*workload.JWTBundlesResponse, error) {
	resp := &workload.JWTBundlesResponse{Bundles: make(map[string][]byte, 1+len(snap.federated))}
	for _, b := range snap.bundles() {
		keys, err := b.JWTBundle().Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode jwt bundle of %s: %w", b.TrustDomain(), err)
		}
		resp.Bundles[b.TrustDomain().IDString()] = keys
	}
	return resp, nil
}

func concatDER(certs []*x509.Certificate) []byte {
	var der []byte
	for _, c := range certs {
		der = append(der, c.Raw...)
	}
	return der
}

const (
	workloadMethods = "/SpiffeWorkloadAPI/"
	securityHeader  = "workload.spiffe.io"
)

// requireHeader refuses a call to the Workload API without the metadata that a
// browser or other confused caller cannot set (SPIFFE Workload Endpoint,
// section 6).
func requireHeader(ctx context.Context, method string) error {
	if !strings.HasPrefix(method, workloadMethods) {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get(securityHeader); len(values) != 1 || values[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	return nil
}

func requireHeaderUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := requireHeader(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func requireHeaderStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) error {
	if err := requireHeader(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}
