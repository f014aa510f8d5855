package spiretest

import (
	"context"
	"maps"
	"net/url"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
)

type bundleService struct {
	bundlev1.UnimplementedBundleServer
	s *Server
}

// GetBundle implements bundlev1.BundleServer.
func (b *bundleService) GetBundle(_ context.Context, req *bundlev1.GetBundleRequest) (*types.Bundle, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return maskBundle(b.s.bundle, req.GetOutputMask()), nil
}

// GetFederatedBundle implements bundlev1.BundleServer.
func (b *bundleService) GetFederatedBundle(_ context.Context,
	req *bundlev1.GetFederatedBundleRequest) (*types.Bundle, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if there := b.s.federated[req.GetTrustDomain()]; there != nil {
		return maskBundle(there, req.GetOutputMask()), nil
	}
	return nil, status.Error(codes.NotFound, "bundle not found")
}

// ListFederatedBundles implements bundlev1.BundleServer.
func (b *bundleService) ListFederatedBundles(_ context.Context,
	req *bundlev1.ListFederatedBundlesRequest) (*bundlev1.ListFederatedBundlesResponse, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	names := slices.Sorted(maps.Keys(b.s.federated))
	from, to, next, err := page(len(names), req.GetPageToken(), req.GetPageSize())
	if err != nil {
		return nil, err
	}
	resp := &bundlev1.ListFederatedBundlesResponse{NextPageToken: next}
	for _, name := range names[from:to] {
		resp.Bundles = append(resp.Bundles, maskBundle(b.s.federated[name], req.GetOutputMask()))
	}
	return resp, nil
}

