package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit"
)

// startSPIRE runs a SPIRE server of edge.test until the test ends, and returns its
// address.
func startSPIRE(t *testing.T) (*spiretest.Server, string) {
	t.Helper()
	server := spiretest.New(spiffeid.RequireTrustDomainFromString("edge.test"))
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
	return server, "unix://" + path
}

// step is one command line, and what it says.
type step struct {
	args string
	out  string
	err  string // part of the one line of its error
	note string // part of what it says beside its output
	in   string // what a person says to it
}

func (s step) run(t *testing.T, more ...string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv(registration.SocketEnv, "")
	var out, note strings.Builder
	err := run(t.Context(), append(strings.Fields(s.args), more...), cli.Streams{In: strings.NewReader(s.in), Out: &out, Err: &note})
	if (err == nil) != (s.err == "") || err != nil && (!strings.Contains(err.Error(), s.err) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("%s: error is %v, want one line with %q", s.args, err, s.err)
	}
	if diff := cmp.Diff(s.out, out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", s.args, diff)
	}
	if !strings.Contains(note.String(), s.note) || s.note == "" && note.Len() > 0 {
		t.Errorf("%s: it says %q, want %q", s.args, note.String(), s.note)
	}
}

const (
	nodeFlags = " --parent-id spiffe://edge.test/nodes/edge"
	entry1    = "entry/argomesh.edge-1.4b101216d860d660"
)

func TestRegisterWithASPIREServer(t *testing.T) {
	server, address := startSPIRE(t)
	const edge1 = "identity register edge-1 --trust-domain edge.test --serviceaccount argocd:agent" + nodeFlags
	const details = `    spiffe_id: spiffe://edge.test/argomesh/agent/edge-1
    parent_id: spiffe://edge.test/nodes/edge
    selectors: k8s:ns:argocd, k8s:sa:agent
`
	steps := []step{
		{args: edge1 + " --dry-run", out: "+ " + entry1 + "\n" + details},
		{args: edge1 + " --dry-run=client", out: "+ " + entry1 + "\n" + details},
		{args: "identity list", note: "No registrations and no federated trust domains.\n"},
		{args: edge1, out: entry1 + " created\n"},
		{args: edge1, out: entry1 + " unchanged\n"},
		{args: edge1 + " --hint stream --x509-svid-ttl 30m --dry-run", out: "~ " + entry1 + "\n    x509_svid_ttl: unset -> 30m0s\n    hint: unset -> \"stream\"\n"},
		{args: edge1 + " --hint stream --x509-svid-ttl 30m", out: entry1 + " updated\n"},
		{args: edge1 + " --hint stream --x509-svid-ttl 30m -o yaml", note: entry1 + " unchanged\n", out: `entries:
- hint: stream
  id: argomesh.edge-1.4b101216d860d660
  parent_id: spiffe://edge.test/nodes/edge
  selectors:
  - k8s:ns:argocd
  - k8s:sa:agent
  spiffe_id: spiffe://edge.test/argomesh/agent/edge-1
  x509_svid_ttl: 1800
`},
		{args: edge1 + " --federates-with hub.test", err: "the spire server has no bundle of the trust domain hub.test: federate with it first (agentctl identity federate)"},
		{args: "identity register x --trust-domain hub.test --selector unix:uid:0 --parent-id spiffe://hub.test/n", err: "the SPIRE server is that of edge.test, and signs nothing for hub.test"},
		{args: "identity register twin --spiffe-id spiffe://edge.test/argomesh/agent/edge-1 --serviceaccount argocd:agent" + nodeFlags,
			err: "it is of registration edge-1"},
		{args: "identity list -o wide --no-headers", out: "edge-1   spiffe://edge.test/argomesh/agent/edge-1   -   spiffe://edge.test/nodes/edge   k8s:ns:argocd,k8s:sa:agent   argomesh.edge-1.4b101216d860d660\n"},
		{args: "identity revoke edge-1 --dry-run", out: "- " + entry1 + "\n"},
		{args: "identity revoke edge-2", err: `the SPIRE server has nothing that agentctl registered under that name; "agentctl identity list" shows what there is`},
		{args: "identity revoke edge-2 --ignore-not-found"},
		{args: "identity revoke edge-1", out: entry1 + " deleted\n"},
		{args: "identity revoke edge-1", err: "revoke edge-1"},
	}
	for _, s := range steps {
		s.run(t, "--spire-server", address)
	}
	if left := server.Entries(); len(left) != 0 {
		t.Errorf("what is left: %v", left)
	}
}

