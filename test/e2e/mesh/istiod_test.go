//go:build linux && matrix

package mesh

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Who is who in the mesh.
const (
	meshPrincipal  = "spiffe://hub.test/ns/argocd/sa/argomesh-principal"
	meshGateway    = "spiffe://hub.test/ns/istio-ingress/sa/istio-ingress"
	meshServer     = "spiffe://hub.test/ns/argocd/sa/argocd-server"
	meshPrometheus = "spiffe://hub.test/ns/monitoring/sa/prometheus"
	meshEdge       = "spiffe://hub.test/argomesh/agent/edge-1"
	meshNobody     = "spiffe://hub.test/argomesh/agent/nobody"
	// A partner's agent, and the namesakes of ours in other trust domains.
	meshPartner          = "spiffe://partner.test/ns/argocd/sa/agent"
	meshPartnersServer   = "spiffe://partner.test/ns/argocd/sa/argocd-server"
	meshEdgesNamesake    = "spiffe://stranger.test/argomesh/agent/edge-1"
	sidecarIP            = "127.0.0.11"
	gatewayIP            = "127.0.0.14"
	hubHost              = "argomesh.hub.test"
	meshNoCertificate    = "" // a caller without one
	meshIstioNamespace   = "istio-system"
	meshGatewayNamespace = "istio-ingress"
)

// istioEnv is a real istiod, with an Envoy as the sidecar of a real principal and one as
// the gateway, under what agentctl renders. Only addresses are added to that, since there
// are no network namespaces: everything listens on loopback, and nothing is redirected.
type istioEnv struct {
	h         *harness.Harness
	hub       *harness.ControlPlane
	mesh      string // file of meshConfig
	xds       string // address of istiod
	svids     map[string]*x509svid.SVID
	bundles   *workloadapi.X509Source
	identity  map[string]*harness.WorkloadAPI
	principal *harness.Principal
	envoys    map[string]string // address of the admin interface, by name
	// ports are those of the principal's pod.
	stream, resources, redis, metrics int
	door                              int // of the gateway
}

// Both topologies of Istio, by a table of caller, port and answer.
func TestIstioKeepsWhatIsPromised(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "envoy", "pilot-discovery")
	t.Run("TLS passes the gateway", func(t *testing.T) {
		w := startIstio(t)
		w.startPrincipal(t, harness.Settings{
			"stream.listen": fmt.Sprintf("127.0.0.1:%d", w.stream), "mesh.exposure": "passthrough", "mesh.method": "spiffe-x509",
		})
		w.apply(t, "TLS")
		w.startEnvoys(t)
		w.startAgent(t, nil)
		w.testPorts(t)
		w.testPassthrough(t)
		w.testScheme(t)
		w.testAliases(t)
		w.testNothingRefused(t)
	})
	t.Run("the gateway terminates TLS", func(t *testing.T) {
		w := startIstio(t)
		socket := "unix://" + w.h.Path("stream.sock")
		w.startPrincipal(t, harness.Settings{
			"stream.listen": "", "mesh.exposure": "gateway", "mesh.method": "header", "mesh.stream_upstream": socket,
			"stream.listeners": []map[string]any{{"listen": socket, "method": "header", "header": map[string]any{"trusted_proxies": []string{meshGateway}}}},
		})
		w.apply(t, "GRPC")
		w.startEnvoys(t)
		w.startAgent(t, harness.Settings{"principal.method": "header", "principal.gateway.spiffe_ids": []string{meshGateway}})
		w.testPorts(t)
		w.testGateway(t)
		w.testNothingRefused(t)
	})
}

func startIstio(t *testing.T) *istioEnv {
	t.Helper()
	ctx := t.Context()
	w := &istioEnv{h: harnesstest.New(t), identity: map[string]*harness.WorkloadAPI{}, envoys: map[string]string{}, svids: map[string]*x509svid.SVID{}}
	for _, port := range []*int{&w.stream, &w.resources, &w.redis, &w.metrics, &w.door} {
		var err error
		if *port, err = w.h.Port(); err != nil {
			t.Fatal(err)
		}
	}
	crds, err := w.h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	crds = append(append(crds, env.IstioCRDs(t)), charts.Definitions(t)...)
	if w.hub, err = w.h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "hub", Manifests: crds}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{harness.ArgoCDNamespace, meshGatewayNamespace, meshIstioNamespace, "edge"} {
		if err := w.hub.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	w.startIdentities(t)
	w.startIstiod(t)
	t.Cleanup(func() { w.end(t) })
	return w
}

