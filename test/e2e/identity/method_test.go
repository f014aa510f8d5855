//go:build linux

package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// flows checks that what the owner writes reaches the other side.
func flows(t *testing.T, r *env.BareAgent, name string) {
	t.Helper()
	from, to := r.Hub, r.Spoke
	if r.Mode == "autonomous" {
		from, to = r.Spoke, r.Hub
	}
	env.Create(t, from, r.Application(name))
	env.Eventually(t, name+" is on the other side", func() error {
		return env.FieldIs(t.Context(), to, name, "1", "spec", "source", "targetRevision")
	})
}

// isRevocable suspends the agent, which loses its connection within a second or so,
// is told why, and comes back when it is admitted again.
func isRevocable(t *testing.T, r *env.BareAgent) {
	t.Helper()
	ctx := t.Context()
	registry := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	suspend := func(yes bool) {
		t.Helper()
		env.Patch(t, registry, r.Name, map[string]any{"spec": map[string]any{"suspended": yes}})
	}
	up := func(want string) func() error {
		return func() error {
			got, err := env.Gauge(ctx, r.Agent.AdminAddress, "argomesh_stream_up")
			if err == nil && got != want {
				err = fmt.Errorf("argomesh_stream_up is %s", got)
			}
			return err
		}
	}
	suspend(true)
	began := time.Now()
	env.Eventually(t, "the connection of "+r.Name+" ends", up("0"))
	t.Logf("the connection ended %s after the agent was suspended", time.Since(began)) // the target is a second
	env.Eventually(t, "the agent knows why", func() error {
		for _, line := range env.LogLines(t, r.Agent.Process, 0) {
			if strings.Contains(fmt.Sprint(line["message"]), "ended by revocation") {
				return nil
			}
		}
		return errors.New("it does not say so")
	})
	suspend(false)
	env.Eventually(t, r.Name+" is connected again", up("1"))
}

// Behind a load balancer that terminates TLS, in both modes: tokens prove the agent again
// and again on one connection.
func TestMethodTokenBehindATLSEndingProxy(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	ca := authority(t, w, env.TrustDomain)
	roots := t.TempDir() + "/ca.pem"
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Bundle().X509Authorities()[0].Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	address := env.StartTerminator(t, env.SignLeaf(t, ca, devworkload.NoURILeaf(env.GatewayName)), w.ByToken)
	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := w.Register(t, "token-"+mode[:1], mode)
			r.StartBy(t, address, harness.Settings{
				"principal.method": identity.MethodJWT, "principal.gateway.server_name": env.GatewayName, "principal.gateway.ca_file": roots,
			}, "--jwt-ttl", "8s")
			flows(t, r, "before")
			env.Eventually(t, "the agent proves itself again", func() error {
				if n := r.Said(t, "identity proven again"); n < 3 {
					return fmt.Errorf("%d times", n)
				}
				return nil
			})
			flows(t, r, "after")
			if n := r.Said(t, "connected to the principal"); n != 1 {
				t.Errorf("the agent connected %d times, want one connection that is renewed", n)
			}
			isRevocable(t, r)
			flows(t, r, "again")
		})
	}
}

// Without a proxy, and with one beside the agent.
func TestMethodTokenWithoutAGateway(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	r := w.Register(t, "token-tls", "managed")
	r.StartBy(t, w.ByTokenTLS, harness.Settings{"principal.method": identity.MethodJWT})
	flows(t, r, "direct")
	beside := w.Register(t, "token-beside", "autonomous")
	beside.StartBy(t, w.ByToken, harness.Settings{"principal.method": identity.MethodJWT, "principal.gateway.plaintext": true})
	flows(t, beside, "beside")
}

// Behind a sidecar, and behind a gateway before a sidecar, under rotation: each proof
// is a new connection, without a gap.
func TestMethodHeader(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	sidecar := startSidecar(t, w, nil)
	gateway := startGateway(t, w, env.GatewayID, sidecar)
	for _, c := range []struct{ name, mode, address, ends string }{
		{"header-m", "managed", sidecar, sidecarID},
		{"header-a", "autonomous", gateway, env.GatewayID},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			r := w.Register(t, c.name, c.mode)
			r.StartBy(t, c.address, harness.Settings{
				"principal.method": identity.MethodHeader, "principal.gateway.spiffe_ids": []string{c.ends},
			}, "--x509-ttl", "16s")
			flows(t, r, "before")
			env.Eventually(t, "the agent proves itself on other connections", func() error {
				if n := r.Said(t, "connected to the principal"); n < 4 {
					return fmt.Errorf("%d connections", n)
				}
				return nil
			})
			if n := r.Said(t, "connection to the principal ended"); n > 0 {
				t.Errorf("the agent was without a connection %d times", n)
			}
			flows(t, r, "after")
			isRevocable(t, r)
		})
	}
}

