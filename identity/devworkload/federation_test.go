package devworkload_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/kit"
)

// Several trust domains that know each other by their directories: the partner may
// come later, and its rotations are seen.
func TestFederationByDirectory(t *testing.T) {
	dir := shortDir(t)
	third := spiffeid.RequireTrustDomainFromString("third.test")
	at := func(td spiffeid.TrustDomain) devworkload.Federation {
		return devworkload.Federation{TrustDomain: td, CADir: filepath.Join(dir, td.Name())}
	}
	own := newServer(t, devworkload.Config{
		CADir: at(domain).CADir, Entries: []devworkload.Entry{{ID: alice}}, Federate: []devworkload.Federation{at(foreign), at(third)},
	})
	u := watch(t, serve(t, own))
	if got := u.next(t).Bundles; got.Len() != 1 {
		t.Fatalf("%d bundles while the partners are away", got.Len())
	}
	partners := map[spiffeid.TrustDomain]*devworkload.Server{}
	carol := spiffeid.RequireFromPath(foreign, "/carol")
	for i, td := range []spiffeid.TrustDomain{foreign, third} {
		partners[td] = newServer(t, devworkload.Config{
			TrustDomain: td, CADir: at(td).CADir, Entries: []devworkload.Entry{{ID: spiffeid.RequireFromPath(td, "/carol")}},
			X509TTL: 6 * time.Second, Prepare: time.Second, Federate: []devworkload.Federation{at(domain)},
		})
		if got := u.next(t).Bundles; got.Len() != 2+i || !got.Has(td) {
			t.Fatalf("%d bundles after %s came", got.Len(), td)
		}
	}
	client := newClient(t, serve(t, partners[foreign]))
	svid, err := client.FetchX509SVID(kit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := newClient(t, serve(t, own)).FetchX509Bundles(kit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if id, _, err := x509svid.Verify(svid.Certificates, bundles); err != nil || id != carol {
		t.Errorf("Verify() = %s, %v", id, err)
	}
	if own, err := client.FetchX509Bundles(kit.Context(t)); err != nil || !own.Has(domain) {
		t.Errorf("the partner has no bundle of ours: %v", err)
	}

	// Old and new root overlap, then the old one goes.
	if err := partners[foreign].RotateCA(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 1} {
		for got := -1; got != want; {
			b, ok := u.next(t).Bundles.Get(foreign)
			if !ok {
				t.Fatal("the partner's bundle goes at a rotation")
			}
			got = len(b.X509Authorities())
		}
	}
}

func TestFederationIsChecked(t *testing.T) {
	for name, with := range map[string][]devworkload.Federation{
		"itself":       {{TrustDomain: domain, CADir: "x"}},
		"twice":        {{TrustDomain: foreign, CADir: "x"}, {TrustDomain: foreign, CADir: "y"}},
		"nobody":       {{CADir: "x"}},
		"no directory": {{TrustDomain: foreign}},
	} {
		if _, err := devworkload.New(devworkload.Config{TrustDomain: domain, Federate: with}); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("%s: New() = %v", name, err)
		}
	}
	if f, err := devworkload.ParseFederation("foreign.test=/a=b"); err != nil || f != (devworkload.Federation{TrustDomain: foreign, CADir: "/a=b"}) {
		t.Errorf("ParseFederation() = %v, %v", f, err)
	}
	for _, text := range []string{"", "=", "foreign.test", "foreign.test=", "=dir", "Foreign=dir"} {
		if f, err := devworkload.ParseFederation(text); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("ParseFederation(%q) = %v, %v", text, f, err)
		}
	}
}

// What go-spiffe's sources, which most workloads use, make of it: every call, hints
// and the choice by them, several SVIDs, federation, updates.
func TestConformanceOfSources(t *testing.T) {
	server := newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice, Hint: "internal"}, {ID: bob, Hint: "external"}}})
	other := newServer(t, devworkload.Config{TrustDomain: foreign, Entries: []devworkload.Entry{{ID: spiffeid.RequireFromPath(foreign, "/carol")}}})
	if err := server.SetFederated(other.Bundle()); err != nil {
		t.Fatal(err)
	}
	address := workloadapi.WithClientOptions(workloadapi.WithAddr(serve(t, server)))
	ctx := kit.Context(t)

	byHint, err := workloadapi.NewX509Source(ctx, address, workloadapi.WithDefaultX509SVIDPicker(func(svids []*x509svid.SVID) *x509svid.SVID {
		for _, svid := range svids {
			if svid.Hint == "external" {
				return svid
			}
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = byHint.Close() })
	svid, err := byHint.GetX509SVID()
	if err != nil || svid.ID != bob {
		t.Errorf("X509Source.GetX509SVID() = %v, %v, want %s", svid, err, bob)
	}
	tokens, err := workloadapi.NewJWTSource(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tokens.Close() })
	bundles, err := workloadapi.NewBundleSource(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bundles.Close() })

	token, err := tokens.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "a", ExtraAudiences: []string{"b"}, Subject: bob})
	if err != nil || token.ID != bob || token.Hint != "external" || len(token.Audience) != 2 {
		t.Fatalf("JWTSource.FetchJWTSVID() = %+v, %v", token, err)
	}
	if all, err := tokens.FetchJWTSVIDs(ctx, jwtsvid.Params{Audience: "a"}); err != nil || len(all) != 2 || all[0].ID != alice || all[0].Hint != "internal" {
		t.Errorf("JWTSource.FetchJWTSVIDs() = %+v, %v", all, err)
	}
	if _, err := jwtsvid.ParseAndValidate(token.Marshal(), tokens, []string{"b"}); err != nil {
		t.Errorf("the token does not validate with the source: %v", err)
	}
	for _, td := range []spiffeid.TrustDomain{domain, foreign} {
		x, err := byHint.GetX509BundleForTrustDomain(td)
		if err != nil || x.Empty() {
			t.Errorf("X509Source has no bundle of %s: %v", td, err)
		}
		j, err := tokens.GetJWTBundleForTrustDomain(td)
		if err != nil || j.Empty() {
			t.Errorf("JWTSource has no bundle of %s: %v", td, err)
		}
		both, err := bundles.GetBundleForTrustDomain(td)
		if err != nil || !both.X509Bundle().Equal(x) || !both.JWTBundle().Equal(j) {
			t.Errorf("BundleSource has others of %s: %v", td, err)
		}
	}

	// Updates: a renewed CA, another identity of the same hint, and the end of a
	// federation.
	if err := server.RotateCA(); err != nil {
		t.Fatal(err)
	}
	dave := spiffeid.RequireFromPath(domain, "/dave")
	if err := server.SetEntries([]devworkload.Entry{{ID: dave, Hint: "external"}}); err != nil {
		t.Fatal(err)
	}
	if err := server.SetFederated(); err != nil {
		t.Fatal(err)
	}
	for {
		svid, err := byHint.GetX509SVID()
		_, bundleErr := byHint.GetX509BundleForTrustDomain(foreign)
		if err == nil && svid.ID == dave && bundleErr != nil {
			break
		}
		if err := byHint.WaitUntilUpdated(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for {
		own, err := tokens.GetJWTBundleForTrustDomain(domain)
		_, gone := tokens.GetJWTBundleForTrustDomain(foreign)
		if err == nil && len(own.JWTAuthorities()) == 2 && gone != nil {
			break
		}
		if err := tokens.WaitUntilUpdated(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