// startIdentities starts what gives each workload its SVID. The sidecar and the gateway
// get the bundles of all trust domains as ROOTCA, as docs/mesh.md asks of SPIRE.
func (w *istioEnv) startIdentities(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	domains := []string{"hub.test", "partner.test", "stranger.test"}
	ids := map[string][]string{
		"principal": {meshPrincipal}, "gateway": {meshGateway}, "edge": {meshEdge},
		"callers":  {meshServer, meshPrometheus, meshNobody, meshGateway, meshEdge},
		"partner":  {meshPartner, meshPartnersServer},
		"stranger": {meshEdgesNamesake},
	}
	// Each authority is made by the first server of its trust domain.
	for _, name := range []string{"callers", "partner", "stranger", "principal", "gateway", "edge"} {
		td := spiffeid.RequireFromString(ids[name][0]).TrustDomain().Name()
		cfg := harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: td, CADir: w.h.Path("ca-" + td), Entries: ids[name], Args: []string{"--sds-all-bundles", "ROOTCA"},
		}
		if name == "principal" || name == "gateway" {
			for _, other := range domains {
				if other != td {
					cfg.Args = append(cfg.Args, "--federate", other+"="+w.h.Path("ca-"+other))
				}
			}
		}
		api, err := w.h.StartWorkloadAPI(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.identity[name] = api
		source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(api.Socket)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = source.Close() }) // only read from
		client, err := workloadapi.New(ctx, workloadapi.WithAddr(api.Socket))
		if err != nil {
			t.Fatal(err)
		}
		svids, err := client.FetchX509SVIDs(ctx)
		if err := errors.Join(err, client.Close()); err != nil {
			t.Fatal(err)
		}
		for _, svid := range svids {
			w.svids[svid.ID.String()] = svid
		}
		if name == "callers" {
			w.bundles = source
		}
	}
}

// end stops anyone who calls the API server, and kills that: after istiod it does not end by
// itself within its grace.
func (w *istioEnv) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range slices.Backward(w.h.Processes()) {
		if p.Name() == w.hub.Server.Name() {
			break
		}
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := w.hub.Server.Kill(); err != nil {
		t.Error(err)
	}
}

func (w *istioEnv) startIstiod(t *testing.T) {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("pilot-discovery")
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{}
	for _, flag := range []string{"grpcAddr", "secureGRPCAddr", "httpAddr", "monitoringAddr", "httpsAddr"} {
		if addresses[flag], err = w.h.Address(); err != nil {
			t.Fatal(err)
		}
	}
	w.mesh = w.h.Path("mesh.yaml")
	w.writeMesh(t)
	args := []string{"discovery", "--kubeconfig=" + w.hub.Kubeconfig, "--meshConfig=" + w.mesh, "--ctrlz_port=0"}
	for flag, address := range addresses {
		args = append(args, "--"+flag+"="+address)
	}
	if _, err := w.h.Start(t.Context(), harness.Command{
		Name: "istiod", Path: path, Args: args,
		Env: []string{
			"POD_NAMESPACE=" + meshIstioNamespace, "POD_NAME=istiod", "REVISION=default", "INJECT_ENABLED=false", "ISTIOD_CUSTOM_HOST=localhost",
			// Filters that only Istio's own build of Envoy has.
			"PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false",
		},
		Ready: harness.HTTPReady("http://" + addresses["httpAddr"] + "/ready"),
	}); err != nil {
		t.Fatal(err)
	}
	w.xds = addresses["grpcAddr"]
}

// writeMesh writes meshConfig, which istiod reads again when it changes.
func (w *istioEnv) writeMesh(t *testing.T, aliases ...string) {
	t.Helper()
	content, err := json.Marshal(map[string]any{"trustDomain": "hub.test", "trustDomainAliases": aliases})
	if err != nil {
		t.Fatal(err)
	}
	// By rename, as a ConfigMap changes.
	next := w.mesh + ".next"
	if err := errors.Join(os.WriteFile(next, content, 0o600), os.Rename(next, w.mesh)); err != nil {
		t.Fatal(err)
	}
}

