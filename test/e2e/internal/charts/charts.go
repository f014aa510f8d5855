//go:build linux

// Package charts renders the charts for the end-to-end tests that install them.
package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// Principal is the chart of the hub.
const Principal = "argomesh-principal"

// Agent is the chart of a spoke.
const Agent = "argomesh-agent"

// SPIRE is the chart of SPIRE for a cluster that has none.
const SPIRE = "argomesh-spire"

// AgentValues are what the agent's chart requires, as docs/install.md has it.
const AgentValues = `
config:
  name: edge-1
  mode: managed
  principal:
    address: principal.hub.example:8443
    spiffe_ids: [spiffe://hub.example/argomesh/principal]
`

// PodExtras are values of either chart that add to its pod.
const PodExtras = `
env: [{name: HTTPS_PROXY, value: "http://127.0.0.1:3128"}]
extraContainers: [{name: proxy, image: "registry.example/proxy:1", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]
dnsConfig: {nameservers: [192.0.2.53], options: [{name: ndots, value: "2"}]}
hostAliases: [{ip: 192.0.2.7, hostnames: [hub.example]}]
`

// combination is one documented way to use a chart.
type combination struct {
	Chart, Values string
	// Privileged says that Pod Security "restricted" refuses it, and why.
	Privileged string
}

