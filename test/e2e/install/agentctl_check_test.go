//go:build linux

package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

var (
	csiDrivers  = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	roles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	statefulSet = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
)

// admin is what the programs in pods say of themselves: no program runs in them, and port-forward
// ends here.
type admin struct {
	port   int
	answer atomic.Pointer[string]
}

const ready = `{"ready": true, "checks": [{"name": "identity", "ready": true}]}`

func newAdmin(t *testing.T) *admin {
	t.Helper()
	a := &admin{}
	a.say(ready)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			return // it has none yet
		}
		if r.URL.Path != "/readyz" || r.URL.Query().Get("format") != "json" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, *a.answer.Load()) // who does not read it says so
	}))
	t.Cleanup(server.Close)
	a.port = server.Listener.Addr().(*net.TCPAddr).Port
	return a
}

func (a *admin) say(answer string) { a.answer.Store(&answer) }

// finding is one of agentctl check.
type finding struct {
	Level, Word, Side, About, Says, Cure string
}

// checked runs agentctl check, and returns what is not well, and the exit code.
func checked(t *testing.T, kubeconfig string, args ...string) (found []finding, code int) {
	t.Helper()
	out, err := agentctl(t, kubeconfig, append([]string{"check"}, append(args, "-o", "json")...)...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("agentctl check %q prints %q: %v", args, out, err)
	}
	return slices.DeleteFunc(report.Findings, func(f finding) bool { return f.Level == "ok" }), code
}

// breakage is one way in which a set-up is wrong, and what mends it.
type breakage struct {
	word  string
	check []string // arguments
	how   func(t *testing.T)
	cure  func(t *testing.T)
}

// oneOfEachSort is what make e2e tries; make e2e-matrix tries all.
var oneOfEachSort = []string{"CSIDriverMissing", "ObjectsChanged", "RedisNotOurs", "ProgramNotReady", "NotFederated", "RefusedMode", "NoProjectAdmits"}

func TestAgentctlCheck(t *testing.T) {
	t.Parallel()
	says := newAdmin(t)
	findsWhatIsWrong(t, clusterThatSays(t, says), says, oneOfEachSort)
}

