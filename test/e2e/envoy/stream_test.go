//go:build linux

package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	streamService = "argomesh.stream.v1.Stream"
	tunnelService = "argomesh.stream.v1.Tunnel"
	xfcc          = "x-forwarded-client-cert"
)

// newStreamFront starts a front whose Envoy terminates the TLS of agents before a principal
// that echoes messages and tells the headers it sees.
func newStreamFront(t *testing.T, change ...func(*front)) *front {
	t.Helper()
	return newFront(t, func(f *front, s *mesh.Snapshot) {
		for _, c := range change {
			c(f)
		}
		var err error
		if f.stream, err = f.h.Address(); err != nil {
			t.Fatal(err)
		}
		socket := f.h.Path("stream.sock")
		s.Stream = &mesh.Stream{
			Listen: meshAddress(t, f.stream), Principal: meshAddress(t, "unix://"+socket),
			Services: []string{streamService, tunnelService}, CallRate: f.callRate,
		}
		l, err := devworkload.Listen(t.Context(), socket, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			headers, _ := metadata.FromIncomingContext(stream.Context())
			if err := stream.SendHeader(headers); err != nil {
				return err
			}
			for {
				message := &wrapperspb.StringValue{}
				if err := stream.RecvMsg(message); err != nil {
					return nil //nolint:nilerr // the caller has ended the stream
				}
				if err := stream.SendMsg(message); err != nil {
					return err
				}
			}
		}))
		kit.Background(t, func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, server.Stop)
			defer stop()
			return server.Serve(l)
		})
	})
}

