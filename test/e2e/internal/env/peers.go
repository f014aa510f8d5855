//go:build linux

package env

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// HandshakePatience bounds what a proxy of a test waits for.
const HandshakePatience = 10 * time.Second

// HelloBy does what an agent does first, with metadata.
func HelloBy(ctx context.Context, target string, creds credentials.TransportCredentials, name string, pairs ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*HandshakePatience)
	defer cancel()
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	frames, err := streampb.NewStreamClient(cc).Connect(metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...)))
	if err != nil {
		return err
	}
	agent, err := identity.ParseAgentName(name)
	if err != nil {
		return err
	}
	if err := frames.Send(stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: agent, Mode: stream.Managed})); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = frames.Recv()
	return err
}

// GatewayName is the host name of a load balancer.
const GatewayName = "gateway.argomesh.test"

// SignLeaf signs a certificate.
func SignLeaf(t *testing.T, ca *devworkload.Server, leaf devworkload.Leaf) tls.Certificate {
	t.Helper()
	cert, err := ca.Sign(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// LeafOf is an SVID of a SPIFFE ID.
func LeafOf(id string) devworkload.Leaf { return devworkload.Leaf{URIs: []string{id}} }

// TokenOf returns a JWT-SVID of an identity of the authority in cfg.
func TokenOf(t *testing.T, cfg devworkload.Config, id string, audience ...string) string {
	t.Helper()
	cfg.Entries = []devworkload.Entry{{ID: spiffeid.RequireFromString(id)}}
	api, err := devworkload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tk") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	stop := kit.Background(t, func(ctx context.Context) error { return api.Run(ctx, l) })
	defer stop()
	token, err := workloadapi.FetchJWTSVID(t.Context(), jwtsvid.Params{Audience: audience[0], ExtraAudiences: audience[1:]}, workloadapi.WithAddr("unix://"+socket))
	if err != nil {
		t.Fatal(err)
	}
	return token.Marshal()
}

// StartTerminator starts a load balancer that terminates TLS under GatewayName and passes
// the bytes on.
func StartTerminator(t *testing.T, cert tls.Certificate, target string) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { relay(ctx, conn, target) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

// relay joins conn with a connection to target until one of them ends.
func relay(ctx context.Context, conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	var d net.Dialer
	behind, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = behind.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = behind.Close()
	})
	defer stop()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{conn: behind, behind: conn} {
		both.Go(func() {
			_, _ = io.Copy(to, from) // its end is that of the connection
			_ = to.Close()
		})
	}
	both.Wait()
}

// Forwarded is the header in which a proxy names the client whose TLS it ended.
const Forwarded = "x-forwarded-client-cert"
