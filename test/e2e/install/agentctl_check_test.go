//go:build linux

package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

var (
	csiDrivers   = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}
	services     = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	roles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	statefulSet  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	definitions  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

	peerAuthentications = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}
)

// admin is what the programs in pods say of themselves. No program runs in them: port-forward ends here, and what
// asks is answered by the test, or by a program that runs as a process.
type admin struct {
	port    int
	program atomic.Pointer[string] // address of the admin server that answers; nil for the test
}

const ready = `{"ready": true, "checks": [{"name": "identity", "ready": true}]}`

func newAdmin(t *testing.T) *admin {
	t.Helper()
	a := &admin{}
	said := map[string]string{"/readyz?format=json": ready, "/metrics": "", "/identity": `{"findings": []}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if program := a.program.Load(); program != nil {
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: *program}).ServeHTTP(w, r)
			return
		}
		answer, known := said[r.URL.RequestURI()]
		if !known {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answer) // who does not read it says so
	}))
	t.Cleanup(server.Close)
	a.port = server.Listener.Addr().(*net.TCPAddr).Port
	return a
}

// from has the admin server of a program answer, or with "" the test.
func (a *admin) from(address string) {
	a.program.Store(nil)
	if address != "" {
		a.program.Store(&address)
	}
}

// finding is one of agentctl check.
type finding struct {
	Level, Word, Side, About, Says, Cure, See string
}

// checked runs agentctl check, and returns what is not well, and the exit code, which follows from that.
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
	found = slices.DeleteFunc(report.Findings, func(f finding) bool { return f.Level == "ok" })
	has := func(level string) bool {
		return slices.ContainsFunc(found, func(f finding) bool { return f.Level == level })
	}
	want := 0
	switch {
	case has("problem"):
		want = 1
	case has("unknown"):
		want = 3
	}
	if code != want {
		t.Errorf("agentctl check %q ends with %d, want %d, and finds %+v", args, code, want, found)
	}
	return found, code
}

// breakage is one way in which a set-up is wrong, and what mends it.
type breakage struct {
	word  string
	check []string           // arguments
	how   func(t *testing.T) // nil for what is so from the start
	cure  cure
}

// cure is what mends a breakage.
type cure struct {
	// says are parts of the cure that the finding has. They name what do does: where that is a command of agentctl, this
	// command.
	says []string
	do   func(t *testing.T)
	// after is done once it has helped, to have the set-up be as the next breakage wants it; nil for nothing.
	after func(t *testing.T)
}

// by is a cure that is no command, of which the finding says so much.
func by(do func(*testing.T), says ...string) cure { return cure{says: says, do: do} }

// saying is a cure of which the finding says more.
func (c cure) saying(more ...string) cure {
	c.says = slices.Concat(c.says, more)
	return c
}

// then is a cure after which more is done.
func (c cure) then(more ...func(*testing.T)) cure {
	c.after = inTurn(more...)
	return c
}

// happens breaks a set-up, and checks that it is found by its word, with the exit code and with a cure that says what is
// then done, and gone once it was done. kubeconfig is that of the moment.
func (b breakage) happens(t *testing.T, kubeconfig *string) {
	t.Helper()
	is := func(f finding) bool { return f.Word == b.word }
	if b.how != nil {
		if found, _ := checked(t, *kubeconfig, b.check...); slices.ContainsFunc(found, is) {
			t.Errorf("it is found before: %+v", found)
		}
		b.how(t)
	}
	soon(t, "it is found", func() error {
		found, code := checked(t, *kubeconfig, b.check...)
		i := slices.IndexFunc(found, is)
		if i < 0 {
			return fmt.Errorf("found are %+v", found)
		}
		f := found[i]
		if f.Says == "" || !strings.Contains(f.See, "docs/reference/errors.md#") || f.Level == "problem" && code != 1 {
			t.Errorf("%+v, exit code %d", f, code)
		}
		if len(b.cure.says) == 0 {
			t.Error("the test does not say what the finding says of its cure")
		}
		for _, part := range b.cure.says {
			if !strings.Contains(f.Cure, part) {
				t.Errorf("the cure is %q, and the test does %q", f.Cure, part)
			}
		}
		return nil
	})
	b.cure.do(t)
	soon(t, "it is cured", func() error {
		if found, _ := checked(t, *kubeconfig, b.check...); slices.ContainsFunc(found, is) {
			return fmt.Errorf("found are %+v", found)
		}
		return nil
	})
	if b.cure.after != nil {
		b.cure.after(t)
	}
}

// soon is env.Eventually for what takes seconds.
func soon(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := harness.Eventually(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// oneOfEachSort is what make e2e tries; make e2e-matrix tries all.
var oneOfEachSort = []string{"SPIREMissing", "CSIDriverMissing", "ObjectsChanged", "RedisNotOurs", "ImageNotPulled", "NotFederated",
	"RefusedMode", "NoProjectAdmits", "BundleMissing", "RightsMissing"}

func TestAgentctlCheck(t *testing.T) {
	t.Parallel()
	findsWhatIsWrong(t, oneOfEachSort)
}

// Each word that docs/reference/errors.md has for agentctl check is found on a real set-up that is broken.
func TestEachFindingIsTried(t *testing.T) {
	t.Parallel()
	var tried []string
	s := &setUp{c: &harness.ControlPlane{}}
	for _, b := range slices.Concat(s.before(), s.breakages(), (&programs{}).breakages()) {
		tried = append(tried, b.word)
	}
	for word := range paths {
		tried = append(tried, word)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(page), "\n## What agentctl check finds\n")
	of, _, _ = strings.Cut(of, "\n## ")
	words := regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(of, -1)
	if len(words) < 40 {
		t.Errorf("the page has %d words", len(words))
	}
	for _, word := range words {
		if !slices.Contains(tried, word[1]) {
			t.Errorf("%s is tried on no set-up", word[1])
		}
	}
}

// setUp is a hub and a spoke on one cluster, with stock Argo CD and the resources of SPIRE.
type setUp struct {
	c          *harness.ControlPlane
	kubeconfig string                     // by which it is checked
	bound      *unstructured.Unstructured // RoleBinding of the principal, while it is away
}

// findsWhatIsWrong has each breakage happen, or those of the words. What is so from the start comes first.
func findsWhatIsWrong(t *testing.T, words []string) {
	t.Helper()
	p := newPrograms(t)
	says := newAdmin(t)
	c := clusterThatSays(t, says)
	s := &setUp{c: c, kubeconfig: c.Kubeconfig}
	happen := func(all []breakage) {
		t.Helper()
		for _, b := range all {
			if len(words) == 0 || slices.Contains(words, b.word) {
				t.Run(b.word, func(t *testing.T) { b.happens(t, &s.kubeconfig) })
			}
		}
	}
	stockArgoCD(t, c)
	happen(s.before())
	s.ensureSPIRE(t)
	s.installHub()(t)
	balance(t, c, "hub.example")
	s.installSpoke()(t)
	// As a principal makes it, by which the hub is told from a spoke.
	env.Create(t, c.Resource(env.ConfigMaps, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"},
		"data": map[string]any{"uid": "x", "default-project": "shared", "mapping": "destination"},
	}})
	happen(s.breakages())
	p.start(t, says)
	happen(p.breakages())
	says.from("")
	unknownWithoutRights(t, c)
	s.installSpoke("--set", "podLabels.egress=hub")(t)
	looksFromAPod(t, c)
	// The hub is away, which is found beside what is wrong with the spoke.
	must(t, c.Kubeconfig, "spoke", "uninstall", "--yes")
	found, _ := checked(t, nowhere(t, c), "spoke", "--context", c.Name, "--hub-context", "nowhere")
	var away, gone bool
	for _, f := range found {
		away = away || f.Side == "hub" && f.Level == "unknown" && strings.Contains(f.Says, "connection refused")
		gone = gone || f.Side == "spoke" && f.Word == "NotInstalled"
	}
	if !away || !gone {
		t.Errorf("of a spoke whose hub is away: %v", found)
	}
}

// installHub installs the hub, or does so again.
func (s *setUp) installHub(more ...string) func(*testing.T) {
	return s.run(slices.Concat(hubArgs, []string{"--trust-domain", "hub.example", "--set", "service.type=LoadBalancer"}, more)...)
}

// installSpoke installs the spoke, or does so again.
func (s *setUp) installSpoke(more ...string) func(*testing.T) {
	return s.run(append([]string{"spoke", "install", "edge-9", "--hub-context", s.c.Name, "--registry", registry, "--no-wait",
		"--trust-domain", "edge.example"}, more...)...)
}

// ensureSPIRE has the cluster have what it has of SPIRE.
func (s *setUp) ensureSPIRE(t *testing.T) {
	t.Helper()
	if _, err := s.c.Resource(definitions, "").Get(t.Context(), "clusterspiffeids.spire.spiffe.io", metav1.GetOptions{}); err != nil {
		withSPIRE(t, s.c)
	}
}

func (s *setUp) run(args ...string) func(*testing.T) {
	return func(t *testing.T) { t.Helper(); must(t, s.c.Kubeconfig, args...) }
}

// command is a cure that is a command of agentctl, which the finding says as it is run. More are flags that it leaves
// to who runs it.
func (s *setUp) command(command string, more ...string) cure {
	return by(s.run(append(strings.Fields(command), more...)...), "agentctl "+command)
}

// hubInstall and spokeInstall are the cure of installing again. Where the finding names a flag, saying adds that.
func (s *setUp) hubInstall(flags ...string) cure {
	return by(s.installHub(flags...), "agentctl hub install")
}

func (s *setUp) spokeInstall(flags ...string) cure {
	return by(s.installSpoke(flags...), "agentctl spoke install")
}

func (s *setUp) patchAs(how types.PatchType, resource schema.GroupVersionResource, namespace, name, patch string, sub ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if _, err := s.c.Resource(resource, namespace).Patch(t.Context(), name, how, []byte(patch), metav1.PatchOptions{}, sub...); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *setUp) patch(resource schema.GroupVersionResource, namespace, name, patch string, sub ...string) func(*testing.T) {
	return s.patchAs(types.MergePatchType, resource, namespace, name, patch, sub...)
}

func (s *setUp) remove(resource schema.GroupVersionResource, namespace, name string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if err := s.c.Resource(resource, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *setUp) create(resource schema.GroupVersionResource, namespace string, object map[string]any) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		env.Create(t, s.c.Resource(resource, namespace), &unstructured.Unstructured{Object: object})
	}
}

// inTurn does all.
func inTurn(all ...func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		for _, one := range all {
			one(t)
		}
	}
}

// through has the API server be asked by way of a proxy that changes its answers, as one may be that is older, or has
// another clock.
func (s *setUp) through(change func(*http.Response) error) func(*testing.T) {
	return func(t *testing.T) { t.Helper(); s.kubeconfig = throughProxy(t, s.c, change) }
}

func (s *setUp) directly(*testing.T) { s.kubeconfig = s.c.Kubeconfig }

// kubeletOfPods has the kubelet find what the labels of a pod say: an image that takes credentials, and a volume whose
// driver is not on the node.
const kubeletOfPods = `
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: image-not-pulled}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {registry: private}
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
    - {key: .spec.imagePullSecrets, operator: DoesNotExist}
  weight: 1
  next:
    statusTemplate: |
      phase: Pending
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        imageID: ""
        ready: false
        restartCount: 0
        state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image: unauthorized"}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: volume-not-mounted}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {volume: missing}
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  weight: 1
  next:
    event:
      type: Warning
      reason: FailedMount
      message: "MountVolume.SetUp failed: driver name csi.spiffe.io not found in the list of registered CSI drivers"
    statusTemplate: |
      phase: Pending
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        imageID: ""
        ready: false
        restartCount: 0
        state: {waiting: {reason: ContainerCreating}}
      {{ end }}
`

// podCrashes is what a kubelet says of a pod whose container ends again and again.
const podCrashes = `{"status":{
  "conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady"},{"type":"ContainersReady","status":"False","reason":"ContainersNotReady"}],
  "containerStatuses":[{"name":"principal","image":"x","imageID":"","ready":false,"restartCount":3,
    "state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 40s restarting failed container=principal"}}}]}}`

// podsCrash says of the principal's pods what a kubelet would.
func (s *setUp) podsCrash(t *testing.T) {
	t.Helper()
	list, err := s.c.Resource(pods, harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + charts.Principal})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("the principal has the pods %v, %v", list, err)
	}
	for _, pod := range list.Items {
		s.patchAs(types.StrategicMergePatchType, pods, harness.ArgoCDNamespace, pod.GetName(), podCrashes, "status")(t)
	}
}

// before is what is looked at before an install, when nothing is there but Argo CD.
func (s *setUp) before() []breakage {
	hub, spoke := []string{"hub", "--pre"}, []string{"spoke", "--pre"}
	return []breakage{
		{"NamespaceMissing", append(slices.Clone(hub), "--namespace", "not-yet"), nil, by(func(t *testing.T) {
			t.Helper()
			kubectl(t, s.c, "create", "namespace", "not-yet")
		}, "kubectl create namespace not-yet")},
		{"RightsMissing", hub, func(t *testing.T) {
			t.Helper()
			s.kubeconfig = asUser(t, s.c, "newcomer")
			t.Cleanup(func() { s.directly(t) })
		}, by(func(t *testing.T) {
			t.Helper()
			kubectl(t, s.c, "create", "clusterrolebinding", "newcomer", "--clusterrole=cluster-admin", "--user=newcomer")
		}, "Ask an administrator of the cluster for them")},
		{"SPIREMissing", hub, nil, by(s.ensureSPIRE, "Install it with SPIRE")},
		{"ArgoCDMissing", spoke, s.remove(definitions, "", "applications.argoproj.io"), by(func(t *testing.T) {
			t.Helper()
			files, err := harnesstest.New(t).ArgoCDManifests()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.c.ApplyFiles(t.Context(), files...); err != nil {
				t.Fatal(err)
			}
		}, "Install Argo CD")},
		// No API server of such a release can be had, nor a clock of its own for one.
		{"KubernetesTooOld", hub, s.through(func(r *http.Response) error {
			if r.Request.URL.Path != "/version" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			body = regexp.MustCompile(`"gitVersion": "[^"]*"`).ReplaceAll(body, []byte(`"gitVersion": "v1.29.8"`))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return err
		}), by(s.directly, "Upgrade Kubernetes")},
		{"ClocksApart", spoke, s.through(func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat))
			return nil
		}), by(s.directly, "follow one time service")},
	}
}

