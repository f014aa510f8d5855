//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/harness"
)

// handshakePatience bounds what a proxy of a test waits for.
const handshakePatience = 10 * time.Second

// startBy starts the agent of r at an address, with settings of a method, and returns
// when the hub shows it connected.
func (r *remote) startBy(t *testing.T, address string, settings harness.Settings, identityArgs ...string) {
	t.Helper()
	ctx, w := t.Context(), r.w
	identity, err := w.identify(ctx, idOf(r.name), identityArgs...)
	if err != nil {
		t.Fatal(err)
	}
	all := harness.Settings{"namespace": r.namespace, "log.level": "debug"}
	maps.Copy(all, settings)
	if r.agent, err = w.h.StartAgent(ctx, harness.AgentConfig{
		Name: r.name, Mode: r.mode, ControlPlane: w.spoke, WorkloadAPI: identity,
		PrincipalAddress: address, PrincipalIDs: []string{principalID}, Settings: all,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "agent "+r.name+" is connected", func() error { return r.connected(t.Context(), true) })
}

// flows checks that what the owner writes reaches the other side.
func (r *remote) flows(t *testing.T, name string) {
	t.Helper()
	from, to := r.hub, r.spoke
	if r.mode == "autonomous" {
		from, to = r.spoke, r.hub
	}
	create(t, from, r.application(name))
	eventually(t, name+" is on the other side", func() error {
		return field(t.Context(), to, name, "1", "spec", "source", "targetRevision")
	})
}

// said counts the log lines of the agent with a message.
func (r *remote) said(t *testing.T, message string) (n int) {
	t.Helper()
	for _, line := range lines(t, r.agent.Process, 0) {
		if line["message"] == message {
			n++
		}
	}
	return n
}

// isRevocable suspends the agent, which loses its connection within a second or so,
// is told why, and comes back when it is admitted again.
func (r *remote) isRevocable(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	registry := r.w.hub.Resource(agents, harness.ArgoCDNamespace)
	suspend := func(yes bool) {
		t.Helper()
		patch(t, registry, r.name, map[string]any{"spec": map[string]any{"suspended": yes}})
	}
	up := func(want string) func() error {
		return func() error {
			got, err := gauge(ctx, r.agent.AdminAddress, "argomesh_stream_up")
			if err == nil && got != want {
				err = fmt.Errorf("argomesh_stream_up is %s", got)
			}
			return err
		}
	}
	suspend(true)
	began := time.Now()
	eventually(t, "the connection of "+r.name+" ends", up("0"))
	t.Logf("the connection ended %s after the agent was suspended", time.Since(began)) // the target is a second
	eventually(t, "the agent knows why", func() error {
		for _, line := range lines(t, r.agent.Process, 0) {
			if strings.Contains(fmt.Sprint(line["message"]), "ended by revocation") {
				return nil
			}
		}
		return errors.New("it does not say so")
	})
	suspend(false)
	eventually(t, r.name+" is connected again", up("1"))
}

// Behind a load balancer that terminates TLS, in both modes: tokens prove the agent again
// and again on one connection.
func TestMethodTokenBehindATLSEndingProxy(t *testing.T) {
	t.Parallel()
	w := theQuietWorld(t)
	ca := w.authority(t, trustDomain)
	roots := t.TempDir() + "/ca.pem"
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Bundle().X509Authorities()[0].Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	address := startTerminator(t, sign(t, ca, devworkload.NoURILeaf(gatewayName)), w.byToken)
	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := w.register(t, "token-"+mode[:1], mode)
			r.startBy(t, address, harness.Settings{
				"principal.method": identity.MethodJWT, "principal.gateway.server_name": gatewayName, "principal.gateway.ca_file": roots,
			}, "--jwt-ttl", "8s")
			r.flows(t, "before")
			eventually(t, "the agent proves itself again", func() error {
				if n := r.said(t, "identity proven again"); n < 3 {
					return fmt.Errorf("%d times", n)
				}
				return nil
			})
			r.flows(t, "after")
			if n := r.said(t, "connected to the principal"); n != 1 {
				t.Errorf("the agent connected %d times, want one connection that is renewed", n)
			}
			r.isRevocable(t)
			r.flows(t, "again")
		})
	}
}

