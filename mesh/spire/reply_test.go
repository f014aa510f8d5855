package spire_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spirepb"
	"github.com/argomesh/argomesh/test/heap"
)

// strange is a server that answers whatever it is told to.
type strange struct {
	spirepb.UnimplementedEntryServer
	spirepb.UnimplementedBundleServer
	spirepb.UnimplementedTrustDomainServer
	list   *spirepb.ListEntriesResponse
	create *spirepb.BatchCreateEntryResponse
	delete *spirepb.BatchDeleteEntryResponse
	bundle *spirepb.Bundle
	trust  *spirepb.ListFederationRelationshipsResponse
}

func (s *strange) ListEntries(context.Context, *spirepb.ListEntriesRequest) (*spirepb.ListEntriesResponse, error) {
	return s.list, nil
}

func (s *strange) BatchCreateEntry(context.Context, *spirepb.BatchCreateEntryRequest) (*spirepb.BatchCreateEntryResponse, error) {
	return s.create, nil
}

func (s *strange) BatchDeleteEntry(context.Context, *spirepb.BatchDeleteEntryRequest) (*spirepb.BatchDeleteEntryResponse, error) {
	return s.delete, nil
}

func (s *strange) GetFederatedBundle(context.Context, *spirepb.GetFederatedBundleRequest) (*spirepb.Bundle, error) {
	return s.bundle, nil
}

func (s *strange) ListFederationRelationships(context.Context, *spirepb.ListFederationRelationshipsRequest) (*spirepb.ListFederationRelationshipsResponse, error) {
	return s.trust, nil
}

func startStrange(t testing.TB, s *strange) *spire.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spirepb.RegisterEntryServer(server, s)
	spirepb.RegisterBundleServer(server, s)
	spirepb.RegisterTrustDomainServer(server, s)
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
	return connect(t, spire.ClientConfig{Address: "unix://" + path})
}

