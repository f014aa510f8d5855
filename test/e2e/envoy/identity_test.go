//go:build linux

package envoy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// endedEnv is a hub whose Envoy terminates the TLS of agents, with certificates by SDS,
// and tells the principal, which has no other listener, who they are. It federates
// with another trust domain. Both hub and spoke are API servers alone.
type endedEnv struct {
	h          *harness.Harness
	hub, spoke *harness.ControlPlane
	principal  *harness.Principal
	envoy      *harness.Sidecar
	identity   *harness.WorkloadAPI // of principal and Envoy
	stream     string               // where agents connect to Envoy
	sockets    map[string]string    // the Workload APIs of agents, by name
}

// endedTTL is the life of the SVIDs of an endedEnv.
const endedTTL = 16 * time.Second

func newEndedEnv(t *testing.T, trustedProxies ...string) *endedEnv {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver")
	ctx := t.Context()
	w := &endedEnv{h: harnesstest.AtOnce(t), sockets: map[string]string{}}
	etcd, err := w.h.StartEtcd(ctx, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]**harness.ControlPlane{"hub": &w.hub, "spoke": &w.spoke} {
		if *at, err = env.StartBareControlPlane(ctx, w.h, name, etcd); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.spoke.EnsureNamespace(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	w.identity = w.identify(t, "principal", env.TrustDomain, env.PrincipalID+",dns=localhost")
	if w.stream, err = w.h.Address(); err != nil {
		t.Fatal(err)
	}
	port, err := w.h.Port()
	if err != nil {
		t.Fatal(err)
	}
	upstream := "unix://" + w.h.Path("stream.sock")
	xds := "unix://" + w.h.Path("xds.sock")
	w.principal, err = w.h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: w.identity, Settings: harness.Settings{
		"stream.listen": "", "stream.listeners": []map[string]any{{
			"listen": upstream, "method": identity.MethodHeader, "header": map[string]any{"trusted_proxies": trustedProxies},
		}},
		"envoy.listen": xds, "envoy.stream": w.stream, "envoy.stream_upstream": upstream,
		"envoy.resource_proxy": fmt.Sprint("127.0.0.1:", port), "resource_proxy.url": fmt.Sprint("https://localhost:", port),
		"resource_proxy.listen": "unix://" + w.h.Path("proxy.sock"), "resource_proxy.audit.file": w.h.Path("audit.jsonl"),
		"resource_proxy.credentials.enabled": true, "resource_proxy.credentials.ca_bundle": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.envoy, err = w.h.StartSidecar(ctx, harness.SidecarConfig{Name: "envoy", XDS: xds, WorkloadAPI: w.identity.Socket})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// caDir is where the authority of a trust domain is.
func (w *endedEnv) caDir(td string) string {
	return w.h.Path(map[string]string{env.TrustDomain: "ca", env.ForeignDomain: "foreign-ca"}[td])
}

// identify starts a Workload API server that hands out the bundles of both domains.
func (w *endedEnv) identify(t *testing.T, name, td, entry string) *harness.WorkloadAPI {
	t.Helper()
	other := map[string]string{env.TrustDomain: env.ForeignDomain, env.ForeignDomain: env.TrustDomain}[td]
	api, err := w.h.StartWorkloadAPI(t.Context(), harness.WorkloadAPIConfig{
		Name: "spire-" + name, TrustDomain: td, CADir: w.caDir(td), Entries: []string{entry}, TTL: endedTTL,
		Args: []string{"--federate", other + "=" + w.caDir(other), "--ca-prepare", "10s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// authority returns that of a trust domain.
func (w *endedEnv) authority(t *testing.T, td string) *devworkload.Server {
	t.Helper()
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: w.caDir(td)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// connect registers and starts an agent of a trust domain that reaches the principal
// at an address, where gateway terminates its TLS, and returns when live access works.
func (w *endedEnv) connect(t *testing.T, name, td, address, gateway string) (*harness.Agent, *kubernetes.Clientset) {
	t.Helper()
	ctx := t.Context()
	id := "spiffe://" + td + spiffeid.RequireFromString(env.SPIFFEID(name)).Path()
	if err := errors.Join(w.hub.EnsureNamespace(ctx, name), w.spoke.EnsureNamespace(ctx, name)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.Agentctl(ctx, w.hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", id, "--wait"); err != nil {
		t.Fatal(err)
	}
	env.Patch(t, w.hub.Resource(env.Agents, harness.ArgoCDNamespace), name, map[string]any{"spec": map[string]any{"access": map[string]any{"enabled": true}}})
	api := w.identify(t, name, td, id)
	w.sockets[name] = api.Socket
	agent, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: name, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: api,
		PrincipalAddress: address, PrincipalIDs: []string{env.PrincipalID}, Settings: harness.Settings{
			"namespace": name, "access.enabled": true,
			"principal.method": identity.MethodHeader, "principal.gateway.spiffe_ids": []string{gateway},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var clients *kubernetes.Clientset
	env.Eventually(t, "live access to "+name, func() error {
		// Taken again each time: the authorities in it rotate.
		if clients, err = w.proxied(ctx, name); err != nil {
			return err
		}
		_, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return agent, clients
}

// proxied returns clients of a spoke's API as Argo CD has them, by the cluster Secret.
func (w *endedEnv) proxied(ctx context.Context, name string) (*kubernetes.Clientset, error) {
	hub, err := kubernetes.NewForConfig(w.hub.REST())
	if err != nil {
		return nil, err
	}
	secret, err := hub.CoreV1().Secrets(harness.ArgoCDNamespace).Get(ctx, "cluster-"+name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var config struct {
		BearerToken     string `json:"bearerToken"`
		TLSClientConfig struct {
			CAData []byte `json:"caData"`
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		return nil, err
	}
	if config.BearerToken == "" {
		return nil, errors.New("the cluster Secret has no token")
	}
	return kubernetes.NewForConfig(&rest.Config{
		Host: string(secret.Data["server"]), BearerToken: config.BearerToken, QPS: -1, Timeout: 10 * time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAData: config.TLSClientConfig.CAData},
	})
}

// follow opens a watch through all of it, and returns what checks that it still tells
// what happens.
func (w *endedEnv) follow(t *testing.T, name string, clients *kubernetes.Clientset) (watch.Interface, func(what string)) {
	t.Helper()
	ctx := t.Context()
	direct, err := kubernetes.NewForConfig(w.spoke.REST())
	if err != nil {
		t.Fatal(err)
	}
	seen, err := clients.CoreV1().ConfigMaps(name).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(seen.Stop)
	n := 0
	return seen, func(what string) {
		t.Helper()
		n++
		made := fmt.Sprint("event-", n)
		if _, err := direct.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: made}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		late := time.NewTimer(env.Patience)
		defer late.Stop()
		for {
			select {
			case event, open := <-seen.ResultChan():
				if !open {
					t.Fatalf("%s: the watch of %s has ended", what, name)
				}
				if o, ok := event.Object.(*corev1.ConfigMap); ok && o.Name == made {
					return
				}
			case <-late.C:
				t.Fatalf("%s: the watch of %s does not see %s", what, name, made)
			}
		}
	}
}

// Behind Envoy, agents of two trust domains keep stream and tunnel while certificates
// and their authorities rotate; a revocation ends both; and no one is someone else.
func TestEnvoyEndsTheTLSOfAgents(t *testing.T) {
	t.Parallel()
	w := newEndedEnv(t)
	ctx := t.Context()
	near, nearClients := w.connect(t, "near", env.TrustDomain, w.stream, env.PrincipalID)
	far, farClients := w.connect(t, "far", env.ForeignDomain, w.stream, env.PrincipalID)
	nearSeen, nearFlows := w.follow(t, "near", nearClients)
	_, farFlows := w.follow(t, "far", farClients)
	nearFlows("at first")
	farFlows("at first")

	t.Run("forgeries", func(t *testing.T) {
		mtls := func(td, id string) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{env.SignLeaf(t, w.authority(t, td), env.LeafOf(id))},
				InsecureSkipVerify: true, // the attacker does not care
			})
		}
		id := env.SPIFFEID("near")
		samePath := "spiffe://" + env.ForeignDomain + spiffeid.RequireFromString(id).Path()
		thief := "spiffe://" + env.TrustDomain + "/argomesh/agent/thief"
		for name, tt := range map[string]struct {
			creds credentials.TransportCredentials
			pairs []string
			want  codes.Code
		}{
			"who is near":                                  {mtls(env.TrustDomain, id), nil, codes.OK},
			"who is near, and says something else":         {mtls(env.TrustDomain, id), []string{env.Forwarded, "URI=" + thief}, codes.OK},
			"the same path in the foreign trust domain":    {mtls(env.ForeignDomain, samePath), nil, codes.PermissionDenied},
			"the same path, and a header of the right one": {mtls(env.ForeignDomain, samePath), []string{env.Forwarded, "URI=" + id}, codes.PermissionDenied},
			"a header from the side":                       {mtls(env.TrustDomain, thief), []string{env.Forwarded, "By=" + env.PrincipalID + ";URI=" + id}, codes.PermissionDenied},
			"a header that is not closed":                  {mtls(env.TrustDomain, thief), []string{env.Forwarded, "URI=" + id + `;Subject="`}, codes.PermissionDenied},
		} {
			t.Run(name, func(t *testing.T) {
				if err := env.HelloBy(ctx, w.stream, tt.creds, "near", tt.pairs...); status.Code(err) != tt.want {
					t.Errorf("helloBy() = %v, want code %s", err, tt.want)
				}
			})
		}
	})

	t.Run("doctor", func(t *testing.T) {
		doctor := func(as string) (string, error) {
			return w.h.Agentctl(ctx, w.hub, "identity", "doctor", "--socket", w.sockets["far"], "--principal", w.stream, "--principal-id", env.PrincipalID,
				"--method", identity.MethodHeader, "--gateway-id", env.PrincipalID, "--agent", as, "-o", "wide")
		}
		out, err := doctor("far")
		if want := "knows our SPIFFE ID for agent far (managed), behind " + env.PrincipalID; err != nil || !strings.Contains(out, want) {
			t.Errorf("doctor on the spoke: %v\n%s", err, out)
		}
		if out, err := doctor("near"); err == nil {
			t.Errorf("doctor is content with the name of another agent:\n%s", out)
		}
		farFlows("after somebody else dialled with its identity")
	})

	t.Run("rotation", func(t *testing.T) {
		// Before that, Envoy may not have had the bundle of the foreign domain yet.
		from := map[string]int64{"near": env.FileSize(t, near.Process), "far": env.FileSize(t, far.Process)}
		before := env.FailedHandshakes(t, w.envoy, "stream")
		for life := 1; life <= 3; life++ {
			if life == 2 { // the authority of principal, Envoy and near
				if err := w.identity.Signal(syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			over := time.NewTimer(endedTTL)
			<-over.C
			nearFlows(fmt.Sprint("after life ", life))
			farFlows(fmt.Sprint("after life ", life))
		}
		for name, agent := range map[string]*harness.Agent{"near": near, "far": far} {
			for _, line := range env.LogLines(t, agent.Process, from[name]) {
				if line["message"] == "connection to the principal ended" || line["message"] == "cannot open the tunnel to the principal" {
					t.Errorf("%s: %v: %v", name, line["message"], line["error"])
				}
			}
		}
		if n := env.FailedHandshakes(t, w.envoy, "stream"); n != before {
			t.Errorf("%v handshakes failed", n-before)
		}
	})

	t.Run("revocation", func(t *testing.T) {
		env.Patch(t, w.hub.Resource(env.Agents, harness.ArgoCDNamespace), "near", map[string]any{"spec": map[string]any{"suspended": true}})
		began := time.Now()
		late := time.NewTimer(env.Patience)
		defer late.Stop()
		for open := true; open; {
			select {
			case _, open = <-nearSeen.ResultChan():
			case <-late.C:
				t.Fatal("the watch of a suspended agent goes on")
			}
		}
		env.Eventually(t, "the stream of a suspended agent ends", func() error {
			up, err := env.Gauge(ctx, near.AdminAddress, "argomesh_stream_up")
			if err == nil && up != "0" {
				err = fmt.Errorf("argomesh_stream_up is %s", up)
			}
			return err
		})
		t.Logf("stream and tunnel ended %s after the agent was suspended", time.Since(began)) // the target is a second
		farFlows("with another agent suspended")
	})
}

// gatewayConfig is the configuration of an Envoy that terminates the mutual TLS of its
// clients, with what its Workload API says at every moment, and tells the next one who
// they are, which at a unix socket is without TLS. limits are Http2ProtocolOptions of
// either side.
func gatewayConfig(admin string, port int, workloadAPI, next string, limits map[string]any) map[string]any {
	type m = map[string]any
	typed := func(name string, fields m) m {
		fields["@type"] = "type.googleapis.com/" + name
		return fields
	}
	http2 := func(options m) m {
		return m{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", m{
			"explicit_http_config": m{"http2_protocol_options": options},
		})}
	}
	secret := func(name string) m {
		return m{"name": name, "sds_config": m{"resource_api_version": "V3", "api_config_source": m{
			"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": []m{{"envoy_grpc": m{"cluster_name": "workload"}}},
		}}}
	}
	common := m{
		"tls_params":     m{"tls_maximum_protocol_version": "TLSv1_3"}, // to the next one 1.2 is the default
		"alpn_protocols": []string{"h2"}, "tls_certificate_sds_secret_configs": []m{secret("default")},
		"validation_context_sds_secret_config": secret("ALL"),
	}
	address := func(at string) m {
		if path, ok := strings.CutPrefix(at, "unix://"); ok {
			return m{"pipe": m{"path": path}}
		}
		host, number, _ := strings.Cut(at, ":")
		return m{"socket_address": m{"address": host, "port_value": number}}
	}
	cluster := func(name, at string, options m) m {
		return m{"name": name, "type": "STATIC", "typed_extension_protocol_options": http2(options), "load_assignment": m{
			"cluster_name": name, "endpoints": []m{{"lb_endpoints": []m{{"endpoint": m{"address": address(at)}}}}},
		}}
	}
	upstream := cluster("next", next, limits)
	if !strings.HasPrefix(next, "unix://") {
		upstream["transport_socket"] = m{"name": "tls", "typed_config": typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", m{"common_tls_context": common})}
	}
	return m{
		"node":  m{"id": "gateway", "cluster": "gateway"},
		"admin": m{"address": address(admin)},
		"static_resources": m{
			"clusters": []m{cluster("workload", workloadAPI, m{}), upstream},
			"listeners": []m{{
				"name": "agents", "address": address(fmt.Sprint("127.0.0.1:", port)),
				"filter_chains": []m{{
					"transport_socket": m{"name": "tls", "typed_config": typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", m{
						"require_client_certificate": true, "common_tls_context": common,
					})},
					"filters": []m{{"name": "http", "typed_config": typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", m{
						"stat_prefix": "agents", "codec_type": "HTTP2", "http2_protocol_options": limits, "stream_idle_timeout": "0s",
						"forward_client_cert_details": "SANITIZE_SET", "set_current_client_cert_details": m{"uri": true, "cert": true},
						"http_filters": []m{{"name": "router", "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", m{})}},
						"route_config": m{"virtual_hosts": []m{{"name": "all", "domains": []string{"*"}, "routes": []m{{
							"match": m{"prefix": "/"}, "route": m{"cluster": "next", "timeout": "0s"},
						}}}}},
					})}},
				}},
			}},
		},
	}
}

// startGateway starts an Envoy before that of the principal, and returns where it
// listens.
func (w *endedEnv) startGateway(t *testing.T, name, id string) (address string) {
	t.Helper()
	api := w.identify(t, name, env.TrustDomain, id)
	port, err := w.h.Port()
	if err != nil {
		t.Fatal(err)
	}
	admin := "unix://" + w.h.Path(name+"-admin.sock")
	config, err := json.Marshal(gatewayConfig(admin, port, api.Socket, w.stream, map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	file := w.h.Path(name + ".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartEnvoy(t.Context(), harness.EnvoyConfig{Name: name, File: file, AdminAddress: admin}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", port)
}

// Behind a gateway before the principal's own Envoy an agent is who the gateway says,
// as long as the principal trusts that gateway.
func TestEnvoyGatewayBeforeTheSidecar(t *testing.T) {
	t.Parallel()
	w := newEndedEnv(t, env.GatewayID)
	ctx := t.Context()
	sidecar := w.stream
	gateway := w.startGateway(t, "gateway", env.GatewayID)
	stranger := w.startGateway(t, "stranger", "spiffe://"+env.TrustDomain+"/ns/other/sa/gateway")

	agent, clients := w.connect(t, "behind", env.TrustDomain, gateway, env.GatewayID)
	_, flows := w.follow(t, "behind", clients)
	for life := range 3 {
		flows(fmt.Sprint("in life ", life))
		over := time.NewTimer(endedTTL)
		<-over.C
	}
	flows("at last")
	for _, line := range env.LogLines(t, agent.Process, 0) {
		if line["message"] == "connection to the principal ended" {
			t.Errorf("%v: %v", line["message"], line["error"])
		}
	}
	mtls := func(td, id string) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{env.SignLeaf(t, w.authority(t, td), env.LeafOf(id))},
			InsecureSkipVerify: true, // the attacker does not care
		})
	}
	id, thief := env.SPIFFEID("behind"), "spiffe://"+env.TrustDomain+"/argomesh/agent/thief"
	samePath := "spiffe://" + env.ForeignDomain + spiffeid.RequireFromString(id).Path()
	asGateway := []string{env.Forwarded, "By=" + env.GatewayID + ";URI=" + id + ",By=" + env.PrincipalID + ";URI=" + env.GatewayID}
	for name, tt := range map[string]struct {
		target string
		creds  credentials.TransportCredentials
		pairs  []string
		want   codes.Code
	}{
		"through the gateway":                        {gateway, mtls(env.TrustDomain, id), nil, codes.OK},
		"at the sidecar itself":                      {sidecar, mtls(env.TrustDomain, id), nil, codes.OK},
		"a header from the side, at the gateway":     {gateway, mtls(env.TrustDomain, thief), []string{env.Forwarded, "URI=" + id}, codes.PermissionDenied},
		"a header from the side, at the sidecar":     {sidecar, mtls(env.TrustDomain, thief), asGateway, codes.PermissionDenied},
		"through a gateway that is not trusted":      {stranger, mtls(env.TrustDomain, id), nil, codes.PermissionDenied},
		"the same path in the foreign trust domain":  {gateway, mtls(env.ForeignDomain, samePath), nil, codes.PermissionDenied},
		"the gateway itself, without an agent there": {sidecar, mtls(env.TrustDomain, env.GatewayID), nil, codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			env.Eventually(t, "Envoy knows the bundles, and does not terminate TLS by itself", func() error {
				if err = env.HelloBy(ctx, tt.target, tt.creds, "behind", tt.pairs...); status.Code(err) == codes.Unavailable {
					return err
				}
				return nil
			})
			if status.Code(err) != tt.want {
				t.Errorf("helloBy() = %v, want code %s", err, tt.want)
			}
		})
	}
}
