package serverapi_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit"
)

// What these tests share with those of package spire.
var (
	own     = spiretest.Own
	partner = spiretest.Partner
	other   = spiretest.Other
	node    = spiretest.Node
	alias   = spiretest.Alias
	edgeID  = spiretest.EdgeID
	newID   = spiretest.NewID
	edge    = spiretest.Edge
)

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
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l, opts...) })
}

func connect(t testing.TB, cfg serverapi.ClientConfig) *serverapi.Client {
	t.Helper()
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 30 * time.Second
	}
	client, err := serverapi.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// start returns a server and a client of it, pages of two entries.
func start(t testing.TB) (*spiretest.Server, *serverapi.Client) {
	t.Helper()
	server := spiretest.New(own)
	return server, connect(t, serverapi.ClientConfig{Address: serve(t, server), PageSize: 2})
}

// reconcile brings a server to what r says, and returns what was done, by name.
func reconcile(t testing.TB, c *serverapi.Client, n identity.AgentName, desired []spire.Entry) (map[string]diff.Action, error) {
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