func (w *istioEnv) startPrincipal(t *testing.T, settings harness.Settings) {
	t.Helper()
	all := harness.Settings{
		"admin.listen":   fmt.Sprintf("127.0.0.1:%d", w.metrics),
		"mesh.principal": meshPrincipal, "mesh.hub": fmt.Sprintf("%s:%d", hubHost, w.door),
		"mesh.stream_port": w.stream, "mesh.resource_proxy_port": w.resources, "mesh.redis_proxy_port": w.redis, "mesh.metrics_port": w.metrics,
		"mesh.argo_cd": []string{meshServer}, "mesh.scrapers": []string{meshPrometheus},
		"mesh.gateway.spiffe_id": meshGateway, "mesh.gateway.namespace": meshGatewayNamespace, "mesh.gateway.pod_labels": map[string]string{"istio": "ingress"},
	}
	maps.Copy(all, settings)
	var err error
	if w.principal, err = w.h.StartPrincipal(t.Context(), harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: w.identity["principal"], Settings: all}); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"edge-1": meshEdge, "edge-2": meshPartner} {
		if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", id, "--wait"); err != nil {
			t.Fatal(err)
		}
	}
	// The two proxies are bytes to the mesh.
	for _, port := range []int{w.resources, w.redis} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go echo(l)
	}
}

// echo answers each line with itself until l is closed.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(conn, conn) // the caller sees what went wrong
		}()
	}
}

