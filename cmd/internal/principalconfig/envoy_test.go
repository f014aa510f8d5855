package principalconfig

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/mesh"
)

func TestEnvoyValidate(t *testing.T) {
	if err := DefaultEnvoy().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Envoy){
		"node_id":         func(e *Envoy) { e.NodeID = "" },
		"listen":          func(e *Envoy) { e.Listen = "0.0.0.0:18000" },
		"resource_proxy":  func(e *Envoy) { e.ResourceProxy = mesh.Address{} },
		"stream_upstream": func(e *Envoy) { e.Stream, e.StreamUpstream = e.ResourceProxy, mesh.Address{} },
		"max_requests":    func(e *Envoy) { e.MaxRequests = 0 },
		"max_connections": func(e *Envoy) { e.MaxConnections = 0 },
	} {
		t.Run(want, func(t *testing.T) {
			e := DefaultEnvoy()
			e.Listen = "unix:///run/argomesh/xds.sock"
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			change(&e)
			if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want+" ") && !strings.Contains(err.Error(), want+":") {
				t.Errorf("Validate() = %v, want an error of %s", err, want)
			}
		})
	}
}
