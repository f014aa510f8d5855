package istiosetup

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// istioSource is the chart's identity.source for a pod whose proxy has its identity from SPIRE, too.
const istioSource = "istio"

// Hub is what a principal's place in its Istio follows from.
type Hub struct {
	Namespace   string
	TrustDomain spiffeid.TrustDomain
	Gateway     Gateway
	// Exposure is passthrough or gateway.
	Exposure mesh.Exposure
	// Address is host:port at which agents reach the gateway.
	Address string
	// Callers are Argo CD's service accounts that call the proxies.
	Callers []string
	// Aliases are those of the mesh's trust domain.
	Aliases []string
	// Class is that of the spire-controller-manager.
	Class string
	// RedisPort is that of the Redis proxy; 0 for none.
	RedisPort uint16
	At        Place
}

// account is the SPIFFE ID that Istio gives a service account.
func (h Hub) account(namespace, name string) (spiffeid.ID, error) {
	return spiffeid.FromSegments(h.TrustDomain, "ns", namespace, "sa", name)
}

// Values are those of the chart argomesh-principal, as far as they follow.
func (h Hub) Values() (map[string]any, error) {
	if err := checkAddress(h.Address); err != nil {
		return nil, fmt.Errorf("--address: %w", err)
	}
	principal, err := h.account(h.Namespace, charts.Principal)
	if err != nil {
		return nil, err
	}
	gateway, err := h.account(h.Gateway.Namespace, h.Gateway.ServiceAccount)
	if err != nil {
		return nil, err
	}
	callers := make([]any, len(h.Callers))
	for i, name := range h.Callers {
		id, err := h.account(h.Namespace, name)
		if err != nil {
			return nil, err
		}
		callers[i] = id.String()
	}
	m := map[string]any{
		"exposure": string(h.Exposure), "method": identity.MethodX509, "principal": principal.String(), "hub": h.Address,
		"argo_cd": callers,
		"gateway": map[string]any{"spiffe_id": gateway.String(), "namespace": h.Gateway.Namespace,
			"pod_labels": anyMap(h.Gateway.Labels)},
		"live": map[string]any{"istio": meshconfig.LiveApply, "spire": meshconfig.LiveApply, "spire_class": h.Class},
	}
	if h.RedisPort != 0 {
		m["redis_proxy_port"] = float64(h.RedisPort) // as Helm has numbers
	}
	if len(h.Aliases) > 0 {
		aliases := make([]any, len(h.Aliases))
		for i, a := range h.Aliases {
			aliases[i] = a
		}
		m["trust_domain_aliases"] = aliases
	}
	config := map[string]any{"mesh": m}
	if h.Exposure == mesh.ExposureGateway {
		m["method"] = identity.MethodHeader
		config["stream"] = map[string]any{"listen": "", "listeners": []any{map[string]any{
			"method": identity.MethodHeader, "header": map[string]any{"trusted_proxies": []any{gateway.String()}},
		}}}
	}
	return h.At.values(config), nil
}

// SpokeValues are those of the chart argomesh-agent, as far as they follow.
func (p Place) SpokeValues() map[string]any { return p.values(nil) }

func (p Place) values(config map[string]any) map[string]any {
	values := map[string]any{"identity": map[string]any{"source": istioSource}}
	if config != nil {
		values["config"] = config
	}
	labels, _ := Injected(p)
	if rev, is := labels["istio.io/rev"]; is {
		values["podLabels"] = map[string]any{"istio.io/rev": rev}
	}
	return values
}

// Uses reports whether values have the pod be in Istio.
func Uses(values map[string]any) bool {
	of, _ := values["identity"].(map[string]any)
	return of["source"] == istioSource
}

// Keeps reports whether values have the principal keep the objects of a product of meshconfig itself.
func Keeps(values map[string]any, product string) bool {
	config, _ := values["config"].(map[string]any)
	m, _ := config["mesh"].(map[string]any)
	live, _ := m["live"].(map[string]any)
	return live[product] == meshconfig.LiveApply
}

// checkAddress refuses what agents cannot ask the gateway for by name.
func checkAddress(address string) error {
	if address == "" {
		return fmt.Errorf("it is missing: host:port at which agents reach Istio's gateway, such as argomesh.hub.example:443")
	}
	_, err := HubAddress(address)
	return err
}

// HubAddress is that of host:port, where host is a name: Istio finds the way by it.
func HubAddress(address string) (mesh.HubAddress, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return mesh.HubAddress{}, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return mesh.HubAddress{}, fmt.Errorf("%q: %q is not a port", address, port)
	}
	if net.ParseIP(host) != nil {
		return mesh.HubAddress{}, fmt.Errorf("%q: Istio finds the way by the name that is asked for, and %s is none", address, host)
	}
	return mesh.HubAddress{Host: host, Port: uint16(number)}, nil
}

func anyMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