// render applies what agentctl renders, with addresses.
func (w *istioEnv) render(t *testing.T) {
	t.Helper()
	out, err := w.h.Agentctl(t.Context(), w.hub, "mesh", "render", "istio", "--config", w.principal.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	if err := yaml.Unmarshal([]byte(out), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		w.place(t, &list.Items[i])
		if err := w.hub.Apply(t.Context(), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// apply does, and tells Istio of the principal's Services, whose port for agents has a
// protocol.
func (w *istioEnv) apply(t *testing.T, protocol string) {
	t.Helper()
	w.render(t)
	type object = map[string]any
	labels := object{"app.kubernetes.io/name": "argomesh-principal"}
	service := func(name string, ports ...any) object {
		return object{
			"hosts": []any{name + ".argocd.svc.cluster.local"}, "location": "MESH_INTERNAL", "resolution": "STATIC",
			"workloadSelector": object{"labels": labels}, "ports": ports,
		}
	}
	for name, o := range map[string]object{
		"principal-pod": {"kind": "WorkloadEntry", "spec": object{
			"address": sidecarIP, "labels": labels, "serviceAccount": "argomesh-principal",
			"ports": object{"stream": w.stream, "resources": w.resources, "redis": w.redis, "metrics": w.metrics},
		}},
		"principal-stream": {"kind": "ServiceEntry", "spec": service("argomesh-principal-stream",
			object{"number": w.stream, "name": "stream", "protocol": protocol})},
		"principal-service": {"kind": "ServiceEntry", "spec": service("argomesh-principal",
			object{"number": w.resources, "name": "resources", "protocol": "TCP"},
			object{"number": w.redis, "name": "redis", "protocol": "TCP"},
			object{"number": w.metrics, "name": "metrics", "protocol": "HTTP"})},
	} {
		o["apiVersion"] = schema.GroupVersion{Group: "networking.istio.io", Version: "v1"}.String()
		o["metadata"] = object{"name": name, "namespace": harness.ArgoCDNamespace}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hub.ApplyYAML(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
	}
}

// place says where proxies listen that nothing redirects connections to, and that the
// sidecar need not listen for the rest of the mesh.
func (w *istioEnv) place(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	set := func(list, key, value string) {
		t.Helper()
		items, found, err := unstructured.NestedSlice(o.Object, "spec", list)
		if err != nil || !found {
			t.Fatalf("%s has no %s: %v", o.GetKind(), list, err)
		}
		for _, item := range items {
			item.(map[string]any)[key] = value //nolint:forcetypeassert // the schema says so
		}
		if err := unstructured.SetNestedSlice(o.Object, items, "spec", list); err != nil {
			t.Fatal(err)
		}
	}
	switch o.GetKind() {
	case "Sidecar":
		set("ingress", "bind", sidecarIP)
		if err := unstructured.SetNestedSlice(o.Object, []any{map[string]any{"hosts": []any{"~/*"}}}, "spec", "egress"); err != nil {
			t.Fatal(err)
		}
	case "Gateway":
		set("servers", "bind", gatewayIP)
	}
}

// startEnvoys starts the principal's sidecar and the gateway.
func (w *istioEnv) startEnvoys(t *testing.T) {
	t.Helper()
	w.startEnvoy(t, "sidecar", "principal", sidecarIP, harness.ArgoCDNamespace, "argomesh-principal", map[string]string{"app.kubernetes.io/name": "argomesh-principal"})
	w.startEnvoy(t, "router", "gateway", gatewayIP, meshGatewayNamespace, "istio-ingress", map[string]string{"istio": "ingress"})
}

func (w *istioEnv) startEnvoy(t *testing.T, kind, name, ip, namespace, account string, labels map[string]string) {
	t.Helper()
	type object = map[string]any
	ads := object{"ads": object{}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
	host, port, err := net.SplitHostPort(w.xds)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	cluster := func(name string, address object) object {
		return object{
			"name": name, "type": "STATIC", "connect_timeout": "5s",
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": object{"http2_protocol_options": object{}},
			}},
			"load_assignment": object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address}}}}}},
		}
	}
	admin := w.h.Path(name + "-admin.sock")
	bootstrap, err := json.Marshal(object{
		"node": object{
			"id": fmt.Sprintf("%s~%s~%s-1.%s~%s.svc.cluster.local", kind, ip, name, namespace, namespace), "cluster": name + "." + namespace,
			"metadata": object{
				"NAMESPACE": namespace, "NAME": name + "-1", "SERVICE_ACCOUNT": account, "LABELS": labels, "CLUSTER_ID": "Kubernetes",
				"ISTIO_VERSION": "1.31.0", "INTERCEPTION_MODE": "NONE", "INSTANCE_IPS": ip,
			},
		},
		"admin":                object{"address": object{"pipe": object{"path": admin}}},
		"bootstrap_extensions": []any{object{"name": "envoy.bootstrap.internal_listener", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"}}},
		"dynamic_resources": object{
			"ads_config": object{"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds-grpc"}}}},
			"cds_config": ads, "lds_config": ads,
		},
		"static_resources": object{"clusters": []any{
			cluster("xds-grpc", object{"socket_address": object{"address": host, "port_value": number}}),
			cluster("sds-grpc", object{"pipe": object{"path": strings.TrimPrefix(w.identity[name].Socket, "unix://")}}),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := w.h.Path(name + "-envoy.json")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.StartEnvoy(t.Context(), harness.EnvoyConfig{Name: "envoy-" + name, File: file, AdminAddress: "unix://" + admin}); err != nil {
		t.Fatal(err)
	}
	w.envoys[name] = "unix://" + admin
}

// startAgent starts a real agent that dials the gateway, and waits until the hub has it
// connected.
func (w *istioEnv) startAgent(t *testing.T, settings harness.Settings) {
	t.Helper()
	all := harness.Settings{"namespace": "edge"} // its spoke is the same Kubernetes cluster
	maps.Copy(all, settings)
	if _, err := w.h.StartAgent(t.Context(), harness.AgentConfig{
		Name: "edge-1", Mode: "managed", ControlPlane: w.hub, WorkloadAPI: w.identity["edge"],
		PrincipalAddress: fmt.Sprintf("%s:%d", hubHost, w.door), PrincipalIDs: []string{meshPrincipal}, Settings: all,
		Env: []string{"HTTPS_PROXY=" + w.startForwarder(t)}, // in place of a DNS server
	}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent's connection", func() error {
		o, err := w.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace).Get(t.Context(), "edge-1", metav1.GetOptions{})
		if err == nil && !env.Convert[v1alpha1.Agent](t, o).Status.Connected {
			err = errors.New("it is away")
		}
		return err
	})
}

