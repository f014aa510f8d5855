package devworkload_test

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/kit"
)

var (
	domain  = spiffeid.RequireTrustDomainFromString("td.test")
	foreign = spiffeid.RequireTrustDomainFromString("foreign.test")
	alice   = spiffeid.RequireFromString("spiffe://td.test/alice")
	bob     = spiffeid.RequireFromString("spiffe://td.test/bob")
)

func newServer(t *testing.T, cfg devworkload.Config) *devworkload.Server {
	t.Helper()
	if cfg.TrustDomain.IsZero() {
		cfg.TrustDomain = domain
	}
	server, err := devworkload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// serve runs server until the test ends and returns its address.
func serve(t *testing.T, server *devworkload.Server) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := devworkload.Listen(context.Background(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
	return "unix://" + path
}

func newClient(t *testing.T, address string) *workloadapi.Client {
	t.Helper()
	client, err := workloadapi.New(kit.Context(t), workloadapi.WithAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// rawClient is one that sends only the metadata it is told to.
func rawClient(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// withHeader returns a context with the mandatory metadata.
func withHeader(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(kit.Context(t), "workload.spiffe.io", "true")
}

// updates collects what a watch of the X.509 context reports.
type updates struct {
	contexts chan *workloadapi.X509Context
	errors   chan error
}

func (u *updates) OnX509ContextUpdate(c *workloadapi.X509Context) { u.contexts <- c }
func (u *updates) OnX509ContextWatchError(err error) {
	select {
	case u.errors <- err:
	default: // only the first ones are looked at
	}
}

// watch follows the X.509 context until the test ends.
func watch(t *testing.T, address string) *updates {
	t.Helper()
	u := &updates{contexts: make(chan *workloadapi.X509Context, 100), errors: make(chan error, 100)}
	client, err := workloadapi.New(context.Background(), workloadapi.WithAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.WatchX509Context(ctx, u) // returns only when cancelled
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = client.Close()
	})
	return u
}

func (u *updates) next(t *testing.T) *workloadapi.X509Context {
	t.Helper()
	select {
	case c := <-u.contexts:
		return c
	case <-time.After(kit.Patience):
		t.Fatal("no update came")
		return nil
	}
}

func names(svids []*x509svid.SVID) []string {
	var out []string
	for _, s := range svids {
		out = append(out, s.ID.String()+" "+s.Hint)
	}
	return out
}

func TestX509SVIDs(t *testing.T) {
	address := serve(t, newServer(t, devworkload.Config{Entries: []devworkload.Entry{
		{ID: bob, Hint: "internal", TTL: 30 * time.Second, DNSNames: []string{"bob.test", "b.test"}},
		{ID: alice},
	}}))
	client := newClient(t, address)
	got, err := client.FetchX509Context(kit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{bob.String() + " internal", alice.String() + " "}, names(got.SVIDs)); diff != "" {
		t.Errorf("SVIDs (-want +got)\n%s", diff)
	}
	if got.Bundles.Len() != 1 {
		t.Errorf("got bundles of %d trust domains, want 1", got.Bundles.Len())
	}
	for _, svid := range got.SVIDs {
		if _, _, err := x509svid.Verify(svid.Certificates, got.Bundles); err != nil {
			t.Errorf("%s does not verify: %v", svid.ID, err)
		}
	}
	leaf := got.SVIDs[0].Certificates[0]
	if life := leaf.NotAfter.Sub(leaf.NotBefore); life < 40*time.Second || life > 42*time.Second {
		t.Errorf("a ttl of 30s gives a certificate of %s, want 10s more", life)
	}
	if left := time.Until(leaf.NotAfter); left > 31*time.Second {
		t.Errorf("a ttl of 30s leaves %s", left)
	}
	if diff := cmp.Diff([]string{"bob.test", "b.test"}, leaf.DNSNames); diff != "" || leaf.Subject.CommonName != "bob.test" {
		t.Errorf("common name %q, DNS names (-want +got)\n%s", leaf.Subject.CommonName, diff)
	}
	if leaf.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment|x509.KeyUsageKeyAgreement ||
		!slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) {
		t.Errorf("key usage %b %v is not that of SPIRE", leaf.KeyUsage, leaf.ExtKeyUsage)
	}
	root, err := got.Bundles.GetX509BundleForTrustDomain(domain)
	if err != nil {
		t.Fatal(err)
	}
	ca := root.X509Authorities()[0]
	if !ca.IsCA || ca.KeyUsage&x509.KeyUsageCertSign == 0 || len(ca.URIs) != 1 || ca.URIs[0].String() != "spiffe://td.test" {
		t.Errorf("root %v is no signing certificate of its trust domain", ca.URIs)
	}
}

func TestX509SVIDsAreRenewedInTime(t *testing.T) {
	server := newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}, X509TTL: 2 * time.Second})
	u := watch(t, serve(t, server))
	last := u.next(t).SVIDs[0].Certificates[0]
	for range 3 {
		next := u.next(t)
		leaf := next.SVIDs[0].Certificates[0]
		if leaf.Equal(last) {
			t.Fatal("an update brought the same certificate")
		}
		if now := time.Now(); now.After(last.NotAfter) {
			t.Errorf("the next certificate came %s after the last one was over", now.Sub(last.NotAfter))
		}
		if _, _, err := x509svid.Verify(next.SVIDs[0].Certificates, next.Bundles); err != nil {
			t.Errorf("renewed svid does not verify: %v", err)
		}
		last = leaf
	}
}

