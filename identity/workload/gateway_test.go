package workload_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit"
)

// gateway accepts TLS connections and tells whose certificate each client showed,
// nil for none.
func gateway(t *testing.T, cert tls.Certificate) (address string, clients <-chan *x509.Certificate) {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	seen := make(chan *x509.Certificate, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"}})
			if err := conn.HandshakeContext(kit.Context(t)); err == nil {
				var leaf *x509.Certificate
				if certs := conn.ConnectionState().PeerCertificates; len(certs) > 0 {
					leaf = certs[0]
				}
				seen <- leaf
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String(), seen
}

func TestGatewayCredentials(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(edge)}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	id := spiffeid.RequireFromPath(domain, "/gateway")
	sign := func(leaf devworkload.Leaf) tls.Certificate {
		cert, err := a.Sign(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	roots := func() (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		for _, root := range a.Bundle().X509Authorities() {
			pool.AddCert(root)
		}
		return pool, nil
	}
	svid := sign(devworkload.Leaf{URIs: []string{id.String()}})
	named := sign(devworkload.NoURILeaf("gateway.test"))
	byID := workload.Gateway{Authorize: identity.AllowIDs(id)}
	byName := workload.Gateway{ServerName: "gateway.test", Roots: roots}
	shows := func(g workload.Gateway) workload.Gateway { g.Present = true; return g }
	for name, tt := range map[string]struct {
		gateway workload.Gateway
		cert    tls.Certificate
		why     string // empty: accepted
		shown   bool   // our SVID
	}{
		"by spiffe id":                        {byID, svid, "", false},
		"by spiffe id, presenting":            {shows(byID), svid, "", true},
		"by name":                             {byName, named, "", false},
		"by name, presenting":                 {shows(byName), named, "", true},
		"another spiffe id":                   {byID, sign(devworkload.Leaf{URIs: []string{id.String() + "-2"}}), "not accepted", false},
		"no spiffe id":                        {byID, named, "URI", false},
		"an expired svid":                     {byID, sign(devworkload.ExpiredLeaf(id)), "expired", false},
		"another name":                        {byName, sign(devworkload.NoURILeaf("gateway.test.evil.test")), "not gateway.test", false},
		"an svid, no name":                    {byName, svid, "gateway.test", false},
		"a root that is not the system's own": {workload.Gateway{ServerName: "gateway.test"}, named, "unknown authority", false},
		"no roots to be had": {
			workload.Gateway{ServerName: "gateway.test", Roots: func() (*x509.CertPool, error) { return nil, errors.New("no such file") }},
			named, "no such file", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			creds, err := s.GatewayCredentials(tt.gateway)
			if err != nil {
				t.Fatal(err)
			}
			address, clients := gateway(t, tt.cert)
			raw, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conn, _, err := creds.ClientHandshake(kit.Context(t), "gateway.test:443", raw)
			if tt.why != "" {
				if err == nil || !strings.Contains(err.Error(), tt.why) {
					t.Fatalf("ClientHandshake() = %v, want an error that says %q", err, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			shown := <-clients
			if (shown != nil) != tt.shown || shown != nil && shown.URIs[0].String() != edge.String() {
				t.Errorf("the gateway saw %v", shown)
			}
		})
	}
	for name, g := range map[string]workload.Gateway{
		"nobody": {}, "two ways": {Authorize: identity.AllowIDs(id), ServerName: "gateway.test"},
	} {
		if creds, err := s.GatewayCredentials(g); err == nil {
			t.Errorf("%s: GatewayCredentials() = %v", name, creds.Info())
		}
	}
}
