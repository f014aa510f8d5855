package spire_test

import (
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

func ignore[T any](diff.Change[T]) {}

// newBundle returns a bundle of td with a fresh root and JWT key.
func newBundle(t testing.TB, td spiffeid.TrustDomain) *spiffebundle.Bundle {
	t.Helper()
	root := certkit.NewRoot(t, td, elliptic.P256())
	b := spiffebundle.New(td)
	b.AddX509Authority(root.Certificate)
	if err := b.AddJWTAuthority("key-1", root.Key.Public()); err != nil {
		t.Fatal(err)
	}
	b.SetSequenceNumber(7)
	b.SetRefreshHint(5 * time.Minute)
	return b
}

func bundles(t testing.TB, tds ...spiffeid.TrustDomain) []*spiffebundle.Bundle {
	t.Helper()
	var out []*spiffebundle.Bundle
	for _, td := range tds {
		out = append(out, newBundle(t, td))
	}
	return out
}

func federation(t testing.TB, td spiffeid.TrustDomain) spire.Federation {
	t.Helper()
	return spire.Federation{
		TrustDomain: td, EndpointURL: "https://" + td.Name() + ":8443/", EndpointID: spire.ServerID(td), Bundle: newBundle(t, td),
	}
}

func federate(t testing.TB, client *spire.Client, overwrite bool, desired ...spire.Federation) (map[string]diff.Action, error) {
	t.Helper()
	observed, err := client.Federations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]diff.Action{}
	err = client.ApplyFederations(t.Context(), spire.PlanFederations(desired, observed, overwrite), func(c diff.Change[spire.Federation]) { done[c.Name] = c.Action })
	return done, err
}

func TestFederationComesAndGoes(t *testing.T) {
	server, client := start(t)
	want := federation(t, partner)
	done, err := federate(t, client, false, want)
	if diff := cmp.Diff(map[string]diff.Action{"federation/partner.test": diff.Create}, done); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	stored := server.Relationships()["partner.test"]
	if stored.GetBundleEndpointUrl() != "https://partner.test:8443/" || stored.GetHttpsSpiffe().GetEndpointSpiffeId() != "spiffe://partner.test/spire/server" {
		t.Errorf("stored: %v", stored)
	}
	b, err := client.FederatedBundle(t.Context(), partner)
	if err != nil || !b.Equal(want.Bundle) {
		t.Errorf("FederatedBundle() = %v, %v", b, err)
	}
	if done, err := federate(t, client, false, want); err != nil || len(done) != 0 {
		t.Errorf("again: %v, %v", done, err)
	}

	other := want
	other.EndpointURL, other.EndpointID = "https://new.partner.test/", spiffeid.ID{}
	if done, err := federate(t, client, false, other); !errors.Is(err, spire.ErrRefused) || len(done) != 0 {
		t.Errorf("otherwise: %v, %v", done, err)
	}
	if done, err := federate(t, client, true, other); err != nil || len(done) != 1 {
		t.Errorf("otherwise, insisting: %v, %v", done, err)
	}
	stored = server.Relationships()["partner.test"]
	if stored.GetBundleEndpointUrl() != "https://new.partner.test/" || stored.GetHttpsWeb() == nil {
		t.Errorf("stored: %v", stored)
	}
	if err := client.RefreshBundle(t.Context(), partner); err != nil {
		t.Error(err)
	}

	if err := client.DeleteFederation(t.Context(), partner); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteFederation(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if err := client.RefreshBundle(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Error(err)
	}
	if _, err := client.FederatedBundle(t.Context(), partner); err != nil {
		t.Errorf("the bundle stays, but: %v", err)
	}
	// Entries of anyone who hold it back.
	r := entriesOf(t, registration(func(r *spire.Registration) { r.FederatesWith = []spiffeid.TrustDomain{partner} }))
	if _, err := reconcile(t, client, edge, r); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); !errors.Is(err, spire.ErrInUse) {
		t.Errorf("DeleteBundle() = %v", err)
	}
	if _, err := reconcile(t, client, edge, nil); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); err != nil {
		t.Error(err)
	}
	if err := client.DeleteBundle(t.Context(), partner); !errors.Is(err, spire.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

// A partner with whom something is wrong holds up no other.
func TestPartnersAreApart(t *testing.T) {
	server, client := start(t)
	bad := federation(t, own) // the server's own
	done, err := federate(t, client, false, bad, federation(t, partner), federation(t, other))
	if !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), "federation/own.test") {
		t.Errorf("error is %v", err)
	}
	if len(done) != 2 || len(server.Relationships()) != 2 {
		t.Errorf("done: %v", done)
	}
	var pushed []string
	err = client.ApplyBundles(t.Context(), spire.PlanBundles(bundles(t, own, partner, other), nil, false), func(c diff.Change[*spiffebundle.Bundle]) {
		pushed = append(pushed, c.Name)
	})
	if !errors.Is(err, spire.ErrInvalid) || len(pushed) != 2 {
		t.Errorf("pushed %v, %v", pushed, err)
	}
}