// connect returns a connection to the stream listener with a certificate, or without
// one.
func (f *front) connect(t *testing.T, certificates ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	config := tlsconfig.TLSClientConfig(f, tlsconfig.AuthorizeID(spiffeid.RequireFromString(env.PrincipalID)))
	for i := range certificates {
		// Whether or not it is of an authority that Envoy says it takes.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificates[i], nil }
	}
	cc, err := grpc.NewClient(f.stream, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// call opens a stream of a service and returns what the principal saw.
func call(ctx context.Context, cc *grpc.ClientConn, service string) (grpc.ClientStream, metadata.MD, error) {
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := cc.NewStream(ctx, desc, "/"+service+"/Serve")
	if err != nil {
		return nil, nil, err
	}
	if err := exchange(stream, "hello"); err != nil {
		return nil, nil, err
	}
	seen, err := stream.Header()
	return stream, seen, err
}

// exchange sends a text and wants it back.
func exchange(stream grpc.ClientStream, text string) error {
	// io.EOF says that the stream has ended; why is in what is received.
	if err := stream.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	back := &wrapperspb.StringValue{}
	if err := stream.RecvMsg(back); err != nil {
		return err
	}
	if back.GetValue() != text {
		return fmt.Errorf("%q comes back as %q", text, back.GetValue())
	}
	return nil
}

func (f *front) leaf(t *testing.T, leaf devworkload.Leaf) tls.Certificate {
	t.Helper()
	certificate, err := f.identities.Sign(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// What an agent has proven is forwarded, what it says about itself is not, and its
// streams go on when certificates rotate.
func TestEnvoyForwardsTheCertificate(t *testing.T) {
	t.Parallel()
	f := newStreamFront(t, func(f *front) { f.life = shortLife })
	agent := env.SPIFFEID(env.Managed)
	cc := f.connect(t, f.leaf(t, devworkload.Leaf{URIs: []string{agent}}))
	ctx := metadata.AppendToOutgoingContext(t.Context(),
		xfcc, "By=x;URI=spiffe://"+env.TrustDomain+"/somebody/else", "x-forwarded-for", "9.9.9.9", "x-envoy-original-path", "/x")
	var streams []grpc.ClientStream
	for i := range 90 { // on one connection
		service := []string{streamService, tunnelService}[i%2]
		stream, seen, err := call(ctx, cc, service)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		streams = append(streams, stream)
		if i > 1 {
			continue
		}
		forwarded := strings.Join(seen.Get(xfcc), "|")
		fields := map[string]string{}
		for field := range strings.SplitSeq(forwarded, ";") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = strings.Trim(value, `"`)
		}
		if fields["URI"] != agent || strings.Contains(forwarded, "somebody") || strings.Contains(forwarded, ",") {
			t.Errorf("%s: %s is %s", service, xfcc, forwarded)
		}
		if pem, err := url.QueryUnescape(fields["Cert"]); err != nil || !strings.HasPrefix(pem, "-----BEGIN CERTIFICATE-----") {
			t.Errorf("%s: the certificate is not forwarded: %v: %s", service, err, fields["Cert"])
		}
		for name, values := range seen {
			if strings.HasPrefix(name, "x-envoy-") || strings.Contains(strings.Join(values, " "), "9.9.9.9") {
				t.Errorf("%s: %q gets through", name, values)
			}
		}
	}
	if err := f.identities.RotateCA(); err != nil {
		t.Fatal(err)
	}
	f.change(t, func(p *mesh.ResourceProxy) { delete(p.Agents, kit.Agent(t, "b")) })
	beyond := time.NewTimer(beyondDrain)
	defer beyond.Stop()
	<-beyond.C
	for i, stream := range streams {
		if err := exchange(stream, fmt.Sprint("again ", i)); err != nil {
			t.Fatalf("stream %d has not survived: %v", i, err)
		}
	}
}

// Who cannot prove a SPIFFE ID of a trust domain that is known does not reach the
// principal, and Envoy counts why; and no one reaches another service.
func TestEnvoyRefusesAgents(t *testing.T) {
	t.Parallel()
	f := newStreamFront(t)
	registered := spiffeid.RequireFromString(env.SPIFFEID(env.Managed))
	impostor, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain)})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := impostor.Sign(devworkload.Leaf{URIs: []string{registered.String()}})
	if err != nil {
		t.Fatal(err)
	}
	counts := func(t *testing.T, reason string, before float64) {
		t.Helper()
		env.Eventually(t, "Envoy counts it as "+reason, func() error {
			if now := f.stat(t, "listener.stream."+reason); now <= before {
				return fmt.Errorf("it is still %v", now)
			}
			return nil
		})
	}
	for name, tt := range map[string]struct {
		certificates []tls.Certificate
		reason       string // as docs/envoy.md has it
	}{
		"no certificate":         {nil, "ssl.fail_verify_no_cert"},
		"another authority":      {[]tls.Certificate{forged}, "ssl.fail_verify_error"},
		"expired":                {[]tls.Certificate{f.leaf(t, devworkload.ExpiredLeaf(registered))}, "ssl.fail_verify_error"},
		"no SPIFFE ID":           {[]tls.Certificate{f.leaf(t, devworkload.NoURILeaf("edge-1.test"))}, "ssl.fail_verify_error"},
		"a foreign trust domain": {[]tls.Certificate{f.leaf(t, devworkload.Leaf{URIs: []string{"spiffe://foreign.test/x"}})}, "ssl.fail_verify_error"},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.stat(t, "listener.stream."+tt.reason)
			ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
			defer cancel()
			if _, seen, err := call(ctx, f.connect(t, tt.certificates...), streamService); status.Code(err) != codes.Unavailable {
				t.Errorf("call() = %v, %v, want that no connection comes about", seen, err)
			}
			counts(t, tt.reason, before)
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		const reason = "ssl.connection_error"
		before := f.stat(t, "listener.stream."+reason)
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.stream)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // no one listens any more
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		counts(t, reason, before)
	})
	good := f.connect(t, f.leaf(t, devworkload.Leaf{URIs: []string{registered.String()}}))
	for _, service := range []string{"grpc.reflection.v1.ServerReflection", streamService + "x", "envoy.service.discovery.v3.AggregatedDiscoveryService"} {
		if _, _, err := call(t.Context(), good, service); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: call() = %v, want unimplemented", service, err)
		}
	}
}

// Calls beyond the rate of a connection are refused at once, and no other connection's with
// them.
func TestEnvoyRateOfCalls(t *testing.T) {
	t.Parallel()
	const rate = 5
	f := newStreamFront(t, func(f *front) { f.callRate = mesh.Rate{Count: rate, Per: time.Hour} })
	leaf := f.leaf(t, devworkload.Leaf{URIs: []string{env.SPIFFEID(env.Managed)}})
	cc := f.connect(t, leaf)
	for i := range rate {
		if _, _, err := call(t.Context(), cc, streamService); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
	if _, _, err := call(t.Context(), cc, streamService); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "local_rate_limited") {
		t.Errorf("call %d: %v, want Unavailable by the rate", rate+1, err)
	}
	if _, _, err := call(t.Context(), f.connect(t, leaf), streamService); err != nil {
		t.Errorf("a call on another connection: %v", err)
	}
}
