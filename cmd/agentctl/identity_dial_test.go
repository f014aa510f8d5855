package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/identities"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// registryOf admits one SPIFFE ID, if any.
type registryOf struct{ admitted atomic.Pointer[spiffeid.ID] }

// Admit implements server.Registry.
func (r *registryOf) Admit(p identity.Peer) (stream.Agent, error) {
	if id := r.admitted.Load(); id == nil || *id != p.ID {
		return stream.Agent{}, fmt.Errorf("%s: %w", p.ID, identity.ErrDenied)
	}
	name, err := identity.ParseAgentName("edge-1")
	return stream.Agent{Name: name, Mode: stream.Managed}, err
}

// Changed implements server.Registry.
func (*registryOf) Changed() <-chan struct{} { return nil }

// byCertificate, byToken and byTokenInClear are methods of a principal's listener.
func byCertificate(source *workload.Source) server.Method {
	return server.Method{Name: identity.MethodX509, Credentials: source.ServerCredentials(zerolog.Nop()), Authenticate: workload.PeerFromContext}
}

func byToken(source *workload.Source) server.Method {
	return server.Method{Name: identity.MethodJWT, Credentials: source.TokenServerCredentials(zerolog.Nop()), Authenticate: source.PeerFromToken}
}

func byTokenInClear(source *workload.Source) server.Method {
	return server.Method{Name: identity.MethodJWT, Credentials: insecure.NewCredentials(), Authenticate: source.PeerFromToken}
}

// principalOf runs the stream of a principal with the identity of socket, and returns its
// address.
func principalOf(t *testing.T, socket string, registry server.Registry, method func(*workload.Source) server.Method) string {
	t.Helper()
	source, err := workload.New(workload.Config{Socket: socket, JWTBundles: true, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, source.Run)
	if err := source.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	by := method(source)
	s, err := server.New(server.Config{
		Credentials: by.Credentials, Authenticate: by.Authenticate, Registry: registry, HubUID: "hub", Metrics: prometheus.NewRegistry(),
		Serve: func(context.Context, server.Session, *server.Conn) error {
			t.Error("a connection came about, which would take the place of the agent's")
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := by.On(listen(t))
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return s.Run(ctx, l) })
	return l.Addr().String()
}

// listen returns a listener on loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDoctorDialsThePrincipal(t *testing.T) {
	hubAPI, hubSocket := workloadAPIOf(t, hubTD, devworkload.Entry{ID: principalID})
	edgeAPI, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID})
	if err := edgeAPI.SetFederated(hubAPI.Bundle()); err != nil {
		t.Fatal(err)
	}
	var registry registryOf
	address := principalOf(t, hubSocket, &registry, byCertificate)
	dial := func(at string, args ...string) (*identities.ProbeResult, error) {
		t.Helper()
		args = append([]string{"identity", "show", "--socket", socket, "--principal", at, "-o", "json"}, args...)
		out, _, err := agentctl(t, args...)
		if err != nil {
			return nil, err
		}
		var s identities.Report
		if err := json.Unmarshal([]byte(out), &s); err != nil || s.Principal == nil {
			t.Fatalf("show: %v, %s", err, out)
		}
		return s.Principal, nil
	}
	check := func(title string, got *identities.ProbeResult, err error, want identities.ProbeResult, problem string) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", title, err)
			return
		}
		if !strings.Contains(got.Problem, problem) || (problem == "") != (got.Problem == "") || (got.Problem == "") != (got.Cure == "") {
			t.Errorf("%s: problem %q, cure %q; want %q", title, got.Problem, got.Cure, problem)
		}
		got.Problem, got.Cure = "", ""
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
	}
	id := principalID.String()

	got, err := dial(address)
	check("a principal that has no bundle of ours", got, err, identities.ProbeResult{Address: address, SPIFFEID: id}, "presented its SVID, and then refused ours or went away")
	if err := hubAPI.SetFederated(edgeAPI.Bundle()); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "what was asked", func() bool { got, err = dial(address); return err == nil && got.Handshake })
	check("not registered", got, err, identities.ProbeResult{Address: address, SPIFFEID: id, Handshake: true}, "does not let our SPIFFE ID in")
	registry.admitted.Store(&edge1ID)
	got, err = dial(address, "--principal-id", id)
	known := identities.ProbeResult{Address: address, SPIFFEID: id, Handshake: true, Registered: true, Agent: "edge-1", Mode: "managed"}
	check("registered", got, err, known, "")
	got, err = dial(address, "--agent", "edge-1")
	check("registered by the name it has here", got, err, known, "")
	got, err = dial(address, "--agent", "edge-2")
	check("registered by another name", got, err, known, "knows our SPIFFE ID for agent edge-1 (managed), not for agent edge-2")
	got, err = dial(address, "--principal-id", "spiffe://hub.test/other")
	check("another principal", got, err, identities.ProbeResult{Address: address, SPIFFEID: id}, "is "+id+", which is not accepted")
	got, err = dial("127.0.0.1:1")
	check("nobody there", got, err, identities.ProbeResult{Address: "127.0.0.1:1"}, "no handshake")
	got, err = dial("hub")
	check("no address", got, err, identities.ProbeResult{Address: "hub"}, "is not a host:port")
	got, err = dial("unix:///run/p.sock")
	check("a socket", got, err, identities.ProbeResult{Address: "unix:///run/p.sock"}, "which is for --gateway-plaintext")
	plain := plaintext(t)
	got, err = dial(plain)
	check("something else", got, err, identities.ProbeResult{Address: plain}, "no handshake")
	mute := silence(t)
	got, err = dial(mute, "--timeout", "2s")
	check("silence", got, err, identities.ProbeResult{Address: mute}, "did not answer in time")

	older := olderPrincipal(t)
	got, err = dial(older, "--method", "header", "--gateway-plaintext")
	check("a principal that does not say for whom", got, err, identities.ProbeResult{Address: older, Handshake: true, Registered: true}, "")

	out, _, err := agentctl(t, "identity", "doctor", "--socket", socket, "--principal", address, "--principal-id", id)
	if err != nil || strings.Count(out, "\n") != 4 || !strings.Contains(out, "ok: principal "+address+" is "+id+", and knows our SPIFFE ID for agent edge-1 (managed)\n") {
		t.Errorf("doctor: %v, %q", err, out)
	}
	if err := edgeAPI.SetFederated(); err != nil {
		t.Fatal(err)
	}
	out, _, err = agentctl(t, "identity", "doctor", "--socket", socket, "--principal", address)
	if !errors.Is(err, identities.ErrUnwell) || !strings.Contains(out, "no bundle for the trust domain") {
		t.Errorf("doctor without the principal's bundle: %v, %q", err, out)
	}
}