// Without a proxy, and with one beside the agent.
func TestMethodTokenWithoutAGateway(t *testing.T) {
	t.Parallel()
	w := theQuietWorld(t)
	r := w.register(t, "token-tls", "managed")
	r.startBy(t, w.byTokenTLS, harness.Settings{"principal.method": identity.MethodJWT})
	r.flows(t, "direct")
	beside := w.register(t, "token-beside", "autonomous")
	beside.startBy(t, w.byToken, harness.Settings{"principal.method": identity.MethodJWT, "principal.gateway.plaintext": true})
	beside.flows(t, "beside")
}

// Behind a sidecar, and behind a gateway before a sidecar, under rotation: each proof
// is a new connection, without a gap.
func TestMethodHeader(t *testing.T) {
	t.Parallel()
	w := theQuietWorld(t)
	sidecar := w.startSidecar(t, nil)
	gateway := w.startGateway(t, gatewayID, sidecar)
	for _, c := range []struct{ name, mode, address, ends string }{
		{"header-m", "managed", sidecar, sidecarID},
		{"header-a", "autonomous", gateway, gatewayID},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			r := w.register(t, c.name, c.mode)
			r.startBy(t, c.address, harness.Settings{
				"principal.method": identity.MethodHeader, "principal.gateway.spiffe_ids": []string{c.ends},
			}, "--x509-ttl", "16s")
			r.flows(t, "before")
			eventually(t, "the agent proves itself on other connections", func() error {
				if n := r.said(t, "connected to the principal"); n < 4 {
					return fmt.Errorf("%d connections", n)
				}
				return nil
			})
			if n := r.said(t, "connection to the principal ended"); n > 0 {
				t.Errorf("the agent was without a connection %d times", n)
			}
			r.flows(t, "after")
			r.isRevocable(t)
		})
	}
}

