package spire_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

var (
	own     = spiffeid.RequireTrustDomainFromString("own.test")
	partner = spiffeid.RequireTrustDomainFromString("partner.test")
	other   = spiffeid.RequireTrustDomainFromString("other.test")
	node    = spiffeid.RequireFromString("spiffe://own.test/spire/agent/k8s_psat/edge/1")
	alias   = spiffeid.RequireFromString("spiffe://own.test/nodes/edge")
	edgeID  = spiffeid.RequireFromString("spiffe://own.test/argomesh/agent/edge-1")
	newID   = spiffeid.RequireFromString("spiffe://own.test/argomesh/agent/edge-1-new")
	edge    = name("edge-1")
	edge2   = name("edge-2")
)

func name(s string) identity.AgentName {
	n, err := identity.ParseAgentName(s)
	if err != nil {
		panic(err) // a constant of the tests
	}
	return n
}

func sel(t testing.TB, texts ...string) []spire.Selector {
	t.Helper()
	var out []spire.Selector
	for _, text := range texts {
		s, err := spire.ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// registration is that of edge-1, changed by change.
func registration(change func(*spire.Registration)) spire.Registration {
	r := spire.Registration{
		Name: edge, IDs: []spiffeid.ID{edgeID}, ParentIDs: []spiffeid.ID{node},
		Selectors: []spire.Selector{{Type: "k8s", Value: "sa:agent"}, {Type: "k8s", Value: "ns:argocd"}},
	}
	if change != nil {
		change(&r)
	}
	return r
}

func entriesOf(t testing.TB, r spire.Registration) []spire.Entry {
	t.Helper()
	entries, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// serve runs a server on a unix socket until the test ends, and returns its address.
func serve(t testing.TB, server *spiretest.Server, opts ...grpc.ServerOption) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, server, l, opts...)
	return "unix://" + path
}

func run(t testing.TB, server *spiretest.Server, l net.Listener, opts ...grpc.ServerOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, l, opts...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

func connect(t testing.TB, cfg spire.ClientConfig) *spire.Client {
	t.Helper()
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 30 * time.Second
	}
	client, err := spire.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// start returns a server and a client of it, pages of two entries.
func start(t testing.TB) (*spiretest.Server, *spire.Client) {
	t.Helper()
	server := spiretest.New(own)
	return server, connect(t, spire.ClientConfig{Address: serve(t, server), PageSize: 2})
}

// reconcile brings a server to what r says, and returns what was done, by name.
func reconcile(t testing.TB, c *spire.Client, n identity.AgentName, desired []spire.Entry) (map[string]diff.Action, error) {
	t.Helper()
	seen, err := c.Observe(t.Context(), n, desired)
	if err != nil {
		return nil, err
	}
	done := map[string]diff.Action{}
	err = c.ApplyEntries(t.Context(), spire.PlanEntries(n, desired, seen.Entries), func(change diff.Change[spire.Entry]) {
		done[change.Name] = change.Action
	})
	return done, err
}

// foreign adds an entry that someone else made.
func foreign(t testing.TB, server *spiretest.Server, change func(*types.Entry)) {
	t.Helper()
	e := &types.Entry{
		SpiffeId:  &types.SPIFFEID{TrustDomain: "own.test", Path: "/argomesh/agent/edge-1"},
		ParentId:  &types.SPIFFEID{TrustDomain: "own.test", Path: node.Path()},
		Selectors: []*types.Selector{{Type: "k8s", Value: "ns:argocd"}, {Type: "k8s", Value: "sa:agent"}},
	}
	if change != nil {
		change(e)
	}
	if err := server.AddEntry(e); err != nil {
		t.Fatal(err)
	}
}
