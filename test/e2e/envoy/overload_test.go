//go:build linux

package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// An Envoy without memory to spare takes no more requests and ends none; it takes
// them again when there is memory.
func TestEnvoyWithoutMemory(t *testing.T) {
	t.Parallel()
	f := newFront(t, func(f *front, _ *mesh.Snapshot) { f.bootstrap = []string{"--memory", "64Mi"} })
	watch := f.open(t, "/agents/a/watch", "")
	f.change(t, func(p *mesh.ResourceProxy) {
		for i := range 12_000 { // they take more than that
			p.Agents[kit.Agent(t, fmt.Sprint("edge-", i))] = mesh.Agent{}
		}
	})
	env.Eventually(t, "nothing more is taken", func() error {
		status, _, err := f.tryGet(t.Context(), "/agents/a/version", f.signer.token(t, "a"))
		var limit net.Error
		switch {
		case errors.As(err, &limit) && limit.Timeout():
			return harness.Permanent(fmt.Errorf("the caller is kept waiting: %w", err))
		case err == nil && status != http.StatusServiceUnavailable:
			return fmt.Errorf("answer is %d", status)
		}
		return nil
	})
	watch.check(t, "the memory is used up")
	f.ready(t)
	f.change(t, func(p *mesh.ResourceProxy) { p.Agents = map[identity.AgentName]mesh.Agent{kit.Agent(t, "a"): {}} })
	f.becomes(t, "a", http.StatusOK)
	watch.check(t, "there is memory again")
}

// The limit over all listeners holds, and what kubelet asks is answered all the same.
func TestEnvoyConnectionsInAll(t *testing.T) {
	t.Parallel()
	const connections = 3
	f := newFront(t, func(f *front, _ *mesh.Snapshot) { f.bootstrap = []string{"--max-connections", fmt.Sprint(connections)} })
	var live []*liveStream
	for range connections {
		live = append(live, f.open(t, "/agents/a/watch", ""))
	}
	if status, _, err := f.tryGet(t.Context(), "/agents/a/version", f.signer.token(t, "a")); err == nil {
		t.Errorf("connection %d is served: %d", connections+1, status)
	}
	f.ready(t)
	for _, s := range live {
		s.check(t, "the limit")
	}
}

// ready asks as kubelet does, and wants a good answer.
func (f *front) ready(t *testing.T) {
	t.Helper()
	env.Eventually(t, "Envoy says that it is ready", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.envoy.StatsAddress+"/ready", http.NoBody)
		if err != nil {
			return harness.Permanent(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		if err := res.Body.Close(); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("it is %s", res.Status)
		}
		return nil
	})
}

// An agent that another replica of the principal holds is reached there, over mutual
// TLS, and only if that replica is who it must be.
func TestEnvoyReachesReplicas(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	self := spiffeid.RequireFromString(env.PrincipalID)
	start := func(id string) (mesh.Address, *upstream) {
		t.Helper()
		address, err := f.h.Address()
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{f.leaf(t, devworkload.Leaf{URIs: []string{id}})}}
		config.ClientAuth = tls.RequireAnyClientCert
		config.VerifyPeerCertificate = tlsconfig.VerifyPeerCertificate(f, tlsconfig.AuthorizeID(self))
		u := &upstream{}
		l, err := tls.Listen("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
		kit.Background(t, func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { _ = server.Close() })
			defer stop()
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		return meshAddress(t, address), u
	}
	good, held := start(env.PrincipalID)
	bad, never := start("spiffe://" + env.TrustDomain + "/somebody/else")
	f.change(t, func(p *mesh.ResourceProxy) {
		p.Agents[kit.Agent(t, "b")] = mesh.Agent{Replica: good}
		p.Agents[kit.Agent(t, "c")] = mesh.Agent{Replica: bad}
	})
	f.becomes(t, "c", http.StatusServiceUnavailable)
	f.becomes(t, "b", http.StatusOK)
	if held.requests.Load() == 0 {
		t.Error("the replica is not asked")
	}
	if n := never.requests.Load(); n != 0 {
		t.Errorf("somebody else gets %d requests", n)
	}
	f.change(t, func(p *mesh.ResourceProxy) { p.Agents[kit.Agent(t, "b")] = mesh.Agent{} })
	here := f.upstream.requests.Load()
	env.Eventually(t, "the agent is found here again", func() error {
		status, body, err := f.tryGet(t.Context(), "/agents/b/version", f.signer.token(t, "b"))
		if err != nil || status != http.StatusOK || f.upstream.requests.Load() == here {
			return fmt.Errorf("answer is %d %s: %w", status, body, err)
		}
		return nil
	})
}