// breakages are those of what is installed.
func (s *setUp) breakages() []breakage {
	hub, spoke, both := []string{"hub"}, []string{"spoke"}, []string{"spoke", "--hub-context", s.c.Name}
	return slices.Concat(s.ofCluster(hub, spoke), s.ofRelease(hub, spoke), s.ofPods(hub), s.ofAgreement(hub, spoke, both), s.ofOlderPrincipal(hub))
}

func (s *setUp) ofCluster(hub, spoke []string) []breakage {
	const argocd = harness.ArgoCDNamespace
	again := func(t *testing.T) { t.Helper(); stockArgoCD(t, s.c) }
	// ofPrincipal is about the ClusterSPIFFEID of the principal, which has another name after each cure.
	ofPrincipal := func(do func(name string) func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); do(nameOfRegistration(t, s.c, "principal"))(t) }
	}
	spiffeIDs := spire.Resource(spire.ClusterSPIFFEIDKind)
	return []breakage{
		{"CSIDriverMissing", hub, s.remove(csiDrivers, "", "csi.spiffe.io"), by(s.create(csiDrivers, "", csiDriver().Object), "Install it with SPIRE")},
		{"WrongClass", hub, ofPrincipal(func(name string) func(*testing.T) {
			return s.patch(spiffeIDs, "", name, `{"spec":{"className":"other"}}`)
		}), by(s.installHub("--class-name", "spire-mgmt-spire"), "register it again with --class-name spire-mgmt-spire")},
		{"DNSNameMissing", hub, ofPrincipal(func(name string) func(*testing.T) {
			return s.patch(spiffeIDs, "", name, `{"spec":{"dnsNameTemplates":[]}}`)
		}), s.hubInstall().saying("agentctl hub install --trust-domain hub.example")},
		{"NotRegistered", hub, ofPrincipal(func(name string) func(*testing.T) { return s.remove(spiffeIDs, "", name) }), s.hubInstall().saying("agentctl hub install --trust-domain")},
		{"NotFederated", spoke, nil, s.command("identity federate hub.example", "--bundle-endpoint-profile", "https_web",
			"--bundle-endpoint-url", "https://spire.hub.example")},
		{"RedisNotOurs", hub, s.patchAs(types.JSONPatchType, deployments, argocd, "argocd-server",
			`[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":["/usr/local/bin/argocd-server"]}]`), s.hubInstall()},
		{"TerminalOff", hub, s.run("agent", "set", "edge-9", "--access", "read,exec"), by(s.installHub("--terminal"), "agentctl hub install --terminal")},
		{"NamespacesNotWatched", hub, func(t *testing.T) {
			t.Helper()
			s.create(env.Agents, argocd, map[string]any{
				"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": "alone"},
				"spec": map[string]any{"mode": "autonomous", "identity": map[string]any{"spiffeIDs": []any{env.SPIFFEID("alone")}}},
			})(t)
			t.Cleanup(func() { // or others find that it is away
				if err := s.c.Resource(env.Agents, argocd).Delete(context.WithoutCancel(t.Context()), "alone", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}, by(inTurn(func(t *testing.T) { t.Helper(); listsAll(t, s.c) }, s.installHub()),
			"Let its service account list Applications of all namespaces", "run `agentctl hub install` again")},
		{"RedisShut", hub, s.remove(schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
			argocd, charts.Principal+"-redis"), by(s.installHub("--set", "networkPolicy.redisIngress=auto"), "Set `networkPolicy.redisIngress` of the chart to `auto`")},
		{"ServerMissing", hub, s.remove(deployments, argocd, "argocd-server"), by(again, "Install it there").then(s.installHub())},
		{"ControllerMissing", spoke, s.remove(statefulSet, argocd, "argocd-application-controller"), by(again, "Install it")},
		{"ArgoCDTooOld", spoke, s.patchAs(types.JSONPatchType, statefulSet, argocd, "argocd-application-controller",
			`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"quay.io/argoproj/argocd:v3.1.9"}]`),
			by(inTurn(s.remove(statefulSet, argocd, "argocd-application-controller"), again), "Upgrade Argo CD")},
		{"MeshPermissive", hub, func(t *testing.T) {
			t.Helper()
			if err := s.c.ApplyFiles(t.Context(), env.IstioCRDs(t)); err != nil {
				t.Fatal(err)
			}
			s.create(peerAuthentications, argocd, map[string]any{
				"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": map[string]any{"name": "default"},
				"spec": map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}},
			})(t)
		}, by(s.patch(peerAuthentications, argocd, "default", `{"spec":{"mtls":{"mode":"STRICT"}}}`), "Set its mode to STRICT")},
	}
}

