package istio

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networkapi "istio.io/api/networking/v1alpha3"
	networkv1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/mesh"
)

const (
	// defaultConnections is the number of connections of agents unless told otherwise.
	defaultConnections = 20_000
	// callerConnections bounds the connections to each other port.
	callerConnections = 10_000
	// streamsPerConnection is how many streams an agent has on one connection.
	streamsPerConnection = 64
	connectTimeout       = 10 * time.Second
)

// port is a port of the principal's pod.
type port struct {
	number   uint16
	name     string // by Istio's rules: the protocol first
	protocol string
	endpoint string // where its process listens
	// connections bounds those open at a time, and streams the requests under way; 0
	// where the proxy does not read requests.
	connections, streams int32
}

// allPorts returns the ports, the stream's first.
func (h *hub) allPorts() ([]port, error) {
	connections := h.reach.Stream.MaxConnections
	if connections == 0 {
		connections = defaultConnections
	}
	stream := port{number: h.reach.Stream.Port, name: "tls-stream", protocol: "TLS",
		connections: int32(min(connections, math.MaxInt32))}
	if h.readsStream() {
		stream.name, stream.protocol = "grpc-stream", "GRPC"
		stream.streams = int32(min(int64(connections)*streamsPerConnection, math.MaxInt32))
	}
	var err error
	if stream.endpoint, err = endpoint("the stream", stream.number, h.reach.Stream.Upstream); err != nil {
		return nil, err
	}
	out := []port{stream}
	for _, p := range []struct {
		port                  mesh.Port
		whose, name, protocol string
	}{
		// Both proxies are bytes to the mesh: they may have TLS of their own inside.
		{h.reach.ResourceProxy, "the resource proxy", "tcp-resource-proxy", "TCP"},
		{h.reach.RedisProxy, "the Redis proxy", "tcp-redis-proxy", "TCP"},
		{h.reach.Metrics, "metrics", "http-metrics", "HTTP"},
	} {
		if p.port.IsZero() {
			continue
		}
		at, err := endpoint(p.whose, p.port.Number, p.port.Upstream)
		if err != nil {
			return nil, err
		}
		out = append(out,
			port{number: p.port.Number, name: p.name, protocol: p.protocol, endpoint: at, connections: callerConnections})
	}
	return out, nil
}

// endpoint returns a process's address as a Sidecar takes it.
func endpoint(whose string, number uint16, at mesh.Address) (string, error) {
	if path, ok := at.Unix(); ok {
		return "unix://" + path, nil
	}
	tcp, ok := at.TCP()
	switch {
	case !ok:
		tcp = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), number)
	case tcp.Addr() == netip.IPv6Unspecified():
		tcp = netip.AddrPortFrom(netip.IPv6Loopback(), tcp.Port())
	case tcp.Addr() == netip.IPv4Unspecified():
		tcp = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), tcp.Port())
	}
	if text := tcp.Addr().String(); text != "127.0.0.1" && text != "::1" {
		return "", fmt.Errorf("istio: %s: a proxy reaches its own pod on 127.0.0.1, ::1 or a unix socket, not on %s: %w",
			whose, at, ErrRefused)
	}
	return tcp.String(), nil
}

// sidecar brings each port to its process, on loopback or a unix socket where no one
// but the proxy comes, so that what the proxy says of a peer can be believed.
func (h *hub) sidecar() Object {
	out := &networkv1.Sidecar{TypeMeta: networkType("Sidecar"), ObjectMeta: h.meta("")}
	out.Spec.WorkloadSelector = &networkapi.WorkloadSelector{Labels: maps.Clone(h.cfg.Labels)}
	for _, p := range h.ports {
		out.Spec.Ingress = append(out.Spec.Ingress, &networkapi.IstioIngressListener{
			Port:            &networkapi.SidecarPort{Number: uint32(p.number), Protocol: p.protocol, Name: p.name},
			DefaultEndpoint: p.endpoint,
			ConnectionPool:  pool(p),
		})
	}
	return out
}

// destinationRules say how clients in the mesh reach the principal, by one Service or by
// two.
func (h *hub) destinationRules() []Object {
	if h.cfg.StreamService == h.cfg.Name {
		return []Object{h.destinationRule("", h.cfg.Name, h.ports)}
	}
	return []Object{
		h.destinationRule("", h.cfg.Name, h.ports[1:]),
		h.destinationRule(streamSuffix, h.cfg.StreamService, h.ports[:1]),
	}
}

// destinationRule says how they reach ports of a Service: by the mesh's mutual TLS, and
// only if the principal shows its own SPIFFE ID.
func (h *hub) destinationRule(suffix, service string, ports []port) Object {
	out := &networkv1.DestinationRule{TypeMeta: networkType("DestinationRule"), ObjectMeta: h.meta(suffix)}
	out.Spec.Host = h.cfg.host(service)
	out.Spec.TrafficPolicy = &networkapi.TrafficPolicy{Tls: h.meshTLS()}
	for _, p := range ports {
		tls := h.meshTLS()
		if p.number == h.reach.Stream.Port && !h.inMesh() {
			tls = &networkapi.ClientTLSSettings{Mode: networkapi.ClientTLSSettings_DISABLE} // it is the agent's own
		}
		out.Spec.TrafficPolicy.PortLevelSettings = append(out.Spec.TrafficPolicy.PortLevelSettings,
			&networkapi.TrafficPolicy_PortTrafficPolicy{
				Port: &networkapi.PortSelector{Number: uint32(p.number)}, ConnectionPool: pool(p), Tls: tls,
			})
	}
	return out
}

