//go:build linux

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

func TestChartsLint(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for name, c := range charts.Combinations {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(c.Values), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := charts.Helm(t, "lint", "--strict", "--quiet", charts.Dir(t, c.Chart), "--values", file, "--namespace", harness.ArgoCDNamespace); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestChartsGolden(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for chart, values := range map[string]string{
		charts.Principal: "crds: {install: false}", // a file of its own, held against the code elsewhere
		charts.Agent:     charts.AgentValues,
		charts.SPIRE:     "trustDomain: hub.example",
	} {
		t.Run(chart, func(t *testing.T) {
			got, err := charts.Template(t, chart, values)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", "charts", chart+".yaml"), got)
		})
	}
}

// TestChartsNotes has helm print what a chart says once it is installed: it names the next command, and agentctl
// has each that it names, with its flags.
func TestChartsNotes(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for chart, c := range map[string]struct{ values, next string }{
		charts.Principal: {"", "agentctl spoke install"},
		charts.Agent:     {charts.AgentValues, "agentctl agent get"},
		charts.SPIRE:     {"trustDomain: hub.example", "agentctl identity register"},
	} {
		values := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(values, []byte(c.values), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := charts.Helm(t, "install", chart, charts.Dir(t, chart), "--namespace", "argocd", "--dry-run=client", "--values", values)
		if err != nil {
			t.Fatal(err)
		}
		_, notes, is := strings.Cut(out, "\nNOTES:\n")
		if !is {
			t.Errorf("%s has no notes", chart)
			continue
		}
		commands := regexp.MustCompile(`(?m)(?:^|Next:) *(agentctl .*)$`).FindAllStringSubmatch(notes, -1)
		if len(commands) == 0 || !strings.HasPrefix(commands[0][1], c.next) {
			t.Errorf("%s does not name %q first:\n%s", chart, c.next, notes)
		}
		for _, command := range commands {
			args := strings.Fields(command[1])[1:]
			out, err := exec.CommandContext(t.Context(), agentctlBinary(t), append(args, "--help")...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "agentctl "+strings.Join(args[:2], " ")) {
				t.Errorf("%s names %q: %v\n%s", chart, command[1], err, out)
			}
		}
	}
}

// spire-controller-manager takes namespaces that it ignores as regular expressions: one whose name only holds that of
// another is not ignored.
func TestSPIREIgnoresNamespacesByName(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	var config struct{ IgnoreNamespaces []string }
	for _, o := range charts.Render(t, charts.SPIRE, "trustDomain: hub.example") {
		text, found, err := unstructured.NestedString(o.Object, "data", "controller-manager.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
	}
	for namespace, want := range map[string]bool{
		"kube-system": true, "kube-public": true, harness.ArgoCDNamespace: true,
		"kube-system-tools": false, "my-kube-public": false, "team-" + harness.ArgoCDNamespace: false,
	} {
		ignored := slices.ContainsFunc(config.IgnoreNamespaces, func(pattern string) bool {
			return regexp.MustCompile(pattern).MatchString(namespace)
		})
		if ignored != want {
			t.Errorf("namespace %s is ignored: %t, by %q", namespace, ignored, config.IgnoreNamespaces)
		}
	}
}

// What cannot work is refused before it is installed, and the message names the value.
func TestChartsRefuse(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for name, c := range map[string]struct{ chart, values, want string }{
		"an unknown value":               {charts.Principal, "enovy: {enabled: true}", "enovy"},
		"an unknown key of config":       {charts.Principal, "config: {steam: {listen: ':1'}}", "steam"},
		"an unknown key below":           {charts.Principal, "config: {stream: {listens: []}}", "listens"},
		"an unknown key of a listener":   {charts.Principal, "config: {stream: {listeners: [{lisen: ':1'}]}}", "lisen"},
		"a variable without a name":      {charts.Principal, "env: [{value: x}]", "name"},
		"the namespace in config":        {charts.Principal, "config: {namespace: other}", "namespace"},
		"the socket in config":           {charts.Principal, "config: {identity: {socket: 'unix:///s'}}", "socket"},
		"a key of another type":          {charts.Principal, "config: {stream: {max_connections: many}}", "max_connections"},
		"an unknown source":              {charts.Principal, "identity: {source: files}", "source"},
		"a path as a socket's name":      {charts.Principal, "identity: {socket: /run/api.sock}", "socket"},
		"a relative folder":              {charts.Principal, "identity: {hostPath: run/spire}", "hostPath"},
		"two principals":                 {charts.Principal, "replicas: 2", "replicas"},
		"a digest that is none":          {charts.Principal, "image: {digest: latest}", "digest"},
		"a service of another type":      {charts.Principal, "service: {type: ExternalName}", "type"},
		"no port":                        {charts.Principal, "service: {port: 0}", "port"},
		"memory without a unit":          {charts.Principal, "envoy: {memory: 1000}", "memory"},
		"a monitor that is kept out":     {charts.Principal, "serviceMonitor: {enabled: true}", "networkPolicy.metrics"},
		"a mesh to another port":         {charts.Principal, strings.Replace(fmt.Sprintf(charts.MeshLiveValues, "apply"), "identity:", "service: {port: 443}\nidentity:", 1), "service.port"},
		"a sidecar's other port":         {charts.Principal, strings.Replace(fmt.Sprintf(charts.MeshLiveValues, "apply"), "identity:", "service: {sidecarPort: 8444}\nidentity:", 1), "service.sidecarPort"},
		"a balancer before nobody":       {charts.Principal, "service: {type: LoadBalancer}\nconfig: {stream: {listen: ''}}", "service.type"},
		"an agent without settings":      {charts.Agent, "", "name"},
		"an agent without a name":        {charts.Agent, "config: {mode: managed, principal: {address: 'a:1', spiffe_ids: [x]}}", "name"},
		"an agent without a mode":        {charts.Agent, "config: {name: a, principal: {address: 'a:1', spiffe_ids: [x]}}", "mode"},
		"an agent without an address":    {charts.Agent, "config: {name: a, mode: managed, principal: {spiffe_ids: [x]}}", "address"},
		"an agent that trusts nobody":    {charts.Agent, "config: {name: a, mode: managed, principal: {address: 'a:1', spiffe_ids: []}}", "spiffe_ids"},
		"an unknown mode":                {charts.Agent, strings.Replace(charts.AgentValues, "managed", "manged", 1), "mode"},
		"an unknown switch":              {charts.Agent, charts.AgentValues + "  access: {enabled: true, wirtes: true}", "wirtes"},
		"rules and the chart's role":     {charts.Agent, charts.AgentValues + "  access: {enabled: true, rules: [{name: web}]}", "rbac.live"},
		"tracking and the chart's role":  {charts.Agent, charts.AgentValues + "  access: {enabled: true, tracked_only: true}", "rbac.live"},
		"others and the chart's role":    {charts.Agent, charts.AgentValues + "  access: {enabled: true, impersonate: [a]}", "rbac.live"},
		"a guard of an autonomous agent": {charts.Agent, strings.Replace(charts.AgentValues, "managed", "autonomous", 1) + "localDeletes: {policy: true}", "localDeletes.policy"},
		"an unknown action":              {charts.Agent, charts.AgentValues + "localDeletes: {actions: [Refuse]}", "actions"},
		"SPIRE without a trust domain":   {charts.SPIRE, "", "trustDomain"},
		"SPIRE with a URL for a domain":  {charts.SPIRE, "trustDomain: 'spiffe://hub.example'", "trustDomain"},
		"SPIRE with an unknown value":    {charts.SPIRE, "trustDomain: hub.example\nservr: {}", "servr"},
		"an agent's unmeasured monitor":  {charts.Agent, charts.AgentValues + "serviceMonitor: {enabled: true}", "networkPolicy.metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := charts.Template(t, c.chart, c.values)
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
	for name, c := range charts.Combinations {
		if !strings.Contains(c.Values, "exposure:") {
			continue
		}
		inMesh++
		t.Run(name, func(t *testing.T) {
			chart := charts.Render(t, c.Chart, c.Values)
			ports := map[string][]int32{} // by host
			for _, o := range chart {
				if o.GetKind() != "Service" {
					continue
				}
				host := o.GetName() + "." + o.GetNamespace() + ".svc.cluster.local"
				for _, p := range env.Convert[corev1.Service](t, o).Spec.Ports {
					ports[host] = append(ports[host], p.Port)
				}
			}
			routes := 0
			for _, o := range charts.MeshOfChart(t, chart) {
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

// What a chart renders as configuration is what the program reads: it then misses the
// folder of the socket, which no machine but a pod has, and nothing else.
func TestChartsConfiguration(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	h := harnesstest.New(t)
	for name, c := range charts.Combinations {
		t.Run(name, func(t *testing.T) {
			program := strings.TrimPrefix(c.Chart, "argomesh-")
			binary, err := h.Binary(program)
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := unstructured.NestedStringMap(charts.FindKind(t, charts.Render(t, c.Chart, c.Values), "ConfigMap").Object, "data")
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
// no one who can only forward ports of the pod reaches that.
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
			pod := env.Convert[appsv1.Deployment](t, charts.FindKind(t, charts.Render(t, charts.Principal, c.values), "Deployment")).Spec.Template
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
		annotations, _, err := unstructured.NestedStringMap(charts.FindKind(t, charts.Render(t, chart, values), "Deployment").Object, "spec", "template", "metadata", "annotations")
		if err != nil {
			t.Fatal(err)
		}
		return annotations["checksum/config"]
	}
	for chart, values := range map[string]string{charts.Principal: "config: {log: {level: info}}", charts.Agent: charts.AgentValues + "  log: {level: info}"} {
		before := sum(chart, values)
		if before == "" || before != sum(chart, values+"\nreplicas: 0") {
			t.Errorf("%s: the sum %q depends on something else", chart, before)
		}
		if before == sum(chart, strings.Replace(values, "info", "debug", 1)) {
			t.Errorf("%s: another configuration has the same sum", chart)
		}
	}
}

// What people add to a pod: variables, a container beside ours, and how names are resolved.
func TestChartsPodExtras(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "helm")
	for chart, values := range map[string]string{charts.Principal: "", charts.Agent: charts.AgentValues} {
		pod := func(more string) corev1.PodSpec {
			var d appsv1.Deployment
			object := charts.FindKind(t, charts.Render(t, chart, values+"\n"+more), "Deployment")
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &d, true); err != nil {
				t.Fatalf("%s: %v", chart, err)
			}
			return d.Spec.Template.Spec
		}
		plain, got := pod(""), pod(charts.PodExtras)
		ours, beside := got.Containers[0], got.Containers[len(got.Containers)-1]
		want := append(slices.Clone(plain.Containers[0].Env), corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://127.0.0.1:3128"})
		if diff := cmp.Diff(want, ours.Env); diff != "" {
			t.Errorf("%s: env (-want +got):\n%s", chart, diff)
		}
		if len(got.Containers) != len(plain.Containers)+1 || beside.Name != "proxy" || beside.Image != "registry.example/proxy:1" {
			t.Errorf("%s: the container beside ours is %+v of %d", chart, beside, len(got.Containers))
		}
		if got.DNSConfig == nil || !slices.Equal(got.DNSConfig.Nameservers, []string{"192.0.2.53"}) {
			t.Errorf("%s: dnsConfig %+v", chart, got.DNSConfig)
		}
		if diff := cmp.Diff([]corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"hub.example"}}}, got.HostAliases); diff != "" {
			t.Errorf("%s: hostAliases (-want +got):\n%s", chart, diff)
		}
		// A name is in a list of variables once: the API server refuses another.
		limit := pod("env: [{name: GOMEMLIMIT, value: 1GiB}]").Containers[0].Env
		if diff := cmp.Diff([]corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "1GiB"}}, limit); diff != "" {
			t.Errorf("%s: env with GOMEMLIMIT (-want +got):\n%s", chart, diff)
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
	objects := charts.Render(t, charts.Principal, "envoy: {memory: 256Mi, maxConnections: 4000, statsPort: 9912}\nidentity: {socket: api.sock}")
	spec := charts.FindKind(t, objects, "Deployment").Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
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
	data, _, err := unstructured.NestedStringMap(charts.FindKind(t, objects, "ConfigMap").Object, "data")
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
		access[name] = charts.AgentValues + values
	}
	for name, policy := range map[string]string{
		"no further kinds": "kinds: [application, appproject]", "one ConfigMap": "kinds: [gpg-keys]", "templates": "kinds: [repo-creds]",
		"everything": "kinds: [application, appproject, repository, repo-creds, repository-write, repo-write-creds, gpg-keys, tls-certificates, ssh-known-hosts]",
		"no kind":    "kinds: []", "no projects": "kinds: [application, repository]",
		"other rules": "projects: [web]",
		"adoption":    "adopt: ['application/*']", "adoption without Secrets": "kinds: [application], adopt: ['application/*']",
	} {
		access[name] = charts.AgentValues + "  policy: {" + policy + "}"
	}
	for name, mapping := range map[string]string{
		"namespaces": "namespaces: [team-a, team-b, argocd, team-a]", "a pattern": "namespaces: [team-a, 'web-*']",
		"an expression with new namespaces": "namespaces: ['/^web$/'], create_namespaces: true",
	} {
		access[name] = charts.AgentValues + "  mapping: {" + mapping + "}"
	}
	access["autonomous"] = strings.Replace(charts.AgentValues, "managed", "autonomous", 1)
	for name, values := range access {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "agent.yaml")
			objects := charts.Render(t, charts.Agent, values)
			data, _, err := unstructured.NestedStringMap(charts.FindKind(t, objects, "ConfigMap").Object, "data")
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
			add(o, env.Convert[rbacv1.ClusterRole](t, o).Rules)
		case "Role":
			add(o, env.Convert[rbacv1.Role](t, o).Rules)
		case "ClusterRoleBinding":
			b := env.Convert[rbacv1.ClusterRoleBinding](t, o)
			lines = append(lines, fmt.Sprintf("%s: %v to %v", b.Name, b.RoleRef, b.Subjects))
		case "RoleBinding":
			b := env.Convert[rbacv1.RoleBinding](t, o)
			lines = append(lines, fmt.Sprintf("%s/%s: %v to %v", b.Namespace, b.Name, b.RoleRef, b.Subjects))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