// An agent that meets another principal than its own behind the right gateway says
// nothing but hello, although that principal would have it.
func TestMethodImpostorBehindTheGateway(t *testing.T) {
	t.Parallel()
	w := theQuietWorld(t)
	r := w.register(t, "misled", "managed")
	create(t, r.hub, r.application("not-for-it"))
	api, err := w.identify(t.Context(), idOf(r.name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.h.StartAgent(t.Context(), harness.AgentConfig{
		Name: r.name, Mode: r.mode, ControlPlane: w.spoke, WorkloadAPI: api, PrincipalAddress: w.startSidecar(t, nil),
		PrincipalIDs: []string{principalID + "-2", "spiffe://" + foreignDomain + "/argomesh/principal"},
		Settings: harness.Settings{
			"namespace": r.namespace, "principal.method": identity.MethodHeader, "principal.gateway.spiffe_ids": []string{sidecarID},
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
	eventually(t, "the agent says that it is not its principal", func() error {
		for _, line := range lines(t, agent.Process, 0) {
			if strings.Contains(fmt.Sprint(line["message"]), "did not prove that it is the principal") && strings.Contains(fmt.Sprint(line["error"]), "presented "+principalID) {
				return nil
			}
		}
		return errors.New("it does not")
	})
	if up, err := gauge(t.Context(), agent.AdminAddress, "argomesh_stream_up"); err != nil || up != "0" {
		t.Errorf("argomesh_stream_up is %s, %v", up, err)
	}
	if err := gone(t.Context(), r.spoke, "not-for-it"); err != nil {
		t.Error(err)
	}
}

// helloBy does what an agent does first, with metadata.
func helloBy(ctx context.Context, target string, creds credentials.TransportCredentials, name string, pairs ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*handshakePatience)
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

// Each way to be somebody else is refused, on each method.
func TestMethodForgeries(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	const victim = "victim"
	w.register(t, victim, "managed")
	ours, foreign := w.authority(t, trustDomain), w.authority(t, foreignDomain)
	impostor, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(trustDomain)})
	if err != nil {
		t.Fatal(err)
	}
	// This test may be the first to have made the other authority.
	for _, name := range []string{"argomesh_identity_bundles", "argomesh_identity_jwt_bundles"} {
		eventually(t, "the principal has the bundles of both trust domains", func() error {
			n, err := metric(ctx, w.principal.AdminAddress, name)
			if err == nil && n < 2 {
				err = fmt.Errorf("%s is %v", name, n)
			}
			return err
		})
	}
	id := idOf(victim)
	foreignID := "spiffe://" + foreignDomain + spiffeid.RequireFromString(id).Path()
	mtls := func(ca *devworkload.Server, leaf devworkload.Leaf) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{sign(t, ca, leaf)}, InsecureSkipVerify: true}) // the attacker does not care
	}
	anonymous := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	plain := insecure.NewCredentials()

	victimCert, err := x509.ParseCertificate(sign(t, ours, svid(id)).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	claim := (&forwarder{id: sidecarID}).element(victimCert)
	byGateway := (&forwarder{id: gatewayID}).element(victimCert) + ",By=" + sidecarID + `;Hash=01;Subject="";URI=` + gatewayID
	domainOf := func(td, dir string) devworkload.Config {
		return devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: dir}
	}
	good := tokenOf(t, domainOf(trustDomain, w.h.Path("ca")), id, principalID)
	bearer := func(token string) []string { return []string{"authorization", "Bearer " + token} }

	sidecar := w.startSidecar(t, nil)
	bare := w.startSidecar(t, func(f *forwarder) { f.bare = true })
	gateway := w.startGateway(t, gatewayID, sidecar)
	stranger := w.startGateway(t, "spiffe://"+trustDomain+"/ns/other/sa/gateway", sidecar)
	thief := svid("spiffe://" + trustDomain + "/argomesh/agent/thief")

	for name, tt := range map[string]struct {
		target string
		creds  credentials.TransportCredentials
		pairs  []string
		want   codes.Code
	}{
		// Who may, by each method.
		"mutual TLS":                  {w.principal.Address, mtls(ours, svid(id)), nil, codes.OK},
		"a token":                     {w.byToken, plain, bearer(good), codes.OK},
		"a token over TLS":            {w.byTokenTLS, anonymous, bearer(good), codes.OK},
		"behind the sidecar":          {sidecar, mtls(ours, svid(id)), nil, codes.OK},
		"behind gateway and sidecar":  {gateway, mtls(ours, svid(id)), nil, codes.OK},
		"with a claim to be another":  {sidecar, mtls(ours, svid(id)), []string{forwarded, "URI=" + principalID}, codes.OK},
		"with a claim at the gateway": {gateway, mtls(ours, svid(id)), []string{forwarded, "URI=" + principalID}, codes.OK},

		// A second credential beside the right one.
		"mutual TLS and a header":         {w.principal.Address, mtls(ours, svid(id)), []string{forwarded, claim}, codes.Unauthenticated},
		"mutual TLS and a token":          {w.principal.Address, mtls(ours, svid(id)), bearer(good), codes.Unauthenticated},
		"a token and a certificate":       {w.byTokenTLS, mtls(ours, svid(id)), bearer(good), codes.Unavailable},
		"behind the sidecar, and a token": {sidecar, mtls(ours, svid(id)), bearer(good), codes.Unauthenticated},

		// A header from the side.
		"a claim before the sidecar's word":        {sidecar, mtls(ours, thief), []string{forwarded, claim}, codes.PermissionDenied},
		"a claim in the name of the gateway":       {sidecar, mtls(ours, thief), []string{forwarded, byGateway}, codes.PermissionDenied},
		"a claim that swallows the sidecar's word": {sidecar, mtls(ours, thief), []string{forwarded, "URI=" + id + `;Subject="`}, codes.Unauthenticated},
		"a claim at the gateway":                   {gateway, mtls(ours, thief), []string{forwarded, claim}, codes.PermissionDenied},
		"behind a gateway that is not trusted":     {stranger, mtls(ours, svid(id)), nil, codes.PermissionDenied},
		"a header where tokens count":              {w.byToken, plain, []string{forwarded, claim}, codes.Unauthenticated},
		"a header at mutual TLS, nobody's":         {w.principal.Address, mtls(ours, thief), []string{forwarded, claim}, codes.Unauthenticated},
		"a sidecar that forwards no certificate":   {bare, mtls(ours, svid(id)), nil, codes.Unauthenticated},

		// The same path, and the same name, of others.
		"a foreign certificate behind the sidecar": {sidecar, mtls(foreign, svid(foreignID)), nil, codes.PermissionDenied},
		"a foreign certificate at mutual TLS":      {w.principal.Address, mtls(foreign, svid(foreignID)), nil, codes.PermissionDenied},
		"a foreign token": {
			w.byToken, plain, bearer(tokenOf(t, domainOf(foreignDomain, w.h.Path("foreign-ca")), foreignID, principalID)), codes.PermissionDenied,
		},
		"a token of another authority of that name": {
			w.byToken, plain, bearer(tokenOf(t, domainOf(trustDomain, ""), id, principalID)), codes.Unauthenticated,
		},
		"a certificate of another authority of that name": {w.principal.Address, mtls(impostor, svid(id)), nil, codes.Unavailable},

		// Tokens.
		"a token for somebody else": {
			w.byToken, plain, bearer(tokenOf(t, domainOf(trustDomain, w.h.Path("ca")), id, principalID+"-2")), codes.Unauthenticated,
		},
		"two tokens":      {w.byToken, plain, append(bearer(good), bearer(good)...), codes.Unauthenticated},
		"no token":        {w.byToken, plain, nil, codes.Unauthenticated},
		"another's token": {w.byToken, plain, bearer(tokenOf(t, domainOf(trustDomain, w.h.Path("ca")), thief.URIs[0], principalID)), codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			err := helloBy(ctx, tt.target, tt.creds, victim, tt.pairs...)
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
	w := theQuietWorld(t)
	ctx := t.Context()
	r := w.register(t, "asleep", "managed")
	api, err := w.identify(ctx, idOf(r.name), "--x509-ttl", "6s")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: r.name, Mode: r.mode, ControlPlane: w.spoke, WorkloadAPI: api, PrincipalAddress: w.principal.Address, PrincipalIDs: []string{principalID},
		Settings: harness.Settings{"namespace": r.namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.agent = agent
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the agent is connected", func() error { return r.connected(ctx, true) })
	if err := api.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "readiness says that the Workload API is away", func() error {
		code, body, err := fetch(ctx, "http://"+agent.AdminAddress+"/readyz")
		if err != nil || !strings.Contains(body, "workload api") {
			return fmt.Errorf("/readyz is %d, %s: %w", code, body, err)
		}
		return nil
	})
	up := func(want string) func() error {
		return func() error {
			got, err := gauge(ctx, agent.AdminAddress, "argomesh_stream_up")
			if err == nil && got != want {
				err = fmt.Errorf("argomesh_stream_up is %s", got)
			}
			return err
		}
	}
	eventually(t, "the connection ends 30 s after its proof", up("0"))
	if code, body, err := fetch(ctx, "http://"+agent.AdminAddress+"/readyz"); err != nil || code == 200 {
		t.Errorf("/readyz is %d, %s, %v with everything expired", code, body, err)
	}
	began := time.Now()
	if err := api.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is back", up("1"))
	t.Logf("the agent was back after %s", time.Since(began))
	r.flows(t, "awake")
}