// An agent that meets another principal than its own behind the right gateway says
// nothing but hello, although that principal would have it.
func TestMethodImpostorBehindTheGateway(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	r := w.Register(t, "misled", "managed")
	env.Create(t, r.Hub, r.Application("not-for-it"))
	api, err := w.Identify(t.Context(), env.SPIFFEID(r.Name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.Harness.StartAgent(t.Context(), harness.AgentConfig{
		Name: r.Name, Mode: r.Mode, ControlPlane: w.Spoke, WorkloadAPI: api, PrincipalAddress: startSidecar(t, w, nil),
		PrincipalIDs: []string{env.PrincipalID + "-2", "spiffe://" + env.ForeignDomain + "/argomesh/principal"},
		Settings: harness.Settings{
			"namespace": r.Namespace, "principal.method": identity.MethodHeader, "principal.gateway.spiffe_ids": []string{sidecarID},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	env.Eventually(t, "the agent says that it is not its principal", func() error {
		for _, line := range env.LogLines(t, agent.Process, 0) {
			if strings.Contains(fmt.Sprint(line["message"]), "did not prove that it is the principal") && strings.Contains(fmt.Sprint(line["error"]), "presented "+env.PrincipalID) {
				return nil
			}
		}
		return errors.New("it does not")
	})
	if up, err := env.Gauge(t.Context(), agent.AdminAddress, "argomesh_stream_up"); err != nil || up != "0" {
		t.Errorf("argomesh_stream_up is %s, %v", up, err)
	}
	if err := env.Gone(t.Context(), r.Spoke, "not-for-it"); err != nil {
		t.Error(err)
	}
}

// Each way to be someone else is refused, on each method.
func TestMethodForgeries(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const victim = "victim"
	w.Register(t, victim, "managed")
	ours, foreign := authority(t, w, env.TrustDomain), authority(t, w, env.ForeignDomain)
	impostor, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain)})
	if err != nil {
		t.Fatal(err)
	}
	// This test may be the first to have made the other authority.
	for _, name := range []string{"argomesh_identity_bundles", "argomesh_identity_jwt_bundles"} {
		env.Eventually(t, "the principal has the bundles of both trust domains", func() error {
			n, err := env.Metric(ctx, w.Principal.AdminAddress, name)
			if err == nil && n < 2 {
				err = fmt.Errorf("%s is %v", name, n)
			}
			return err
		})
	}
	id := env.SPIFFEID(victim)
	foreignID := "spiffe://" + env.ForeignDomain + spiffeid.RequireFromString(id).Path()
	mtls := func(ca *devworkload.Server, leaf devworkload.Leaf) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{env.SignLeaf(t, ca, leaf)}, InsecureSkipVerify: true}) // the attacker does not care
	}
	anonymous := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	plain := insecure.NewCredentials()

	victimCert, err := x509.ParseCertificate(env.SignLeaf(t, ours, env.LeafOf(id)).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	claim := (&forwarder{id: sidecarID}).element(victimCert)
	byGateway := (&forwarder{id: env.GatewayID}).element(victimCert) + ",By=" + sidecarID + `;Hash=01;Subject="";URI=` + env.GatewayID
	domainOf := func(td, dir string) devworkload.Config {
		return devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: dir}
	}
	good := env.TokenOf(t, domainOf(env.TrustDomain, w.CADir), id, env.PrincipalID)
	bearer := func(token string) []string { return []string{"authorization", "Bearer " + token} }

	sidecar := startSidecar(t, w, nil)
	bare := startSidecar(t, w, func(f *forwarder) { f.bare = true })
	gateway := startGateway(t, w, env.GatewayID, sidecar)
	stranger := startGateway(t, w, "spiffe://"+env.TrustDomain+"/ns/other/sa/gateway", sidecar)
	thief := env.LeafOf("spiffe://" + env.TrustDomain + "/argomesh/agent/thief")

	for name, tt := range map[string]struct {
		target string
		creds  credentials.TransportCredentials
		pairs  []string
		want   codes.Code
	}{
		// Who may, by each method.
		"mutual TLS":                  {w.Principal.Address, mtls(ours, env.LeafOf(id)), nil, codes.OK},
		"a token":                     {w.ByToken, plain, bearer(good), codes.OK},
		"a token over TLS":            {w.ByTokenTLS, anonymous, bearer(good), codes.OK},
		"behind the sidecar":          {sidecar, mtls(ours, env.LeafOf(id)), nil, codes.OK},
		"behind gateway and sidecar":  {gateway, mtls(ours, env.LeafOf(id)), nil, codes.OK},
		"with a claim to be another":  {sidecar, mtls(ours, env.LeafOf(id)), []string{env.Forwarded, "URI=" + env.PrincipalID}, codes.OK},
		"with a claim at the gateway": {gateway, mtls(ours, env.LeafOf(id)), []string{env.Forwarded, "URI=" + env.PrincipalID}, codes.OK},

		// A second credential beside the right one.
		"mutual TLS and a header":         {w.Principal.Address, mtls(ours, env.LeafOf(id)), []string{env.Forwarded, claim}, codes.Unauthenticated},
		"mutual TLS and a token":          {w.Principal.Address, mtls(ours, env.LeafOf(id)), bearer(good), codes.Unauthenticated},
		"a token and a certificate":       {w.ByTokenTLS, mtls(ours, env.LeafOf(id)), bearer(good), codes.Unavailable},
		"behind the sidecar, and a token": {sidecar, mtls(ours, env.LeafOf(id)), bearer(good), codes.Unauthenticated},

		// A header from the side.
		"a claim before the sidecar's word":        {sidecar, mtls(ours, thief), []string{env.Forwarded, claim}, codes.PermissionDenied},
		"a claim in the name of the gateway":       {sidecar, mtls(ours, thief), []string{env.Forwarded, byGateway}, codes.PermissionDenied},
		"a claim that swallows the sidecar's word": {sidecar, mtls(ours, thief), []string{env.Forwarded, "URI=" + id + `;Subject="`}, codes.Unauthenticated},
		"a claim at the gateway":                   {gateway, mtls(ours, thief), []string{env.Forwarded, claim}, codes.PermissionDenied},
		"behind a gateway that is not trusted":     {stranger, mtls(ours, env.LeafOf(id)), nil, codes.PermissionDenied},
		"a header where tokens count":              {w.ByToken, plain, []string{env.Forwarded, claim}, codes.Unauthenticated},
		"a header at mutual TLS, nobody's":         {w.Principal.Address, mtls(ours, thief), []string{env.Forwarded, claim}, codes.Unauthenticated},
		"a sidecar that forwards no certificate":   {bare, mtls(ours, env.LeafOf(id)), nil, codes.Unauthenticated},

		// The same path, and the same name, of others.
		"a foreign certificate behind the sidecar": {sidecar, mtls(foreign, env.LeafOf(foreignID)), nil, codes.PermissionDenied},
		"a foreign certificate at mutual TLS":      {w.Principal.Address, mtls(foreign, env.LeafOf(foreignID)), nil, codes.PermissionDenied},
		"a foreign token": {
			w.ByToken, plain, bearer(env.TokenOf(t, domainOf(env.ForeignDomain, w.ForeignCADir), foreignID, env.PrincipalID)), codes.PermissionDenied,
		},
		"a token of another authority of that name": {
			w.ByToken, plain, bearer(env.TokenOf(t, domainOf(env.TrustDomain, ""), id, env.PrincipalID)), codes.Unauthenticated,
		},
		"a certificate of another authority of that name": {w.Principal.Address, mtls(impostor, env.LeafOf(id)), nil, codes.Unavailable},

		// Tokens.
		"a token for somebody else": {
			w.ByToken, plain, bearer(env.TokenOf(t, domainOf(env.TrustDomain, w.CADir), id, env.PrincipalID+"-2")), codes.Unauthenticated,
		},
		"two tokens":      {w.ByToken, plain, append(bearer(good), bearer(good)...), codes.Unauthenticated},
		"no token":        {w.ByToken, plain, nil, codes.Unauthenticated},
		"another's token": {w.ByToken, plain, bearer(env.TokenOf(t, domainOf(env.TrustDomain, w.CADir), thief.URIs[0], env.PrincipalID)), codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			err := env.HelloBy(ctx, tt.target, tt.creds, victim, tt.pairs...)
			if status.Code(err) != tt.want {
				t.Errorf("helloBy() = %v, want code %s", err, tt.want)
			}
			if text := status.Convert(err).Message(); strings.Contains(text, "spiffe://") {
				t.Errorf("the caller learns of identities: %s", text)
			}
		})
	}
}