// Combinations are those of docs/install.md and of the comments in values.yaml.
var Combinations = map[string]combination{
	"principal by default":          {Chart: Principal},
	"principal on a host's socket":  {Chart: Principal, Values: "identity: {source: spire-hostpath, socket: api.sock}", Privileged: "hostPath"},
	"principal in istio":            {Chart: Principal, Values: "identity: {source: istio}"},
	"principal without live access": {Chart: Principal, Values: "envoy: {enabled: false}"},
	"principal without crds":        {Chart: Principal, Values: "crds: {install: false}"},
	"principal whose crds may go":   {Chart: Principal, Values: "crds: {keep: false}"},
	"principal as a load balancer":  {Chart: Principal, Values: "service: {type: LoadBalancer, port: 443, loadBalancerSourceRanges: [203.0.113.0/24], annotations: {a.example/b: c}}"},
	"principal with redis":          {Chart: Principal, Values: "config: {redis: {address: 'argocd-redis:6379', password_file: /redis/auth}}\nextraVolumes: [{name: redis, secret: {secretName: argocd-redis}}]\nextraVolumeMounts: [{name: redis, mountPath: /redis, readOnly: true}]"},
	"principal with a redis proxy": {Chart: Principal, Values: `
config:
  redis: {address: "argocd-redis:6379", password_file: /redis/auth}
  redis_proxy: {listen: "unix:///run/argomesh/redis-proxy.sock"}
  envoy: {redis_tls: files, redis_certificate: /redis-tls/tls.crt, redis_key: /redis-tls/tls.key}
envoy: {extraVolumeMounts: [{name: redis-tls, mountPath: /redis-tls, readOnly: true}]}
extraVolumes: [{name: redis, secret: {secretName: argocd-redis}}, {name: redis-tls, secret: {secretName: argomesh-redis-tls}}]
extraVolumeMounts: [{name: redis, mountPath: /redis, readOnly: true}]`},
	"principal that is measured":     {Chart: Principal, Values: "serviceMonitor: {enabled: true, labels: {release: prometheus}}\nnetworkPolicy: {metrics: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}"},
	"principal whose envoy ends tls": {Chart: Principal, Values: "config: {stream: {listen: '', listeners: [{method: header}]}, envoy: {stream: '0.0.0.0:8443'}}"},
	"principal behind a mesh that ends tls": {Chart: Principal, Values: `
service: {sidecarPort: 8443}
config:
  stream:
    listen: ""
    listeners:
      - {listen: "127.0.0.1:8444", method: header, header: {trusted_proxies: ["spiffe://hub.example/ns/istio-ingress/sa/gateway"]}}`},
	"principal that keeps the mesh":      {Chart: Principal, Values: fmt.Sprintf(MeshLiveValues, "apply")},
	"principal that reports of the mesh": {Chart: Principal, Values: fmt.Sprintf(MeshLiveValues, "report")},
	"principal to which istio passes tls": {Chart: Principal, Values: `
identity: {source: istio}
config:
  redis: {address: "argocd-redis:6379"}
  redis_proxy: {listen: "unix:///run/argomesh/redis-proxy.sock"}
  envoy: {redis_tls: none}
  mesh:
    exposure: passthrough
    method: spiffe-x509
    principal: spiffe://hub.test/ns/argocd/sa/argomesh-principal
    hub: argomesh.hub.test:443
    redis_proxy_port: 6379
    argo_cd: ["spiffe://hub.test/ns/argocd/sa/argocd-server"]
    gateway: {spiffe_id: "spiffe://hub.test/ns/istio-ingress/sa/istio-ingress", namespace: istio-ingress, pod_labels: {istio: ingress}}`},
	"principal with tokens":      {Chart: Principal, Values: "config: {stream: {listeners: [{listen: ':8445', method: spiffe-jwt}]}}"},
	"principal with its own CA":  {Chart: Principal, Values: "config: {resource_proxy: {credentials: {ca_file: /ca/ca.crt}}}\nextraVolumes: [{name: ca, configMap: {name: proxy-ca}}]\nextraVolumeMounts: [{name: ca, mountPath: /ca}]"},
	"principal without policies": {Chart: Principal, Values: "networkPolicy: {enabled: false}\npodDisruptionBudget: {enabled: false}\nrbac: {create: false}\nserviceAccount: {create: false}"},
	"principal with everything of a pod": {Chart: Principal, Values: `
imagePullSecrets: [registry]
image: {digest: "sha256:` + "0000000000000000000000000000000000000000000000000000000000000000" + `"}
podAnnotations: {a: b}
podLabels: {c: d}
nodeSelector: {e: f}
tolerations: [{key: g, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]
priorityClassName: system-cluster-critical
networkPolicy:
  agents: [{ipBlock: {cidr: 203.0.113.0/24}}]
  apiServer: {to: [{ipBlock: {cidr: 10.0.0.1/32}}], ports: [6443]}
  egress: [{ports: [{port: 4317, protocol: TCP}]}]`},

	"principal with extras":    {Chart: Principal, Values: PodExtras},
	"agent with extras":        {Chart: Agent, Values: AgentValues + PodExtras},
	"agent by default":         {Chart: Agent, Values: AgentValues},
	"agent on a host's socket": {Chart: Agent, Values: AgentValues + "identity: {source: spire-hostpath}", Privileged: "hostPath"},
	"agent in istio":           {Chart: Agent, Values: AgentValues + "identity: {source: istio}"},
	"agent with live access":   {Chart: Agent, Values: AgentValues + "  access: {enabled: true, writes: true, exec: true}"},
	"agent with its own roles": {Chart: Agent, Values: AgentValues + "  access: {enabled: true, tracked_only: true, rules: [{name: web, namespaces: [web]}]}\nrbac: {live: false}"},
	"agent with redis":         {Chart: Agent, Values: AgentValues + "  redis: {address: 'argocd-redis:6379'}\n  redis_proxy: {enabled: true}"},
	"agent that is measured":   {Chart: Agent, Values: AgentValues + "serviceMonitor: {enabled: true}\nnetworkPolicy: {metrics: [{namespaceSelector: {}}], principal: [{ipBlock: {cidr: 203.0.113.7/32}}]}"},
	"agent with namespaces":    {Chart: Agent, Values: AgentValues + "  mapping: {namespaces: [team-a, team-b], create_namespaces: true}\nlocalDeletes: {policy: true}"},
	"agent everywhere":         {Chart: Agent, Values: AgentValues + "  mapping: {namespaces: ['*']}\nlocalDeletes: {policy: true}"},
	"agent that guards":        {Chart: Agent, Values: AgentValues + "localDeletes: {policy: true}"},
	"agent that warns":         {Chart: Agent, Values: AgentValues + "localDeletes: {policy: true, actions: [Warn, Audit]}"},
	"autonomous agent":         {Chart: Agent, Values: strings.Replace(AgentValues, "managed", "autonomous", 1)},
	"agent behind a gateway": {Chart: Agent, Values: `
config:
  name: edge-1
  mode: managed
  principal:
    address: gateway.hub.example:443
    spiffe_ids: [spiffe://hub.example/argomesh/principal]
    method: header
    gateway: {spiffe_ids: [spiffe://hub.example/ns/istio-ingress/sa/gateway]}
`},
}