func (s *setUp) ofRelease(hub, spoke []string) []breakage {
	const argocd = harness.ArgoCDNamespace
	balanced := func(t *testing.T) { t.Helper(); balance(t, s.c, "hub.example") }
	return []breakage{
		{"NotInstalled", spoke, s.run("spoke", "uninstall", "--yes"), s.spokeInstall()},
		{"ObjectsChanged", hub, s.remove(roles, argocd, charts.Principal), s.hubInstall()},
		{"RightsMissing", hub, s.appliedAsFiles(s.remove(roleBindings, argocd, charts.Principal)),
			by(s.bindAgain, "apply its roles and their bindings again")},
		{"ServiceMissing", hub, s.remove(services, argocd, charts.Principal+"-stream"), s.hubInstall().then(balanced)},
		{"LoadBalancerPending", hub, s.patch(services, argocd, charts.Principal+"-stream", `{"status":{"loadBalancer":{"ingress":null}}}`, "status"),
			by(s.installHub("--set", "service.type=NodePort"), "set `service.type` to NodePort").then(s.installHub(), balanced)},
		{"OlderChart", hub, func(t *testing.T) {
			t.Helper()
			helm(t, s.c.Kubeconfig, "upgrade", charts.Principal, chartOfVersion(t, charts.Principal, "0.0.1"), "--reuse-values")
		}, s.hubInstall()},
		{"ReleasePending", hub, s.upgradeIsKilled, s.hubInstall()},
		// Someone takes the block out of the ConfigMap.
		{"RedisProxyOff", hub, func(t *testing.T) {
			t.Helper()
			var config map[string]any
			if err := yaml.Unmarshal([]byte(fileOf(t, s.c, charts.Principal, "principal.yaml")), &config); err != nil {
				t.Fatal(err)
			}
			delete(config, "redis_proxy")
			content, err := yaml.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			env.Patch(t, s.c.Resource(env.ConfigMaps, argocd), charts.Principal, map[string]any{"data": map[string]any{"principal.yaml": string(content)}})
		}, by(s.installHub("--force-conflicts"), "`agentctl hub install`", "`--force-conflicts` where someone has changed its ConfigMap")},
	}
}