func TestRegisterBesideAControllerManager(t *testing.T) {
	server, address := startSPIRE(t)
	err := server.AddEntry(&types.Entry{
		SpiffeId: &types.SPIFFEID{TrustDomain: "edge.test", Path: "/pod"}, ParentId: &types.SPIFFEID{TrustDomain: "edge.test", Path: "/n"},
		Selectors: []*types.Selector{{Type: "k8s", Value: "pod-uid:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const edge1 = "identity register edge-1 --trust-domain edge.test --selector unix:uid:7" + nodeFlags
	const federate = "identity federate hub.test --bundle-endpoint-url https://hub.test/ --bundle-endpoint-profile https_web"
	const why = "spire-controller-manager looks after this SPIRE server and deletes what none of its objects declares: leave out --spire-server"
	for _, s := range []step{
		{args: edge1, err: why},
		{args: edge1 + " --dry-run", err: why},
		{args: federate, err: why},
		{args: edge1 + " --force", out: entry1 + " created\n"},
		{args: federate + " --force", out: "federation/hub.test created\n"},
		{args: "identity list --all --no-headers", out: "-        spiffe://edge.test/pod                     -\n" +
			"edge-1   spiffe://edge.test/argomesh/agent/edge-1   -\n\nhub.test   https://hub.test/   https_web\n"},
	} {
		s.run(t, "--spire-server", address)
	}
}

func TestFederateASPIREServer(t *testing.T) {
	server, address := startSPIRE(t)
	bundle := filepath.Join("..", "..", "mesh", "spire", "testdata", "partner.bundle.json")
	document, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	const federate = "identity federate partner.test --bundle-endpoint-url https://partner.test:8443/"
	for _, s := range []step{
		{args: federate, err: "--bundle is missing: the SPIRE server has no bundle of it"},
		{args: federate + " --dry-run --bundle " + bundle, out: `+ federation/partner.test
    bundle_endpoint_url: https://partner.test:8443/
    bundle_endpoint_profile: https_spiffe spiffe://partner.test/spire/server
    trust_domain_bundle: 1 X.509 and 1 JWT keys
`},
		{args: federate + " --bundle " + bundle, out: "federation/partner.test created\n"},
		{args: federate, out: "federation/partner.test unchanged\n"},
		{args: federate + " --endpoint-spiffe-id spiffe://partner.test/other", err: "bundle_endpoint_profile: https_spiffe spiffe://partner.test/spire/server -> https_spiffe spiffe://partner.test/other; insist with --force"},
		{args: federate + " --endpoint-spiffe-id spiffe://partner.test/other --force", out: "federation/partner.test updated\n"},
		{args: "identity list -o json", out: `{
  "entries": [],
  "federations": [
    {
      "trust_domain": "partner.test",
      "bundle_endpoint_url": "https://partner.test:8443/",
      "bundle_endpoint_profile": "https_spiffe",
      "endpoint_spiffe_id": "spiffe://partner.test/other"
    }
  ]
}
`},
		{args: "identity federate partner.test --push-bundle --bundle -", in: string(document), out: "bundle/partner.test unchanged\n"},
		{args: "identity federate partner.test --push-bundle --bundle -", in: `{"keys":[]}`, err: "it has no X.509 key"},
		{args: "identity federate other.test --push-bundle --bundle " + bundle, err: "the root is that of partner.test: take the bundle of other.test"},
		{args: "identity federate edge.test --bundle-endpoint-url https://a/ --bundle-endpoint-profile https_web", err: "it is the SPIRE server's own trust domain"},
		{args: "identity federate partner.test --delete", err: "no answer on standard input: say --force", note: "no matter who made it? (y/N): "},
		{args: "identity federate partner.test --delete", in: "n\n", note: "Cancelled, the federation with partner.test stays.\n"},
		{args: "identity federate partner.test --delete --dry-run --delete-bundle", out: "- federation/partner.test\n- bundle/partner.test\n"},
		{args: "identity federate partner.test --delete", in: "y\n", out: "federation/partner.test deleted\n", note: "--delete-bundle takes it away"},
		{args: "identity register edge-1 --trust-domain edge.test --selector unix:uid:7 --federates-with partner.test" + nodeFlags, out: entry1 + " created\n"},
		{args: "identity federate partner.test --delete --delete-bundle --force", out: "federation/partner.test deleted\n", err: "change those first"},
		{args: "identity revoke edge-1", out: entry1 + " deleted\n"},
		{args: "identity federate partner.test --delete --delete-bundle --force", out: "federation/partner.test deleted\nbundle/partner.test deleted\n"},
	} {
		s.run(t, "--spire-server", address)
	}
	if len(server.Relationships())+len(server.FederatedBundles()) != 0 {
		t.Errorf("what is left: %v %v", server.Relationships(), server.FederatedBundles())
	}
}

func TestIdentityErrorsNameTheCure(t *testing.T) {
	const register, federate = "identity register edge-1 --trust-domain edge.test ", "identity federate partner.test "
	for title, s := range map[string]step{
		"no name":                     {args: "identity register", err: "the name of the registration is missing, for an agent its name"},
		"two names":                   {args: "identity register a b", err: "one registration at a time, not 2"},
		"no label":                    {args: "identity register A --trust-domain a", err: "the name of the registration"},
		"no id":                       {args: "identity register a", err: "--spiffe-id is missing"},
		"no place":                    {args: register, err: "--serviceaccount is missing: the pods that are to have the identity"},
		"no parent for a server":      {args: register + "--selector a:b --spire-server unix:///x", err: `"spire-server agent list" shows them`},
		"no selector":                 {args: register + "--parent-id spiffe://edge.test/n", err: "--selector is missing"},
		"labels alone":                {args: register + "--pod-label a=b", err: "--serviceaccount is missing: labels alone"},
		"a service account alone":     {args: register + "--serviceaccount x", err: "NAMESPACE:NAME is expected"},
		"a bad selector":              {args: register + "--selector x", err: "write it as type:value"},
		"a bad parent":                {args: register + "--parent-id x", err: "--parent-id"},
		"a bad label":                 {args: register + "--serviceaccount a:b --pod-label x", err: `--pod-label "x": key=value`},
		"a class for a server":        {args: register + "--class-name x --spire-server unix:///x", err: "--class-name"},
		"a server that is no address": {args: register + "--selector a:b --parent-id spiffe://edge.test/n --spire-server /tmp/api.sock", err: "write unix:///absolute/path or host:port"},
		"a server that is away":       {args: register + "--selector a:b --parent-id spiffe://edge.test/n --spire-server unix:///nowhere", err: "check that it runs, and --spire-server"},
		"TCP without workload api":    {args: register + "--selector a:b --parent-id spiffe://edge.test/n --spire-server a:1", err: "--socket is missing"},
		"TCP, workload api is away":   {args: register + "--selector a:b --parent-id spiffe://edge.test/n --spire-server a:1 --socket unix:///nowhere", err: "start the SPIRE agent"},
		"no cluster":                  {args: register + "--serviceaccount a:b", err: "no kubeconfig"},
		"federate nobody":             {args: "identity federate", err: "one trust domain is expected"},
		"federate nothing":            {args: federate, err: "--bundle-endpoint-url is missing"},
		"plain http":                  {args: federate + "--bundle-endpoint-url http://a", err: "scheme https"},
		"no first bundle":             {args: federate + "--bundle-endpoint-url https://a", err: `"spire-server bundle show -format spiffe" prints it`},
		"an id for the web":           {args: federate + "--bundle-endpoint-url https://a --bundle-endpoint-profile https_web --endpoint-spiffe-id spiffe://a/b", err: "profile https_spiffe only"},
		"push without server":         {args: federate + "--push-bundle --bundle x", err: "--spire-server is missing"},
		"push nothing":                {args: federate + "--push-bundle --spire-server unix:///x", err: "--bundle is missing"},
		"no such file":                {args: federate + "--bundle-endpoint-url https://a --bundle /nowhere", err: "--bundle: open /nowhere"},
		"delete only the bundle":      {args: federate + "--delete-bundle --bundle-endpoint-url https://a", err: "it goes with --delete"},
		"show without socket":         {args: "identity show", err: "or set SPIFFE_ENDPOINT_SOCKET"},
		"show nobody":                 {args: "identity show --socket unix:///nowhere", err: "start the SPIRE agent, mount its socket, or name another with --socket"},
		"register without --register": {args: "agent create a --mode managed --trust-domain b --hint c", err: "--hint: it goes with --register"},
	} {
		t.Run(title, func(t *testing.T) { s.run(t) })
	}
}
