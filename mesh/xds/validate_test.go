//go:build linux

package xds_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// TestEnvoyTakesGolden has the real Envoy read everything that the golden files show.
func TestEnvoyTakesGolden(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy")
	all := map[string]*bootstrapv3.Bootstrap{}
	for name, snapshot := range cases(t) {
		if r := snapshot.Redis; r != nil && r.TLS == mesh.RedisTLSFiles {
			there := *r // Envoy reads them
			there.CertificateFile, there.KeyFile = certkit.New(t, x509.Certificate{DNSNames: []string{"argomesh-principal"}}).Files(t, t.TempDir())
			snapshot.Redis = &there
		}
		r, err := xds.Render(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = staticBootstrap(t, r)
	}
	for name, cfg := range bootstraps(t) {
		b, err := xds.Bootstrap(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all["bootstrap-"+name] = b
	}
	for name, b := range all {
		t.Run(name, func(t *testing.T) { validate(t, b) })
	}
}

// TestEnvoyRefusesNonsense shows that the validation above can fail.
func TestEnvoyRefusesNonsense(t *testing.T) {
	harnesstest.SkipMissing(t, "envoy")
	r, err := xds.Render(cases(t)["agents"])
	if err != nil {
		t.Fatal(err)
	}
	b := staticBootstrap(t, r)
	b.StaticResources.Clusters[0].Name = ""
	if out, err := runEnvoy(t, b); err == nil {
		t.Errorf("Envoy takes a cluster without a name:\n%s", out)
	}
}

func validate(t *testing.T, b *bootstrapv3.Bootstrap) {
	t.Helper()
	out, err := runEnvoy(t, b)
	if err != nil || bytes.Contains(out, []byte("[warning]")) { // of what is deprecated
		t.Errorf("envoy --mode validate: %v\n%s", err, out)
	}
}

func runEnvoy(t *testing.T, b *bootstrapv3.Bootstrap) ([]byte, error) {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("envoy")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, asYAML(t, message(t, b)), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), path, "--mode", "validate", "--log-level", "warning", "--config-path", file).CombinedOutput()
}

// staticListener puts routes and filters into a listener that names services for them.
func staticListener(t *testing.T, l *listenerv3.Listener, r xds.Resources) *listenerv3.Listener {
	t.Helper()
	l = proto.CloneOf(l)
	for _, filter := range l.GetFilterChains()[0].GetFilters() {
		manager := &hcmv3.HttpConnectionManager{}
		if !filter.GetTypedConfig().MessageIs(manager) {
			continue
		}
		if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
			t.Fatal(err)
		}
		if scoped := manager.GetScopedRoutes(); scoped != nil {
			scoped.ConfigSpecifier = &hcmv3.ScopedRoutes_ScopedRouteConfigurationsList{
				ScopedRouteConfigurationsList: &hcmv3.ScopedRouteConfigurationsList{ScopedRouteConfigurations: r.Routes},
			}
			if len(r.Routes) == 0 { // which Envoy takes from a service only
				manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{}
			}
		}
		for _, f := range manager.GetHttpFilters() {
			for _, e := range r.Extensions {
				if f.GetConfigDiscovery() != nil && e.GetName() == f.GetName() {
					f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: e.GetTypedConfig()}
				}
			}
		}
		packed, err := anypb.New(manager)
		if err != nil {
			t.Fatal(err)
		}
		filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
	}
	return l
}

// staticBootstrap holds resources where Envoy's validation finds them: what would
// come by a service stands in its place.
func staticBootstrap(t *testing.T, r xds.Resources) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := xds.Bootstrap(bootstraps(t)["default"])
	if err != nil {
		t.Fatal(err)
	}
	b.DynamicResources = nil
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, r.Clusters...)
	for _, l := range r.Listeners {
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, staticListener(t, l, r))
	}
	return b
}