// BatchCreateFederatedBundle implements bundlev1.BundleServer.
func (b *bundleService) BatchCreateFederatedBundle(_ context.Context,
	req *bundlev1.BatchCreateFederatedBundleRequest) (*bundlev1.BatchCreateFederatedBundleResponse, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	resp := &bundlev1.BatchCreateFederatedBundleResponse{}
	for _, in := range req.GetBundle() {
		result := &bundlev1.BatchCreateFederatedBundleResponse_Result{Status: b.s.foreign(in.GetTrustDomain())}
		if result.GetStatus() == nil && b.s.federated[in.GetTrustDomain()] != nil {
			result.Status = failed(codes.AlreadyExists, "bundle already exists")
		}
		if result.GetStatus() == nil {
			b.s.federated[in.GetTrustDomain()] = proto.CloneOf(in)
			result.Status, result.Bundle = ok(), maskBundle(in, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchSetFederatedBundle implements bundlev1.BundleServer.
func (b *bundleService) BatchSetFederatedBundle(_ context.Context,
	req *bundlev1.BatchSetFederatedBundleRequest) (*bundlev1.BatchSetFederatedBundleResponse, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	resp := &bundlev1.BatchSetFederatedBundleResponse{}
	for _, in := range req.GetBundle() {
		result := &bundlev1.BatchSetFederatedBundleResponse_Result{Status: b.s.foreign(in.GetTrustDomain())}
		if result.GetStatus() == nil {
			b.s.federated[in.GetTrustDomain()] = proto.CloneOf(in)
			result.Status, result.Bundle = ok(), maskBundle(in, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchUpdateFederatedBundle implements bundlev1.BundleServer.
func (b *bundleService) BatchUpdateFederatedBundle(_ context.Context,
	req *bundlev1.BatchUpdateFederatedBundleRequest) (*bundlev1.BatchUpdateFederatedBundleResponse, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	resp := &bundlev1.BatchUpdateFederatedBundleResponse{}
	for _, in := range req.GetBundle() {
		result := &bundlev1.BatchUpdateFederatedBundleResponse_Result{Status: b.s.foreign(in.GetTrustDomain())}
		there := b.s.federated[in.GetTrustDomain()]
		switch {
		case result.GetStatus() != nil:
		case there == nil:
			result.Status = failed(codes.NotFound, "bundle not found")
		default:
			next := proto.CloneOf(in)
			if mask := req.GetInputMask(); mask != nil {
				next = proto.CloneOf(there)
				overlay(next, in, mask)
			}
			b.s.federated[in.GetTrustDomain()] = next
			result.Status, result.Bundle = ok(), maskBundle(next, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchDeleteFederatedBundle implements bundlev1.BundleServer.
func (b *bundleService) BatchDeleteFederatedBundle(_ context.Context,
	req *bundlev1.BatchDeleteFederatedBundleRequest) (*bundlev1.BatchDeleteFederatedBundleResponse, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	resp := &bundlev1.BatchDeleteFederatedBundleResponse{}
	for _, name := range req.GetTrustDomains() {
		st := b.s.foreign(name)
		if st == nil {
			st = b.s.deleteBundle(name, req.GetMode())
		}
		resp.Results = append(resp.Results,
			&bundlev1.BatchDeleteFederatedBundleResponse_Result{Status: st, TrustDomain: name})
	}
	return resp, nil
}

func (s *Server) deleteBundle(name string, mode bundlev1.BatchDeleteFederatedBundleRequest_Mode) *types.Status {
	if s.federated[name] == nil {
		return failed(codes.NotFound, "bundle not found")
	}
	federates := func(e *types.Entry) bool { return slices.Contains(e.GetFederatesWith(), name) }
	switch mode {
	case bundlev1.BatchDeleteFederatedBundleRequest_DELETE:
		s.entries = slices.DeleteFunc(s.entries, federates)
	case bundlev1.BatchDeleteFederatedBundleRequest_DISSOCIATE:
		for _, e := range s.entries {
			e.FederatesWith = slices.DeleteFunc(e.FederatesWith, func(td string) bool { return td == name })
		}
	default:
		if slices.ContainsFunc(s.entries, federates) {
			return failed(codes.FailedPrecondition, "cannot delete bundle; federated with entries")
		}
	}
	delete(s.federated, name)
	return ok()
}

// foreign returns a status when name is not another trust domain. The caller holds mu.
func (s *Server) foreign(name string) *types.Status {
	td, err := spiffeid.TrustDomainFromString(name)
	switch {
	case err != nil:
		return failed(codes.InvalidArgument, "trust domain is not valid")
	case td == s.trustDomain:
		return failed(codes.InvalidArgument, "it is the server's own trust domain")
	}
	return nil
}

// maskBundle returns what mask lets through of b: all without one.
func maskBundle(b *types.Bundle, mask *types.BundleMask) *types.Bundle {
	if mask == nil {
		return proto.CloneOf(b)
	}
	out := &types.Bundle{TrustDomain: b.GetTrustDomain()}
	overlay(out, b, mask)
	return out
}

type trustDomainService struct {
	trustdomainv1.UnimplementedTrustDomainServer
	s *Server
}

// ListFederationRelationships implements trustdomainv1.TrustDomainServer.
func (d *trustDomainService) ListFederationRelationships(_ context.Context,
	req *trustdomainv1.ListFederationRelationshipsRequest) (*trustdomainv1.ListFederationRelationshipsResponse, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	names := slices.Sorted(maps.Keys(d.s.relations))
	from, to, next, err := page(len(names), req.GetPageToken(), req.GetPageSize())
	if err != nil {
		return nil, err
	}
	resp := &trustdomainv1.ListFederationRelationshipsResponse{NextPageToken: next}
	for _, name := range names[from:to] {
		resp.FederationRelationships = append(resp.FederationRelationships,
			d.s.maskRelationship(d.s.relations[name], req.GetOutputMask()))
	}
	return resp, nil
}

// GetFederationRelationship implements trustdomainv1.TrustDomainServer.
func (d *trustDomainService) GetFederationRelationship(_ context.Context,
	req *trustdomainv1.GetFederationRelationshipRequest) (*types.FederationRelationship, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if there := d.s.relations[req.GetTrustDomain()]; there != nil {
		return d.s.maskRelationship(there, req.GetOutputMask()), nil
	}
	return nil, status.Error(codes.NotFound, "federation relationship does not exist")
}

// BatchCreateFederationRelationship implements trustdomainv1.TrustDomainServer.
func (d *trustDomainService) BatchCreateFederationRelationship(_ context.Context,
	req *trustdomainv1.BatchCreateFederationRelationshipRequest) (*trustdomainv1.BatchCreateFederationRelationshipResponse,
	error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	resp := &trustdomainv1.BatchCreateFederationRelationshipResponse{}
	for _, in := range req.GetFederationRelationships() {
		name := in.GetTrustDomain()
		result := &trustdomainv1.BatchCreateFederationRelationshipResponse_Result{Status: d.s.checkRelationship(in)}
		if result.GetStatus() == nil && d.s.relations[name] != nil {
			// Not AlreadyExists, as measured.
			result.Status = failed(codes.Internal,
				"failed to create federation relationship: datastore-sql: UNIQUE constraint failed: federated_trust_domains.trust_domain")
		}
		if result.GetStatus() == nil {
			d.s.store(in)
			result.Status, result.FederationRelationship = ok(), d.s.maskRelationship(d.s.relations[name], req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchUpdateFederationRelationship implements trustdomainv1.TrustDomainServer.
func (d *trustDomainService) BatchUpdateFederationRelationship(_ context.Context,
	req *trustdomainv1.BatchUpdateFederationRelationshipRequest) (*trustdomainv1.BatchUpdateFederationRelationshipResponse,
	error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	resp := &trustdomainv1.BatchUpdateFederationRelationshipResponse{}
	for _, in := range req.GetFederationRelationships() {
		result := &trustdomainv1.BatchUpdateFederationRelationshipResponse_Result{}
		there := d.s.relations[in.GetTrustDomain()]
		next := proto.CloneOf(in)
		if mask := req.GetInputMask(); mask != nil && there != nil {
			next = proto.CloneOf(there)
			overlayRelationship(next, in, mask)
		}
		switch result.Status = d.s.checkRelationship(next); {
		case there == nil:
			result.Status = failed(codes.NotFound, "federation relationship does not exist")
		case result.GetStatus() == nil:
			d.s.store(next)
			result.Status, result.FederationRelationship = ok(), d.s.maskRelationship(next, req.GetOutputMask())
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// BatchDeleteFederationRelationship implements trustdomainv1.TrustDomainServer. The bundle
// stays.
func (d *trustDomainService) BatchDeleteFederationRelationship(_ context.Context,
	req *trustdomainv1.BatchDeleteFederationRelationshipRequest) (*trustdomainv1.BatchDeleteFederationRelationshipResponse,
	error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	resp := &trustdomainv1.BatchDeleteFederationRelationshipResponse{}
	for _, name := range req.GetTrustDomains() {
		st := ok()
		if d.s.relations[name] == nil {
			st = failed(codes.NotFound, "federation relationship does not exist")
		}
		delete(d.s.relations, name)
		resp.Results = append(resp.Results,
			&trustdomainv1.BatchDeleteFederationRelationshipResponse_Result{Status: st, TrustDomain: name})
	}
	return resp, nil
}

// RefreshBundle implements trustdomainv1.TrustDomainServer.
func (d *trustDomainService) RefreshBundle(_ context.Context,
	req *trustdomainv1.RefreshBundleRequest) (*emptypb.Empty, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.relations[req.GetTrustDomain()] == nil {
		return nil, status.Errorf(codes.NotFound, "no relationship with trust domain %q", req.GetTrustDomain())
	}
	return &emptypb.Empty{}, nil
}

// store keeps r, and its bundle where all bundles are. The caller holds mu.
func (s *Server) store(r *types.FederationRelationship) {
	r = proto.CloneOf(r)
	if b := r.GetTrustDomainBundle(); b != nil {
		s.federated[r.GetTrustDomain()] = b
		r.TrustDomainBundle = nil
	}
	s.relations[r.GetTrustDomain()] = r
}

func (s *Server) checkRelationship(r *types.FederationRelationship) *types.Status {
	if st := s.foreign(r.GetTrustDomain()); st != nil {
		return st
	}
	u, err := url.Parse(r.GetBundleEndpointUrl())
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil:
		return failed(codes.InvalidArgument, "bundle endpoint URL is not valid")
	case r.GetBundleEndpointProfile() == nil:
		return failed(codes.InvalidArgument, "bundle endpoint profile is required")
	case r.GetTrustDomainBundle() != nil && r.GetTrustDomainBundle().GetTrustDomain() != r.GetTrustDomain():
		return failed(codes.InvalidArgument,
			"trust domain bundle does not match the trust domain of the federation relationship")
	}
	if p := r.GetHttpsSpiffe(); p != nil {
		if _, err := spiffeid.FromString(p.GetEndpointSpiffeId()); err != nil {
			return failed(codes.InvalidArgument, "endpoint SPIFFE ID is not valid")
		}
	}
	return nil
}

// maskRelationship returns what mask lets through, with the bundle. The caller holds mu.
func (s *Server) maskRelationship(r *types.FederationRelationship,
	mask *types.FederationRelationshipMask) *types.FederationRelationship {
	whole := proto.CloneOf(r)
	if b := s.federated[r.GetTrustDomain()]; b != nil {
		whole.TrustDomainBundle = proto.CloneOf(b)
	}
	if mask == nil {
		return whole
	}
	out := &types.FederationRelationship{TrustDomain: r.GetTrustDomain()}
	overlayRelationship(out, whole, mask)
	return out
}

// overlayRelationship copies what mask selects. Its numbers are not those of the fields.
func overlayRelationship(dst, src *types.FederationRelationship, mask *types.FederationRelationshipMask) {
	if mask.GetBundleEndpointUrl() {
		dst.BundleEndpointUrl = src.GetBundleEndpointUrl()
	}
	if mask.GetBundleEndpointProfile() {
		dst.BundleEndpointProfile = src.GetBundleEndpointProfile()
	}
	if mask.GetTrustDomainBundle() {
		dst.TrustDomainBundle = src.GetTrustDomainBundle()
	}
}
