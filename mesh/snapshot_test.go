package mesh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

func TestParseAddress(t *testing.T) {
	for _, good := range []string{
		"127.0.0.1:9090", "0.0.0.0:1", "[::]:65535", "[::1]:8443", "unix:///run/x.sock", "unix:///" + strings.Repeat("x", 106),
	} {
		a, err := mesh.ParseAddress(good)
		if err != nil || a.String() != good {
			t.Errorf("ParseAddress(%q) = %q, %v", good, a, err)
		}
	}
	for _, bad := range []string{
		"", ":9090", "localhost:9090", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "[fe80::1%eth0]:1",
		"unix://x.sock", "unix:///", "unix:///run/../x", "unix:///x/", "unix:///" + strings.Repeat("x", 107), "http://x",
	} {
		if a, err := mesh.ParseAddress(bad); !errors.Is(err, identity.ErrInvalid) || !a.IsZero() {
			t.Errorf("ParseAddress(%q) = %q, %v, want an error", bad, a, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("127.0.0.1:9090")
	f.Add("[::]:1")
	f.Add("unix:///run/x.sock")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := mesh.ParseAddress(s)
		if err != nil {
			return
		}
		again, err := mesh.ParseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %q, which is read as %q, %v", s, a, again, err)
		}
	})
}

func TestIsLocal(t *testing.T) {
	for text, want := range map[string]bool{
		"unix:///x": true, "127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true,
		"0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false,
	} {
		a, err := mesh.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if a.IsLocal() != want {
			t.Errorf("IsLocal(%s) = %t", text, !want)
		}
	}
	if (mesh.Address{}).IsLocal() {
		t.Error("no address is local")
	}
}

func TestValidate(t *testing.T) {
	address := func(s string) mesh.Address {
		a, err := mesh.ParseAddress(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	key := func(curve elliptic.Curve) *ecdsa.PublicKey { return &certkit.Key(t, curve).PublicKey }
	good := func() mesh.Snapshot {
		return mesh.Snapshot{
			Self: spiffeid.RequireFromString("spiffe://hub.test/principal"),
			ResourceProxy: &mesh.ResourceProxy{
				Listen: address("0.0.0.0:9090"), Principal: address("unix:///x"),
				Tokens: mesh.Tokens{Issuer: "i", Audience: "a", Leeway: time.Minute, Keys: []mesh.Key{{ID: "1", Public: key(elliptic.P256())}}},
			},
			Stream: &mesh.Stream{Listen: address("0.0.0.0:8443"), Principal: address("127.0.0.1:1"), Services: []string{"x.Y"}},
		}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*mesh.Snapshot){
		"not the SPIFFE ID of a workload": func(s *mesh.Snapshot) { s.Self = spiffeid.RequireFromString("spiffe://hub.test") },
		"address to listen on":            func(s *mesh.Snapshot) { s.ResourceProxy.Listen = mesh.Address{} },
		"issuer and audience":             func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Issuer = "" },
		"a leeway of 0s":                  func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Leeway = 0 },
		"a leeway of 1.5s":                func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Leeway = 1500 * time.Millisecond },
		"without an id":                   func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Keys[0].ID = "" },
		"not of P-256":                    func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Keys[0].Public = key(elliptic.P384()) },
		`key "1" is not of P-256`:         func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Keys[0].Public = nil },
		"two keys with the id": func(s *mesh.Snapshot) {
			t := &s.ResourceProxy.Tokens
			t.Keys = append(t.Keys, t.Keys[0])
		},
		"at most 8 are used":           func(s *mesh.Snapshot) { s.ResourceProxy.Tokens.Keys = make([]mesh.Key, mesh.MaxKeys+1) },
		"the services are required":    func(s *mesh.Snapshot) { s.Stream.Services = nil },
		"on loopback or a unix socket": func(s *mesh.Snapshot) { s.Stream.Principal = address("10.0.0.1:1") },
		"at most 20000 are served": func(s *mesh.Snapshot) {
			s.ResourceProxy.Agents = map[identity.AgentName]mesh.Agent{}
			for i := range mesh.MaxAgents + 1 {
				name, err := identity.ParseAgentName(fmt.Sprint("a", i))
				if err != nil {
					t.Fatal(err)
				}
				s.ResourceProxy.Agents[name] = mesh.Agent{}
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := good()
			change(&s)
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Validate() = %v, want an error with %q", err, want)
			}
		})
	}
}
