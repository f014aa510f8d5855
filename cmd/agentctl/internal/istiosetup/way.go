package istiosetup

import (
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/identity"
)

// Way is how agents come to a principal that values have be in Istio. The zero value is that of values which
// say nothing of it.
type Way struct {
	// Address is host:port of the gateway. Exposure and Method are as config.mesh has them.
	Address, Exposure, Method string
	// GatewayID is the SPIFFE ID of the gateway, and GatewayNamespace is where it runs.
	GatewayID, GatewayNamespace string
}

// WayOf returns that of values of the chart argomesh-principal.
func WayOf(values map[string]any) Way {
	config, _ := values["config"].(map[string]any)
	m, _ := config["mesh"].(map[string]any)
	gateway, _ := m["gateway"].(map[string]any)
	return Way{
		Address: text(m, "hub"), Exposure: text(m, "exposure"), Method: text(m, "method"),
		GatewayID: text(gateway, "spiffe_id"), GatewayNamespace: text(gateway, "namespace"),
	}
}

// Gateway returns the name of its gateway among those that are there; "" for none, or one that is gone.
func (w Way) Gateway(all []Gateway) string {
	for _, g := range all {
		if g.Namespace == w.GatewayNamespace && isAccountOf(w.GatewayID, g) {
			return g.String()
		}
	}
	return ""
}

// Keep refuses another way in than there is: agents come by that, and values of both would be mixed.
func (w Way) Keep(h Hub) error {
	if w.Exposure != "" && w.Exposure != string(h.Exposure) {
		return fmt.Errorf("--istio-exposure %s: the principal is there with %s, by which agents reach it: say all of config.mesh and"+
			" config.stream by --values to change that", h.Exposure, w.Exposure)
	}
	if w.GatewayID != "" && !isAccountOf(w.GatewayID, h.Gateway) {
		return fmt.Errorf("--istio-gateway %s: the principal is there behind the gateway %s, by which agents reach it: say all of"+
			" config.mesh.gateway by --values to change that", h.Gateway, w.GatewayID)
	}
	return nil
}

// Flags are those by which a spoke is told of the gateway, each after a space; "" without one.
func (w Way) Flags() string {
	if w.Address == "" {
		return ""
	}
	flags := " --principal " + w.Address
	if w.Method == identity.MethodHeader {
		flags += fmt.Sprintf(" --set config.principal.method=%s --set 'config.principal.gateway.spiffe_ids[0]=%s'",
			identity.MethodHeader, w.GatewayID)
	}
	return flags
}

// isAccountOf reports whether a SPIFFE ID is that of a gateway's service account.
func isAccountOf(id string, g Gateway) bool {
	return strings.HasSuffix(id, "/ns/"+g.Namespace+"/sa/"+g.ServiceAccount)
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
