//go:build linux

package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/test/harness"
)

// proxyURL is where the principal's default configuration says that spokes are
// reached.
const proxyURL = "https://argomesh-principal:9090"

// authority signs SVIDs for simulated agents.
type authority struct{ server *devworkload.Server }

// newAuthority is of the trust domain whose Workload API servers share caDir.
func newAuthority(caDir string) (authority, error) {
	s, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(trustDomain), CADir: caDir})
	return authority{s}, err
}

// credentials present an SVID of the agent and accept the principal alone.
func (a authority) credentials(agent string) (credentials.TransportCredentials, error) {
	id, err := spiffeid.FromString(agentID(agent))
	if err != nil {
		return nil, err
	}
	cert, err := a.server.Sign(devworkload.Leaf{URIs: []string{id.String()}, NotAfter: time.Now().Add(12 * time.Hour)})
	if err != nil {
		return nil, err
	}
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a private key of type %T cannot sign", cert.PrivateKey)
	}
	svid := &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{cert.Leaf}, PrivateKey: key}
	principal := spiffeid.RequireFromString(principalID)
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(svid, a.server.Bundle().X509Bundle(), tlsconfig.AuthorizeID(principal))), nil
}

// simulated is an agent with the real stream client and mirror over a store in
// memory, in this process.
type simulated struct {
	name   identity.AgentName
	store  backends.Store
	mirror *mirror.Mirror
	client *client.Client
	past   *past
}

// newSimulated makes an agent that dials target, and says of the history of a hub what past
// has. What the hub may have it write is bound by may; by the
// defaults, if that is nil. connected is told of each connection.
func newSimulated(name, target string, past *past, store backends.Store, may *budget.Peer, creds credentials.TransportCredentials, metrics *linkmetrics.Metrics, connected func()) (*simulated, error) {
	a := &simulated{store: store, past: past}
	var err error
	if a.name, err = identity.ParseAgentName(name); err != nil {
		return nil, err
	}
	if a.mirror, err = mirror.New(mirror.Config{
		Rules: ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Spoke, Mode: stream.Managed, Agent: a.name, Namespace: harness.ArgoCDNamespace}}},
		Store: a.store, SaveHistory: past.remembers(), Budget: may, Metrics: metrics,
		Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	}); err != nil {
		return nil, err
	}
	a.client, err = client.New(client.Config{
		Target: target, Credentials: creds,
		Hello: stream.Hello{
			Protocol: stream.Protocol, Version: "bench", Agent: a.name, Mode: stream.Managed, ClusterUID: name, Kubernetes: "none",
		},
		History: past.tell,
		Serve: func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
			connected()
			return a.mirror.Serve(ctx, mirror.Peer{Connection: w.Connection, HubUID: w.HubUID}, conn)
		},
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	return a, err
}

// run mirrors until ctx is done.
func (a *simulated) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.mirror.Run(ctx) })
	g.Go(func() error { return a.client.Run(ctx) })
	return g.Wait()
}

// key is that of an Application on the spoke.
func (a *simulated) key(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: harness.ArgoCDNamespace, Name: name}
}

// memoryHub is a principal in this process: the real stream server, registry and
// mirrors over one store in memory.
type memoryHub struct {
	store    backends.Store
	address  string
	server   *server.Server
	listener net.Listener
	source   *workload.Source
	api      *devworkload.Server
	apiOn    net.Listener
	links    map[identity.AgentName]*hubLink
}

// hubLink is the hub's end of one agent.
type hubLink struct {
	mirror *mirror.Mirror

	mu      sync.Mutex // guards changed
	changed func(stream.ResourceKey)
}