// Hub and spoke are one cluster, with stock Argo CD and the resources of SPIRE. Each breakage is
// found by its word, with exit code 1 when it is a problem, and is gone once its cure was done.
// Without words all are tried.
func findsWhatIsWrong(t *testing.T, c *harness.ControlPlane, says *admin, words []string) {
	t.Helper()
	ctx := t.Context()
	stockArgoCD(t, c)
	withSPIRE(t, c)
	env.Create(t, c.Resource(csiDrivers, ""), csiDriver())
	hub := append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--set", "service.type=LoadBalancer")
	installHub := func(t *testing.T) { t.Helper(); must(t, c.Kubeconfig, hub...) }
	installHub(t)
	balance(t, c, "hub.example")
	spoke := []string{"spoke", "install", "edge-9", "--hub-context", c.Name, "--registry", registry, "--no-wait", "--trust-domain", "edge.example"}
	installSpoke := func(more ...string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); must(t, c.Kubeconfig, append(slices.Clone(spoke), more...)...) }
	}
	installSpoke()(t)
	// As a principal makes it, by which the hub is told from a spoke.
	env.Create(t, c.Resource(env.ConfigMaps, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"},
		"data": map[string]any{"uid": "x", "default-project": "shared", "mapping": "destination"},
	}})

	patch := func(resource schema.GroupVersionResource, namespace, name, patch string, sub ...string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			_, err := c.Resource(resource, namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(resource schema.GroupVersionResource, namespace, name string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if err := c.Resource(resource, namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(args ...string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); must(t, c.Kubeconfig, args...) }
	}
	const argocd = harness.ArgoCDNamespace
	principal := nameOfRegistration(t, c, "principal")
	spiffeIDs := spire.Resource(spire.ClusterSPIFFEIDKind)
	again := func(t *testing.T) { t.Helper(); stockArgoCD(t, c) }
	ofAgent := func(status string) func(*testing.T) {
		return patch(env.Agents, argocd, "edge-9", `{"status":{"connected":true,`+status+`}}`, "status")
	}
	condition := func(kind, status, reason string) func(*testing.T) {
		return ofAgent(fmt.Sprintf(`"conditions":[{"type":%q,"status":%q,"reason":%q,"message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]`, kind, status, reason))
	}
	connected := condition("Connected", "True", "Connected")
	onHub, onSpoke := []string{"hub"}, []string{"spoke"}
	onBoth := []string{"spoke", "--hub-context", c.Name}

	for _, b := range []breakage{
		{"CSIDriverMissing", onHub, remove(csiDrivers, "", "csi.spiffe.io"),
			func(t *testing.T) { t.Helper(); env.Create(t, c.Resource(csiDrivers, ""), csiDriver()) }},
		{"WrongClass", onHub, patch(spiffeIDs, "", principal, `{"spec":{"className":"other"}}`), installHub},
		{"DNSNameMissing", onHub, patch(spiffeIDs, "", principal, `{"spec":{"dnsNameTemplates":[]}}`), installHub},
		{"NotRegistered", onHub, remove(spiffeIDs, "", principal), installHub},
		{"ObjectsChanged", onHub, remove(roles, argocd, charts.Principal), installHub},
		{"RedisNotOurs", onHub, func(t *testing.T) {
			t.Helper()
			_, err := c.Resource(deployments, argocd).Patch(ctx, "argocd-server", types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":["/usr/local/bin/argocd-server"]}]`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}, installHub},
		{"RedisShut", onHub, remove(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
			argocd, charts.Principal+"-redis"), installHub},
		{"ServiceMissing", onHub, remove(services, argocd, charts.Principal+"-stream"), func(t *testing.T) {
			t.Helper()
			installHub(t)
			balance(t, c, "hub.example")
		}},
		{"ProgramNotReady", onHub, func(*testing.T) {
			says.say(`{"ready": false, "checks": [{"name": "identity", "ready": false, "reason": "no SVID"}]}`)
		}, func(*testing.T) { says.say(ready) }},
		{"LoadBalancerPending", onHub, patch(services, argocd, charts.Principal+"-stream", `{"status":{"loadBalancer":{"ingress":null}}}`, "status"),
			func(t *testing.T) { t.Helper(); balance(t, c, "hub.example") }},
		{"ServerMissing", onHub, remove(deployments, argocd, "argocd-server"), func(t *testing.T) { t.Helper(); again(t); installHub(t) }},
		{"ControllerMissing", onSpoke, remove(statefulSet, argocd, "argocd-application-controller"), again},
		{"ArgoCDTooOld", onSpoke, func(t *testing.T) {
			t.Helper()
			_, err := c.Resource(statefulSet, argocd).Patch(ctx, "argocd-application-controller", types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"quay.io/argoproj/argocd:v3.1.9"}]`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T) {
			t.Helper()
			remove(statefulSet, argocd, "argocd-application-controller")(t)
			again(t)
		}},
		{"NotInstalled", onSpoke, run("spoke", "uninstall", "--yes"), installSpoke()},
		// The bundle of the other trust domain comes by `agentctl identity federate`; what the check
		// sees of it is this object.
		{"NotFederated", onSpoke, func(*testing.T) {}, func(t *testing.T) {
			t.Helper()
			env.Create(t, c.Resource(spire.Resource(spire.ClusterFederatedTrustDomainKind), ""), federated("hub.example"))
		}},
		{"LiveAccessOff", onHub, run("agent", "set", "edge-9", "--access", "off"), run("agent", "set", "edge-9", "--access", "read")},
		{"LiveAccessOff", onSpoke, installSpoke("--set", "config.access.enabled=false"), installSpoke("--set", "config.access.enabled=true")},
		{"RefusedMode", onBoth, installSpoke("--set", "config.mode=autonomous"), installSpoke("--set", "config.mode=managed")},
		{"AgentMissing", onBoth, installSpoke("--set", "config.name=edge-8"), installSpoke("--set", "config.name=edge-9")},
		{"OtherSPIFFEID", onBoth, run("agent", "set", "edge-9", "--spiffe-id", "spiffe://edge.example/other"),
			run("agent", "set", "edge-9", "--spiffe-id", "spiffe://edge.example/argomesh/agent/edge-9")},
		{"DefaultNotShared", onBoth, installSpoke("--set", "config.policy.adopt={application/shop}"),
			installSpoke("--set", "config.policy.adopt={appproject/default}")},
		{"NoProjectAdmits", onHub, func(t *testing.T) {
			t.Helper()
			env.Create(t, c.Resource(harness.Applications, argocd), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop"},
				"spec": map[string]any{"project": "fleet", "source": map[string]any{"repoURL": "https://git.example/x", "path": "."},
					"destination": map[string]any{"name": "edge-9", "namespace": "shop"}},
			}})
		}, func(t *testing.T) {
			t.Helper()
			env.Create(t, c.Resource(harness.AppProjects, argocd), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "fleet"},
				"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}}},
			}})
		}},
		// What an earlier policy admitted: a copy of the hub in an AppProject that is the spoke's own.
		{"PolicyRefuses", onSpoke, func(t *testing.T) {
			t.Helper()
			env.Create(t, c.Resource(harness.Applications, argocd), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "copy", "annotations": map[string]any{
					"argocd.argoproj.io/source-uid": "11111111-2222-3333-4444-555555555555", "argomesh.io/source": `{"hash":"h","revision":1,"created":1,"wrote":"w"}`,
				}},
				"spec": map[string]any{"project": "default", "source": map[string]any{"repoURL": "https://git.example/x", "path": "."},
					"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "shop"}},
			}})
		}, installSpoke("--set", "config.policy.projects={default}")},
		// What a principal says of an agent, which does not run here.
		{"RefusedName", onHub, condition("Connected", "False", "RefusedName"), connected},
		{"Bytes", onHub, condition("OverBudget", "True", "Bytes"), connected},
		{"SettingDiffers", onHub, condition("MappingIgnored", "True", "SettingDiffers"), connected},
		{"OtherFormat", onHub, condition("CacheMismatch", "True", "OtherFormat"), connected},
		{"CascadeHeld", onHub, condition("DeletionsHeld", "True", "CascadeHeld"), connected},
		{"NotOwned", onHub, ofAgent(`"counts":{"appProjects":0,"applications":1,"parked":1},"parked":[{"kind":"Application","name":"shop","reason":"NotOwned","since":"2026-01-01T00:00:00Z"}]`),
			ofAgent(`"counts":{"appProjects":0,"applications":1,"parked":0},"parked":null`)},
	} {
		if len(words) > 0 && !slices.Contains(words, b.word) {
			continue
		}
		has := func(found []finding) int {
			return slices.IndexFunc(found, func(f finding) bool { return f.Word == b.word })
		}
		if b.word != "NotFederated" { // which is so from the start
			if found, _ := checked(t, c.Kubeconfig, b.check...); has(found) >= 0 {
				t.Errorf("%s: is found before: %v", b.word, found[has(found)])
			}
		}
		b.how(t)
		found, code := checked(t, c.Kubeconfig, b.check...)
		at := has(found)
		if at < 0 {
			t.Errorf("%s is not found, but %v", b.word, found)
			b.cure(t)
			continue
		}
		if f := found[at]; f.Cure == "" || f.Says == "" || f.Level == "problem" && code != 1 {
			t.Errorf("%s: %+v, exit code %d", b.word, f, code)
		}
		b.cure(t)
		if found, _ := checked(t, c.Kubeconfig, b.check...); has(found) >= 0 {
			t.Errorf("%s is found after its cure: %v", b.word, found[has(found)])
		}
	}
	unknownWithoutRights(t, c)
	looksFromAPod(t, c)
	// The hub is away, which is found beside what is wrong with the spoke.
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	found, code := checked(t, nowhere(t, c), "spoke", "--context", c.Name, "--hub-context", "nowhere")
	var away, gone bool
	for _, f := range found {
		away = away || f.Side == "hub" && f.Level == "unknown" && strings.Contains(f.Says, "connection refused")
		gone = gone || f.Side == "spoke" && f.Word == "NotInstalled"
	}
	if !away || !gone || code != 1 {
		t.Errorf("of a spoke whose hub is away: %v, exit code %d", found, code)
	}
}

// Before an install a pod of the spoke looks at the way to the principal. It is what the Job says: here its
// command runs before, and its answer is the log that each container of the cluster has.
func looksFromAPod(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	balancer := httptest.NewTLSServer(http.NotFoundHandler()) // which ends TLS
	t.Cleanup(balancer.Close)
	address := balancer.Listener.Addr().String()
	command := []string{"check", "path", address, "--output", "json", "--principal-id", "spiffe://hub.example/argomesh/principal"}
	answer, err := agentctl(t, c.Kubeconfig, command...)
	if err == nil || !strings.Contains(answer, "TLSEnded") {
		t.Fatalf("%v: %s", err, answer)
	}
	var log strings.Builder
	for line := range strings.Lines(answer) {
		fmt.Fprintf(&log, "2026-11-29T00:00:00Z stdout F %s", line)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.Kubeconfig), "container.log"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs := c.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, harness.ArgoCDNamespace)
	seen, err := jobs.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()

	args := []string{"spoke", "--pre", "--principal", address, "--principal-id", "spiffe://hub.example/argomesh/principal"}
	found, _ := checked(t, c.Kubeconfig, args...)
	if i := slices.IndexFunc(found, func(f finding) bool { return f.Word == "PrincipalUnreachable" }); i < 0 || found[i].Level != "unknown" {
		t.Errorf("without a registry it finds %+v", found)
	}
	found, code := checked(t, c.Kubeconfig, append(args, "--registry", registry)...)
	i := slices.IndexFunc(found, func(f finding) bool { return f.Word == "TLSEnded" })
	if i < 0 || found[i].Cure == "" || code != 1 {
		t.Errorf("by a Job it finds %+v, exit code %d", found, code)
	}
	var created *unstructured.Unstructured
	for {
		select {
		case event := <-seen.ResultChan():
			job, is := event.Object.(*unstructured.Unstructured)
			if !is {
				t.Fatalf("the watch says %+v", event)
			}
			if event.Type == watch.Added {
				if created != nil {
					t.Fatalf("there is another Job: %s and %s", created.GetName(), job.GetName())
				}
				created = job
			}
			if event.Type != watch.Deleted {
				continue
			}
		case <-time.After(time.Minute):
			t.Fatal("the Job stays")
		}
		break
	}
	containers, _, err := unstructured.NestedSlice(created.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("the Job has %v, %v", containers, err)
	}
	container, _ := containers[0].(map[string]any)
	if got := fmt.Sprint(container["args"]); got != fmt.Sprint(command) || !strings.HasPrefix(fmt.Sprint(container["image"]), registry+"/agentctl:") {
		t.Errorf("the Job runs %v of %v, want %q", got, container["image"], command)
	}
}

// What may not be read is unknown, with the reason; the rest is looked at.
func unknownWithoutRights(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	few := asUser(t, c, "looker")
	allow(t, c, "looker", harness.ArgoCDNamespace, "*", "*")
	found, code := checked(t, few, "hub", "--pre")
	i := slices.IndexFunc(found, func(f finding) bool { return f.Word == "CSIDriverMissing" })
	if i < 0 || found[i].Level != "unknown" || !strings.Contains(found[i].Says, "cannot be read: ") || code != 3 {
		t.Errorf("found are %+v, exit code %d", found, code)
	}
}

func csiDriver() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": map[string]any{"name": "csi.spiffe.io"},
		"spec": map[string]any{"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": []any{"Ephemeral"}},
	}}
}

func federated(trustDomain string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "spire.spiffe.io/v1alpha1", "kind": spire.ClusterFederatedTrustDomainKind,
		"metadata": map[string]any{"name": "hub"},
		"spec": map[string]any{
			"trustDomain": trustDomain, "bundleEndpointURL": "https://spire.hub.example",
			"bundleEndpointProfile": map[string]any{"type": "https_web"},
		},
	}}
}

// balance gives the principal's Service the address of a load balancer.
func balance(t *testing.T, c *harness.ControlPlane, host string) {
	t.Helper()
	_, err := c.Resource(services, harness.ArgoCDNamespace).Patch(t.Context(), charts.Principal+"-stream", types.MergePatchType,
		[]byte(`{"status":{"loadBalancer":{"ingress":[{"hostname":"`+host+`"}]}}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// nameOfRegistration is that of the ClusterSPIFFEID of a registration.
func nameOfRegistration(t *testing.T, c *harness.ControlPlane, name string) string {
	t.Helper()
	list, err := c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "").List(t.Context(),
		metav1.ListOptions{LabelSelector: spire.RegistrationLabel + "=" + name})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("registration %s: %v, %v", name, list, err)
	}
	return list.Items[0].GetName()
}
