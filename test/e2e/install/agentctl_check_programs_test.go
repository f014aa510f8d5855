//go:build linux

package install

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

// programs are a principal and two agents that run as processes, and answer agentctl check in the place of pods.
type programs struct {
	w         *env.Bare
	says      *admin
	principal *harness.Principal
	// agent is checked-1, which proves itself by mutual TLS, over network.
	agent   *harness.Agent
	network *idling
	// handsToAgent and handsToPrincipal are their Workload APIs, and svid is between the agent and its own.
	handsToAgent, handsToPrincipal *devworkload.Server
	svid                           *otherSVID
	// sidecar is before the principal's listener of method header, for agent checked-2.
	sidecar *forwarder
}

const (
	// checkedNamespace is that of their Agents on the hub.
	checkedNamespace = "checked"
	checkedAgent     = "checked-1"
	meshedAgent      = "checked-2"
)

// newPrograms takes the servers that they need, and starts nothing.
func newPrograms(t *testing.T) *programs {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	return &programs{w: env.SharedBare(t)}
}

// start starts them.
func (p *programs) start(t *testing.T, says *admin) {
	t.Helper()
	p.says = says
	ctx := t.Context()
	header, err := p.w.Harness.Address()
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.w.Harness.Address()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.w.Hub.EnsureNamespace(ctx, checkedNamespace); err != nil {
		t.Fatal(err)
	}
	var socket string
	p.handsToPrincipal, socket = p.workloadAPI(t, env.PrincipalID)
	if p.principal, err = p.w.Harness.StartPrincipal(ctx, harness.PrincipalConfig{
		Name: "principal-checked", ControlPlane: p.w.Hub, WorkloadAPI: &harness.WorkloadAPI{Socket: socket},
		Settings: harness.Settings{"namespace": checkedNamespace, "stream.listeners": []map[string]any{
			{"listen": header, "method": identity.MethodHeader}, {"listen": token, "method": identity.MethodJWT},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	endsWith(t, p.principal.Process)

	p.network = newIdling(t, p.w.Harness, p.principal.Address)
	p.handsToAgent, socket = p.workloadAPI(t, env.SPIFFEID(checkedAgent))
	p.svid = newOtherSVID(t, socket)
	p.agent = p.startAgent(t, checkedAgent, p.svid.socket, p.network.Address(), harness.Settings{})

	p.sidecar = newForwarder(t, header, env.HostileLeaf(t, p.w, env.SPIFFEID(meshedAgent)))
	_, socket = p.workloadAPI(t, env.SPIFFEID(meshedAgent))
	p.startAgent(t, meshedAgent, socket, p.sidecar.address,
		harness.Settings{"principal.method": identity.MethodHeader, "principal.gateway.plaintext": true})
}

// workloadAPI serves one identity of the trust domain of the hub.
func (p *programs) workloadAPI(t *testing.T, id string) (*devworkload.Server, string) {
	t.Helper()
	return spiffekit.Serve(t, devworkload.Config{
		TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain), CADir: p.w.CADir,
		Entries: []devworkload.Entry{{ID: spiffeid.RequireFromString(id)}},
	})
}

// register registers an agent until the test ends.
func (p *programs) register(t *testing.T, name, id string) {
	t.Helper()
	p.agentctl(t, "agent", "create", name, "--mode", "managed", "--spiffe-id", id, "--wait")
	t.Cleanup(func() {
		err := p.w.Hub.Resource(env.Agents, checkedNamespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
}

// agentctl runs agentctl on the hub of the programs.
func (p *programs) agentctl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := p.w.Harness.Agentctl(t.Context(), p.w.Hub, append(args, "--namespace", checkedNamespace)...); err != nil {
		t.Fatal(err)
	}
}

func (p *programs) startAgent(t *testing.T, name, socket, address string, settings harness.Settings) *harness.Agent {
	t.Helper()
	p.register(t, name, env.SPIFFEID(name))
	if err := p.w.Spoke.EnsureNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	settings["namespace"] = name
	agent, err := p.w.Harness.StartAgent(t.Context(), harness.AgentConfig{
		Name: name, Mode: "managed", ControlPlane: p.w.Spoke, WorkloadAPI: &harness.WorkloadAPI{Socket: socket},
		PrincipalAddress: address, PrincipalIDs: []string{env.PrincipalID}, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	endsWith(t, agent.Process)
	return agent
}

// endsWith stops a process when the test ends.
func endsWith(t *testing.T, p *harness.Process) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// breakages are those that a program says of itself.
func (p *programs) breakages() []breakage {
	hub, spoke := []string{"hub"}, []string{"spoke"}
	const stranger = "somebody-else"
	foreign := "spiffe://" + env.ForeignDomain + "/argomesh/agent/checked-3"
	set := func(id string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			p.says.from(p.agent.AdminAddress)
			p.agentctl(t, "agent", "set", checkedAgent, "--spiffe-id", env.SPIFFEID(id))
		}
	}
	reaches, logs := "check that the SPIRE agent reaches its server", "look into its log"
	own := func(says ...string) cure { return by(p.gives(nil), says...) }
	return []breakage{
		// What it says is the command.
		{"ProgramNotReady", spoke, set(stranger), by(set(checkedAgent), "Mend what it says")},
		{"BundleMissing", hub, func(t *testing.T) {
			t.Helper()
			p.says.from(p.principal.AdminAddress)
			p.register(t, "checked-3", foreign)
		}, by(p.federate(toPrincipalOf, wholeBundle), "federate the SPIRE server with it (agentctl identity federate "+env.ForeignDomain+")")},
		{"JWTKeysMissing", hub, p.federate(toPrincipalOf, withoutJWTKeys), by(p.federate(toPrincipalOf, wholeBundle), "take its bundle in the SPIFFE format")},
		{"BundleExpired", spoke, p.federate(toAgentOf, expiredBundle), by(p.federate(toAgentOf, wholeBundle), "federate with it again")},
		{"SVIDExpiring", spoke, p.gives(func(t *testing.T) tls.Certificate {
			t.Helper()
			return p.sign(t, env.TrustDomain, devworkload.Leaf{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * time.Minute)})
		}), own(reaches, logs)},
		{"SVIDExpired", spoke, p.gives(func(t *testing.T) tls.Certificate {
			t.Helper()
			return p.sign(t, env.TrustDomain, devworkload.Leaf{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)})
		}), own(reaches)},
		{"SVIDInvalid", spoke, p.gives(func(t *testing.T) tls.Certificate {
			t.Helper()
			return p.sign(t, env.ForeignDomain, devworkload.Leaf{})
		}), own("restart the SPIRE agent")},
		{"HeaderMissing", hub, func(t *testing.T) {
			t.Helper()
			p.says.from(p.principal.AdminAddress)
			p.sidecar.forward(false)
		}, by(func(t *testing.T) {
			t.Helper()
			p.sidecar.forward(true)
			restarted(t, p.principal.Process)
		}, "Have the gateway forward it", "counted until the principal is restarted")},
		{"ConnectionCut", spoke, func(t *testing.T) {
			t.Helper()
			p.says.from(p.agent.AdminAddress)
			p.network.idleOut(300 * time.Millisecond)
		}, by(func(t *testing.T) {
			t.Helper()
			p.network.idleOut(0)
			restarted(t, p.agent.Process)
		}, "Raise its idle timeout", "counted until the agent is restarted")},
	}
}

func restarted(t *testing.T, p *harness.Process) {
	t.Helper()
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// gives has the agent be given the SVID that another trust domain's, or its own, authority signed so; nil for a good one.
func (p *programs) gives(svid func(*testing.T) tls.Certificate) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		p.says.from(p.agent.AdminAddress)
		if svid == nil {
			p.svid.give(nil)
			return
		}
		certificate := svid(t)
		p.svid.give(&certificate)
	}
}

// sign has the authority of a trust domain sign a leaf for the agent.
func (p *programs) sign(t *testing.T, trustDomain string, leaf devworkload.Leaf) tls.Certificate {
	t.Helper()
	leaf.URIs = []string{env.SPIFFEID(checkedAgent)}
	certificate, err := p.authority(t, trustDomain).Sign(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func (p *programs) authority(t *testing.T, trustDomain string) *devworkload.Server {
	t.Helper()
	dir := map[string]string{env.TrustDomain: p.w.CADir, env.ForeignDomain: p.w.ForeignCADir}[trustDomain]
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(trustDomain), CADir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// toPrincipalOf and toAgentOf are who is handed a bundle.
func toPrincipalOf(p *programs) (*devworkload.Server, string) {
	return p.handsToPrincipal, p.principal.AdminAddress
}

func toAgentOf(p *programs) (*devworkload.Server, string) {
	return p.handsToAgent, p.agent.AdminAddress
}

// federate hands the bundle of the foreign trust domain out to a program, made of the whole one.
func (p *programs) federate(to func(*programs) (*devworkload.Server, string),
	made func(*testing.T, *spiffebundle.Bundle) *spiffebundle.Bundle) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		api, admin := to(p)
		p.says.from(admin)
		if err := api.SetFederated(made(t, p.authority(t, env.ForeignDomain).Bundle())); err != nil {
			t.Fatal(err)
		}
	}
}

func wholeBundle(_ *testing.T, b *spiffebundle.Bundle) *spiffebundle.Bundle { return b }

func withoutJWTKeys(_ *testing.T, b *spiffebundle.Bundle) *spiffebundle.Bundle {
	return spiffebundle.FromX509Authorities(b.TrustDomain(), b.X509Authorities())
}

func expiredBundle(t *testing.T, b *spiffebundle.Bundle) *spiffebundle.Bundle {
	t.Helper()
	root := certkit.New(t, x509.Certificate{
		URIs: []*url.URL{b.TrustDomain().ID().URL()}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
	})
	return spiffebundle.FromX509Authorities(b.TrustDomain(), []*x509.Certificate{root.Certificate})
}

// otherSVID is a Workload API that passes on what another one hands out, and hands out an SVID of the test's instead.
type otherSVID struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	from   workload.SpiffeWorkloadAPIClient
	socket string

	mu      sync.Mutex       // guards what follows
	svid    *tls.Certificate // nil for that of the other one
	changed chan struct{}    // closed, and made again, when svid changes
}

func newOtherSVID(t *testing.T, from string) *otherSVID {
	t.Helper()
	conn, err := grpc.NewClient(from, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // its streams have ended
	dir, err := os.MkdirTemp("", "wl")     // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := &otherSVID{from: workload.NewSpiffeWorkloadAPIClient(conn), socket: "unix://" + socket, changed: make(chan struct{})}
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, o)
	kit.Background(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, server.Stop)
		return server.Serve(l)
	})
	return o
}

// give has it hand out another SVID from now on; who watches is told to ask again.
func (o *otherSVID) give(svid *tls.Certificate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.svid = svid
	close(o.changed)
	o.changed = make(chan struct{})
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (o *otherSVID) FetchX509SVID(r *workload.X509SVIDRequest, to grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	o.mu.Lock()
	svid, changed := o.svid, o.changed
	o.mu.Unlock()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(to.Context(), "workload.spiffe.io", "true"))
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	from, err := o.from.FetchX509SVID(ctx, r)
	if err != nil {
		return err
	}
	for {
		answer, err := from.Recv()
		if err != nil {
			return status.Error(codes.Unavailable, "ask again")
		}
		if svid != nil {
			key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
			if err != nil {
				return err
			}
			answer.Svids[0].X509Svid, answer.Svids[0].X509SvidKey = svid.Certificate[0], key
		}
		if err := to.Send(answer); err != nil {
			return err
		}
	}
}

// idling is a network that may end connections through which nothing has passed for a time, as load balancers do.
type idling struct {
	*harness.Proxy
	timer *time.Timer
	limit atomic.Int64 // a time.Duration; zero for none
}

func newIdling(t *testing.T, h *harness.Harness, target string) *idling {
	t.Helper()
	address, err := h.Address()
	if err != nil {
		t.Fatal(err)
	}
	n := &idling{}
	n.timer = time.AfterFunc(time.Hour, func() { n.Sever() })
	n.timer.Stop()
	n.Proxy, err = harness.NewProxy(harness.ProxyConfig{Target: target, Listen: address, Passed: func(int) {
		if limit := n.limit.Load(); limit > 0 {
			n.timer.Reset(time.Duration(limit))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, n.Run)
	t.Cleanup(func() { n.idleOut(0) })
	return n
}

func (n *idling) idleOut(after time.Duration) {
	n.limit.Store(int64(after))
	if after == 0 {
		n.timer.Stop()
		return
	}
	n.timer.Reset(after)
}

// forwarder is a proxy beside the principal, as the sidecar of a mesh is one, that says in
// x-forwarded-client-cert who its client is, or does not.
type forwarder struct {
	address  string
	server   *httptest.Server
	forwards atomic.Bool
}

// newForwarder returns one whose clients all are who the certificate says. It passes calls on to target.
func newForwarder(t *testing.T, target string, client tls.Certificate) *forwarder {
	t.Helper()
	leaf, err := x509.ParseCertificate(client.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(leaf.Raw)
	element := "Hash=" + hex.EncodeToString(sum[:]) +
		`;Cert="` + strings.ReplaceAll(url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))), "+", "%20") + `";URI=` + leaf.URIs[0].String()
	f := &forwarder{}
	f.forwards.Store(true)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	quietly := log.New(io.Discard, "", 0)
	f.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		// What streams is flushed anyway, so it has no FlushInterval.
		Transport: transport, ErrorLog: quietly,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: target})
			r.Out.Host = r.In.Host
			r.Out.Body = r.In.Body // Out's own cannot be closed by the transport
			r.Out.Header.Del(env.Forwarded)
			if f.forwards.Load() {
				r.Out.Header.Set(env.Forwarded, element)
			}
		},
	})
	f.server.Config.ErrorLog = quietly
	f.server.Config.Protocols = new(http.Protocols)
	f.server.Config.Protocols.SetUnencryptedHTTP2(true)
	f.server.Start()
	f.address = f.server.Listener.Addr().String()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// forward says whether it tells who a client is, and ends what is open.
func (f *forwarder) forward(yes bool) {
	f.forwards.Store(yes)
	f.server.CloseClientConnections()
}
