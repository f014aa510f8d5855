package serverapi_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	bundlev1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/bundle/v1"
	entryv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/entry/v1"
	trustdomainv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/trustdomain/v1"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/heap"
)

// strange is a server that answers whatever it is told to.
type strange struct {
	entryv1.UnimplementedEntryServer
	bundlev1.UnimplementedBundleServer
	trustdomainv1.UnimplementedTrustDomainServer
	list   *entryv1.ListEntriesResponse
	create *entryv1.BatchCreateEntryResponse
	delete *entryv1.BatchDeleteEntryResponse
	bundle *types.Bundle
	trust  *trustdomainv1.ListFederationRelationshipsResponse
}

func (s *strange) ListEntries(context.Context, *entryv1.ListEntriesRequest) (*entryv1.ListEntriesResponse, error) {
	return s.list, nil
}

func (s *strange) BatchCreateEntry(context.Context, *entryv1.BatchCreateEntryRequest) (*entryv1.BatchCreateEntryResponse, error) {
	return s.create, nil
}

func (s *strange) BatchDeleteEntry(context.Context, *entryv1.BatchDeleteEntryRequest) (*entryv1.BatchDeleteEntryResponse, error) {
	return s.delete, nil
}

func (s *strange) GetFederatedBundle(context.Context, *bundlev1.GetFederatedBundleRequest) (*types.Bundle, error) {
	return s.bundle, nil
}

func (s *strange) ListFederationRelationships(context.Context, *trustdomainv1.ListFederationRelationshipsRequest) (*trustdomainv1.ListFederationRelationshipsResponse, error) {
	return s.trust, nil
}