func TestEntriesChangeLive(t *testing.T) {
	server := newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}})
	address := serve(t, server)
	u := watch(t, address)
	before := u.next(t)

	if err := server.SetEntries([]devworkload.Entry{{ID: alice}, {ID: bob, Hint: "x"}}); err != nil {
		t.Fatal(err)
	}
	both := u.next(t)
	if diff := cmp.Diff([]string{alice.String() + " ", bob.String() + " x"}, names(both.SVIDs)); diff != "" {
		t.Errorf("after adding (-want +got)\n%s", diff)
	}
	if !both.SVIDs[0].Certificates[0].Equal(before.SVIDs[0].Certificates[0]) {
		t.Error("adding an entry renewed another one")
	}
	if err := server.SetEntries([]devworkload.Entry{{ID: bob, Hint: "y"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{bob.String() + " y"}, names(u.next(t).SVIDs)); diff != "" {
		t.Errorf("after removing one (-want +got)\n%s", diff)
	}

	if err := server.SetEntries([]devworkload.Entry{{ID: bob}, {ID: spiffeid.RequireFromPath(foreign, "/x")}}); err == nil {
		t.Error("a foreign entry was accepted")
	}

	// Removal of the last entry ends streams, whatever they carry.
	api := workload.NewSpiffeWorkloadAPIClient(rawClient(t, address))
	x509Bundles, err := api.FetchX509Bundles(withHeader(t), &workload.X509BundlesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x509Bundles.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := server.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	for name, receive := range map[string]func() error{
		"svids":   func() error { return <-u.errors },
		"bundles": func() error { _, err := x509Bundles.Recv(); return err },
		"jwt-svid": func() error {
			_, err := api.FetchJWTSVID(withHeader(t), &workload.JWTSVIDRequest{Audience: []string{"a"}})
			return err
		},
		"jwt bundles": func() error {
			stream, err := api.FetchJWTBundles(withHeader(t), &workload.JWTBundlesRequest{})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
		"validation": func() error {
			_, err := api.ValidateJWTSVID(withHeader(t), &workload.ValidateJWTSVIDRequest{Audience: "a", Svid: "x"})
			return err
		},
	} {
		err := receive()
		if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "no identity issued" {
			t.Errorf("%s without entries: %v, want PermissionDenied, no identity issued", name, err)
		}
	}

	if err := server.SetEntries([]devworkload.Entry{{ID: alice}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{alice.String() + " "}, names(u.next(t).SVIDs)); diff != "" {
		t.Errorf("after registering again (-want +got)\n%s", diff)
	}
}

func TestSecurityHeaderIsMandatory(t *testing.T) {
	address := serve(t, newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}}))
	api := workload.NewSpiffeWorkloadAPIClient(rawClient(t, address))
	calls := map[string]func(context.Context) error{
		"FetchX509SVID": func(ctx context.Context) error {
			return first(api.FetchX509SVID(ctx, &workload.X509SVIDRequest{}))
		},
		"FetchX509Bundles": func(ctx context.Context) error {
			return first(api.FetchX509Bundles(ctx, &workload.X509BundlesRequest{}))
		},
		"FetchJWTBundles": func(ctx context.Context) error {
			return first(api.FetchJWTBundles(ctx, &workload.JWTBundlesRequest{}))
		},
		"FetchJWTSVID": func(ctx context.Context) error {
			_, err := api.FetchJWTSVID(ctx, &workload.JWTSVIDRequest{Audience: []string{"a"}})
			return err
		},
		"ValidateJWTSVID": func(ctx context.Context) error {
			_, err := api.ValidateJWTSVID(ctx, &workload.ValidateJWTSVIDRequest{Audience: "a", Svid: "x"})
			return err
		},
	}
	headers := map[string][]string{
		"absent": nil,
		"false":  {"workload.spiffe.io", "false"},
		"twice":  {"workload.spiffe.io", "true", "workload.spiffe.io", "true"},
		"other":  {"workload", "true"},
	}
	for method, call := range calls {
		for name, header := range headers {
			err := call(metadata.AppendToOutgoingContext(kit.Context(t), header...))
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "security header missing") {
				t.Errorf("%s with header %s: %v, want InvalidArgument, security header missing", method, name, err)
			}
		}
	}
}