// newMemoryHub makes a hub that knows the agents. dir is for the socket of its
// Workload API.
func newMemoryHub(ctx context.Context, dir string, store backends.Store, agents []string) (h *memoryHub, _ authority, err error) {
	// Without their project no Applications leave the hub.
	if _, err := store.Create(ctx, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: project}, []byte(`{"apiVersion": "argoproj.io/v1alpha1",
		"kind": "AppProject", "metadata": {"namespace": "argocd", "name": "`+project+`"},
		"spec": {"sourceRepos": ["*"], "sourceNamespaces": ["*"], "destinations": [{"name": "*", "namespace": "*"}]}}`)); err != nil {
		return nil, authority{}, err
	}
	h = &memoryHub{store: store, links: map[identity.AgentName]*hubLink{}}
	caDir, socket := filepath.Join(dir, "ca"), filepath.Join(dir, "principal.sock")
	ca, err := newAuthority(caDir)
	if err != nil {
		return nil, ca, err
	}
	id := spiffeid.RequireFromString(principalID)
	if h.api, err = devworkload.New(devworkload.Config{
		TrustDomain: id.TrustDomain(), CADir: caDir, Entries: []devworkload.Entry{{ID: id}}, X509TTL: 12 * time.Hour,
	}); err != nil {
		return nil, ca, err
	}
	if h.apiOn, err = devworkload.Listen(ctx, socket, 0o600); err != nil {
		return nil, ca, err
	}
	if h.source, err = workload.New(workload.Config{Socket: "unix://" + socket, Metrics: prometheus.NewRegistry()}); err != nil {
		return nil, ca, err
	}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, ca, err
	}
	registry := &fleet.Registry{}
	registered := make([]v1alpha1.Agent, 0, len(agents))
	for _, agent := range agents {
		name, err := identity.ParseAgentName(agent)
		if err != nil {
			return nil, ca, err
		}
		registered = append(registered, v1alpha1.Agent{
			ObjectMeta: metav1.ObjectMeta{Name: agent},
			Spec:       v1alpha1.AgentSpec{Mode: v1alpha1.ModeManaged, Identity: v1alpha1.AgentIdentity{SPIFFEIDs: []string{agentID(agent)}}},
		})
		if h.links[name], err = h.link(name, metrics); err != nil {
			return nil, ca, err
		}
	}
	registry.Set(registered)
	if h.server, err = server.New(server.Config{
		Credentials: h.source.ServerCredentials(zerolog.Nop()), Authenticate: workload.PeerFromContext,
		Registry: registry, Serve: h.serve, HubUID: "bench", Version: "bench",
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	}); err != nil {
		return nil, ca, err
	}
	var config net.ListenConfig
	if h.listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, ca, err
	}
	h.address = h.listener.Addr().String()
	return h, ca, nil
}

func (h *memoryHub) link(name identity.AgentName, metrics *linkmetrics.Metrics) (*hubLink, error) {
	l := &hubLink{}
	var err error
	l.mirror, err = mirror.New(mirror.Config{
		Rules: ownership.Rules{
			Marks: copies.Marks{
				Map: mapping.Map{
					Side: stream.Hub, Mode: stream.Managed, Agent: name, Namespace: harness.ArgoCDNamespace, ClusterServer: proxyURL + "/agents/" + name.String(),
				},
			},
		},
		Store: h.store, Subscribe: l.subscribe,
		Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	})
	return l, err
}

// subscribe is mirror.Config.Subscribe. Nothing is in the store yet.
func (l *hubLink) subscribe(changed func(stream.ResourceKey)) (cancel func()) {
	l.tell(changed)
	return func() { l.tell(nil) }
}

func (l *hubLink) tell(changed func(stream.ResourceKey)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = changed
}

// dispatch tells a change to the agent it concerns, as the principal does.
func (h *memoryHub) dispatch(key stream.ResourceKey) {
	name, err := identity.ParseAgentName(key.Namespace)
	if err != nil || h.links[name] == nil {
		return
	}
	l := h.links[name]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		l.changed(key)
	}
}

func (h *memoryHub) serve(ctx context.Context, s server.Session, conn *server.Conn) error {
	return h.links[s.Agent.Name].mirror.Serve(ctx, mirror.Peer{Connection: s.Connection}, conn)
}

// run serves until ctx is done.
func (h *memoryHub) run(ctx context.Context) error {
	cancel := h.store.Subscribe(h.dispatch)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.api.Run(ctx, h.apiOn) })
	g.Go(func() error { return h.source.Run(ctx) })
	for _, l := range h.links {
		g.Go(func() error { return l.mirror.Run(ctx) })
	}
	g.Go(func() error {
		if h.source.WaitReady(ctx) != nil {
			return h.listener.Close() // ctx is done
		}
		return h.server.Run(ctx, h.listener)
	})
	return g.Wait()
}
