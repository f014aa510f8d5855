package xds_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/test/golden"
)

// input is a snapshot as a person writes it.
type input struct {
	Self          spiffeid.ID `json:"self"`
	ResourceProxy *struct {
		Listen         mesh.Address         `json:"listen"`
		Principal      mesh.Address         `json:"principal"`
		Issuer         string               `json:"issuer"`
		Audience       string               `json:"audience"`
		Keys           []jose.JSONWebKey    `json:"keys"`
		Agents         []identity.AgentName `json:"agents"`
		Replicas       map[identity.AgentName]mesh.Address
		MaxConnections uint32 `json:"maxConnections"`
		MaxRequests    uint32 `json:"maxRequests"`
	} `json:"resourceProxy"`
	Redis  *mesh.Redis  `json:"redis"`
	Stream *mesh.Stream `json:"stream"`
}

func (in input) snapshot() mesh.Snapshot {
	s := mesh.Snapshot{Self: in.Self, Redis: in.Redis, Stream: in.Stream}
	if p := in.ResourceProxy; p != nil {
		s.ResourceProxy = &mesh.ResourceProxy{
			Listen: p.Listen, Principal: p.Principal,
			Tokens:         mesh.Tokens{Issuer: p.Issuer, Audience: p.Audience, Leeway: time.Minute},
			Agents:         map[identity.AgentName]mesh.Agent{},
			MaxConnections: p.MaxConnections, MaxRequests: p.MaxRequests,
		}
		for _, k := range p.Keys {
			public, _ := k.Key.(*ecdsa.PublicKey)
			s.ResourceProxy.Tokens.Keys = append(s.ResourceProxy.Tokens.Keys, mesh.Key{ID: k.KeyID, Public: public})
		}
		for _, name := range p.Agents {
			s.ResourceProxy.Agents[name] = mesh.Agent{Replica: p.Replicas[name]}
		}
	}
	return s
}

// cases are the golden files, by name.
func cases(t *testing.T) map[string]mesh.Snapshot {
	t.Helper()
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	snapshots := make(map[string]mesh.Snapshot, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var in input
		if err := yaml.UnmarshalStrict(raw, &in); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		snapshots[strings.TrimSuffix(filepath.Base(file), ".in.yaml")] = in.snapshot()
	}
	return snapshots
}

func TestRenderGolden(t *testing.T) {
	for name, snapshot := range cases(t) {
		t.Run(name, func(t *testing.T) {
			r, err := xds.Render(snapshot)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", name+".out.yaml"), asYAML(t, map[string]any{
				"listeners": messages(t, r.Listeners), "clusters": messages(t, r.Clusters),
				"routes": messages(t, r.Routes), "extensions": messages(t, r.Extensions),
			}))
			again, err := xds.Render(snapshot)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Listeners {
				if !proto.Equal(r.Listeners[i], again.Listeners[i]) {
					t.Error("another rendering of the same snapshot differs")
				}
			}
		})
	}
}

func TestBootstrapGolden(t *testing.T) {
	for name, cfg := range bootstraps(t) {
		t.Run(name, func(t *testing.T) {
			b, err := xds.Bootstrap(cfg)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", "bootstrap-"+name+".yaml"), asYAML(t, message(t, b)))
		})
	}
}

func bootstraps(t *testing.T) map[string]xds.BootstrapConfig {
	t.Helper()
	return map[string]xds.BootstrapConfig{
		"default": {
			XDS: address(t, "unix:///run/argomesh/xds.sock"), WorkloadAPI: address(t, "unix:///run/spire/agent/api.sock"),
			Admin: address(t, "unix:///run/argomesh/envoy-admin.sock"),
		},
		"full": {
			NodeID: "principal-1",
			XDS:    address(t, "unix:///run/argomesh/xds.sock"), WorkloadAPI: address(t, "127.0.0.1:8081"),
			Admin: address(t, "127.0.0.1:9901"), Stats: address(t, "[::]:9902"),
			MaxMemory: 256 << 20, MaxConnections: 500,
		},
	}
}

func TestBootstrapRefuses(t *testing.T) {
	good := bootstraps(t)["default"]
	for name, change := range map[string]func(*xds.BootstrapConfig){
		"the admin interface for everybody": func(c *xds.BootstrapConfig) { c.Admin = address(t, "0.0.0.0:9901") },
		"no xds":                            func(c *xds.BootstrapConfig) { c.XDS = mesh.Address{} },
		"secrets from another machine":      func(c *xds.BootstrapConfig) { c.WorkloadAPI = address(t, "10.0.0.1:8081") },
		"no memory":                         func(c *xds.BootstrapConfig) { c.MaxMemory = xds.MinMemory - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			change(&cfg)
			if _, err := xds.Bootstrap(cfg); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// Agents and keys must leave listeners alone, byte by byte: Envoy drains one that
// changes.
func TestListenersAreConstant(t *testing.T) {
	snapshots := cases(t)
	few, many := snapshots["empty"], snapshots["agents"]
	many.ResourceProxy.Listen, many.ResourceProxy.MaxConnections = few.ResourceProxy.Listen, 0
	a, err := xds.Render(few)
	if err != nil {
		t.Fatal(err)
	}
	b, err := xds.Render(many)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Routes) == len(b.Routes) || proto.Equal(a.Extensions[0], b.Extensions[0]) {
		t.Fatal("the two do not differ in agents and keys: mend this test")
	}
	for i := range a.Listeners {
		x, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.Listeners[i])
		if err != nil {
			t.Fatal(err)
		}
		y, err := proto.MarshalOptions{Deterministic: true}.Marshal(b.Listeners[i])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("listener %s depends on agents or keys:\n%s", a.Listeners[i].GetName(), cmp.Diff(message(t, a.Listeners[i]), message(t, b.Listeners[i])))
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, change := range map[string]func(*mesh.Snapshot){
		"nobody":      func(s *mesh.Snapshot) { s.Self = spiffeid.ID{} },
		"no audience": func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Audience = "" },
		"an agent of no name": func(s *mesh.Snapshot) {
			s.ResourceProxy.Agents = map[identity.AgentName]mesh.Agent{{}: {}}
		},
		"bytes that are no text": func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Issuer = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			s := cases(t)["agents"]
			change(&s)
			if _, err := xds.Render(s); err == nil {
				t.Error("it is rendered")
			}
		})
	}
}

func messages[M proto.Message](t *testing.T, all []M) []any {
	t.Helper()
	var out []any
	for _, m := range all {
		out = append(out, message(t, m))
	}
	return out
}

// message returns m as the values of its JSON.
func message(t *testing.T, m proto.Message) any {
	t.Helper()
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func asYAML(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func address(t *testing.T, s string) mesh.Address {
	t.Helper()
	a, err := mesh.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