// first returns the error of opening a stream and of its first message.
func first[R any](stream grpc.ServerStreamingClient[R], err error) error {
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestOptionalProfileIsUnimplemented(t *testing.T) {
	address := serve(t, newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}}))
	api := workload.NewSpiffeWorkloadAPIClient(rawClient(t, address))
	err := first(api.FetchWITSVID(withHeader(t), &workload.WITSVIDRequest{}))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("FetchWITSVID() = %v, want Unimplemented", err)
	}
}

// TestRotationOverlaps follows one rotation of the authority as a client sees
// it: the new root first, then SVIDs it signed, then the old root gone, and no
// SVID is ever without its root.
func TestRotationOverlaps(t *testing.T) {
	server := newServer(t, devworkload.Config{
		Entries: []devworkload.Entry{{ID: alice}}, X509TTL: 6 * time.Second, Prepare: 3 * time.Second,
	})
	u := watch(t, serve(t, server))

	firstContext := u.next(t)
	oldRoots := roots(t, firstContext.Bundles)
	if len(oldRoots) != 1 {
		t.Fatalf("got %d roots before the rotation, want 1", len(oldRoots))
	}
	if err := server.RotateCA(); err != nil {
		t.Fatal(err)
	}
	var living []*x509.Certificate // leaves that are not over
	living = append(living, firstContext.SVIDs[0].Certificates[0])
	var story []string
	for {
		c := u.next(t)
		now := time.Now()
		leaf := c.SVIDs[0].Certificates[0]
		living = append(slices.DeleteFunc(living, func(l *x509.Certificate) bool { return now.After(l.NotAfter) }), leaf)
		for _, l := range living {
			if _, _, err := x509svid.Verify([]*x509.Certificate{l}, c.Bundles, x509svid.WithTime(now)); err != nil {
				t.Errorf("a living svid lost its root: %v", err)
			}
		}
		step := "leaf by the new root, "
		if leaf.CheckSignatureFrom(oldRoots[0]) == nil {
			step = "leaf by the old root, "
		}
		current := roots(t, c.Bundles)
		switch {
		case len(current) == 2 && current[0].Equal(oldRoots[0]):
			step += "both trusted"
		case len(current) == 1 && !current[0].Equal(oldRoots[0]):
			step += "old one gone"
		default:
			t.Fatalf("bundle holds %d roots", len(current))
		}
		if len(story) == 0 || story[len(story)-1] != step {
			story = append(story, step)
		}
		if strings.HasSuffix(step, "gone") {
			break
		}
	}
	want := []string{"leaf by the old root, both trusted", "leaf by the new root, both trusted", "leaf by the new root, old one gone"}
	if diff := cmp.Diff(want, story); diff != "" {
		t.Errorf("rotation (-want +got)\n%s", diff)
	}
}

func roots(t *testing.T, bundles *x509bundle.Set) []*x509.Certificate {
	t.Helper()
	b, err := bundles.GetX509BundleForTrustDomain(domain)
	if err != nil {
		t.Fatal(err)
	}
	return b.X509Authorities()
}

func TestSharedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var (
		wg      sync.WaitGroup
		servers [6]*devworkload.Server
		errs    [6]error
	)
	for i := range servers { // all at once: only one may make the authorities
		wg.Go(func() {
			servers[i], errs[i] = devworkload.New(devworkload.Config{
				TrustDomain: domain, CADir: dir, Prepare: time.Second, X509TTL: 4 * time.Second, Entries: []devworkload.Entry{{ID: alice}},
			})
		})
	}
	wg.Wait()
	for i := range servers {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if !servers[i].Bundle().Equal(servers[0].Bundle()) {
			t.Fatal("servers of one directory have different roots")
		}
	}
	u := watch(t, serve(t, servers[1]))
	before := roots(t, u.next(t).Bundles)
	if err := servers[0].RotateCA(); err != nil {
		t.Fatal(err)
	}
	for len(roots(t, u.next(t).Bundles)) != len(before)+1 {
		continue // an ordinary renewal
	}
	if !servers[1].Bundle().Equal(servers[0].Bundle()) {
		t.Error("the second server does not trust what the first one rotated to")
	}

	t.Run("keys are kept private", func(t *testing.T) {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %o", f.Name(), info.Mode().Perm())
			}
		}
		if len(files) != 2 {
			t.Errorf("the directory holds %d files, want the authorities and the lock", len(files))
		}
	})
	t.Run("another trust domain is refused", func(t *testing.T) {
		_, err := devworkload.New(devworkload.Config{TrustDomain: foreign, CADir: dir})
		if err == nil || !strings.Contains(err.Error(), "td.test, not foreign.test") {
			t.Errorf("New() = %v", err)
		}
	})
	t.Run("a broken file changes nothing for those who run", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "authorities.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		last := u.next(t).SVIDs[0] // at least one renewal after the damage
		if _, _, err := x509svid.Verify(u.next(t).SVIDs[0].Certificates, servers[1].Bundle().X509Bundle()); err != nil {
			t.Errorf("after %s: %v", last.ID, err)
		}
		if _, err := devworkload.New(devworkload.Config{TrustDomain: domain, CADir: dir}); err == nil {
			t.Error("New() took a broken file")
		}
		if err := servers[1].RotateCA(); err == nil {
			t.Error("RotateCA() took a broken file")
		}
	})
}

func TestFederation(t *testing.T) {
	own := newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}})
	carol := spiffeid.RequireFromPath(foreign, "/carol")
	other := newServer(t, devworkload.Config{TrustDomain: foreign, Entries: []devworkload.Entry{{ID: carol}}})
	if err := own.SetFederated(own.Bundle()); err == nil {
		t.Error("SetFederated() took the own trust domain")
	}
	u := watch(t, serve(t, own))
	if u.next(t).Bundles.Has(foreign) {
		t.Fatal("a foreign bundle before federation")
	}
	if err := own.SetFederated(other.Bundle()); err != nil {
		t.Fatal(err)
	}
	bundles := u.next(t).Bundles
	otherAddress := serve(t, other)
	svid, err := newClient(t, otherAddress).FetchX509SVID(kit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if id, _, err := x509svid.Verify(svid.Certificates, bundles); err != nil || id != carol {
		t.Errorf("foreign svid: %s, %v", id, err)
	}
	if err := own.SetFederated(); err != nil {
		t.Fatal(err)
	}
	if u.next(t).Bundles.Has(foreign) {
		t.Error("a withdrawn bundle stays")
	}
}