// Someone federates between our look and our call: the server then says Internal.
func TestFederationMeetsWhatIsThere(t *testing.T) {
	_, client := start(t)
	want := federation(t, partner)
	plan := spire.PlanFederations([]spire.Federation{want}, nil, false)
	if err := client.ApplyFederations(t.Context(), plan, ignore); err != nil {
		t.Fatal(err)
	}
	if err := client.ApplyFederations(t.Context(), plan, ignore); err != nil {
		t.Errorf("the same: %v", err)
	}
	want.EndpointURL = "https://elsewhere.test/"
	if err := client.ApplyFederations(t.Context(), spire.PlanFederations([]spire.Federation{want}, nil, false), ignore); !errors.Is(err, spire.ErrExists) {
		t.Errorf("otherwise: %v", err)
	}
}

func TestBundleUpdatesArePushed(t *testing.T) {
	_, client := start(t)
	push := func(b *spiffebundle.Bundle, overwrite bool) (diff.Action, error) {
		t.Helper()
		observed, err := client.FederatedBundles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plan := spire.PlanBundles([]*spiffebundle.Bundle{b}, observed, overwrite)
		return plan[0].Action, client.ApplyBundles(t.Context(), plan, ignore)
	}
	first, second := newBundle(t, partner), newBundle(t, partner)
	second.SetSequenceNumber(8)
	for _, step := range []struct {
		what      string
		bundle    *spiffebundle.Bundle
		overwrite bool
		want      diff.Action
		err       error
	}{
		{"first", first, false, diff.Create, nil},
		{"again", first, false, diff.Keep, nil},
		{"the next", second, false, diff.Update, nil},
		{"an older one", first, false, diff.Refuse, spire.ErrRefused},
		{"an older one, insisting", first, true, diff.Update, nil},
	} {
		if action, err := push(step.bundle, step.overwrite); action != step.want || !errors.Is(err, step.err) {
			t.Errorf("%s: %s, %v", step.what, action, err)
		}
	}
	if b, err := client.FederatedBundle(t.Context(), partner); err != nil || !b.Equal(first) {
		t.Errorf("FederatedBundle() = %v, %v", b, err)
	}
	// More than a page.
	if err := client.ApplyBundles(t.Context(), spire.PlanBundles(bundles(t, other, spiffeid.RequireTrustDomainFromString("third.test")), nil, false), ignore); err != nil {
		t.Fatal(err)
	}
	if all, err := client.FederatedBundles(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("FederatedBundles() = %d, %v", len(all), err)
	}
}

func TestFederationsThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*spire.Federation)
		want   string
	}{
		"no trust domain":       {func(f *spire.Federation) { f.TrustDomain = spiffeid.TrustDomain{} }, "without trust domain"},
		"plain http":            {func(f *spire.Federation) { f.EndpointURL = "http://a/" }, "scheme https"},
		"no host":               {func(f *spire.Federation) { f.EndpointURL = "https:///x" }, "no host"},
		"only a port":           {func(f *spire.Federation) { f.EndpointURL = "https://:8443/x" }, "no host"},
		"a user":                {func(f *spire.Federation) { f.EndpointURL = "https://me@a/" }, "has a user"},
		"no url":                {func(f *spire.Federation) { f.EndpointURL = "" }, "scheme https"},
		"no url at all":         {func(f *spire.Federation) { f.EndpointURL = "https://%zz" }, "is not a URL"},
		"endpoint without path": {func(f *spire.Federation) { f.EndpointID = partner.ID() }, "no path"},
		"another's bundle":      {func(f *spire.Federation) { f.Bundle = newBundle(t, other) }, "that of other.test"},
		"a bundle without keys": {func(f *spire.Federation) { f.Bundle = spiffebundle.New(partner) }, "no X.509 key"},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			f := federation(t, partner)
			tt.change(&f)
			if err := f.Check(); !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check() = %v, want %q", err, tt.want)
			}
			if _, err := f.Object(); !errors.Is(err, spire.ErrInvalid) {
				t.Errorf("Object() = %v", err)
			}
		})
	}
	f := federation(t, partner)
	if f.NeedsBundle() {
		t.Error("it needs the bundle that it has")
	}
	if f.Bundle = nil; !f.NeedsBundle() {
		t.Error("nobody could check the first answer")
	}
	f.EndpointID = spiffeid.ID{}
	if f.NeedsBundle() {
		t.Error("the Web PKI checks the first answer")
	}
}