func TestDoctorDialsByToken(t *testing.T) {
	hubAPI, hubSocket := workloadAPIOf(t, hubTD, devworkload.Entry{ID: principalID})
	edgeAPI, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID})
	if err := errors.Join(edgeAPI.SetFederated(hubAPI.Bundle()), hubAPI.SetFederated(edgeAPI.Bundle())); err != nil {
		t.Fatal(err)
	}
	var registry registryOf
	address := principalOf(t, hubSocket, &registry, byToken)
	id := principalID.String()
	doctor := func(args ...string) string {
		t.Helper()
		out, _, err := agentctl(t, append([]string{"identity", "doctor", "-o", "wide", "--socket", socket, "--principal", address, "--principal-id", id}, args...)...)
		if err != nil && !errors.Is(err, identities.ErrUnwell) {
			return err.Error()
		}
		return out
	}
	says := func(title, got string, want ...string) {
		t.Helper()
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: doctor does not say %q:\n%s", title, text, got)
			}
		}
	}
	// The principal may not have the other bundle yet.
	var got string
	kit.Eventually(t, "what was asked", func() bool {
		got = doctor("--method", "spiffe-jwt")
		return strings.Contains(got, "does not let our SPIFFE ID in")
	})
	says("not registered", got, "agentctl agent create")
	registry.admitted.Store(&edge1ID)
	says("registered", doctor("--method", "spiffe-jwt"), "ok: principal "+address+" is "+id+", and knows our SPIFFE ID for agent edge-1 (managed)\n")
	inClear := principalOf(t, hubSocket, &registry, byTokenInClear)
	says("behind a proxy beside us", doctor("--method", "spiffe-jwt", "--gateway-plaintext", "--principal", inClear),
		"ok: principal "+inClear+" knows our SPIFFE ID for agent edge-1 (managed)\n")
	says("in clear text to elsewhere", doctor("--method", "spiffe-jwt", "--gateway-plaintext", "--principal", "hub.test:8443"), "is not on loopback")
	says("behind a gateway that is not it", doctor("--method", "spiffe-jwt", "--gateway-id", "spiffe://hub.test/gateway"), "is "+id+", which is not accepted", "--gateway-id")
	says("another method", doctor(), "problem: principal "+address)
	mutual := principalOf(t, hubSocket, &registry, byCertificate)
	says("where certificates count", doctor("--method", "spiffe-jwt", "--principal", mutual), "problem: principal "+mutual, "has method spiffe-jwt")
	for args, want := range map[string]string{
		"--method password":                                                 "--method",
		"--method header":                                                   "give the gateway",
		"--gateway-id spiffe://hub.test/gateway":                            "--gateway-id",
		"--method spiffe-jwt --gateway-ca-file /none":                       "--gateway-name",
		"--method header --gateway-id x":                                    "--gateway-id",
		"--method header --gateway-name a --gateway-id spiffe://a.test/b":   "keep one",
		"--method header --gateway-name a --gateway-plaintext":              "keep one",
		"--gateway-plaintext":                                               "--gateway-plaintext",
		"--agent Edge_1":                                                    "--agent",
		"--agent edge-1 --principal=":                                       "--agent",
		"--timeout 0":                                                       "--timeout",
		"--method spiffe-jwt --gateway-name a.test --gateway-ca-file /none": "/none",
	} {
		says(args, doctor(strings.Fields(args)...), want)
	}
}

// plaintext is a gRPC server without TLS.
func plaintext(t *testing.T, services ...func(grpc.ServiceRegistrar)) string {
	t.Helper()
	l := listen(t)
	s := grpc.NewServer(grpc.Creds(insecure.NewCredentials()))
	for _, register := range services {
		register(s)
	}
	kit.Background(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, s.Stop)()
		return s.Serve(l)
	})
	return l.Addr().String()
}

// olderPrincipal checks callers, as all releases do, and does not say who they are.
func olderPrincipal(t *testing.T) string {
	t.Helper()
	return plaintext(t, func(r grpc.ServiceRegistrar) { streampb.RegisterStreamServer(r, taciturn{}) })
}

type taciturn struct {
	streampb.UnimplementedStreamServer
}

// Connect implements streampb.StreamServer.
func (taciturn) Connect(s grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	_, err := s.Recv()
	return call.StatusOf(s.Context(), fmt.Errorf("%w: %w", stream.ErrProtocol, err))
}

// silence is a listener that says nothing.
func silence(t *testing.T) string {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