func TestJWTSVIDs(t *testing.T) {
	server := newServer(t, devworkload.Config{
		Entries: []devworkload.Entry{{ID: alice}, {ID: bob, Hint: "x"}}, JWTTTL: time.Minute,
	})
	carol := spiffeid.RequireFromPath(foreign, "/carol")
	other := newServer(t, devworkload.Config{TrustDomain: foreign, Entries: []devworkload.Entry{{ID: carol}}})
	if err := server.SetFederated(other.Bundle()); err != nil {
		t.Fatal(err)
	}
	address := serve(t, server)
	client := newClient(t, address)
	ctx := kit.Context(t)

	svids, err := client.FetchJWTSVIDs(ctx, jwtsvid.Params{Audience: "hub", ExtraAudiences: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(svids) != 2 || svids[0].ID != alice || svids[1].ID != bob || svids[1].Hint != "x" {
		t.Fatalf("FetchJWTSVIDs() = %+v", svids)
	}
	if left := time.Until(svids[0].Expiry); left > time.Minute || left < 50*time.Second {
		t.Errorf("a ttl of one minute leaves %s", left)
	}
	one, err := client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "hub", Subject: bob})
	if err != nil || one.ID != bob {
		t.Fatalf("FetchJWTSVID(bob) = %v, %v", one, err)
	}
	bundles, err := client.FetchJWTBundles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jwtsvid.ParseAndValidate(one.Marshal(), bundles, []string{"hub"}); err != nil {
		t.Errorf("token does not validate with the bundles: %v", err)
	}
	if svid, err := client.ValidateJWTSVID(ctx, one.Marshal(), "hub"); err != nil || svid.ID != bob {
		t.Errorf("ValidateJWTSVID() = %v, %v", svid, err)
	}
	foreignToken, err := newClient(t, serve(t, other)).FetchJWTSVID(ctx, jwtsvid.Params{Audience: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	if svid, err := client.ValidateJWTSVID(ctx, foreignToken.Marshal(), "hub"); err != nil || svid.ID != carol {
		t.Errorf("ValidateJWTSVID() of a federated token = %v, %v", svid, err)
	}
	if _, err := jwtsvid.ParseAndValidate(foreignToken.Marshal(), jwtbundle.NewSet(server.Bundle().JWTBundle()), []string{"hub"}); err == nil {
		t.Error("a foreign token validates with the own bundle alone")
	}

	for name, tc := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"no audience": {func() error { _, err := client.FetchJWTSVID(ctx, jwtsvid.Params{}); return err }, codes.InvalidArgument},
		"somebody else": {func() error {
			_, err := client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "hub", Subject: carol})
			return err
		}, codes.PermissionDenied},
		"a wrong audience":     {func() error { _, err := client.ValidateJWTSVID(ctx, one.Marshal(), "x"); return err }, codes.InvalidArgument},
		"a changed token":      {func() error { _, err := client.ValidateJWTSVID(ctx, one.Marshal()+"x", "hub"); return err }, codes.InvalidArgument},
		"no audience to check": {func() error { _, err := client.ValidateJWTSVID(ctx, one.Marshal(), ""); return err }, codes.InvalidArgument},
		"no token":             {func() error { _, err := client.ValidateJWTSVID(ctx, "", "hub"); return err }, codes.InvalidArgument},
	} {
		if err := tc.call(); status.Code(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}

	// A token of before the rotation is good as long as it lives.
	if err := server.RotateCA(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidateJWTSVID(ctx, one.Marshal(), "hub"); err != nil {
		t.Errorf("a rotation ends tokens that live: %v", err)
	}
}

func TestBadLeavesAreBad(t *testing.T) {
	server := newServer(t, devworkload.Config{})
	impostor := newServer(t, devworkload.Config{})
	for name, tc := range map[string]struct {
		signer *devworkload.Server
		leaf   devworkload.Leaf
		good   bool
	}{
		"a good one":             {server, devworkload.Leaf{URIs: []string{alice.String()}}, true},
		"expired":                {server, devworkload.ExpiredLeaf(alice), false},
		"not yet valid":          {server, devworkload.FutureLeaf(alice), false},
		"two ids":                {server, devworkload.TwoURILeaf(alice, bob), false},
		"a signing certificate":  {server, devworkload.CALeaf(alice), false},
		"a web certificate":      {server, devworkload.NoURILeaf("td.test"), false},
		"another trust domain":   {server, devworkload.Leaf{URIs: []string{"spiffe://foreign.test/alice"}}, false},
		"an impostor's own root": {impostor, devworkload.Leaf{URIs: []string{alice.String()}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cert, err := tc.signer.Sign(tc.leaf)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = x509svid.Verify([]*x509.Certificate{cert.Leaf}, server.Bundle().X509Bundle())
			if (err == nil) != tc.good {
				t.Errorf("Verify() = %v", err)
			}
		})
	}
}

func TestRunAgain(t *testing.T) {
	server := newServer(t, devworkload.Config{Entries: []devworkload.Entry{{ID: alice}}})
	path := filepath.Join(shortDir(t), "s")
	for range 2 {
		l, err := devworkload.Listen(context.Background(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		stop := kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
		stream, err := workload.NewSpiffeWorkloadAPIClient(rawClient(t, "unix://"+path)).
			FetchX509SVID(withHeader(t), &workload.X509SVIDRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		stop() // with a stream open
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v, want Unavailable", err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket is left behind")
		}
	}
}