func TestParseBundle(t *testing.T) {
	whole := newBundle(t, partner)
	text, err := spire.MarshalBundle(whole)
	if err != nil {
		t.Fatal(err)
	}
	x5c := strings.Split(strings.Split(string(text), `"x5c":["`)[1], `"`)[0]
	p224 := certkit.NewRoot(t, partner, elliptic.P224()).Certificate
	unknown := base64.StdEncoding.EncodeToString(p224.Raw)
	root := `{"kty":"EC","use":"x509-svid","x5c":["` + x5c + `"]}`
	jwt := `{"kty":"EC","use":"jwt-svid","kid":"k","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	private := strings.Replace(jwt, "}", `,"d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}`, 1)
	keys := func(list ...string) string { return `{"keys":[` + strings.Join(list, ",") + `]}` }
	tests := map[string]struct {
		text      string
		x509, jwt int
		wantErr   string
	}{
		"what SPIRE serves":          {text: string(text), x509: 1, jwt: 1},
		"all keys revoked":           {text: `{"keys":[]}`},
		"a key for something else":   {text: keys(root, strings.Replace(root, "x509-svid", "wit-svid", 1), strings.Replace(root, `"use":"x509-svid",`, "", 1)), x509: 1},
		"use in capitals":            {text: keys(strings.Replace(root, "x509-svid", "X509-SVID", 1))},
		"a key type of the future":   {text: keys(strings.Replace(root, `"EC"`, `"AKP"`, 1), strings.Replace(jwt, `"EC"`, `"AKP"`, 1), root), x509: 1},
		"x5c is missing":             {text: keys(`{"kty":"EC","use":"x509-svid"}`)},
		"only the first x5c counts":  {text: keys(strings.Replace(root, `"]`, `","rubbish"]`, 1)), x509: 1},
		"jwt key":                    {text: keys(jwt), jwt: 1},
		"numbers of 64 bits":         {text: `{"keys":[],"spiffe_sequence":18446744073709551615,"spiffe_refresh_hint":300}`},
		"jwt key without kid":        {text: keys(strings.Replace(jwt, `"kid":"k",`, "", 1)), wantErr: "needs a kid"},
		"jwt key twice":              {text: keys(jwt, jwt), wantErr: "twice"},
		"a private key":              {text: keys(private), wantErr: "not a public key"},
		"a key of an unknown curve":  {text: keys(strings.Replace(root, x5c, unknown, 1)), wantErr: "not of a kind that is known"},
		"an RSA key of eight bits":   {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"_w","e":"AQAB"}`), wantErr: "not an RSA key: 8 bits"},
		"an RSA key to the power 0":  {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 342) + `","e":"AB"}`), wantErr: "the exponent 0"},
		"an RSA key":                 {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 342) + `","e":"AQAB"}`), jwt: 1},
		"a certificate of rubbish":   {text: keys(strings.Replace(root, x5c, "AAAA", 1)), wantErr: "key 0"},
		"no keys":                    {text: `{"spiffe_sequence":1}`, wantErr: `no member "keys"`},
		"null":                       {text: `null`, wantErr: `no member "keys"`},
		"nothing":                    {text: ``, wantErr: "not a SPIFFE bundle document"},
		"PEM":                        {text: "-----BEGIN CERTIFICATE-----\n", wantErr: "spire-server bundle show -format spiffe"},
		"two documents":              {text: `{"keys":[]}{"keys":[]}`, wantErr: "more follows"},
		"too long":                   {text: `{"keys":[]` + strings.Repeat(" ", spire.MaxBundleBytes) + `}`, wantErr: "at most 1048576"},
		"too many keys":              {text: keys(strings.Split(strings.Repeat("{} ", 1001), " ")[:1001]...), wantErr: "more than 1000 elements"},
		"a negative refresh hint":    {text: `{"keys":[],"spiffe_refresh_hint":-1}`, wantErr: "refresh_hint"},
		"a refresh hint of an aeon":  {text: `{"keys":[],"spiffe_refresh_hint":9223372036854775807}`, wantErr: "refresh_hint"},
		"a negative sequence number": {text: `{"keys":[],"spiffe_sequence":-1}`, wantErr: "document"},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			b, err := spire.ParseBundle(partner, []byte(tt.text))
			if tt.wantErr != "" {
				if !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("ParseBundle() = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if x, j := len(b.X509Authorities()), len(b.JWTAuthorities()); x != tt.x509 || j != tt.jwt {
				t.Errorf("%d X.509 and %d JWT keys, want %d and %d", x, j, tt.x509, tt.jwt)
			}
		})
	}
	if b, err := spire.ParseBundle(partner, text); err != nil || !b.Equal(whole) {
		t.Errorf("it comes back as %v, %v", b, err)
	}
	// The document does not say whose it is, but the root does.
	if _, err := spire.ParseBundle(other, text); !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), "that of partner.test") {
		t.Errorf("ParseBundle() for another trust domain = %v", err)
	}
}

func TestSameKeys(t *testing.T) {
	b := newBundle(t, own)
	renumbered := b.Clone()
	renumbered.SetSequenceNumber(1000)
	if !spire.SameKeys(b, renumbered) || !spire.SameKeys(nil, spiffebundle.New(own)) || !spire.SameKeys(nil, nil) {
		t.Error("the same keys are held to be others")
	}
	if spire.SameKeys(b, newBundle(t, own)) || spire.SameKeys(b, nil) || spire.SameKeys(spiffebundle.New(own), b) {
		t.Error("other keys are held to be the same")
	}
}