// startForwarder starts a forward proxy that knows where the hub is, and nothing else. It
// returns its URL.
func (w *istioEnv) startForwarder(t *testing.T) string {
	t.Helper()
	hub, gateway := fmt.Sprintf("%s:%d", hubHost, w.door), fmt.Sprintf("%s:%d", gatewayIP, w.door)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != hub {
			http.Error(rw, "only to the hub", http.StatusForbidden)
			return
		}
		up, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", gateway)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = up.Close() }()
		down, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return // the agent sees that it ended
		}
		defer func() { _ = down.Close() }()
		if _, err := io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		ended := make(chan struct{}, 2)
		for to, from := range map[io.Writer]io.Reader{up: buffered, down: up} {
			go func() {
				_, _ = io.Copy(to, from) // either end sees what became of the other
				ended <- struct{}{}
			}()
		}
		<-ended
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// tlsAs is the TLS of a caller in the mesh or an agent, towards anyone who has one of ids.
func (w *istioEnv) tlsAs(caller string, protocols []string, ids ...string) *tls.Config {
	allowed := make([]spiffeid.ID, len(ids))
	for i, id := range ids {
		allowed[i] = spiffeid.RequireFromString(id)
	}
	cfg := tlsconfig.TLSClientConfig(w.bundles, tlsconfig.AuthorizeOneOf(allowed...))
	if caller != meshNoCertificate {
		cfg = tlsconfig.MTLSClientConfig(w.svids[caller], w.bundles, tlsconfig.AuthorizeOneOf(allowed...))
	}
	cfg.ServerName, cfg.NextProtos = hubHost, protocols
	return cfg
}

// callTimeout bounds one call of the table.
const callTimeout = 20 * time.Second

// dial connects to a port of the principal's pod as a caller in the mesh.
func (w *istioEnv) dial(ctx context.Context, caller string, port int) (*tls.Conn, error) {
	dialer := &tls.Dialer{Config: w.tlsAs(caller, nil, meshPrincipal)}
	conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", sidecarIP, port))
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	return conn.(*tls.Conn), err //nolint:forcetypeassert // tls.Dialer says so
}

// line sends one and expects it back.
func (w *istioEnv) line(ctx context.Context, caller string, port int) error {
	conn, err := w.dial(ctx, caller, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return err
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && got != "hello\n" {
		err = fmt.Errorf("the answer is %q", got)
	}
	return err
}

// get asks for a path of the metrics port.
func (w *istioEnv) get(ctx context.Context, caller, path string) error {
	conn, err := w.dial(ctx, caller, w.metrics)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://principal"+path, http.NoBody)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}

// inner shakes hands with the principal itself, inside of the mesh's TLS.
func (w *istioEnv) inner(ctx context.Context, caller string) error {
	conn, err := w.dial(ctx, caller, w.stream)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return tls.Client(conn, w.tlsAs(meshEdge, []string{"h2"}, meshPrincipal)).HandshakeContext(ctx)
}

// rpc opens a stream of the principal's by a gRPC connection, sends a frame that no agent
// sends, and returns what it ends with. An empty path is that of the stream service.
func (w *istioEnv) rpc(ctx context.Context, address string, cfg *tls.Config, path string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if path == "" {
		path = streampb.Stream_Connect_FullMethodName
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, path)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&streampb.Frame{}); err != nil && !errors.Is(err, io.EOF) { // then RecvMsg says why
		return err
	}
	return stream.RecvMsg(&streampb.Frame{})
}

// atTheGateway is rpc as an agent does it.
func (w *istioEnv) atTheGateway(ctx context.Context, agent, path string, ends ...string) error {
	return w.rpc(ctx, fmt.Sprintf("%s:%d", gatewayIP, w.door), w.tlsAs(agent, []string{"h2"}, ends...), path)
}

// What becomes of a call.
const (
	admitted    = "admitted"
	byMesh      = "refused by the mesh"
	byPrincipal = "refused by the principal"
)

// answered says what became of an agent's call: the mesh refuses by a policy, for want of
// a route, or in TLS, before the principal hears of it.
func answered(err error) string {
	s := status.Convert(err)
	switch {
	case s.Code() == codes.Unavailable, strings.Contains(s.Message(), "RBAC: access denied"):
		return byMesh
	case s.Code() == codes.Unimplemented && !strings.Contains(s.Message(), "unknown"): // as Envoy says that it has no route
		return byMesh
	case s.Code() == codes.Unauthenticated, s.Code() == codes.PermissionDenied:
		return byPrincipal
	case s.Code() == codes.InvalidArgument: // the principal has read the frame
		return admitted
	}
	return "neither admitted nor refused"
}

// meshCall is a row of the table.
type meshCall struct {
	title string
	call  func(ctx context.Context) error
	// is says what became of it.
	is   func(err error) string
	want string
}

// letThrough says what became of a call that is not an agent's.
func letThrough(err error) string {
	if err == nil {
		return admitted
	}
	return byMesh
}

// run makes each call until it has its answer: a policy reaches a proxy some time after
// it reached the API server. Those that are admitted come first, so that no other is
// refused only for a proxy that is not ready.
func (w *istioEnv) run(t *testing.T, calls []meshCall) {
	t.Helper()
	slices.SortStableFunc(calls, func(a, b meshCall) int {
		if (a.want == admitted) != (b.want == admitted) {
			if a.want == admitted {
				return -1
			}
			return 1
		}
		return strings.Compare(a.title, b.title)
	})
	for _, c := range calls {
		t.Run(c.title, func(t *testing.T) {
			env.Eventually(t, "the answer", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
				defer cancel()
				err := c.call(ctx)
				if ctx.Err() != nil {
					return fmt.Errorf("there is none: %w", err)
				}
				if got := c.is(err); got != c.want {
					return fmt.Errorf("it is %s, want %s: %w", got, c.want, err)
				}
				return nil
			})
		})
	}
}