// appliedAsFiles breaks the hub as one that was installed as files, of which no record of Helm says what is there.
// The records come back when the test ends.
func (s *setUp) appliedAsFiles(how func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		where := s.c.Resource(env.Secrets, harness.ArgoCDNamespace)
		records, err := where.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=" + charts.Principal})
		if err != nil || len(records.Items) == 0 {
			t.Fatalf("helm has the records %v, %v", records, err)
		}
		s.bound = env.Get(t, s.c.Resource(roleBindings, harness.ArgoCDNamespace), charts.Principal)
		for i := range records.Items {
			record := &records.Items[i]
			if err := where.Delete(t.Context(), record.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			record.SetResourceVersion("")
			t.Cleanup(func() {
				if _, err := where.Create(context.WithoutCancel(t.Context()), record, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		how(t)
	}
}

// bindAgain applies the RoleBinding of the principal as its file has it.
func (s *setUp) bindAgain(t *testing.T) {
	t.Helper()
	o := s.bound.DeepCopy()
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	env.Create(t, s.c.Resource(roleBindings, harness.ArgoCDNamespace), o)
}

// upgradeIsKilled has an upgrade be killed between the record that it makes first and the last of its writes.
func (s *setUp) upgradeIsKilled(t *testing.T) {
	t.Helper()
	for n := int64(1); ; n++ {
		if !killedOnceIn(t, n, []*harness.ControlPlane{s.c}, append(slices.Clone(hubArgs), "--set", "podLabels.upgrade=killed")...) {
			t.Fatalf("it was done before write %d", n)
		}
		if history := helmHistory(t, s.c, charts.Principal); history[len(history)-1] == "pending-upgrade" {
			return
		}
	}
}

func (s *setUp) ofPods(hub []string) []breakage {
	return []breakage{
		{"ImageNotPulled", hub, s.installHub("--set", "podLabels.registry=private", "--no-wait"), by(s.installHub("--set", "imagePullSecrets={registry}"), "Set `image` of the chart, or `imagePullSecrets`")},
		// No program runs in the pod, so nothing is in its log.
		{"PodNotReady", hub, s.podsCrash, by(s.installHub("--set", "config.log.level=debug"), "a value by an install with `--set`, which replaces its pods")},
		// The driver is on the node, so the kubelet goes on.
		{"VolumeNotMounted", hub, s.installHub("--set", "podLabels.volume=missing", "--no-wait"), by(func(t *testing.T) {
			t.Helper()
			kubectl(t, s.c, "label", "pods", "--namespace", harness.ArgoCDNamespace, "--selector", "volume=missing", "--overwrite", "volume=there")
		}, "Install the driver on that node").then(s.installHub("--set", "podLabels.volume=there"))},
		{"PodNotScheduled", hub, s.installHub("--set", "nodeSelector.disk=fast", "--no-wait"), by(func(t *testing.T) {
			t.Helper()
			kubectl(t, s.c, "label", "node", "node-1", "disk=fast")
		}, "`kubectl label node`")},
		// As Istio injects it.
		{"SidecarWithoutSPIRE", hub, s.installHub("--set", "extraContainers[0].name=istio-proxy", "--set", "extraContainers[0].image="+registry+"/proxyv2:1"),
			by(s.installHub("--set", "identity.source=istio"), "Set `identity.source: istio` of the chart")},
	}
}

func (s *setUp) ofAgreement(hub, spoke, both []string) []breakage {
	const argocd = harness.ArgoCDNamespace
	return []breakage{
		{"LiveAccessOff", hub, s.run("agent", "set", "edge-9", "--access", "off"), s.command("agent set edge-9 --access read")},
		{"LiveAccessOff", spoke, s.installSpoke("--set", "config.access.enabled=false"),
			by(s.installSpoke("--set", "config.access.enabled=true"), "set config.access.enabled of the agent's chart")},
		{"RefusedMode", both, s.installSpoke("--set", "config.mode=autonomous"), by(s.installSpoke("--set", "config.mode=managed"), "Set `mode` in the agent's configuration")},
		{"AgentMissing", both, s.installSpoke("--set", "config.name=edge-8"), by(s.installSpoke("--set", "config.name=edge-9"), "set config.name to that of its Agent")},
		{"OtherSPIFFEID", both, s.run("agent", "set", "edge-9", "--spiffe-id", "spiffe://edge.example/other"),
			s.command("agent set edge-9 --spiffe-id spiffe://edge.example/argomesh/agent/edge-9")},
		{"OtherPrincipal", both, s.installSpoke("--principal-id", "spiffe://hub.example/elsewhere"),
			s.spokeInstall("--principal-id", "spiffe://hub.example/argomesh/principal").saying("--principal-id spiffe://hub.example/argomesh/principal")},
		{"DefaultNotShared", both, s.installSpoke("--set", "config.policy.adopt={application/shop}"),
			by(s.installSpoke("--set", "config.policy.adopt={appproject/default}"), "name appproject/default in config.policy.adopt of the agent")},
		{"NoProjectAdmits", hub, s.create(harness.Applications, argocd, map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop"},
			"spec": map[string]any{"project": "fleet", "source": map[string]any{"repoURL": "https://git.example/x", "path": "."},
				"destination": map[string]any{"name": "edge-9", "namespace": "shop"}},
		}), by(s.create(harness.AppProjects, argocd, map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "fleet"},
			"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}}},
		}), "change that AppProject, or make it, so that it admits the Application")},
		// What an earlier policy admitted: a copy of the hub in an AppProject that is the spoke's own.
		{"PolicyRefuses", spoke, s.create(harness.Applications, argocd, map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "copy", "annotations": map[string]any{
				"argocd.argoproj.io/source-uid": "11111111-2222-3333-4444-555555555555", "argomesh.io/source": `{"hash":"h","revision":1,"created":1,"wrote":"w"}`,
			}},
			"spec": map[string]any{"project": "default", "source": map[string]any{"repoURL": "https://git.example/x", "path": "."},
				"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "shop"}},
		}), by(s.installSpoke("--set", "config.policy.projects={default}"), "allow it in the agent's policy")},
	}
}

