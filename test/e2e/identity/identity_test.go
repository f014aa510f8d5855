//go:build linux

package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

func TestForeignPeersAreRefused(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	since := map[string]string{}
	for _, agent := range []string{env.Managed, env.Autonomous} {
		env.Eventually(t, "the agents are connected", func() (err error) {
			since[agent], err = w.Since(ctx, agent)
			return err
		})
	}
	ours, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain), CADir: w.CADir})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString("foreign.test")})
	if err != nil {
		t.Fatal(err)
	}
	// The same trust domain by name, of an authority that is not its own.
	impostor, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain)})
	if err != nil {
		t.Fatal(err)
	}
	registered := spiffeid.RequireFromString(env.SPIFFEID(env.Managed))
	fresh := func(id string) devworkload.Leaf { return devworkload.Leaf{URIs: []string{id}} }
	mtls := func(s *devworkload.Server, leaf devworkload.Leaf) credentials.TransportCredentials {
		certificate, err := s.Sign(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
			InsecureSkipVerify: true, // this side does not care whom it attacks
		})
	}
	cases := map[string]struct {
		credentials credentials.TransportCredentials
		code        codes.Code
		logged      string
	}{
		"an id that nobody registered": {
			mtls(ours, fresh("spiffe://"+env.TrustDomain+"/argomesh/agent/edge-9")), codes.PermissionDenied, "/argomesh/agent/edge-9",
		},
		"the right path in another trust domain": {
			mtls(foreign, fresh("spiffe://foreign.test"+registered.Path())), codes.Unavailable, "no_bundle",
		},
		"the right id of another authority": {mtls(impostor, fresh(registered.String())), codes.Unavailable, "untrusted"},
		"an expired svid":                   {mtls(ours, devworkload.ExpiredLeaf(registered)), codes.Unavailable, "expired"},
		"no certificate": {
			credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}), codes.Unavailable, "no_certificate",
		},
		"plaintext": {insecure.NewCredentials(), codes.Unavailable, "plaintext"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := logSize(t, w.Principal.LogFile())
			err := hello(ctx, w.Principal.Address, c.credentials)
			if status.Code(err) != c.code {
				t.Errorf("hello() = %v, want code %s", err, c.code)
			}
			if text := status.Convert(err).Message(); strings.Contains(text, "spiffe://") {
				t.Errorf("the caller learns of identities: %s", text)
			}
			env.Eventually(t, "the principal's log says why", func() error { return logged(w.Principal.LogFile(), before, c.logged) })
		})
	}
	t.Run("garbage", func(t *testing.T) {
		before := logSize(t, w.Principal.LogFile())
		conn, err := net.DialTimeout("tcp", w.Principal.Address, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte(strings.Repeat("\x00\xff garbage", 100))); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the principal's log says why", func() error { return logged(w.Principal.LogFile(), before, "garbage") })
	})
	for agent, was := range since {
		if now, err := w.Since(ctx, agent); err != nil || now != was {
			t.Errorf("agent %s was touched: connected since %q, before %q: %v", agent, now, was, err)
		}
	}
}

// hello does what an agent does first.
func hello(ctx context.Context, address string, creds credentials.TransportCredentials) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	frames, err := streampb.NewStreamClient(cc).Connect(ctx)
	if err != nil {
		return err
	}
	name, err := identity.ParseAgentName(env.Managed)
	if err != nil {
		return err
	}
	if err := frames.Send(stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: name, Mode: stream.Managed})); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = frames.Recv()
	return err
}

func logSize(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// logged is a check that the log has a warning with the text after offset.
func logged(file string, offset int64, text string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(content[offset:]), "\n") {
		if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, text) {
			return nil
		}
	}
	return fmt.Errorf("no warning with %q", text)
}