// Helm runs helm, and returns what it prints and why it failed.
func Helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := harnesstest.Tools(t).Path("helm")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir() // no repositories, plugins or cache of the user
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, complaint.String())
	}
	if complaint.Len() > 0 {
		t.Errorf("helm %s warns: %s", strings.Join(args, " "), complaint.String())
	}
	return out.String(), nil
}

// Dir is the folder of a chart.
func Dir(t *testing.T, chart string) string {
	t.Helper()
	return filepath.Join(harnesstest.Tools(t).Checkout(), "charts", chart)
}

// Definitions returns the files of the CustomResourceDefinitions that the principal's chart installs.
func Definitions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Dir(t, Principal), "files", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d definitions: %v", len(files), err)
	}
	return files
}

// Template renders a chart as release "argomesh" in Argo CD's namespace.
func Template(t *testing.T, chart, values string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return Helm(t, append([]string{
		"template", "argomesh", Dir(t, chart), "--namespace", harness.ArgoCDNamespace, "--kube-version", "1.36.3", "--values", file,
	}, args...)...)
}

// Render is template for values that a chart takes.
func Render(t *testing.T, chart, values string) []*unstructured.Unstructured {
	t.Helper()
	return render(t, chart, values, "--skip-tests")
}

// RenderTest returns the objects of helm test.
func RenderTest(t *testing.T, chart, values string) []*unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(render(t, chart, values), func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()["helm.sh/hook"] != "test"
	})
}

func render(t *testing.T, chart, values string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	out, err := Template(t, chart, values, args...)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := d.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// FindKind returns the one object of a kind.
func FindKind(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects of kind %s", len(found), kind)
	}
	return found[0]
}

// MeshOfChart returns what agentctl renders for Istio from the configuration in a
// rendered chart, and for one Agent.
func MeshOfChart(t *testing.T, chart []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(FindKind(t, chart, "ConfigMap").Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	config, agents := filepath.Join(t.TempDir(), "principal.yaml"), filepath.Join(t.TempDir(), "agents.yaml")
	err = errors.Join(os.WriteFile(config, []byte(data["principal.yaml"]), 0o600), os.WriteFile(agents, []byte(`
apiVersion: argomesh.io/v1alpha1
kind: Agent
metadata: {name: edge-1, namespace: argocd}
spec: {mode: managed, identity: {spiffeIDs: ["spiffe://hub.test/argomesh/agent/edge-1"]}}
`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	var failure bytes.Buffer
	cmd := exec.CommandContext(t.Context(), harnesstest.Binary(t, "agentctl"), "mesh", "render", "istio", "--config", config, "-f", agents)
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, failure.String())
	}
	list := &unstructured.UnstructuredList{}
	if err := yaml.Unmarshal(out, list); err != nil {
		t.Fatal(err)
	}
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects
}

// MeshLiveValues are values of the chart: Istio's gateway terminates TLS, and the principal
// keeps the objects of Istio and SPIRE. %s is what it does.
const MeshLiveValues = `
identity: {source: istio}
config:
  resource_proxy: {url: "https://argomesh-principal:9090"}
  stream:
    listen: ""
    listeners:
    - {method: header, header: {trusted_proxies: ["spiffe://hub.test/ns/istio-ingress/sa/gateway"]}}
  mesh:
    exposure: gateway
    method: header
    principal: spiffe://hub.test/ns/argocd/sa/argomesh-principal
    hub: argomesh.hub.test:443
    argo_cd: ["spiffe://hub.test/ns/argocd/sa/argocd-server"]
    scrapers: ["spiffe://hub.test/ns/monitoring/sa/prometheus"]
    gateway: {spiffe_id: "spiffe://hub.test/ns/istio-ingress/sa/gateway", namespace: istio-ingress, pod_labels: {istio: ingress}}
    live: {istio: "%[1]s", spire: "%[1]s"}
`