// ofOlderPrincipal is what a principal says that did not name what is parked yet, which none of this release does: the
// status is written here as it would. What principals say of Agents otherwise they are made to say where that happens:
// RefusedMode, RefusedName, RefusedSPIFFEID and SettingDiffers in test/e2e/mistakes, CascadeHeld in history, Bytes in
// bounds, OtherFormat in live, and NotOwned in TestMirrorsRefuse.
func (s *setUp) ofOlderPrincipal(hub []string) []breakage {
	says := func(n int, parked string) func(*testing.T) {
		return s.patch(env.Agents, harness.ArgoCDNamespace, "edge-9", fmt.Sprintf(
			`{"status":{"counts":{"appProjects":0,"applications":1,"parked":%d},"parked":%s}}`, n, parked), "status")
	}
	upgraded := says(2, `[{"kind":"Application","name":"shop","reason":"NotOwned","since":"2026-01-01T00:00:00Z"}]`)
	return []breakage{
		{"Parked", hub, says(2, "null"), by(upgraded, "Upgrade the principal, which then names them").then(says(0, "null"))},
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
	podsSay(t, c, answer)
	seen, err := c.Resource(jobs, harness.ArgoCDNamespace).Watch(t.Context(), metav1.ListOptions{})
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
	bindsAsTheAgents(t, c, created)
	if got := fmt.Sprint(container["args"]); got != fmt.Sprint(command) || !strings.HasPrefix(fmt.Sprint(container["image"]), registry+"/agentctl:") {
		t.Errorf("the Job runs %v of %v, want %q", got, container["image"], command)
	}
}

// bindsAsTheAgents checks that the pod of a Job is selected as the agent's are by NetworkPolicies, of the chart or
// of others, and by nothing else that selects the agent's.
func bindsAsTheAgents(t *testing.T, c *harness.ControlPlane, job *unstructured.Unstructured) {
	t.Helper()
	of, _, err := unstructured.NestedStringMap(job.Object, "spec", "template", "metadata", "labels")
	if err != nil || of["egress"] != "hub" {
		t.Errorf("the pod has the labels %v, %v; podLabels of the agent are not among them", of, err)
	}
	rendered := charts.Render(t, charts.Agent, charts.AgentValues+"serviceMonitor: {enabled: true}\nnetworkPolicy: {metrics: [{namespaceSelector: {}}]}")
	sets, err := c.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, harness.ArgoCDNamespace).List(
		t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + charts.Agent})
	if err != nil || len(sets.Items) == 0 {
		t.Fatalf("the agent has the ReplicaSets %v, %v", sets, err)
	}
	got := map[string]bool{}
	for i := range sets.Items {
		rendered = append(rendered, &sets.Items[i])
	}
	for _, o := range rendered {
		path := map[string][]string{
			"NetworkPolicy": {"spec", "podSelector", "matchLabels"}, "Service": {"spec", "selector"},
			"PodDisruptionBudget": {"spec", "selector", "matchLabels"}, "ReplicaSet": {"spec", "selector", "matchLabels"},
		}[o.GetKind()]
		if path == nil {
			continue
		}
		selector, _, err := unstructured.NestedStringMap(o.Object, path...)
		if err != nil || len(selector) == 0 {
			t.Fatalf("%s %s selects %v, %v", o.GetKind(), o.GetName(), selector, err)
		}
		if selector["app.kubernetes.io/name"] == charts.Agent {
			selector["app.kubernetes.io/instance"] = charts.Agent // which is rendered as another release
			got[o.GetKind()] = labels.SelectorFromSet(selector).Matches(labels.Set(of))
		}
	}
	want := map[string]bool{"NetworkPolicy": true, "Service": false, "PodDisruptionBudget": false, "ReplicaSet": false}
	if !maps.Equal(got, want) {
		t.Errorf("of what selects the agent's pods the Job's is selected by %v, want %v; its labels are %v", got, want, of)
	}
}