// meshTLS asks for the principal's SPIFFE ID. Here, and only here, Istio wants it with
// its scheme.
func (h *hub) meshTLS() *networkapi.ClientTLSSettings {
	return &networkapi.ClientTLSSettings{Mode: networkapi.ClientTLSSettings_ISTIO_MUTUAL,
		SubjectAltNames: []string{h.self.String()}}
}

// pool bounds connections and streams, finds peers that are gone, and cuts nothing for
// being quiet: an exec or a watch may be silent for days.
func pool(p port) *networkapi.ConnectionPoolSettings {
	out := &networkapi.ConnectionPoolSettings{Tcp: &networkapi.ConnectionPoolSettings_TCPSettings{
		MaxConnections: p.connections,
		ConnectTimeout: durationpb.New(connectTimeout),
		IdleTimeout:    durationpb.New(0), // none
		TcpKeepalive: &networkapi.ConnectionPoolSettings_TCPSettings_TcpKeepalive{
			Probes: 4, Time: durationpb.New(time.Minute), Interval: durationpb.New(15 * time.Second),
		},
	}}
	if p.streams > 0 {
		out.Http = &networkapi.ConnectionPoolSettings_HTTPSettings{
			Http2MaxRequests: p.streams,
			Http2KeepAlive: &networkapi.ConnectionPoolSettings_HTTPSettings_ConnectionKeepalive{
				Interval: durationpb.New(30 * time.Second), Timeout: durationpb.New(15 * time.Second),
			},
		}
	}
	return out
}

// gateway is the way from the gateway to the principal, none if there is no gateway.
func (h *hub) gateway() []Object {
	stream := h.reach.Stream
	if stream.Exposure == mesh.ExposureDirect {
		return nil
	}
	out := []Object{h.gatewayObject()}
	if shows(stream) == noCertificate {
		out = append(out, h.passthrough())
	} else {
		out = append(out, h.requests())
	}
	if h.policy == mesh.PolicyAgents {
		out = append(out, h.gatewayPolicy())
	}
	return out
}

func (h *hub) gatewayMeta() metav1.ObjectMeta { return meta(h.cfg.Gateway.Namespace, h.cfg.Name) }

func (h *hub) gatewayObject() Object {
	hub := h.reach.Stream.Hub
	server := &networkapi.Server{
		Port:  &networkapi.Port{Number: uint32(hub.Port), Protocol: "HTTPS", Name: "https-argomesh"},
		Hosts: []string{hub.Host},
	}
	switch shows(h.reach.Stream) {
	case noCertificate:
		server.Port.Protocol, server.Port.Name = "TLS", "tls-argomesh"
		server.Tls = &networkapi.ServerTLSSettings{Mode: networkapi.ServerTLSSettings_PASSTHROUGH}
	case certificateOfMesh:
		server.Tls = &networkapi.ServerTLSSettings{
			Mode: networkapi.ServerTLSSettings_ISTIO_MUTUAL, MinProtocolVersion: networkapi.ServerTLSSettings_TLSV1_3,
		}
	case certificateOfSecret:
		server.Tls = &networkapi.ServerTLSSettings{
			Mode: networkapi.ServerTLSSettings_SIMPLE, MinProtocolVersion: networkapi.ServerTLSSettings_TLSV1_3,
			CredentialName: h.cfg.Gateway.CredentialName,
		}
	}
	out := &networkv1.Gateway{TypeMeta: networkType("Gateway"), ObjectMeta: h.gatewayMeta()}
	out.Spec.Selector = maps.Clone(h.cfg.Gateway.Labels)
	out.Spec.Servers = []*networkapi.Server{server}
	return out
}

func (h *hub) virtualService() *networkv1.VirtualService {
	out := &networkv1.VirtualService{TypeMeta: networkType("VirtualService"), ObjectMeta: h.meta(streamSuffix)}
	out.Spec.Hosts = []string{h.reach.Stream.Hub.Host}
	out.Spec.Gateways = []string{h.cfg.Gateway.Namespace + "/" + h.cfg.Name}
	return out
}

func (h *hub) destination() *networkapi.Destination {
	return &networkapi.Destination{Host: h.cfg.host(h.cfg.StreamService),
		Port: &networkapi.PortSelector{Number: uint32(h.reach.Stream.Port)}}
}

// passthrough brings the bytes of connections with the hub's SNI.
func (h *hub) passthrough() Object {
	out := h.virtualService()
	out.Spec.Tls = []*networkapi.TLSRoute{{
		Match: []*networkapi.TLSMatchAttributes{{Port: uint32(h.reach.Stream.Hub.Port),
			SniHosts: []string{h.reach.Stream.Hub.Host}}},
		Route: []*networkapi.RouteDestination{{Destination: h.destination()}},
	}}
	return out
}

// requests brings calls of our gRPC services, never twice, and without timeout: Istio
// has none unless one is set, and takes no zero.
func (h *hub) requests() Object {
	out := h.virtualService()
	var match []*networkapi.HTTPMatchRequest
	for _, service := range h.reach.Stream.Services {
		match = append(match, &networkapi.HTTPMatchRequest{
			Method: &networkapi.StringMatch{MatchType: &networkapi.StringMatch_Exact{Exact: "POST"}},
			Uri:    &networkapi.StringMatch{MatchType: &networkapi.StringMatch_Prefix{Prefix: "/" + service + "/"}},
		})
	}
	out.Spec.Http = []*networkapi.HTTPRoute{{
		Name: "stream", Match: match,
		Route:   []*networkapi.HTTPRouteDestination{{Destination: h.destination()}},
		Retries: &networkapi.HTTPRetry{}, // none; without this Istio tries twice more
	}}
	return out
}

func networkType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: networkv1.SchemeGroupVersion.String(), Kind: kind}
}
