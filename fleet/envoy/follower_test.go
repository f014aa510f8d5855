package envoy

import (
	"context"
	"crypto/elliptic"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// countsOf counts what Envoy is given, by type; nothing before the first state.
func countsOf(t *testing.T, metrics prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() == "argomesh_xds_resources" {
			for _, m := range family.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = int(m.GetGauge().GetValue())
			}
		}
	}
	return counts
}

func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		private := certkit.Key(t, elliptic.P256())
		var (
			registry = &fleet.Registry{}
			metrics  = prometheus.NewRegistry()
			changed  = make(chan struct{})
			unread   = errors.New("not read yet")
			check    = mesh.Tokens{Issuer: "issuer", Audience: "audience", Leeway: token.Leeway}
			self     = make(chan struct{})
		)
		set := func(change func()) {
			t.Helper()
			old := changed
			changed = make(chan struct{})
			change()
			close(old)
			synctest.Wait()
		}
		address := func(text string) mesh.Address {
			t.Helper()
			a, err := mesh.ParseAddress(text)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		server, err := xds.New(xds.Config{NodeID: xds.DefaultNodeID, Metrics: metrics, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		follower := New(Config{
			Fixed: mesh.Snapshot{
				ResourceProxy: &mesh.ResourceProxy{Listen: address("0.0.0.0:9090"), Principal: address("unix:///run/argomesh/resource-proxy.sock")},
				Stream:        &mesh.Stream{Listen: address("0.0.0.0:8443"), Principal: address("unix:///run/argomesh/stream.sock"), Services: StreamServices()},
			},
			Registry: registry, Server: server, Log: zerolog.Nop(),
			Self: func(ctx context.Context) (spiffeid.ID, error) {
				select {
				case <-self:
					return spiffeid.RequireFromString("spiffe://hub.test/principal"), nil
				case <-ctx.Done():
					return spiffeid.ID{}, ctx.Err()
				}
			},
			Tokens: func() (mesh.Tokens, <-chan struct{}, error) { return check, changed, unread },
		})
		kit.Background(t, follower.follow)
		expect := func(when string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, countsOf(t, metrics)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		agents := func(suspended ...bool) []v1alpha1.Agent {
			var out []v1alpha1.Agent
			for i, s := range suspended {
				out = append(out, v1alpha1.Agent{
					ObjectMeta: metav1.ObjectMeta{Name: "edge-" + string(rune('a'+i))}, Spec: v1alpha1.AgentSpec{Suspended: s},
				})
			}
			return out
		}
		expect("our own identity is not known", map[string]int{})
		close(self)
		registry.Set(agents(false, false))
		expect("the keys are not known", map[string]int{})
		set(func() { unread = nil })
		expect("all is known", map[string]int{"listener": 2, "cluster": 2, "extension": 1, "route": 2})
		registry.Set(agents(false, true, false, false))
		expect("one of four agents is suspended", map[string]int{"listener": 2, "cluster": 2, "extension": 1, "route": 3})
		set(func() { unread = errors.New("not read") })
		registry.Set(nil)
		expect("the keys cannot be read, and Envoy keeps what it has", map[string]int{"listener": 2, "cluster": 2, "extension": 1, "route": 3})
		set(func() { unread, check.Keys = nil, []mesh.Key{{ID: "1", Public: &private.PublicKey}} })
		expect("a public key", map[string]int{"listener": 2, "cluster": 2, "extension": 1, "route": 0})
	})
}

func TestStreamServices(t *testing.T) {
	if got := strings.Join(StreamServices(), " "); got != "argomesh.stream.v1.Stream argomesh.stream.v1.Tunnel" {
		t.Errorf("StreamServices() = %s", got)
	}
}

// A private key stays out of every message.
func TestPublicKeys(t *testing.T) {
	private := certkit.Key(t, elliptic.P256())
	if keys, err := publicKeys(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private, KeyID: "1"}}}); err == nil {
		t.Errorf("publicKeys() of a private key = %v", keys)
	}
	keys, err := publicKeys(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &private.PublicKey, KeyID: "1"}}})
	if err != nil || !cmp.Equal(keys, []mesh.Key{{ID: "1", Public: &private.PublicKey}}) {
		t.Errorf("publicKeys() = %v, %v", keys, err)
	}
}
