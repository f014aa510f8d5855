package header_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/header"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

var (
	domain  = spiffeid.RequireTrustDomainFromString("hub.test")
	edge    = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-1")
	thief   = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-2")
	gateway = spiffeid.RequireFromString("spiffe://hub.test/ns/istio-ingress/sa/gateway")
	outer   = spiffeid.RequireFromString("spiffe://hub.test/ns/istio-ingress/sa/outer")
	proxy   = spiffeid.RequireFromString("spiffe://hub.test/ns/argocd/sa/principal")
)

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}

// call is the context of a handler, of a call from addr.
func call(addr net.Addr, info credentials.AuthInfo, pairs ...string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: addr, AuthInfo: info})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

// svidOf is an SVID that ca signs.
func svidOf(ca *spiffekit.Domain, id spiffeid.ID) *x509.Certificate {
	return ca.Certificate(devworkload.Leaf{URIs: []string{id.String()}})
}

// escaped is a certificate as Envoy writes it.
func escaped(certs ...*x509.Certificate) string {
	var b strings.Builder
	for _, c := range certs {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	return strings.NewReplacer("\n", "%0A", " ", "%20", "+", "%2B", "/", "%2F", "=", "%3D").Replace(b.String())
}

// element is what a proxy of Envoy's, or Istio's, writes of a client.
func element(by spiffeid.ID, cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return "By=" + by.String() + ";Hash=" + hex.EncodeToString(sum[:]) + `;Cert="` + escaped(cert) + `";Subject="";URI=` + cert.URIs[0].String()
}

// bare is an element without the certificate.
func bare(by, client spiffeid.ID) string {
	return "By=" + by.String() + `;Hash=01ab;Subject="";URI=` + client.String()
}

func TestPeer(t *testing.T) {
	ca := spiffekit.New(t, domain)
	svid, other := svidOf(ca, edge), svidOf(ca, thief)
	sum := sha256.Sum256(other.Raw)
	expired := ca.Certificate(devworkload.ExpiredLeaf(edge))
	two := ca.Certificate(devworkload.Leaf{URIs: []string{edge.String(), thief.String()}})
	trusting := header.Config{TrustedProxies: []spiffeid.ID{gateway, outer}}
	strict := header.Config{}
	for name, tt := range map[string]struct {
		cfg    header.Config
		values []string
		want   spiffeid.ID // zero: refused
		why    string      // what the refusal says
	}{
		"from the proxy, with the certificate": {strict, []string{element(proxy, svid)}, edge, ""},
		"of a certificate alone":               {strict, []string{`Cert="` + escaped(svid) + `";URI=` + edge.String()}, edge, ""},
		"the client's own claim before it":     {strict, []string{element(proxy, other) + "," + element(proxy, svid)}, edge, ""},
		"the claim in a header line of its own": {
			strict, []string{element(proxy, other), element(proxy, svid)}, edge, "",
		},
		"a claim that names the gateway":            {trusting, []string{element(gateway, other) + "," + element(proxy, svid)}, edge, ""},
		"behind a trusted gateway":                  {trusting, []string{element(gateway, svid) + "," + bare(proxy, gateway)}, edge, ""},
		"behind two trusted gateways":               {trusting, []string{element(outer, svid) + "," + bare(gateway, outer) + "," + bare(proxy, gateway)}, edge, ""},
		"a claim to a trusted gateway":              {trusting, []string{element(outer, other) + "," + element(gateway, svid) + "," + bare(proxy, gateway)}, edge, ""},
		"a claim to be a gateway's client":          {trusting, []string{element(outer, other) + "," + bare(gateway, outer) + "," + element(gateway, svid) + "," + bare(proxy, gateway)}, edge, ""},
		"a gateway that is not trusted is the peer": {strict, []string{element(gateway, svid) + "," + element(proxy, svidOf(ca, gateway))}, gateway, ""},
		"expired, but with a certificate max age says nothing": {
			header.Config{MaxAge: time.Hour}, []string{element(proxy, expired)}, spiffeid.ID{}, "valid from",
		},
		"without a certificate, with max age": {header.Config{MaxAge: time.Hour}, []string{bare(proxy, edge)}, edge, ""},

		"no header":                           {strict, nil, spiffeid.ID{}, "does not carry it"},
		"an empty header":                     {strict, []string{""}, spiffeid.ID{}, "equals sign"},
		"without a certificate":               {strict, []string{bare(proxy, edge)}, spiffeid.ID{}, "no Cert"},
		"a gateway and nobody behind it":      {trusting, []string{bare(proxy, gateway)}, spiffeid.ID{}, "none about who called"},
		"an expired certificate":              {strict, []string{element(proxy, expired)}, spiffeid.ID{}, "valid from"},
		"somebody else's certificate":         {strict, []string{`Cert="` + escaped(other) + `";URI=` + edge.String()}, spiffeid.ID{}, "is one of " + thief.String()},
		"somebody else's hash":                {strict, []string{"Hash=" + hex.EncodeToString(sum[:]) + `;Cert="` + escaped(svid) + `";URI=` + edge.String()}, spiffeid.ID{}, "Hash"},
		"two certificates":                    {strict, []string{`Cert="` + escaped(svid, svid) + `";URI=` + edge.String()}, spiffeid.ID{}, "more than one"},
		"no URI":                              {strict, []string{`Hash=01ab;Subject="CN=edge";URI=`}, spiffeid.ID{}, "0 URIs"},
		"two URIs":                            {strict, []string{`Cert="` + escaped(svid) + `";URI=` + edge.String() + ";URI=" + thief.String()}, spiffeid.ID{}, "2 URIs"},
		"a certificate of two":                {strict, []string{`Cert="` + escaped(two) + `";URI=` + edge.String()}, spiffeid.ID{}, "URI"},
		"a trusted gateway with a second URI": {trusting, []string{element(gateway, svid) + ",URI=" + gateway.String() + ";URI=" + thief.String()}, spiffeid.ID{}, "2 URIs"},
		"almost a trusted gateway": {
			trusting, []string{element(gateway, svid) + "," + bare(proxy, spiffeid.RequireFromString(gateway.String()+"-2"))}, spiffeid.ID{}, "no Cert",
		},
		"the gateway's path in another trust domain": {
			trusting, []string{element(gateway, svid) + "," + strings.ReplaceAll(bare(proxy, gateway), "hub.test", "spoke.test")}, spiffeid.ID{}, "no Cert",
		},
		"no SPIFFE ID":                {strict, []string{`URI=https://hub.test/edge`}, spiffeid.ID{}, "spiffe id"},
		"a trust domain":              {strict, []string{`URI=spiffe://hub.test`}, spiffeid.ID{}, "no path"},
		"SPIRE's own":                 {strict, []string{`URI=spiffe://hub.test/spire/agent/x`}, spiffeid.ID{}, "reserved"},
		"an encoded path":             {strict, []string{`URI=spiffe://hub.test/argomesh%2Fagent/edge-1`}, spiffeid.ID{}, "spiffe id"},
		"upper case":                  {header.Config{MaxAge: time.Hour}, []string{`URI=spiffe://HUB.test/argomesh/agent/edge-1`}, spiffeid.ID{}, "spiffe id"},
		"a certificate that is none":  {strict, []string{`Cert="%zz";URI=` + edge.String()}, spiffeid.ID{}, "percent"},
		"a certificate that is a key": {strict, []string{`Cert="-----BEGIN KEY-----%0AAAAA%0A-----END KEY-----%0A";URI=` + edge.String()}, spiffeid.ID{}, "PEM"},
		"a signing certificate":       {strict, []string{`Cert="` + escaped(ca.CA.Bundle().X509Authorities()[0]) + `";URI=` + edge.String()}, spiffeid.ID{}, "Cert"},
		"what swallows the proxy's":   {strict, []string{"URI=" + thief.String() + `;Subject="`, element(proxy, svid)}, spiffeid.ID{}, "quote"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := header.New(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			var pairs []string
			for _, value := range tt.values {
				pairs = append(pairs, header.Name, value)
			}
			got, err := h.Peer(call(loopback, nil, pairs...))
			if tt.want.IsZero() {
				if !errors.Is(err, identity.ErrUnauthenticated) || !strings.Contains(err.Error(), tt.why) || got != (identity.Peer{}) {
					t.Errorf("Peer() = %v, %v, want an error that says %q", got, err, tt.why)
				}
				return
			}
			if err != nil || got.ID != tt.want || got.Method != identity.MethodHeader || !got.NotAfter.After(time.Now()) {
				t.Errorf("Peer() = %v, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestPeerLastsAsLongAsItsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := header.New(header.Config{MaxAge: 20 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		svid := spiffekit.New(t, domain).Certificate(devworkload.Leaf{URIs: []string{edge.String()}, NotAfter: time.Now().Add(time.Hour)})
		p, err := h.Peer(call(loopback, nil, header.Name, element(proxy, svid)))
		if err != nil || !p.NotAfter.Equal(svid.NotAfter) {
			t.Errorf("Peer() = %v, %v, want the certificate's %s", p, err, svid.NotAfter)
		}
		p, err = h.Peer(call(loopback, nil, header.Name, bare(proxy, edge)))
		if err != nil || !p.NotAfter.Equal(time.Now().Add(20*time.Minute)) {
			t.Errorf("Peer() = %v, %v, want 20 minutes from now", p, err)
		}
		time.Sleep(time.Hour + time.Second) //nolint:forbidigo // the clock of the bubble
		if p, err := h.Peer(call(loopback, nil, header.Name, element(proxy, svid))); err == nil {
			t.Errorf("Peer() = %v of an expired certificate", p)
		}
	})
}

func TestOnlyFromThisMachineAndByThisMethodAlone(t *testing.T) {
	ca := spiffekit.New(t, domain)
	svid := svidOf(ca, edge)
	h, err := header.New(header.Config{})
	if err != nil {
		t.Fatal(err)
	}
	value := element(proxy, svid)
	certified := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{svid}}}
	for name, tt := range map[string]struct {
		ctx context.Context
		ok  bool
	}{
		"loopback":             {call(loopback, nil, header.Name, value), true},
		"loopback of IPv6":     {call(&net.TCPAddr{IP: net.IPv6loopback}, nil, header.Name, value), true},
		"a unix socket":        {call(&net.UnixAddr{Net: "unix"}, nil, header.Name, value), true},
		"another machine":      {call(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, nil, header.Name, value), false},
		"every address":        {call(&net.TCPAddr{IP: net.IPv4zero}, nil, header.Name, value), false},
		"another network":      {call(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil, header.Name, value), false},
		"nowhere":              {metadata.NewIncomingContext(context.Background(), metadata.Pairs(header.Name, value)), false},
		"with a token":         {call(loopback, nil, header.Name, value, "authorization", "Bearer x"), false},
		"with a certificate":   {call(loopback, certified, header.Name, value), false},
		"with nothing besides": {call(loopback, nil), false},
	} {
		if p, err := h.Peer(tt.ctx); (err == nil) != tt.ok || err != nil && !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("%s: Peer() = %v, %v", name, p, err)
		}
	}
}

func TestNew(t *testing.T) {
	for name, cfg := range map[string]header.Config{
		"a trust domain as a proxy": {TrustedProxies: []spiffeid.ID{domain.ID()}},
		"nobody as a proxy":         {TrustedProxies: []spiffeid.ID{{}}},
		"a negative age":            {MaxAge: -time.Second},
	} {
		if _, err := header.New(cfg); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("%s: New() = %v", name, err)
		}
	}
}