func startStrange(t testing.TB, s *strange) *serverapi.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	entryv1.RegisterEntryServer(server, s)
	bundlev1.RegisterBundleServer(server, s)
	trustdomainv1.RegisterTrustDomainServer(server, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); err != nil {
			t.Errorf("Serve() = %v", err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return connect(t, serverapi.ClientConfig{Address: "unix://" + path})
}

func TestAnswersThatCannotBe(t *testing.T) {
	desired := spiretest.Entries(t, spiretest.Registration(nil))
	wire := func() *types.Entry {
		return &types.Entry{
			Id:        desired[0].ID,
			SpiffeId:  &types.SPIFFEID{TrustDomain: "own.test", Path: "/w"},
			ParentId:  &types.SPIFFEID{TrustDomain: "own.test", Path: "/n"},
			Selectors: []*types.Selector{{Type: "a", Value: "b"}},
		}
	}
	list := func(client *serverapi.Client) error {
		return client.ListEntries(t.Context(), serverapi.EntryFilter{}, func(spire.Entry) error { return nil })
	}
	create := func(client *serverapi.Client) error {
		_, results, err := client.CreateEntries(t.Context(), desired)
		return errors.Join(append(results, err)...)
	}
	listing := func(spoil func(*types.Entry)) *strange {
		e := wire()
		spoil(e)
		return &strange{list: &entryv1.ListEntriesResponse{Entries: []*types.Entry{e}}}
	}
	created := func(results ...*entryv1.BatchCreateEntryResponse_Result) *strange {
		return &strange{create: &entryv1.BatchCreateEntryResponse{Results: results}}
	}
	ok := &types.Status{Message: "OK"}
	tests := map[string]struct {
		server *strange
		call   func(*serverapi.Client) error
	}{
		"the same page for ever": {&strange{list: &entryv1.ListEntriesResponse{NextPageToken: "x"}}, list},
		"ours without spiffe id": {listing(func(e *types.Entry) { e.SpiffeId = nil }), list},
		"ours without parent":    {listing(func(e *types.Entry) { e.ParentId.Path = "x" }), list},
		"ours, strange selector": {listing(func(e *types.Entry) { e.Selectors[0].Type = "a:b" }), list},
		"ours, strange domain":   {listing(func(e *types.Entry) { e.FederatesWith = []string{"A B"} }), list},
		"no result":              {created(), create},
		"a result too many":      {created(&entryv1.BatchCreateEntryResponse_Result{Status: ok, Entry: wire()}, &entryv1.BatchCreateEntryResponse_Result{Status: ok, Entry: wire()}), create},
		"a result without code":  {created(&entryv1.BatchCreateEntryResponse_Result{Entry: wire()}), create},
		"created, but nothing":   {created(&entryv1.BatchCreateEntryResponse_Result{Status: ok}), create},
		"exists, but nothing":    {created(&entryv1.BatchCreateEntryResponse_Result{Status: &types.Status{Code: 6}}), create},
		"deletes without result": {&strange{delete: &entryv1.BatchDeleteEntryResponse{}}, func(client *serverapi.Client) error {
			_, err := client.DeleteEntries(t.Context(), []string{desired[0].ID})
			return err
		}},
		"another's bundle": {&strange{bundle: &types.Bundle{TrustDomain: "other.test"}}, func(client *serverapi.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a bundle of rubbish": {&strange{bundle: &types.Bundle{TrustDomain: "partner.test", X509Authorities: []*types.X509Certificate{{Asn1: []byte("x")}}}}, func(client *serverapi.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a jwt key of rubbish": {&strange{bundle: &types.Bundle{TrustDomain: "partner.test", JwtAuthorities: []*types.JWTKey{{KeyId: "k"}}}}, func(client *serverapi.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a federation with nobody": {&strange{trust: &trustdomainv1.ListFederationRelationshipsResponse{FederationRelationships: []*types.FederationRelationship{{}}}}, func(client *serverapi.Client) error {
			_, err := client.Federations(t.Context())
			return err
		}},
		"an endpoint that is no id": {&strange{trust: &trustdomainv1.ListFederationRelationshipsResponse{FederationRelationships: []*types.FederationRelationship{{
			TrustDomain: "partner.test", BundleEndpointProfile: &types.FederationRelationship_HttpsSpiffe{HttpsSpiffe: &types.HTTPSSPIFFEProfile{EndpointSpiffeId: "x"}},
		}}}}, func(client *serverapi.Client) error {
			_, err := client.Federations(t.Context())
			return err
		}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			if err := tt.call(startStrange(t, tt.server)); !errors.Is(err, spire.ErrReply) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// What is not ours need not be readable.
func TestUnreadableEntriesOfOthersArePassedOver(t *testing.T) {
	client := startStrange(t, &strange{list: &entryv1.ListEntriesResponse{Entries: []*types.Entry{{Id: "theirs"}, {}}}})
	if seen, err := client.Observe(t.Context(), edge, nil); err != nil || len(seen.Entries) != 0 {
		t.Errorf("Observe() = %v, %v", seen, err)
	}
}

func FuzzParseBundle(f *testing.F) {
	text, err := spire.MarshalBundle(spiretest.NewBundle(f, partner))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), `{"keys":[]}`, `{"keys":null}`, `{"keys":[{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 342) + `","e":"AQAB"}]}`, `{"keys":[{"kty":"EC","use":"x509-svid","x5c":[""]}]}`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b *spiffebundle.Bundle
		var err error
		if took := heap.Of(func() { b, err = spire.ParseBundle(partner, text) }); took > mostHeap(len(text)) {
			t.Errorf("%d bytes of heap for %d", took, len(text))
		}
		if err != nil {
			if !errors.Is(err, spire.ErrInvalid) || b != nil {
				t.Fatalf("ParseBundle() = %v, %v", b, err)
			}
			return
		}
		again, err := spire.MarshalBundle(b)
		if err != nil {
			t.Fatalf("it was read, and cannot be written: %v", err)
		}
		back, err := spire.ParseBundle(partner, again)
		if err != nil || !spire.SameKeys(b, back) {
			t.Fatalf("it comes back as %v, %v", back, err)
		}
	})
}

// FuzzEntryReply has a client read what a server says of entries, as bytes.
func FuzzEntryReply(f *testing.F) {
	e := &types.Entry{
		Id:        "argomesh.edge-1.ff8ad86d1dfc1a8e",
		SpiffeId:  &types.SPIFFEID{TrustDomain: "own.test", Path: "/w"},
		ParentId:  &types.SPIFFEID{TrustDomain: "own.test", Path: "/n"},
		Selectors: []*types.Selector{{Type: "a", Value: "b"}}, FederatesWith: []string{"partner.test"}, X509SvidTtl: 60, ExpiresAt: 1,
	}
	for _, seed := range []*entryv1.ListEntriesResponse{{}, {Entries: []*types.Entry{e}}, {Entries: []*types.Entry{{}, e, e}}, {NextPageToken: "x"}} {
		raw, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m entryv1.ListEntriesResponse
		if proto.Unmarshal(raw, &m) != nil {
			return // gRPC refuses it
		}
		var seen []spire.Entry
		for _, one := range m.GetEntries() {
			var read spire.Entry
			var err error
			heap.Bound(t, proto.Size(one), func() { read, err = serverapi.ReadEntry(one) })
			if err != nil {
				if !errors.Is(err, spire.ErrReply) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			back, err := serverapi.ReadEntry(serverapi.WriteEntry(read))
			if err != nil {
				t.Fatalf("%v was read, but not again: %v", one, err)
			}
			if plan := spire.PlanEntries(edge, []spire.Entry{read}, []spire.Entry{back}); !diff.IsNoOp(plan) {
				t.Fatalf("%v comes back as another: %v", one, plan)
			}
			seen = append(seen, read)
		}
		// Whatever the server has, the plan takes away nothing of others.
		for _, c := range spire.PlanEntries(edge, nil, seen) {
			if owner, ours := spire.Owner(c.Have.ID); c.Action != diff.Delete || !ours || owner != edge {
				t.Fatalf("plan has %v", c)
			}
		}
	})
}

func FuzzBundleReply(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0a\x0cpartner.test"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m types.FederationRelationship
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		var err error
		if took := heap.Of(func() { _, err = serverapi.ReadFederation(&m) }); took > mostHeap(len(raw)) {
			t.Errorf("%d bytes of heap for %d", took, len(raw))
		}
		if err != nil && !errors.Is(err, spire.ErrReply) {
			t.Fatalf("error %v", err)
		}
	})
}