// testPorts are the ports that both topologies have alike.
func (w *istioEnv) testPorts(t *testing.T) {
	var calls []meshCall
	add := func(title, want string, call func(ctx context.Context) error) {
		calls = append(calls, meshCall{title, call, letThrough, want})
	}
	for _, p := range []struct {
		name string
		port int
	}{{"resource proxy", w.resources}, {"Redis proxy", w.redis}} {
		for caller, want := range map[string]string{
			meshServer: admitted, meshPrometheus: byMesh, meshGateway: byMesh, meshEdge: byMesh, meshPartnersServer: byMesh, meshNoCertificate: byMesh,
		} {
			add(p.name+" for "+orNobody(caller), want, func(ctx context.Context) error { return w.line(ctx, caller, p.port) })
		}
		add(p.name+" without TLS", byMesh, func(ctx context.Context) error { return plain(ctx, p.port) })
	}
	for caller, want := range map[string]string{meshPrometheus: admitted, meshServer: byMesh, meshGateway: byMesh, meshNoCertificate: byMesh} {
		add("metrics for "+orNobody(caller), want, func(ctx context.Context) error { return w.get(ctx, caller, "/metrics") })
	}
	add("another path for Prometheus", byMesh, func(ctx context.Context) error { return w.get(ctx, meshPrometheus, "/readyz") })
	w.run(t, calls)
}

func orNobody(caller string) string {
	if caller == meshNoCertificate {
		return "whoever has no certificate"
	}
	return caller
}

// plain is line without TLS.
func plain(ctx context.Context, port int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", sidecarIP, port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

// Only the gateway reaches the port for agents, and it reads nothing: the principal
// itself judges who the agent is.
func (w *istioEnv) testPassthrough(t *testing.T) {
	var calls []meshCall
	for caller, want := range map[string]string{meshGateway: admitted, meshServer: byMesh, meshEdge: byMesh, meshPartnersServer: byMesh} {
		calls = append(calls, meshCall{"the agents' port for " + caller, func(ctx context.Context) error { return w.inner(ctx, caller) }, letThrough, want})
	}
	for agent, want := range map[string]string{meshEdge: admitted, meshPartner: admitted, meshNobody: byPrincipal, meshEdgesNamesake: byPrincipal} {
		calls = append(calls, meshCall{"the gateway for " + agent, func(ctx context.Context) error { return w.atTheGateway(ctx, agent, "", meshPrincipal) }, answered, want})
	}
	calls = append(calls, meshCall{"another SNI", func(ctx context.Context) error {
		cfg := w.tlsAs(meshEdge, []string{"h2"}, meshPrincipal)
		cfg.ServerName = "other.test"
		return w.rpc(ctx, fmt.Sprintf("%s:%d", gatewayIP, w.door), cfg, "")
	}, answered, byMesh})
	w.run(t, calls)
}

// The gateway lets in whom the registry knows, by the whole SPIFFE ID, and only our
// services; past it no one else reaches the principal.
func (w *istioEnv) testGateway(t *testing.T) {
	const other = "/grpc.health.v1.Health/Check"
	var calls []meshCall
	for agent, want := range map[string]string{
		meshEdge: admitted, meshPartner: admitted, meshNobody: byMesh, meshEdgesNamesake: byMesh, meshPartnersServer: byMesh, meshNoCertificate: byMesh,
	} {
		calls = append(calls, meshCall{"the gateway for " + orNobody(agent), func(ctx context.Context) error { return w.atTheGateway(ctx, agent, "", meshGateway) }, answered, want})
	}
	calls = append(calls,
		meshCall{"another service at the gateway", func(ctx context.Context) error { return w.atTheGateway(ctx, meshEdge, other, meshGateway) }, answered, byMesh},
		// Who is behind the gateway it has to say; of itself it is no agent.
		meshCall{"the agents' port for the gateway", func(ctx context.Context) error { return w.beside(ctx, meshGateway, "") }, answered, byPrincipal},
		meshCall{"another service for the gateway", func(ctx context.Context) error { return w.beside(ctx, meshGateway, other) }, answered, byMesh},
	)
	for _, caller := range []string{meshServer, meshEdge, meshPartner, meshNoCertificate} {
		calls = append(calls, meshCall{"the agents' port for " + orNobody(caller), func(ctx context.Context) error { return w.beside(ctx, caller, "") }, answered, byMesh})
	}
	w.run(t, calls)
	// An agent that leaves the registry is refused at the gateway too.
	env.Patch(t, w.hub.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace), "edge-2", map[string]any{"spec": map[string]any{"suspended": true}})
	w.render(t)
	w.run(t, []meshCall{{"the gateway for an agent that was suspended", func(ctx context.Context) error { return w.atTheGateway(ctx, meshPartner, "", meshGateway) }, answered, byMesh}})
}