// What may not be read is unknown, with the reason, and never missing; the rest is looked at.
func unknownWithoutRights(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	unknown := func(kubeconfig, word string, args ...string) {
		t.Helper()
		found, _ := checked(t, kubeconfig, args...)
		i := slices.IndexFunc(found, func(f finding) bool { return f.Word == word })
		if i < 0 || found[i].Level != "unknown" || !strings.Contains(found[i].Says, "cannot be read: ") {
			t.Errorf("%s is not unknown: %+v", word, found)
		}
	}
	few := asUser(t, c, "looker")
	allow(t, c, "looker", harness.ArgoCDNamespace, "", "*")
	unknown(few, "CSIDriverMissing", "hub", "--pre")
	unknown(few, "ServerMissing", "hub", "--pre")
	unknown(few, "ControllerMissing", "spoke", "--pre")

	// An install by who may do all that it does, and may not list StatefulSets, goes on.
	allButStatefulSets(t, c, "installer")
	installer := asUser(t, c, "installer")
	env.Eventually(t, "the rights count", func() error {
		out, err := agentctl(t, installer, "spoke", "install", "edge-9", "--hub-context", c.Name, "--registry", registry, "--no-wait",
			"--trust-domain", "edge.example", "--dry-run")
		if err == nil && !(strings.Contains(out, "unknown: Argo CD cannot be read: ") && strings.Contains(out, "(ControllerMissing)")) {
			err = harness.Permanent(fmt.Errorf("it prints %s", out))
		}
		return err
	})
}

// allButStatefulSets lets a user do all that an install does, and read no StatefulSets.
func allButStatefulSets(t *testing.T, c *harness.ControlPlane, user string) {
	t.Helper()
	rule := func(resources, groups []any) map[string]any {
		return map[string]any{"apiGroups": groups, "resources": resources, "verbs": []any{"*"}}
	}
	env.Create(t, c.Resource(clusterRoles, ""), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": user},
		"rules": []any{
			rule([]any{"deployments", "replicasets"}, []any{"apps"}),
			rule([]any{"*"}, []any{"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "argomesh.io", "argoproj.io", "authorization.k8s.io", "batch",
				"coordination.k8s.io", "monitoring.coreos.com", "networking.istio.io", "networking.k8s.io", "policy", "security.istio.io", "rbac.authorization.k8s.io", "spire.spiffe.io", "storage.k8s.io"}),
			map[string]any{"nonResourceURLs": []any{"*"}, "verbs": []any{"*"}},
		},
	}})
	kubectl(t, c, "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
}

func csiDriver() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": map[string]any{"name": "csi.spiffe.io"},
		"spec": map[string]any{"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": []any{"Ephemeral"}},
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