// With everything expired, agents are back within ten seconds of their Workload API.
func TestMethodWorkloadAPIAway(t *testing.T) {
	t.Parallel()
	w := env.SharedBare(t)
	ctx := t.Context()
	r := w.Register(t, "asleep", "managed")
	api, err := w.Identify(ctx, env.SPIFFEID(r.Name), "--x509-ttl", "6s")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: r.Name, Mode: r.Mode, ControlPlane: w.Spoke, WorkloadAPI: api, PrincipalAddress: w.Principal.Address, PrincipalIDs: []string{env.PrincipalID},
		Settings: harness.Settings{"namespace": r.Namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Agent = agent
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	env.Eventually(t, "the agent is connected", func() error { return r.Connected(ctx, true) })
	if err := api.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "readiness says that the Workload API is away", func() error {
		code, body, err := env.Fetch(ctx, "http://"+agent.AdminAddress+"/readyz")
		if err != nil || !strings.Contains(body, "Workload API") {
			return fmt.Errorf("/readyz is %d, %s: %w", code, body, err)
		}
		return nil
	})
	up := func(want string) func() error {
		return func() error {
			got, err := env.Gauge(ctx, agent.AdminAddress, "argomesh_stream_up")
			if err == nil && got != want {
				err = fmt.Errorf("argomesh_stream_up is %s", got)
			}
			return err
		}
	}
	env.Eventually(t, "the connection ends 30 s after its proof", up("0"))
	if code, body, err := env.Fetch(ctx, "http://"+agent.AdminAddress+"/readyz"); err != nil || code == 200 {
		t.Errorf("/readyz is %d, %s, %v with everything expired", code, body, err)
	}
	began := time.Now()
	if err := api.Start(ctx); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent is back", up("1"))
	t.Logf("the agent was back after %s", time.Since(began))
	flows(t, r, "awake")
}
