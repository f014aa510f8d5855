// Package spiretest is a SPIRE server for tests, as far as registration goes: it
// answers the services Entry, Bundle and TrustDomain as SPIRE 1.15 was measured to,
// with per-item status codes inside answers that are OK, duplicates, masks, paging, and
// administrators only. It issues no SVIDs, polls no bundles and forgets everything; it
// is never linked into a binary.
//
//	server := spiretest.New(td)
//	go server.Run(ctx, listener)                                  // a unix socket
//	go server.Run(ctx, tcp, grpc.Creds(credentials.NewTLS(conf))) // administrators by their SVID
package spiretest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
)

// Server is a SPIRE server. Its methods may be called at any time, from several
// goroutines.
type Server struct {
	trustDomain spiffeid.TrustDomain

	// mu guards all below.
	mu        sync.Mutex
	entries   []*types.Entry // in order of creation
	bundle    *types.Bundle
	federated map[string]*types.Bundle
	relations map[string]*types.FederationRelationship
	admins    map[spiffeid.ID]bool
	intercept func(ctx context.Context, method string) error
	calls     []string
	created   int // entries ever, for IDs
}

// New returns a server of td that knows nothing else.
func New(td spiffeid.TrustDomain) *Server {
	return &Server{
		trustDomain: td,
		bundle:      &types.Bundle{TrustDomain: td.Name()},
		federated:   make(map[string]*types.Bundle),
		relations:   make(map[string]*types.FederationRelationship),
		admins:      make(map[spiffeid.ID]bool),
	}
}

// SetAdmins replaces the IDs that may call over TCP, beside those with an entry that
// says admin.
func (s *Server) SetAdmins(ids ...spiffeid.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.admins)
	for _, id := range ids {
		s.admins[id] = true
	}
}

// SetIntercept has f called before each call of a client; what it returns, if not nil,
// is the answer. Nil ends that.
func (s *Server) SetIntercept(f func(ctx context.Context, method string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// Calls returns the methods called so far, without their service, in order.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// AddEntry adds an entry as someone else's client would. An empty ID is replaced.
func (s *Server) AddEntry(e *types.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, _ := s.createEntry(proto.CloneOf(e))
	return status.Error(codes.Code(st.GetCode()), st.GetMessage()) //nolint:gosec // our own
}

// Entries returns all entries, in order of creation.
func (s *Server) Entries() []*types.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clones(s.entries)
}

// FederatedBundles returns the bundles of other trust domains by their names.
func (s *Server) FederatedBundles() map[string]*types.Bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]*types.Bundle, len(s.federated))
	for name, b := range s.federated {
		out[name] = proto.CloneOf(b)
	}
	return out
}

// Relationships returns the federation relationships by the names of trust domains.
func (s *Server) Relationships() map[string]*types.FederationRelationship {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]*types.FederationRelationship, len(s.relations))
	for name, r := range s.relations {
		out[name] = proto.CloneOf(r)
	}
	return out
}

// Collect does what spire-controller-manager does at each reconciliation: it deletes the
// entries that declared does not have, of all when prefix is empty, else of those whose
// ID begins with prefix and a dot.
func (s *Server) Collect(prefix string, declared ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e *types.Entry) bool {
		mine := prefix == "" || strings.HasPrefix(e.GetId(), prefix+".")
		return mine && !slices.Contains(declared, e.GetId())
	})
}

// Run serves on l until ctx is done, then cuts every call and returns nil. It closes l
// in every case. Without credentials among opts every caller is an administrator, as on
// SPIRE's unix socket.
func (s *Server) Run(ctx context.Context, l net.Listener, opts ...grpc.ServerOption) error {
	server := grpc.NewServer(append(opts, grpc.UnaryInterceptor(s.before))...)
	entryv1.RegisterEntryServer(server, &entryService{s: s})
	bundlev1.RegisterBundleServer(server, &bundleService{s: s})
	trustdomainv1.RegisterTrustDomainServer(server, &trustDomainService{s: s})
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("spiretest: serve: %w", err)
	}
	return nil
}

// anyone may call it without being an administrator.
const anyone = "/spire.api.server.bundle.v1.Bundle/GetBundle"

func (s *Server) before(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.calls = append(s.calls, info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:])
	intercept := s.intercept
	s.mu.Unlock()
	if info.FullMethod != anyone && !s.isAdmin(ctx) {
		return nil, status.Errorf(codes.PermissionDenied, "authorization denied for method %s", info.FullMethod)
	}
	if intercept != nil {
		if err := intercept(ctx, info.FullMethod); err != nil {
			return nil, err
		}
	}
	return next(ctx, req)
}

// isAdmin tells local callers and administrators from others.
func (s *Server) isAdmin(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return true // the unix socket
	}
	id, ok := callerID(info.State)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admins[id] || slices.ContainsFunc(s.entries, func(e *types.Entry) bool {
		return e.GetAdmin() && "spiffe://"+e.GetSpiffeId().GetTrustDomain()+e.GetSpiffeId().GetPath() == id.String()
	})
}

func callerID(state tls.ConnectionState) (spiffeid.ID, bool) {
	if len(state.PeerCertificates) == 0 {
		return spiffeid.ID{}, false
	}
	id, err := x509svid.IDFromCert(state.PeerCertificates[0])
	return id, err == nil
}

func ok() *types.Status { return &types.Status{Message: "OK"} }

func failed(code codes.Code, format string, args ...any) *types.Status {
	return &types.Status{Code: int32(code), Message: fmt.Sprintf(format, args...)} //nolint:gosec // a code
}

// page returns the part of n items that a token and size ask for, and the token of the
// next. As with SPIRE a full page is followed by another, which may be empty.
func page(n int, token string, size int32) (from, to int, next string, err error) {
	if token != "" {
		if _, err := fmt.Sscanf(token, "after-%d", &from); err != nil || from < 0 || from > n {
			return 0, 0, "", status.Errorf(codes.Internal, "could not parse token %q", token)
		}
	}
	switch {
	case size < 0:
		return 0, 0, "", status.Error(codes.InvalidArgument, "negative page size")
	case size == 0:
		return from, n, "", nil
	}
	to = min(from+int(size), n)
	if to-from == int(size) {
		next = fmt.Sprintf("after-%d", to)
	}
	return from, to, next, nil
}

func clones[M proto.Message](items []M) []M {
	out := make([]M, len(items))
	for i, item := range items {
		out[i] = proto.CloneOf(item)
	}
	return out
}
