package check

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/reasons"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

const principalID = "spiffe://hub.example/argomesh/principal"

// answer serves TLS as cfg says, and returns where. What comes after the handshake ends the connection.
func answer(t *testing.T, cfg *tls.Config) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).HandshakeContext(context.Background()) // its error is the client's to tell
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// svid is a certificate of the principal, that a server shows who also wants one of its client.
func svid(t *testing.T, version uint16, protocols ...string) *tls.Config {
	t.Helper()
	root := certkit.NewRoot(t, spiffeid.RequireTrustDomainFromString("hub.example"), elliptic.P256())
	leaf := root.SVID(t, spiffeid.RequireFromString(principalID))
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Certificates[0].Raw}, PrivateKey: leaf.PrivateKey}}, ClientAuth: tls.RequireAnyClientCert, NextProtos: protocols,
		MinVersion: version, MaxVersion: version,
	}
}

// web is a server with a certificate of the Web PKI, as a load balancer has one.
func web(t *testing.T, http2 bool) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// closed is an address at which nothing listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// paths are ways to a principal on which something is wrong, by what is found.
var paths = map[string]struct {
	to   func(*testing.T) Principal
	says string
}{
	"PrincipalUnreachable": {func(t *testing.T) Principal {
		t.Helper()
		return Principal{Address: closed(t)}
	}, "connection refused"},
	"NoTLS": {func(t *testing.T) Principal {
		t.Helper()
		s := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		return Principal{Address: s.Listener.Addr().String()}
	}, "does not answer by TLS"},
	"TLSEnded": {func(t *testing.T) Principal {
		t.Helper()
		return Principal{Address: web(t, true), ID: principalID}
	}, "shows a certificate of example.com, signed by O=Acme Co"},
	"NoGRPC": {func(t *testing.T) Principal {
		t.Helper()
		return Principal{Address: web(t, false), Gateway: true}
	}, "does not speak HTTP/2"},
	"OtherPrincipal": {func(t *testing.T) Principal {
		t.Helper()
		return Principal{Address: answer(t, svid(t, tls.VersionTLS13, "h2")), ID: "spiffe://other.example/argomesh/principal"}
	}, "is " + principalID + ", and not spiffe://other.example/argomesh/principal"},
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for word, path := range paths {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			all := fromHere(t.Context(), path.to(t))
			if got := words(all); !slices.Equal(got, []string{word}) {
				t.Fatalf("found are %+v", all)
			}
			if f := all[0]; f.Level != Problem || f.Cure == "" || f.Side != Spoke || !strings.Contains(f.Says, path.says) ||
				!strings.HasPrefix(f.See, "see "+reasons.Page+"#") {
				t.Errorf("it says %+v", f)
			}
		})
	}
	// A principal wants our certificate, which we do not show; what it is it says before.
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(fmt.Sprint("all is well with ", tls.VersionName(version)), func(t *testing.T) {
			t.Parallel()
			for _, to := range []Principal{
				{Address: answer(t, svid(t, version, "h2")), ID: principalID}, {Address: answer(t, svid(t, version, "h2"))},
				{Address: web(t, true), Gateway: true},
			} {
				all := fromHere(t.Context(), to)
				if len(all) != 1 || all[0].Level != Fine {
					t.Errorf("of %+v it finds %+v", to, all)
				}
			}
		})
	}
	// One that accepts and says nothing.
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if conn, err := l.Accept(); err == nil {
				cancel()
				_ = conn.Close()
			}
		}()
		if all := fromHere(ctx, Principal{Address: l.Addr().String()}); all[0].Level != Problem || all[0].Cure == "" {
			t.Errorf("it finds %+v", all)
		}
	})
}
