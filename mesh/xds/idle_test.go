package xds_test

import (
	"testing"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/argomesh/argomesh/mesh/xds"
)

// Who opens connections and says nothing in them does not hold for long what a listener has of them.
func TestWhoSaysNothingKeepsNoConnection(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, snapshot := range cases(t) {
		r, err := xds.Render(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Listeners {
			for _, f := range l.GetFilterChains()[0].GetFilters() {
				manager := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(manager) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
					t.Fatal(err)
				}
				most := 2 * time.Minute
				if manager.GetForwardClientCertDetails() != hcmv3.HttpConnectionManager_SANITIZE {
					most = 30 * time.Second // of agents, each of which has a call at any time
				}
				seen[most.String()] = true
				if idle := manager.GetCommonHttpProtocolOptions().GetIdleTimeout().AsDuration(); idle == 0 || idle > most {
					t.Errorf("%s: listener %s keeps a connection without requests for %v", name, l.GetName(), idle)
				}
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("looked at listeners that keep one for %v", seen)
	}
}
