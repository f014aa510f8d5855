package mesh_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/kit"
)

func id(t *testing.T, s string) spiffeid.ID {
	t.Helper()
	out, err := identity.ParseID(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// reach is a gateway-ended stream with everything else.
func reach(t *testing.T) mesh.Snapshot {
	t.Helper()
	upstream, err := mesh.ParseAddress("unix:///run/argomesh/stream.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := id(t, "spiffe://hub.test/ns/argocd/sa/argocd-server")
	return mesh.Snapshot{
		Self: id(t, "spiffe://hub.test/ns/argocd/sa/argomesh-principal"),
		Reach: &mesh.Reach{
			Stream: mesh.StreamPort{
				Port: 8443, Exposure: mesh.ExposureGateway, Method: identity.MethodHeader, Upstream: upstream, Services: []string{"x.Y"},
				Gateway: id(t, "spiffe://hub.test/ns/ingress/sa/gateway"), Hub: mesh.HubAddress{Host: "argomesh.hub.test", Port: 443},
			},
			ResourceProxy: mesh.Port{Number: 9090, Callers: []spiffeid.ID{server}},
			RedisProxy:    mesh.Port{Number: 6379, Callers: []spiffeid.ID{server}},
			Metrics:       mesh.Port{Number: 8080},
			Agents: map[identity.AgentName][]spiffeid.ID{
				kit.Agent(t, "edge-1"): {id(t, "spiffe://edge.test/ns/argocd/sa/agent"), id(t, "spiffe://edge.test/new")},
				kit.Agent(t, "edge-2"): {id(t, "spiffe://hub.test/argomesh/agent/edge-2")},
			},
		},
	}
}

func TestCheck(t *testing.T) {
	if err := mesh.Check(reach(t)); err != nil {
		t.Fatal(err)
	}
	if err := mesh.Check(mesh.Snapshot{}); err != nil {
		t.Errorf("Check() without Reach = %v", err)
	}
	address := func(s string) mesh.Address {
		a, err := mesh.ParseAddress(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for want, change := range map[string]func(*mesh.Snapshot){
		"the principal has no SPIFFE ID":                       func(s *mesh.Snapshot) { s.Self = spiffeid.ID{} },
		"no gRPC services of the stream, so the gateway would": func(s *mesh.Snapshot) { s.Reach.Stream.Services = nil },
		"the stream has no port":                               func(s *mesh.Snapshot) { s.Reach.Stream.Port = 0 },
		`the hub's address "*.hub.test", port 443`:             func(s *mesh.Snapshot) { s.Reach.Stream.Hub.Host = "*.hub.test" },
		`the hub's address "Hub.test", port 443`:               func(s *mesh.Snapshot) { s.Reach.Stream.Hub.Host = "Hub.test" },
		`the hub's address "argomesh.hub.test", port`:          func(s *mesh.Snapshot) { s.Reach.Stream.Hub.Port = 0 },
		"the gateway of exposure gateway":                      func(s *mesh.Snapshot) { s.Reach.Stream.Gateway = spiffeid.ID{} },
		"is not on the way of exposure direct":                 func(s *mesh.Snapshot) { s.Reach.Stream.Exposure = mesh.ExposureDirect },
		`upstream of "10.0.0.1:8444"`:                          func(s *mesh.Snapshot) { s.Reach.Stream.Upstream = address("10.0.0.1:8444") },
		`with an upstream of ""`:                               func(s *mesh.Snapshot) { s.Reach.Stream.Upstream = mesh.Address{} },
		"needs another port for its upstream":                  func(s *mesh.Snapshot) { s.Reach.Stream.Upstream = address("127.0.0.1:8443") },
		"the stream and metrics have the same port":            func(s *mesh.Snapshot) { s.Reach.Metrics.Number = 8443 },
		"metrics: callers, and no port": func(s *mesh.Snapshot) {
			s.Reach.Metrics = mesh.Port{Callers: []spiffeid.ID{s.Self}}
		},
		"caller of the Redis proxy": func(s *mesh.Snapshot) { s.Reach.RedisProxy.Callers = []spiffeid.ID{{}} },
		"101 callers, at most 100": func(s *mesh.Snapshot) {
			s.Reach.RedisProxy.Callers = slices.Repeat([]spiffeid.ID{s.Self}, mesh.MaxCallers+1)
		},
		"an agent without a name": func(s *mesh.Snapshot) { s.Reach.Agents[identity.AgentName{}] = nil },
		"is of two agents, edge-1 and edge-2": func(s *mesh.Snapshot) {
			s.Reach.Agents[kit.Agent(t, "edge-2")] = s.Reach.Agents[kit.Agent(t, "edge-1")]
		},
		"20001 agents, at most 20000 are served": func(s *mesh.Snapshot) {
			s.Reach.Agents = map[identity.AgentName][]spiffeid.ID{}
			for i := range mesh.MaxAgents + 1 {
				s.Reach.Agents[kit.Agent(t, fmt.Sprint("a", i))] = nil
			}
		},
		"does not go with method spiffe-x509":   func(s *mesh.Snapshot) { s.Reach.Stream.Method = identity.MethodX509 },
		`"mtls" is not a method`:                func(s *mesh.Snapshot) { s.Reach.Stream.Method = "mtls" },
		`"loadbalancer" is not an exposure`:     func(s *mesh.Snapshot) { s.Reach.Stream.Exposure = "loadbalancer" },
		`"everyone" is not a policy`:            func(s *mesh.Snapshot) { s.Reach.Stream.Policy = "everyone" },
		"policy open cannot be kept":            func(s *mesh.Snapshot) { s.Reach.Stream.Policy = mesh.PolicyOpen },
		"choose method header, or exposure pas": func(s *mesh.Snapshot) { s.Reach.Stream.Method = identity.MethodX509 },
	} {
		t.Run(want, func(t *testing.T) {
			s := reach(t)
			change(&s)
			if err := mesh.Check(s); err == nil || !errors.Is(err, identity.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("Check() = %v, want an error with %q", err, want)
			}
		})
	}
}

// The rule behind the table: what a proxy is to enforce it must see.
func TestTableKeepsItsPromises(t *testing.T) {
	for _, exposure := range mesh.Exposures() {
		for _, method := range mesh.Methods() {
			terminator := mesh.TLSTerminatorOf(exposure, method)
			for _, policy := range append(mesh.Policies(), "") {
				got, err := mesh.Enforce(exposure, method, policy)
				if err != nil {
					if got != "" || !errors.Is(err, identity.ErrInvalid) || !strings.Contains(err.Error(), "choose") {
						t.Errorf("%s %s %s: %q, %v: an error with a cure is wanted", exposure, method, policy, got, err)
					}
					continue
				}
				if terminator == "" {
					t.Errorf("%s %s %s holds, though nobody terminates TLS", exposure, method, policy)
				}
				if got == mesh.PolicyAgents && (terminator == mesh.TerminatorPrincipal || method != identity.MethodHeader) {
					t.Errorf("%s %s promises to tell agents apart, though %s terminates TLS", exposure, method, terminator)
				}
				if got == mesh.PolicyGateway && exposure == mesh.ExposureDirect {
					t.Errorf("%s %s promises a gateway", exposure, method)
				}
				if got == mesh.PolicyOpen && exposure == mesh.ExposureGateway && method == identity.MethodHeader {
					t.Error("anyone may say who an agent is")
				}
				if policy != "" && got != policy {
					t.Errorf("%s %s: asked for %s, got %s", exposure, method, policy, got)
				}
			}
			if (terminator == "") != (mesh.Strongest(exposure, method) == "") {
				t.Errorf("%s %s: ends %q, strongest %q", exposure, method, terminator, mesh.Strongest(exposure, method))
			}
			if method == identity.MethodHeader && terminator == mesh.TerminatorPrincipal || method == identity.MethodX509 && terminator != "" && terminator != mesh.TerminatorPrincipal {
				t.Errorf("%s %s: TLS terminates at %s", exposure, method, terminator)
			}
		}
	}
	if got, want := len(mesh.Table()), len(mesh.Exposures())*len(mesh.Methods()); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

// TestTableGolden keeps the table of the document equal to the one in code.
func TestTableGolden(t *testing.T) {
	const begin, end = "<!-- table: made from package mesh by `make golden` -->\n", "<!-- end of table -->\n"
	file := filepath.Join("..", "docs", "mesh.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	was, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table, between %q and %q", file, begin, end)
	}
	if golden.Updating() {
		if err := os.WriteFile(file, []byte(before+begin+mesh.Markdown()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, mesh.Markdown()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestAgentIDs(t *testing.T) {
	r := reach(t).Reach
	var got []string
	for _, one := range r.AgentIDs() {
		got = append(got, one.String())
	}
	want := []string{"spiffe://edge.test/new", "spiffe://edge.test/ns/argocd/sa/agent", "spiffe://hub.test/argomesh/agent/edge-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("AgentIDs() (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(r.TrustDomains()); got != "[edge.test hub.test]" {
		t.Errorf("TrustDomains() = %s", got)
	}
}