// beside is rpc past the gateway.
func (w *istioEnv) beside(ctx context.Context, caller, path string) error {
	return w.rpc(ctx, fmt.Sprintf("%s:%d", sidecarIP, w.stream), w.tlsAs(caller, []string{"h2"}, meshPrincipal), path)
}

// A principal that is written with its scheme is taken by everybody and matches no one.
// If this fails Istio has changed, and ours need not be without.
func (w *istioEnv) testScheme(t *testing.T) {
	const name = "argomesh-principal-resource-proxy"
	policies := w.hub.Resource(istio.Kinds()["AuthorizationPolicy"], harness.ArgoCDNamespace)
	write := func(principal string) {
		t.Helper()
		env.Patch(t, policies, name, map[string]any{"spec": map[string]any{"rules": []any{map[string]any{
			"from": []any{map[string]any{"source": map[string]any{"principals": []any{principal}}}},
			"to":   []any{map[string]any{"operation": map[string]any{"ports": []any{strconv.Itoa(w.resources)}}}},
		}}}})
	}
	call := func(ctx context.Context) error { return w.line(ctx, meshServer, w.resources) }
	write(meshServer)
	w.run(t, []meshCall{{"a principal with its scheme", call, letThrough, byMesh}})
	write(strings.TrimPrefix(meshServer, "spiffe://"))
	w.run(t, []meshCall{{"the same without", call, letThrough, admitted}})
}

// An alias of the mesh's trust domain admits the namesake of anyone who a policy names.
// That is why nothing is rendered with aliases; if this fails Istio has changed.
func (w *istioEnv) testAliases(t *testing.T) {
	call := func(ctx context.Context) error { return w.line(ctx, meshPartnersServer, w.resources) }
	w.writeMesh(t, "partner.test")
	w.run(t, []meshCall{{"a namesake of an alias", call, letThrough, admitted}})
	w.writeMesh(t)
	w.run(t, []meshCall{{"a namesake without aliases", call, letThrough, byMesh}})
}

// testNothingRefused holds that the proxies took all that istiod made of it.
func (w *istioEnv) testNothingRefused(t *testing.T) {
	for name, admin := range w.envoys {
		stats, err := harness.EnvoyAdmin(t.Context(), admin, "/stats?usedonly&filter=update_")
		if err != nil {
			t.Fatal(err)
		}
		taken := false
		for line := range strings.Lines(string(stats)) {
			stat, count, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if strings.HasSuffix(stat, "update_rejected") && count != "0" {
				t.Errorf("%s: %s is %s", name, stat, count)
			}
			taken = taken || stat == "listener_manager.lds.update_success"
		}
		if !taken {
			t.Errorf("%s took no listeners:\n%s", name, stats)
		}
	}
}
