//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// The charts, by the part they install.
const (
	principalChart = "argomesh-principal"
	agentChart     = "argomesh-agent"
)

// agentValues are what the agent's chart requires, as docs/install.md has it.
const agentValues = `
config:
  name: edge-1
  mode: managed
  principal:
    address: principal.hub.example:8443
    spiffe_ids: [spiffe://hub.example/argomesh/principal]
`

// combination is one documented way to use a chart.
type combination struct {
	chart, values string
	// privileged says that Pod Security "restricted" refuses it, and why.
	privileged string
}

// combinations are those of docs/install.md and of the comments in values.yaml.
var combinations = map[string]combination{
	"principal by default":          {chart: principalChart},
	"principal on a host's socket":  {chart: principalChart, values: "identity: {source: spire-hostpath, socket: api.sock}", privileged: "hostPath"},
	"principal in istio":            {chart: principalChart, values: "identity: {source: istio}"},
	"principal without live access": {chart: principalChart, values: "envoy: {enabled: false}"},
	"principal without crds":        {chart: principalChart, values: "crds: {install: false}"},
	"principal whose crds may go":   {chart: principalChart, values: "crds: {keep: false}"},
	"principal as a load balancer":  {chart: principalChart, values: "service: {type: LoadBalancer, port: 443, loadBalancerSourceRanges: [203.0.113.0/24], annotations: {a.example/b: c}}"},
	"principal with redis":          {chart: principalChart, values: "config: {redis: {address: 'argocd-redis:6379', password_file: /redis/auth}}\nextraVolumes: [{name: redis, secret: {secretName: argocd-redis}}]\nextraVolumeMounts: [{name: redis, mountPath: /redis, readOnly: true}]"},
	"principal with a redis proxy": {chart: principalChart, values: `
config:
  redis: {address: "argocd-redis:6379", password_file: /redis/auth}
  redis_proxy: {listen: "unix:///run/argomesh/redis-proxy.sock"}
  envoy: {redis_tls: files, redis_certificate: /redis-tls/tls.crt, redis_key: /redis-tls/tls.key}
envoy: {extraVolumeMounts: [{name: redis-tls, mountPath: /redis-tls, readOnly: true}]}
extraVolumes: [{name: redis, secret: {secretName: argocd-redis}}, {name: redis-tls, secret: {secretName: argomesh-redis-tls}}]
extraVolumeMounts: [{name: redis, mountPath: /redis, readOnly: true}]`},
	"principal that is measured":     {chart: principalChart, values: "serviceMonitor: {enabled: true, labels: {release: prometheus}}\nnetworkPolicy: {metrics: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}"},
	"principal whose envoy ends tls": {chart: principalChart, values: "config: {stream: {listen: '', listeners: [{method: header}]}, envoy: {stream: '0.0.0.0:8443'}}"},
	"principal behind a mesh that ends tls": {chart: principalChart, values: `
service: {sidecarPort: 8443}
config:
  stream:
    listen: ""
    listeners:
      - {listen: "127.0.0.1:8444", method: header, header: {trusted_proxies: ["spiffe://hub.example/ns/istio-ingress/sa/gateway"]}}`},
	"principal that keeps the mesh":      {chart: principalChart, values: fmt.Sprintf(meshLiveValues, "apply")},
	"principal that reports of the mesh": {chart: principalChart, values: fmt.Sprintf(meshLiveValues, "report")},
	"principal to which istio passes tls": {chart: principalChart, values: `
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
	"principal with tokens":      {chart: principalChart, values: "config: {stream: {listeners: [{listen: ':8445', method: spiffe-jwt}]}}"},
	"principal with its own CA":  {chart: principalChart, values: "config: {resource_proxy: {credentials: {ca_file: /ca/ca.crt}}}\nextraVolumes: [{name: ca, configMap: {name: proxy-ca}}]\nextraVolumeMounts: [{name: ca, mountPath: /ca}]"},
	"principal without policies": {chart: principalChart, values: "networkPolicy: {enabled: false}\npodDisruptionBudget: {enabled: false}\nrbac: {create: false}\nserviceAccount: {create: false}"},
	"principal with everything of a pod": {chart: principalChart, values: `
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

	"agent by default":         {chart: agentChart, values: agentValues},
	"agent on a host's socket": {chart: agentChart, values: agentValues + "identity: {source: spire-hostpath}", privileged: "hostPath"},
	"agent in istio":           {chart: agentChart, values: agentValues + "identity: {source: istio}"},
	"agent with live access":   {chart: agentChart, values: agentValues + "  access: {enabled: true, writes: true, exec: true}"},
	"agent with its own roles": {chart: agentChart, values: agentValues + "  access: {enabled: true, tracked_only: true, rules: [{name: web, namespaces: [web]}]}\nrbac: {live: false}"},
	"agent with redis":         {chart: agentChart, values: agentValues + "  redis: {address: 'argocd-redis:6379'}\n  redis_proxy: {enabled: true}"},
	"agent that is measured":   {chart: agentChart, values: agentValues + "serviceMonitor: {enabled: true}\nnetworkPolicy: {metrics: [{namespaceSelector: {}}], principal: [{ipBlock: {cidr: 203.0.113.7/32}}]}"},
	"agent with namespaces":    {chart: agentChart, values: agentValues + "  mapping: {namespaces: [team-a, team-b], create_namespaces: true}\nlocalDeletes: {policy: true}"},
	"agent everywhere":         {chart: agentChart, values: agentValues + "  mapping: {namespaces: ['*']}\nlocalDeletes: {policy: true}"},
	"agent that guards":        {chart: agentChart, values: agentValues + "localDeletes: {policy: true}"},
	"agent that warns":         {chart: agentChart, values: agentValues + "localDeletes: {policy: true, actions: [Warn, Audit]}"},
	"autonomous agent":         {chart: agentChart, values: strings.Replace(agentValues, "managed", "autonomous", 1)},
	"agent behind a gateway": {chart: agentChart, values: `
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

// helm runs helm, and returns what it prints and why it failed.
func helm(t *testing.T, args ...string) (string, error) {
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

func chartDir(t *testing.T, chart string) string {
	t.Helper()
	return filepath.Join(harnesstest.Tools(t).Checkout(), "charts", chart)
}

// template renders a chart as release "argomesh" in Argo CD's namespace.
func template(t *testing.T, chart, values string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return helm(t, "template", "argomesh", chartDir(t, chart), "--namespace", harness.ArgoCDNamespace, "--kube-version", "1.36.3", "--values", file)
}

// render is template for values that a chart takes.
func render(t *testing.T, chart, values string) []*unstructured.Unstructured {
	t.Helper()
	out, err := template(t, chart, values)
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

// find returns the one object of a kind.
func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
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

func as[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

func TestChartsLint(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for name, c := range combinations {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(c.values), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := helm(t, "lint", "--strict", "--quiet", chartDir(t, c.chart), "--values", file, "--namespace", harness.ArgoCDNamespace); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestChartsGolden(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for chart, values := range map[string]string{
		principalChart: "crds: {install: false}", // a file of its own, held against the code elsewhere
		agentChart:     agentValues,
	} {
		t.Run(chart, func(t *testing.T) {
			got, err := template(t, chart, values)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", "charts", chart+".yaml"), got)
		})
	}
}

// What cannot work is refused before it is installed, and the message names the value.
func TestChartsRefuse(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for name, c := range map[string]struct{ chart, values, want string }{
		"an unknown value":               {principalChart, "enovy: {enabled: true}", "enovy"},
		"an unknown key of config":       {principalChart, "config: {steam: {listen: ':1'}}", "steam"},
		"an unknown key below":           {principalChart, "config: {stream: {listens: []}}", "listens"},
		"an unknown key of a listener":   {principalChart, "config: {stream: {listeners: [{lisen: ':1'}]}}", "lisen"},
		"the namespace in config":        {principalChart, "config: {namespace: other}", "namespace"},
		"the socket in config":           {principalChart, "config: {identity: {socket: 'unix:///s'}}", "socket"},
		"a key of another type":          {principalChart, "config: {stream: {max_connections: many}}", "max_connections"},
		"an unknown source":              {principalChart, "identity: {source: files}", "source"},
		"a path as a socket's name":      {principalChart, "identity: {socket: /run/api.sock}", "socket"},
		"a relative folder":              {principalChart, "identity: {hostPath: run/spire}", "hostPath"},
		"two principals":                 {principalChart, "replicas: 2", "replicas"},
		"a digest that is none":          {principalChart, "image: {digest: latest}", "digest"},
		"a service of another type":      {principalChart, "service: {type: ExternalName}", "type"},
		"no port":                        {principalChart, "service: {port: 0}", "port"},
		"memory without a unit":          {principalChart, "envoy: {memory: 1000}", "memory"},
		"a monitor that is kept out":     {principalChart, "serviceMonitor: {enabled: true}", "networkPolicy.metrics"},
		"a mesh to another port":         {principalChart, strings.Replace(fmt.Sprintf(meshLiveValues, "apply"), "identity:", "service: {port: 443}\nidentity:", 1), "service.port"},
		"a sidecar's other port":         {principalChart, strings.Replace(fmt.Sprintf(meshLiveValues, "apply"), "identity:", "service: {sidecarPort: 8444}\nidentity:", 1), "service.sidecarPort"},
		"a balancer before nobody":       {principalChart, "service: {type: LoadBalancer}\nconfig: {stream: {listen: ''}}", "service.type"},
		"an agent without settings":      {agentChart, "", "name"},
		"an agent without a name":        {agentChart, "config: {mode: managed, principal: {address: 'a:1', spiffe_ids: [x]}}", "name"},
		"an agent without a mode":        {agentChart, "config: {name: a, principal: {address: 'a:1', spiffe_ids: [x]}}", "mode"},
		"an agent without an address":    {agentChart, "config: {name: a, mode: managed, principal: {spiffe_ids: [x]}}", "address"},
		"an agent that trusts nobody":    {agentChart, "config: {name: a, mode: managed, principal: {address: 'a:1', spiffe_ids: []}}", "spiffe_ids"},
		"an unknown mode":                {agentChart, strings.Replace(agentValues, "managed", "manged", 1), "mode"},
		"an unknown switch":              {agentChart, agentValues + "  access: {enabled: true, wirtes: true}", "wirtes"},
		"rules and the chart's role":     {agentChart, agentValues + "  access: {enabled: true, rules: [{name: web}]}", "rbac.live"},
		"tracking and the chart's role":  {agentChart, agentValues + "  access: {enabled: true, tracked_only: true}", "rbac.live"},
		"others and the chart's role":    {agentChart, agentValues + "  access: {enabled: true, impersonate: [a]}", "rbac.live"},
		"a guard of an autonomous agent": {agentChart, strings.Replace(agentValues, "managed", "autonomous", 1) + "localDeletes: {policy: true}", "localDeletes.policy"},
		"an unknown action":              {agentChart, agentValues + "localDeletes: {actions: [Refuse]}", "actions"},
		"an agent's unmeasured monitor":  {agentChart, agentValues + "serviceMonitor: {enabled: true}", "networkPolicy.metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := template(t, c.chart, c.values)
			if err == nil {
				t.Fatalf("it renders\n%s", out)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the message does not name %q: %v", c.want, err)
			}
		})
	}
}

// What Istio is told of a principal is what the chart installs: connections go to
// Services and ports that are there.
func TestChartFitsTheMesh(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	inMesh := 0
	for name, c := range combinations {
		if !strings.Contains(c.values, "exposure:") {
			continue
		}
		inMesh++
		t.Run(name, func(t *testing.T) {
			chart := render(t, c.chart, c.values)
			ports := map[string][]int32{} // by host
			for _, o := range chart {
				if o.GetKind() != "Service" {
					continue
				}
				host := o.GetName() + "." + o.GetNamespace() + ".svc.cluster.local"
				for _, p := range as[corev1.Service](t, o).Spec.Ports {
					ports[host] = append(ports[host], p.Port)
				}
			}
			routes := 0
			for _, o := range meshOfChart(t, chart) {
				var traffic meshTraffic
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &traffic); err != nil {
					t.Fatal(err)
				}
				if o.GetKind() == "DestinationRule" && ports[traffic.Spec.Host] == nil {
					t.Errorf("%s is about %s, and the chart's Services are %v", o.GetName(), traffic.Spec.Host, ports)
				}
				for _, way := range slices.Concat(traffic.Spec.TLS, traffic.Spec.HTTP) {
					for _, r := range way.Route {
						if routes++; !slices.Contains(ports[r.Destination.Host], r.Destination.Port.Number) {
							t.Errorf("agents are brought to %+v, and the chart's Services are %v", r.Destination, ports)
						}
					}
				}
			}
			if routes != 1 {
				t.Errorf("there are %d ways to the principal", routes)
			}
		})
	}
	if inMesh == 0 {
		t.Error("no combination is in a mesh")
	}
}

// meshTraffic is what objects of Istio say of Services.
type meshTraffic struct {
	Spec struct {
		Host string    `json:"host"`
		TLS  []meshWay `json:"tls"`
		HTTP []meshWay `json:"http"`
	} `json:"spec"`
}

type meshWay struct {
	Route []struct {
		Destination struct {
			Host string `json:"host"`
			Port struct {
				Number int32 `json:"number"`
			} `json:"port"`
		} `json:"destination"`
	} `json:"route"`
}

// meshOfChart returns what agentctl renders for Istio from the configuration in a
// rendered chart, and for one Agent.
func meshOfChart(t *testing.T, chart []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(find(t, chart, "ConfigMap").Object, "data")
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
	agentctl, err := harnesstest.New(t).Binary("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	var failure bytes.Buffer
	cmd := exec.CommandContext(t.Context(), agentctl, "mesh", "render", "istio", "--config", config, "-f", agents)
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

// What a chart renders as configuration is what the program reads: it then misses the
// folder of the socket, which no machine but a pod has, and nothing else.
func TestChartsConfiguration(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	h := harnesstest.New(t)
	for name, c := range combinations {
		t.Run(name, func(t *testing.T) {
			program := strings.TrimPrefix(c.chart, "argomesh-")
			binary, err := h.Binary(program)
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := unstructured.NestedStringMap(find(t, render(t, c.chart, c.values), "ConfigMap").Object, "data")
			if err != nil || data[program+".yaml"] == "" {
				t.Fatalf("no configuration: %v", err)
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(data[program+".yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), binary, "--config", file).CombinedOutput()
			if err == nil {
				t.Fatal("it ran")
			}
			said := strings.TrimSpace(string(out))
			if !strings.Contains(said, "identity.socket: the folder of /spiffe-workload-api/") || strings.Count(said, "\n") > 0 {
				t.Errorf("it says: %s", said)
			}
		})
	}
}

// A changed configuration restarts the pods.
// By method header Istio's proxy brings agents to a unix socket, whose folder it has too;
// nobody who can only forward ports of the pod reaches that.
func TestChartsHeaderSocket(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	const annotation = "sidecar.istio.io/userVolumeMount"
	for name, c := range map[string]struct {
		values string
		mounts bool
	}{
		"method header":                   {"identity: {source: istio}\nconfig: {stream: {listeners: [{method: header}]}}\n", true},
		"on another socket of the folder": {"identity: {source: istio}\nconfig: {stream: {listeners: [{method: header, listen: 'unix:///run/argomesh/s.sock'}]}}\n", true},
		"on loopback":                     {"identity: {source: istio}\nconfig: {stream: {listeners: [{method: header, listen: '127.0.0.1:8444'}]}}\n", false},
		"another method":                  {"identity: {source: istio}\nconfig: {stream: {listeners: [{method: spiffe-jwt, listen: ':8445'}]}}\n", false},
		"no istio":                        {"config: {stream: {listeners: [{method: header}]}}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, find(t, render(t, principalChart, c.values), "Deployment")).Spec.Template
			raw, ok := pod.Annotations[annotation]
			if ok != c.mounts {
				t.Fatalf("annotation %s is %q", annotation, raw)
			}
			if !ok {
				return
			}
			var mounts []corev1.VolumeMount
			if err := json.Unmarshal([]byte(raw), &mounts); err != nil {
				t.Fatal(err)
			}
			own := pod.Spec.Containers[0].VolumeMounts
			if len(mounts) != 1 || !slices.ContainsFunc(own, func(m corev1.VolumeMount) bool { return m.Name == mounts[0].Name && m.MountPath == mounts[0].MountPath }) {
				t.Errorf("the proxy mounts %v, the principal %v", mounts, own)
			}
		})
	}
}

func TestChartsRestart(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	sum := func(chart, values string) string {
		annotations, _, err := unstructured.NestedStringMap(find(t, render(t, chart, values), "Deployment").Object, "spec", "template", "metadata", "annotations")
		if err != nil {
			t.Fatal(err)
		}
		return annotations["checksum/config"]
	}
	for chart, values := range map[string]string{principalChart: "config: {log: {level: info}}", agentChart: agentValues + "  log: {level: info}"} {
		before := sum(chart, values)
		if before == "" || before != sum(chart, values+"\nreplicas: 0") {
			t.Errorf("%s: the sum %q depends on something else", chart, before)
		}
		if before == sum(chart, strings.Replace(values, "info", "debug", 1)) {
			t.Errorf("%s: another configuration has the same sum", chart)
		}
	}
}

// The init container runs agentctl, whose output a real Envoy takes with the files of
// the pod: there is no bootstrap in the chart that could differ.
func TestChartEnvoyBootstrap(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm", "envoy")
	h := harnesstest.New(t)
	agentctl, err := h.Binary("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t, principalChart, "envoy: {memory: 256Mi, maxConnections: 4000, statsPort: 9912}\nidentity: {socket: api.sock}")
	spec := find(t, objects, "Deployment").Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(spec["initContainers"].([]any)[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	output := slices.Index(args, "--output=/run/argomesh/envoy.yaml")
	if output < 0 {
		t.Fatalf("the init container writes elsewhere: %q", args)
	}
	args[output] = "--output=" + file
	if out, err := exec.CommandContext(t.Context(), agentctl, args...).CombinedOutput(); err != nil {
		t.Fatalf("agentctl %q: %v: %s", args, err, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// What it says is where the pod has it.
	data, _, err := unstructured.NestedStringMap(find(t, objects, "ConfigMap").Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Envoy struct {
			Listen string `json:"listen"`
			NodeID string `json:"node_id"`
		} `json:"envoy"`
	}
	if err := yaml.Unmarshal([]byte(data["principal.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		strings.TrimPrefix(config.Envoy.Listen, "unix://"), "id: " + config.Envoy.NodeID, "/spiffe-workload-api/api.sock", "port_value: 9912", "268435456", "4000",
	} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the bootstrap does not have %q:\n%s", want, content)
		}
	}
	envoy, err := harnesstest.Tools(t).Path("envoy")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "--config-path", file).CombinedOutput(); err != nil {
		t.Errorf("envoy does not take it: %v: %s", err, out)
	}
}

// The agent's chart has the roles of `agentctl agent role`, for what is documented.
func TestChartAgentRole(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	h := harnesstest.New(t)
	binary, err := h.Binary("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	access := map[string]string{
		"off": "", "on": "  access: {enabled: true}",
		"all":    "  access: {enabled: true, writes: true, secrets: true, tokens: true, proxy: true, exec: true, ephemeral_containers: true, nodes: true}",
		"masked": "  access: {enabled: true, secrets: masked}", "masked with writes": "  access: {enabled: true, secrets: masked, writes: true}",
	}
	for _, name := range []string{"writes", "secrets", "tokens", "proxy", "exec", "ephemeral_containers", "nodes"} {
		access[name] = "  access: {enabled: true, " + name + ": true}"
	}
	for name, values := range access {
		access[name] = agentValues + values
	}
	for name, policy := range map[string]string{
		"no further kinds": "kinds: [application, appproject]", "one ConfigMap": "kinds: [gpg-keys]", "templates": "kinds: [repo-creds]",
		"everything": "kinds: [application, appproject, repository, repo-creds, repository-write, repo-write-creds, gpg-keys, tls-certificates, ssh-known-hosts]",
		"no kind":    "kinds: []", "no projects": "kinds: [application, repository]",
		"other rules": "projects: [web]",
		"adoption":    "adopt: ['application/*']", "adoption without Secrets": "kinds: [application], adopt: ['application/*']",
	} {
		access[name] = agentValues + "  policy: {" + policy + "}"
	}
	for name, mapping := range map[string]string{
		"namespaces": "namespaces: [team-a, team-b, argocd, team-a]", "a pattern": "namespaces: [team-a, 'web-*']",
		"an expression with new namespaces": "namespaces: ['/^web$/'], create_namespaces: true",
	} {
		access[name] = agentValues + "  mapping: {" + mapping + "}"
	}
	access["autonomous"] = strings.Replace(agentValues, "managed", "autonomous", 1)
	for name, values := range access {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "agent.yaml")
			objects := render(t, agentChart, values)
			data, _, err := unstructured.NestedStringMap(find(t, objects, "ConfigMap").Object, "data")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(config, []byte(data["agent.yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), binary, "agent", "role", "--config", config).Output()
			if err != nil {
				t.Fatal(err)
			}
			var want []*unstructured.Unstructured
			for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
				object := &unstructured.Unstructured{}
				if err := d.Decode(&object.Object); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				want = append(want, object)
			}
			if diff := cmp.Diff(rights(t, want), rights(t, objects)); diff != "" {
				t.Errorf("(-agentctl +chart):\n%s", diff)
			}
		})
	}
}

// rights are the permissions of roles, and who has them, one line each.
func rights(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var lines []string
	add := func(o *unstructured.Unstructured, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				for _, url := range rule.NonResourceURLs {
					lines = append(lines, fmt.Sprintf("%s %s: %s %s", o.GetKind(), o.GetName(), verb, url))
				}
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						lines = append(lines, fmt.Sprintf("%s %s/%s: %s %s/%s %q", o.GetKind(), o.GetNamespace(), o.GetName(), verb, group, resource, rule.ResourceNames))
					}
				}
			}
		}
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRole":
			add(o, as[rbacv1.ClusterRole](t, o).Rules)
		case "Role":
			add(o, as[rbacv1.Role](t, o).Rules)
		case "ClusterRoleBinding":
			b := as[rbacv1.ClusterRoleBinding](t, o)
			lines = append(lines, fmt.Sprintf("%s: %v to %v", b.Name, b.RoleRef, b.Subjects))
		case "RoleBinding":
			b := as[rbacv1.RoleBinding](t, o)
			lines = append(lines, fmt.Sprintf("%s/%s: %v to %v", b.Namespace, b.Name, b.RoleRef, b.Subjects))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
