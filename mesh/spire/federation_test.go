package spire_test

import (
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

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
		"another's bundle":      {func(f *spire.Federation) { f.Bundle = spiretest.NewBundle(t, other) }, "that of other.test"},
		"a bundle without keys": {func(f *spire.Federation) { f.Bundle = spiffebundle.New(partner) }, "no X.509 key"},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			f := spiretest.Federation(t, partner)
			tt.change(&f)
			if err := f.Check(); !errors.Is(err, spire.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check() = %v, want %q", err, tt.want)
			}
			if _, err := f.Object(); !errors.Is(err, spire.ErrInvalid) {
				t.Errorf("Object() = %v", err)
			}
		})
	}
	f := spiretest.Federation(t, partner)
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
	whole := spiretest.NewBundle(t, partner)
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
		"what SPIRE serves":           {text: string(text), x509: 1, jwt: 1},
		"all keys revoked":            {text: `{"keys":[]}`},
		"a key for something else":    {text: keys(root, strings.Replace(root, "x509-svid", "wit-svid", 1), strings.Replace(root, `"use":"x509-svid",`, "", 1)), x509: 1},
		"use in capitals":             {text: keys(strings.Replace(root, "x509-svid", "X509-SVID", 1))},
		"a key type of the future":    {text: keys(strings.Replace(root, `"EC"`, `"AKP"`, 1), strings.Replace(jwt, `"EC"`, `"AKP"`, 1), root), x509: 1},
		"x5c is missing":              {text: keys(`{"kty":"EC","use":"x509-svid"}`)},
		"only the first x5c counts":   {text: keys(strings.Replace(root, `"]`, `","rubbish"]`, 1)), x509: 1},
		"jwt key":                     {text: keys(jwt), jwt: 1},
		"numbers of 64 bits":          {text: `{"keys":[],"spiffe_sequence":18446744073709551615,"spiffe_refresh_hint":300}`},
		"jwt key without kid":         {text: keys(strings.Replace(jwt, `"kid":"k",`, "", 1)), wantErr: "needs a kid"},
		"jwt key twice":               {text: keys(jwt, jwt), wantErr: "twice"},
		"a private key":               {text: keys(private), wantErr: "not a public key"},
		"a key of an unknown curve":   {text: keys(strings.Replace(root, x5c, unknown, 1)), wantErr: "not of a kind that is known"},
		"an RSA key that is too long": {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 1500) + `","e":"AQAB"}`), wantErr: "more than 8192 bits"},
		"an RSA key of eight bits":    {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"_w","e":"AQAB"}`), wantErr: "not an RSA key: 8 bits"},
		"an RSA key to the power 0":   {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 342) + `","e":"AB"}`), wantErr: "the exponent 0"},
		"an RSA key":                  {text: keys(`{"kty":"RSA","use":"jwt-svid","kid":"a","n":"` + strings.Repeat("_", 342) + `","e":"AQAB"}`), jwt: 1},
		"a certificate of rubbish":    {text: keys(strings.Replace(root, x5c, "AAAA", 1)), wantErr: "key 0"},
		"no keys":                     {text: `{"spiffe_sequence":1}`, wantErr: `no member "keys"`},
		"null":                        {text: `null`, wantErr: `no member "keys"`},
		"nothing":                     {text: ``, wantErr: "not a SPIFFE bundle document"},
		"PEM":                         {text: "-----BEGIN CERTIFICATE-----\n", wantErr: "spire-server bundle show -format spiffe"},
		"two documents":               {text: `{"keys":[]}{"keys":[]}`, wantErr: "more follows"},
		"too long":                    {text: `{"keys":[]` + strings.Repeat(" ", spire.MaxBundleBytes) + `}`, wantErr: "at most 1048576"},
		"too many keys":               {text: keys(strings.Split(strings.Repeat("{} ", 1001), " ")[:1001]...), wantErr: "more than 1000 elements"},
		"a negative refresh hint":     {text: `{"keys":[],"spiffe_refresh_hint":-1}`, wantErr: "refresh_hint"},
		"a refresh hint of an aeon":   {text: `{"keys":[],"spiffe_refresh_hint":9223372036854775807}`, wantErr: "refresh_hint"},
		"a negative sequence number":  {text: `{"keys":[],"spiffe_sequence":-1}`, wantErr: "document"},
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
	b := spiretest.NewBundle(t, own)
	renumbered := b.Clone()
	renumbered.SetSequenceNumber(1000)
	if !spire.SameKeys(b, renumbered) || !spire.SameKeys(nil, spiffebundle.New(own)) || !spire.SameKeys(nil, nil) {
		t.Error("the same keys are held to be others")
	}
	if spire.SameKeys(b, spiretest.NewBundle(t, own)) || spire.SameKeys(b, nil) || spire.SameKeys(spiffebundle.New(own), b) {
		t.Error("other keys are held to be the same")
	}
}
