package istio_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	securityapi "istio.io/api/security/v1beta1"
	networkv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/test/golden"
)

// input is a snapshot with its place in Istio, as a person writes it.
type input struct {
	Self  spiffeid.ID        `json:"self"`
	Reach mesh.Reach         `json:"reach"`
	Hub   istio.Config       `json:"hub"`
	Spoke *istio.SpokeConfig `json:"spoke"`
}

func (in input) snapshot() mesh.Snapshot { return mesh.Snapshot{Self: in.Self, Reach: &in.Reach} }

// read returns the input of a golden file.
func read(t *testing.T, title string) input {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", title+".in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var in input
	if err := yaml.UnmarshalStrict(raw, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func titles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".in.yaml")
	}
	return files
}

// render returns all objects of an input as YAML.
func render(t *testing.T, in input) []byte {
	t.Helper()
	objects, err := istio.Render(in.snapshot(), in.Hub)
	if err != nil {
		t.Fatal(err)
	}
	if in.Spoke != nil {
		more, err := istio.RenderSpoke(in.snapshot(), *in.Spoke)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
	}
	var out bytes.Buffer
	if err := istio.WriteYAML(&out, objects); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGolden(t *testing.T) {
	for _, title := range titles(t) {
		t.Run(title, func(t *testing.T) {
			in := read(t, title)
			got := render(t, in)
			golden.Compare(t, filepath.Join("testdata", title+".out.yaml"), got)
			if again := render(t, read(t, title)); !bytes.Equal(got, again) {
				t.Error("rendered again it is something else")
			}
			settings, err := istio.SettingsFor(in.snapshot(), in.Hub)
			if err != nil {
				t.Fatal(err)
			}
			var values bytes.Buffer
			if err := settings.Write(&values); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", title+".settings.yaml"), values.Bytes())
		})
	}
}

func objects[T istio.Object](t *testing.T, in input) []T {
	t.Helper()
	all, err := istio.Render(in.snapshot(), in.Hub)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for _, object := range all {
		if one, ok := object.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

// Istio takes a principal with its scheme without a word, and then no one matches.
func TestPrincipalsHaveNoScheme(t *testing.T) {
	for _, title := range titles(t) {
		seen := 0
		for _, p := range objects[*securityv1.AuthorizationPolicy](t, read(t, title)) {
			for _, rule := range p.Spec.Rules {
				for _, from := range rule.From {
					for _, name := range slices.Concat(from.Source.Principals, from.Source.NotPrincipals) {
						seen++
						if _, err := identity.ParseID("spiffe://" + name); err != nil || strings.ContainsAny(name, "*:") {
							t.Errorf("%s: %s names %q, which is no exact principal: %v", title, p.Name, name, err)
						}
					}
				}
			}
		}
		if seen == 0 {
			t.Errorf("%s: no policy names anybody", title)
		}
	}
}

// A rule or a source without content admits everybody, and so nothing that is rendered
// may have one, no matter who is missing.
func TestNobodyMeansNobody(t *testing.T) {
	for _, title := range titles(t) {
		in := read(t, title)
		in.Reach.Agents = nil
		in.Reach.ResourceProxy.Callers, in.Reach.RedisProxy.Callers, in.Reach.Metrics.Callers = nil, nil, nil
		denied := false
		for _, p := range objects[*securityv1.AuthorizationPolicy](t, in) {
			denied = denied || len(p.Spec.Rules) == 0 && p.Spec.Action == securityapi.AuthorizationPolicy_ALLOW
			for _, rule := range p.Spec.Rules {
				open := in.Reach.Stream.Exposure == mesh.ExposureDirect && in.Reach.Stream.Method != identity.MethodHeader
				if p.Spec.Action == securityapi.AuthorizationPolicy_ALLOW && len(rule.From) == 0 && !(open && p.Name == "argomesh-principal-stream") {
					t.Errorf("%s: %s allows everybody", title, p.Name)
				}
				for _, from := range rule.From {
					if len(from.Source.Principals)+len(from.Source.NotPrincipals) == 0 {
						t.Errorf("%s: %s has a source that means everybody", title, p.Name)
					}
				}
			}
		}
		if !denied {
			t.Errorf("%s: no policy denies what none allows", title)
		}
	}
}

// A policy on a shared gateway must leave all else on it alone: it denies, and asks for
// the SNI, which is known of bytes too.
func TestGatewayPolicyIsAboutOurNameOnly(t *testing.T) {
	in := read(t, "gateway")
	found := false
	for _, p := range objects[*securityv1.AuthorizationPolicy](t, in) {
		if p.Namespace != in.Hub.Gateway.Namespace {
			continue
		}
		found = true
		if p.Spec.Action != securityapi.AuthorizationPolicy_DENY {
			t.Errorf("%s has action %s", p.Name, p.Spec.Action)
		}
		for _, rule := range p.Spec.Rules {
			if len(rule.When) != 1 || rule.When[0].Key != "connection.sni" || !slices.Equal(rule.When[0].Values, []string{in.Reach.Stream.Hub.Host}) || len(rule.To) > 0 {
				t.Errorf("%s has rule %v", p.Name, rule)
			}
		}
	}
	if !found {
		t.Error("the gateway has no policy")
	}
}

// Method header is safe only where no one but the pod's proxy reaches the principal.
func TestHeaderGoesToLoopbackOnly(t *testing.T) {
	for _, title := range titles(t) {
		in := read(t, title)
		if in.Reach.Stream.Method != identity.MethodHeader {
			continue
		}
		for _, s := range objects[*networkv1.Sidecar](t, in) {
			stream := s.Spec.Ingress[0]
			if at := stream.DefaultEndpoint; !strings.HasPrefix(at, "127.0.0.1:") && !strings.HasPrefix(at, "unix:///") || strings.HasSuffix(at, fmt.Sprint(":", in.Reach.Stream.Port)) {
				t.Errorf("%s: the stream goes to %s", title, at)
			}
			if stream.Port.Protocol != "GRPC" {
				t.Errorf("%s: the stream is %s, so nothing is said of the peer", title, stream.Port.Protocol)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	id := spiffeid.RequireFromString
	foreign := spiffeid.RequireTrustDomainFromString("partner.test")
	edge := func(t *testing.T, in *input, ids ...string) {
		t.Helper()
		name, err := identity.ParseAgentName("edge-9")
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range ids {
			in.Reach.Agents[name] = append(in.Reach.Agents[name], id(one))
		}
	}
	for want, change := range map[string]func(t *testing.T, in *input){
		"admit its namesakes too, such as partner.test/ns/argocd/sa/argocd-server": func(_ *testing.T, in *input) {
			in.Hub.TrustDomainAliases = []spiffeid.TrustDomain{foreign}
		},
		"spiffe://partner.test/ns/argocd/sa/agent: meshConfig.trustDomainAliases": func(_ *testing.T, in *input) {
			in.Hub.TrustDomainAliases = []spiffeid.TrustDomain{foreign}
		},
		"means the mesh's own trust domain": func(t *testing.T, in *input) {
			edge(t, in, "spiffe://cluster.local/ns/argocd/sa/agent")
		},
		"the principal's SPIFFE ID": func(_ *testing.T, in *input) { in.Self = id("spiffe://hub.test/argomesh/principal") },
		"with the gateway's namespace": func(_ *testing.T, in *input) {
			in.Reach.Stream.Gateway = id("spiffe://hub.test/ns/elsewhere/sa/gateway")
		},
		"gateway spiffe://partner.test/ns/istio-ingress/sa/istio-ingress is not of the mesh's": func(_ *testing.T, in *input) {
			in.Reach.Stream.Gateway = id("spiffe://partner.test/ns/istio-ingress/sa/istio-ingress")
		},
		"so no workload of Istio has it": func(_ *testing.T, in *input) {
			in.Reach.Metrics.Callers = []spiffeid.ID{id("spiffe://hub.test/prometheus")}
		},
		"is not of the mesh's trust domain hub.test": func(_ *testing.T, in *input) {
			in.Reach.Metrics.Callers = []spiffeid.ID{id("spiffe://partner.test/ns/m/sa/prometheus")}
		},
		"has no dot":                              func(_ *testing.T, in *input) { in.Reach.Stream.Hub.Host = "localhost" },
		"no labels select the gateway's pods":     func(_ *testing.T, in *input) { in.Hub.Gateway.Labels = nil },
		"is not a label of pods":                  func(_ *testing.T, in *input) { in.Hub.Labels = map[string]string{"a b": ""} },
		`stream service "a.b" is not a DNS label`: func(_ *testing.T, in *input) { in.Hub.StreamService = "a.b" },
		`namespace "A" cannot be one`:             func(_ *testing.T, in *input) { in.Hub.Namespace = "A" },
		"is not a DNS label of at most 40 bytes":  func(_ *testing.T, in *input) { in.Hub.Name = strings.Repeat("x", 41) },
		"is for method spiffe-jwt":                func(_ *testing.T, in *input) { in.Hub.Gateway.CredentialName = "x" },
		"the gateway has no certificate": func(_ *testing.T, in *input) {
			in.Reach.Stream.Method, in.Reach.Stream.Policy = identity.MethodJWT, ""
		},
		"not on 10.0.0.1:9090": func(t *testing.T, in *input) {
			if err := in.Reach.ResourceProxy.Upstream.UnmarshalText([]byte("10.0.0.1:9090")); err != nil {
				t.Fatal(err)
			}
		},
		"choose policy gateway, and leave agents to the registry": func(t *testing.T, in *input) {
			for i := range 18_000 {
				edge(t, in, fmt.Sprintf("spiffe://edge-%d.spokes.example.test/ns/argocd/sa/argomesh-agent-%d", i, i))
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			in := read(t, "gateway")
			change(t, &in)
			got, err := istio.Render(in.snapshot(), in.Hub)
			if err == nil || !errors.Is(err, istio.ErrRefused) || !strings.Contains(err.Error(), want) || got != nil {
				t.Errorf("Render() = %d objects, %v, want an error with %q", len(got), err, want)
			}
		})
	}
}

// Aliases change only principals of five segments; others mean what they say.
func TestAliasesThatChangeNothing(t *testing.T) {
	in := read(t, "passthrough")
	before := render(t, in)
	in.Reach.ResourceProxy.Callers, in.Reach.RedisProxy.Callers, in.Reach.Metrics.Callers = nil, nil, nil
	in.Reach.Stream.Policy = mesh.PolicyOpen
	in.Hub.TrustDomainAliases = []spiffeid.TrustDomain{spiffeid.RequireTrustDomainFromString("partner.test")}
	if _, err := istio.Render(in.snapshot(), in.Hub); err == nil {
		t.Error("the gateway's namesake in partner.test would be admitted")
	}
	in.Hub.TrustDomainAliases = nil
	if bytes.Equal(before, render(t, in)) {
		t.Error("what is asked for has no part in what is rendered")
	}
}

func TestWithoutMesh(t *testing.T) {
	if got, err := istio.Render(mesh.Snapshot{}, istio.Config{}); got != nil || err != nil {
		t.Errorf("Render() = %v, %v", got, err)
	}
	if got, err := istio.RenderSpoke(mesh.Snapshot{}, istio.SpokeConfig{}); got != nil || err != nil {
		t.Errorf("RenderSpoke() = %v, %v", got, err)
	}
}

// What mesh refuses is not rendered.
func TestChecksTheSnapshot(t *testing.T) {
	in := read(t, "passthrough")
	in.Reach.Stream.Policy = mesh.PolicyAgents
	if got, err := istio.Render(in.snapshot(), in.Hub); err == nil || got != nil || !strings.Contains(err.Error(), "policy agents cannot be kept") {
		t.Errorf("Render() = %v, %v", got, err)
	}
	if got, err := istio.RenderSpoke(in.snapshot(), istio.SpokeConfig{Namespace: "argocd"}); err == nil || got != nil {
		t.Errorf("RenderSpoke() = %v, %v", got, err)
	}
}