func TestAnswersThatCannotBe(t *testing.T) {
	desired := entriesOf(t, registration(nil))
	wire := func() *spirepb.Entry {
		return &spirepb.Entry{
			Id:        desired[0].ID,
			SpiffeId:  &spirepb.SPIFFEID{TrustDomain: "own.test", Path: "/w"},
			ParentId:  &spirepb.SPIFFEID{TrustDomain: "own.test", Path: "/n"},
			Selectors: []*spirepb.Selector{{Type: "a", Value: "b"}},
		}
	}
	list := func(client *spire.Client) error {
		return client.ListEntries(t.Context(), spire.EntryFilter{}, func(spire.Entry) error { return nil })
	}
	create := func(client *spire.Client) error {
		_, results, err := client.CreateEntries(t.Context(), desired)
		return errors.Join(append(results, err)...)
	}
	listing := func(spoil func(*spirepb.Entry)) *strange {
		e := wire()
		spoil(e)
		return &strange{list: &spirepb.ListEntriesResponse{Entries: []*spirepb.Entry{e}}}
	}
	created := func(results ...*spirepb.BatchCreateEntryResponse_Result) *strange {
		return &strange{create: &spirepb.BatchCreateEntryResponse{Results: results}}
	}
	ok := &spirepb.Status{Message: "OK"}
	tests := map[string]struct {
		server *strange
		call   func(*spire.Client) error
	}{
		"the same page for ever": {&strange{list: &spirepb.ListEntriesResponse{NextPageToken: "x"}}, list},
		"ours without spiffe id": {listing(func(e *spirepb.Entry) { e.SpiffeId = nil }), list},
		"ours without parent":    {listing(func(e *spirepb.Entry) { e.ParentId.Path = "x" }), list},
		"ours, strange selector": {listing(func(e *spirepb.Entry) { e.Selectors[0].Type = "a:b" }), list},
		"ours, strange domain":   {listing(func(e *spirepb.Entry) { e.FederatesWith = []string{"A B"} }), list},
		"no result":              {created(), create},
		"a result too many":      {created(&spirepb.BatchCreateEntryResponse_Result{Status: ok, Entry: wire()}, &spirepb.BatchCreateEntryResponse_Result{Status: ok, Entry: wire()}), create},
		"a result without code":  {created(&spirepb.BatchCreateEntryResponse_Result{Entry: wire()}), create},
		"created, but nothing":   {created(&spirepb.BatchCreateEntryResponse_Result{Status: ok}), create},
		"exists, but nothing":    {created(&spirepb.BatchCreateEntryResponse_Result{Status: &spirepb.Status{Code: 6}}), create},
		"deletes without result": {&strange{delete: &spirepb.BatchDeleteEntryResponse{}}, func(client *spire.Client) error {
			_, err := client.DeleteEntries(t.Context(), []string{desired[0].ID})
			return err
		}},
		"another's bundle": {&strange{bundle: &spirepb.Bundle{TrustDomain: "other.test"}}, func(client *spire.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a bundle of rubbish": {&strange{bundle: &spirepb.Bundle{TrustDomain: "partner.test", X509Authorities: []*spirepb.X509Certificate{{Asn1: []byte("x")}}}}, func(client *spire.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a jwt key of rubbish": {&strange{bundle: &spirepb.Bundle{TrustDomain: "partner.test", JwtAuthorities: []*spirepb.JWTKey{{KeyId: "k"}}}}, func(client *spire.Client) error {
			_, err := client.FederatedBundle(t.Context(), partner)
			return err
		}},
		"a federation with nobody": {&strange{trust: &spirepb.ListFederationRelationshipsResponse{FederationRelationships: []*spirepb.FederationRelationship{{}}}}, func(client *spire.Client) error {
			_, err := client.Federations(t.Context())
			return err
		}},
		"an endpoint that is no id": {&strange{trust: &spirepb.ListFederationRelationshipsResponse{FederationRelationships: []*spirepb.FederationRelationship{{
			TrustDomain: "partner.test", BundleEndpointProfile: &spirepb.FederationRelationship_HttpsSpiffe{HttpsSpiffe: &spirepb.HTTPSSPIFFEProfile{EndpointSpiffeId: "x"}},
		}}}}, func(client *spire.Client) error {
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
	client := startStrange(t, &strange{list: &spirepb.ListEntriesResponse{Entries: []*spirepb.Entry{{Id: "theirs"}, {}}}})
	if seen, err := client.Observe(t.Context(), edge, nil); err != nil || len(seen.Entries) != 0 {
		t.Errorf("Observe() = %v, %v", seen, err)
	}
}

func FuzzParseBundle(f *testing.F) {
	text, err := spire.MarshalBundle(newBundle(f, partner))
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
	e := &spirepb.Entry{
		Id:        "argomesh.edge-1.ff8ad86d1dfc1a8e",
		SpiffeId:  &spirepb.SPIFFEID{TrustDomain: "own.test", Path: "/w"},
		ParentId:  &spirepb.SPIFFEID{TrustDomain: "own.test", Path: "/n"},
		Selectors: []*spirepb.Selector{{Type: "a", Value: "b"}}, FederatesWith: []string{"partner.test"}, X509SvidTtl: 60, ExpiresAt: 1,
	}
	for _, seed := range []*spirepb.ListEntriesResponse{{}, {Entries: []*spirepb.Entry{e}}, {Entries: []*spirepb.Entry{{}, e, e}}, {NextPageToken: "x"}} {
		raw, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m spirepb.ListEntriesResponse
		if proto.Unmarshal(raw, &m) != nil {
			return // gRPC refuses it
		}
		var seen []spire.Entry
		for _, one := range m.GetEntries() {
			var read spire.Entry
			var err error
			heap.Bound(t, proto.Size(one), func() { read, err = spire.ReadEntry(one) })
			if err != nil {
				if !errors.Is(err, spire.ErrReply) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			back, err := spire.ReadEntry(spire.WriteEntry(read))
			if err != nil {
				t.Fatalf("%v was read, but not again: %v", one, err)
			}
			if plan := spire.PlanEntries(edge, []spire.Entry{read}, []spire.Entry{back}); !diff.Settled(plan) {
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
		var m spirepb.FederationRelationship
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		var err error
		if took := heap.Of(func() { _, err = spire.ReadFederation(&m) }); took > mostHeap(len(raw)) {
			t.Errorf("%d bytes of heap for %d", took, len(raw))
		}
		if err != nil && !errors.Is(err, spire.ErrReply) {
			t.Fatalf("error %v", err)
		}
	})
}
