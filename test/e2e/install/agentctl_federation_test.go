//go:build linux

package install

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// pair are two clusters without pods, with the definitions of Argo CD and SPIRE, and a kubeconfig
// that has both.
type pair struct {
	hub, spoke *harness.ControlPlane
	kubeconfig string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "helm")
	h := harnesstest.New(t)
	etcd, err := h.StartEtcd(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := h.ArgoCDManifests()
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{kubeconfig: h.Path("kubeconfig")}
	for name, at := range map[string]**harness.ControlPlane{"hub": &p.hub, "spoke": &p.spoke} {
		c, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: name, Etcd: etcd, Manifests: manifests})
		if err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{harness.ArgoCDNamespace, "spire-system"} {
			if err := c.EnsureNamespace(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
		}
		withSPIRE(t, c)
		hasDriver(t, c)
		hasController(t, c)
		*at = c
	}
	writeContexts(t, p.kubeconfig, p.hub, p.spoke)
	return p
}

// writeContexts writes a kubeconfig that has clusters as contexts of their names.
func writeContexts(t *testing.T, file string, clusters ...*harness.ControlPlane) {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for _, c := range clusters {
		own, err := clientcmd.LoadFromFile(c.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		all.Clusters[c.Name], all.AuthInfos[c.Name], all.Contexts[c.Name] = own.Clusters[c.Name], own.AuthInfos["admin"], own.Contexts[c.Name]
		all.Contexts[c.Name].AuthInfo = c.Name
	}
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		t.Fatal(err)
	}
}

// publish has a cluster show the bundle of a trust domain as the chart argomesh-spire does.
func publish(t *testing.T, c *harness.ControlPlane, td string) {
	t.Helper()
	bundle, err := spire.MarshalBundle(spiretest.NewBundle(t, spiffeid.RequireTrustDomainFromString(td)))
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, c.Resource(env.ConfigMaps, "spire-system"), bundleMap(bundle))
	env.Create(t, c.Resource(services, "spire-system"), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "argomesh-spire-bundle"},
		"spec": map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": int64(8443)}}},
	}})
}

// bundleMap is the ConfigMap in which the chart argomesh-spire has SPIRE write its bundle.
func bundleMap(bundle []byte) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-spire-bundle"},
		"data": map[string]any{"bundle.spiffe": string(bundle)},
	}}
}

// trusted are the endpoints that the SPIRE of a cluster polls, by trust domain.
func trusted(t *testing.T, c *harness.ControlPlane) map[string]string {
	t.Helper()
	list, err := c.Resource(spire.Resource(spire.ClusterFederatedTrustDomainKind), "").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		spec, _ := o.Object["spec"].(map[string]any)
		td := spiffeid.RequireTrustDomainFromString(fmt.Sprint(spec["trustDomain"]))
		if _, err := spire.ParseBundle(td, []byte(fmt.Sprint(spec["trustDomainBundle"]))); err != nil {
			t.Errorf("%s: %v", o.GetName(), err)
		}
		if spec["className"] != "spire-mgmt-spire" {
			t.Errorf("%s has class %v", o.GetName(), spec["className"])
		}
		out[td.Name()] = fmt.Sprint(spec["bundleEndpointURL"])
	}
	return out
}

// Hub and spoke of two trust domains trust each other after the two commands alone.
func TestAgentctlFederates(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	hub := append(slices.Clone(hubArgs), "--context", "hub", "--trust-domain", "hub.example", "--no-wait", "--check-images=false",
		"--set", "service.type=LoadBalancer")
	spoke := []string{
		"spoke", "install", "edge-1", "--context", "spoke", "--hub-context", "hub", "--registry", registry, "--trust-domain", "edge.example",
		"--principal", "hub.example:8443", "--no-wait", "--check-images=false",
	}
	must(t, p.kubeconfig, hub...)

	// Of SPIREs that publish no bundle it says what to do.
	out := must(t, p.kubeconfig, append(slices.Clone(spoke), "--dry-run")...)
	for _, want := range []string{
		`the SPIRE of the spoke does not trust hub.example yet: there is no bundle in ConfigMap argomesh-spire-bundle of namespace spire-system of the hub; have it do by "agentctl identity federate hub.example" there`,
		`the SPIRE of the hub does not trust edge.example yet`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	fromAFile(t, p)
	publish(t, p.hub, "hub.example")
	publish(t, p.spoke, "edge.example")
	out = must(t, p.kubeconfig, append(slices.Clone(spoke), "--dry-run")...)
	for _, want := range []string{
		"+ clusterfederatedtrustdomain.spire.spiffe.io/argomesh.federation.hub.example", "+ clusterfederatedtrustdomain.spire.spiffe.io/argomesh.federation.edge.example",
		"~ clusterspiffeid.spire.spiffe.io/argomesh.principal.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run does not say %q:\n%s", want, out)
		}
	}
	if len(trusted(t, p.spoke))+len(trusted(t, p.hub)) > 0 {
		t.Error("the dry run federates")
	}

	// The hub's has a load balancer, and the spoke is behind a firewall.
	if _, err := p.hub.Resource(services, "spire-system").Patch(t.Context(), "argomesh-spire-bundle", types.MergePatchType,
		[]byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	out = must(t, p.kubeconfig, spoke...)
	if !strings.Contains(out, "the SPIRE of the hub cannot poll the bundle of edge.example") || strings.Contains(out, "the SPIRE of the spoke cannot") ||
		!strings.Contains(out, "--spoke-bundle-endpoint") {
		t.Errorf("it says\n%s", out)
	}
	if got, want := trusted(t, p.spoke), map[string]string{"hub.example": "https://192.0.2.7:8443"}; !maps.Equal(got, want) {
		t.Errorf("the spoke trusts %v", got)
	}
	if got, want := trusted(t, p.hub), map[string]string{"edge.example": "https://edge.example.invalid"}; !maps.Equal(got, want) {
		t.Errorf("the hub trusts %v", got)
	}
	partners := func() string { return fmt.Sprint(identityNamed(t, p.hub, "principal")["federatesWith"]) }
	if got := partners(); got != "[edge.example]" {
		t.Errorf("the principal federates with %s", got)
	}

	// Again, on both sides: the partner stays, and nothing is written.
	before := [2]map[string]string{federations(t, p.hub), federations(t, p.spoke)}
	must(t, p.kubeconfig, hub...)
	must(t, p.kubeconfig, spoke...)
	if after := [2]map[string]string{federations(t, p.hub), federations(t, p.spoke)}; !maps.Equal(before[0], after[0]) || !maps.Equal(before[1], after[1]) {
		t.Errorf("another run changes\n%v\nto\n%v", before, after)
	}

	// An endpoint that is named moves what there is, and no other; a second spoke joins the first.
	if _, err := agentctl(t, p.kubeconfig, append(slices.Clone(spoke), "--spoke-bundle-endpoint", "http://edge.example")...); err == nil ||
		!strings.Contains(err.Error(), "an https URL is expected") {
		t.Errorf("an endpoint by http: %v", err)
	}
	out = must(t, p.kubeconfig, append(slices.Clone(spoke), "--spoke-bundle-endpoint", "https://spire.edge.example:8443")...)
	if got := trusted(t, p.hub)["edge.example"]; got != "https://spire.edge.example:8443" || strings.Contains(out, "cannot poll") {
		t.Errorf("the endpoint is %s, and it says\n%s", got, out)
	}
	if got := federations(t, p.spoke); !maps.Equal(got, before[1]) {
		t.Errorf("the spoke's changes from %v to %v", before[1], got)
	}
	// What was given once is kept: the address, although the hub has a load balancer by now.
	balance(t, p.hub, "balancer.hub.example")
	must(t, p.kubeconfig, slices.DeleteFunc(slices.Clone(spoke), func(arg string) bool { return arg == "--principal" || arg == "hub.example:8443" })...)
	if config := fileOf(t, p.spoke, charts.Agent, "agent.yaml"); !strings.Contains(config, "address: hub.example:8443") {
		t.Errorf("the agent has another address than was given:\n%s", config)
	}
	// The agent of one hub is not taken by another.
	registration := nameOfRegistration(t, p.hub, "principal")
	belongsTo := func(td string) {
		t.Helper()
		env.Patch(t, p.hub.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), ""), registration,
			map[string]any{"spec": map[string]any{"spiffeIDTemplate": "spiffe://" + td + "/argomesh/principal"}})
	}
	belongsTo("other-hub.example")
	unchanged := revisions(t, p.spoke)
	if _, err := agentctl(t, p.kubeconfig, spoke...); err == nil || !strings.Contains(err.Error(), "the agent there is of another hub, whose principal is spiffe://hub.example/argomesh/principal") {
		t.Errorf("by another hub: %v", err)
	}
	file := filepath.Join(t.TempDir(), "edge-1.yaml")
	content, said := fileForSpoke(t, p.kubeconfig)
	if said != "" {
		t.Errorf("although the hub's SPIRE trusts the spoke's it says\n%s", said)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := agentctl(t, p.kubeconfig, "spoke", "install", "--context", "spoke", "--from", file); err == nil || !strings.Contains(err.Error(), "of another hub") {
		t.Errorf("by a file of another hub: %v", err)
	}
	if diff := cmp.Diff(unchanged, revisions(t, p.spoke)); diff != "" {
		t.Errorf("what was refused changed (-before +after):\n%s", diff)
	}
	belongsTo("hub.example")
	// Nor by one of the same trust domain, which agents tell by its UID.
	env.Create(t, p.hub.Resource(env.ConfigMaps, harness.ArgoCDNamespace), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argomesh-hub"}, "data": map[string]any{"uid": "this-hub"},
	}})
	welcomedBy := func(uid string) {
		t.Helper()
		env.Patch(t, p.spoke.Resource(env.ConfigMaps, harness.ArgoCDNamespace), "argomesh-agent", map[string]any{"data": map[string]any{"hub": uid}})
	}
	welcomedBy("other-hub")
	if _, err := agentctl(t, p.kubeconfig, spoke...); err == nil || !strings.Contains(err.Error(), "the agent there is of another hub, whose UID is other-hub") {
		t.Errorf("by another hub of the trust domain: %v", err)
	}
	welcomedBy("this-hub")
	must(t, p.kubeconfig, append(slices.Clone(spoke), "--dry-run")...)

	second := slices.Clone(spoke)
	second[slices.Index(second, "edge.example")] = "other.example"
	second[2] = "edge-2"
	must(t, p.kubeconfig, "spoke", "uninstall", "--context", "spoke", "--yes")
	if out, err := agentctl(t, p.kubeconfig, second...); err == nil || !strings.Contains(err.Error(), "edge.example") {
		t.Errorf("a bundle of another trust domain than the Agent's: %v\n%s", err, out)
	}
	must(t, p.kubeconfig, append(second, "--federate=false")...)
	if got := partners(); got != "[edge.example]" {
		t.Errorf("the principal federates with %s", got)
	}
	if got := fmt.Sprint(identityNamed(t, p.spoke, "edge-2")["federatesWith"]); got != "[hub.example]" {
		t.Errorf("%s of the second agent federates with %s", charts.Agent, got)
	}
}

// fileForSpoke has the hub write the file for edge-1, and returns it with what is said beside it.
func fileForSpoke(t *testing.T, kubeconfig string, more ...string) (file, said string) {
	t.Helper()
	args := append([]string{"--kubeconfig", kubeconfig, "agent", "create", "edge-1", "--context", "hub", "--mode", "managed", "--trust-domain", "edge.example",
		"-o", "install"}, more...)
	cmd := exec.CommandContext(t.Context(), agentctlBinary(t), args...)
	var printed, beside bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &beside
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, beside.String())
	}
	return printed.String(), beside.String()
}

// fromAFile installs a spoke of another trust domain by a kubeconfig that does not have the hub: either side is told
// what it has to do, and what has no meaning there is refused.
func fromAFile(t *testing.T, p *pair) {
	t.Helper()
	alone := filepath.Join(t.TempDir(), "kubeconfig")
	writeContexts(t, alone, p.spoke)
	content, said := fileForSpoke(t, p.kubeconfig, "--principal", "hub.example:8443")
	for _, want := range []string{
		`the SPIRE of the hub does not trust edge.example yet`, `"agentctl identity federate edge.example --bundle-endpoint-url URL --bundle FILE" there`,
		"of the principal does not name edge.example: add it to spec.federatesWith",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("beside the file the hub's side is not told %q:\n%s", want, said)
		}
	}
	write := func(content string) string {
		file := filepath.Join(t.TempDir(), "edge-1.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	install := []string{"spoke", "install", "--context", "spoke", "--from", write(content), "--registry", registry, "--no-wait", "--check-images=false"}
	for _, args := range [][]string{
		{"--principal", "other.example:8443"}, {"--principal-id", "spiffe://hub.example/x"}, {"--hub-context", "hub"}, {"--hub-namespace", "x"},
		{"--hub-bundle-endpoint", "https://hub.example:8443"}, {"--spoke-bundle-endpoint", "https://edge.example:8443"}, {"--mode", "managed"},
	} {
		_, err := agentctl(t, alone, append(slices.Clone(install), args...)...)
		if err == nil || !strings.Contains(err.Error(), "--from: the file says ") || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%q beside --from: %v", args, err)
		}
	}
	same := slices.Clone(install)
	same[slices.Index(same, "--from")+1] = write(strings.ReplaceAll(content, "spiffe://edge.example/", "spiffe://hub.example/"))
	if _, err := agentctl(t, alone, append(same, "--with", "spire")...); err == nil || !strings.Contains(err.Error(), "--with spire: trust domain hub.example is that of the hub's SPIRE") {
		t.Errorf("with a SPIRE of the hub's trust domain: %v", err)
	}
	if got := revisions(t, p.spoke); len(got) > 0 {
		t.Errorf("what was refused wrote %v", got)
	}
	// Killed in the middle: another run ends it.
	if !killedOnceIn(t, 3, []*harness.ControlPlane{p.spoke}, install...) {
		t.Error("an install by a file was done before its third write")
	}
	out := must(t, alone, install...)
	note := strings.Index(out, `the SPIRE of the spoke does not trust hub.example yet, the trust domain of the hub, which is not at hand: have it do by "agentctl identity federate hub.example`)
	if applied := strings.Index(out, "argomesh-agent 0.1.0: applied, revision 2"); note < 0 || applied < note {
		t.Errorf("the spoke's side is not told before of what is to be done:\n%s", out)
	}
	if out := must(t, alone, append(slices.Clone(install), "--federate=false")...); strings.Contains(out, "does not trust") {
		t.Errorf("with --federate=false it says\n%s", out)
	}
	if got := fmt.Sprint(identityNamed(t, p.spoke, "edge-1")["federatesWith"]); got != "[hub.example]" {
		t.Errorf("the agent federates with %s", got)
	}
	must(t, alone, "spoke", "uninstall", "--context", "spoke", "--yes")
	if err := p.hub.Resource(env.Agents, harness.ArgoCDNamespace).Delete(t.Context(), "edge-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// federations are the resourceVersions of the objects of SPIRE.
func federations(t *testing.T, c *harness.ControlPlane) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range []string{spire.ClusterFederatedTrustDomainKind, spire.ClusterSPIFFEIDKind} {
		list, err := c.Resource(spire.Resource(kind), "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			out[kind+" "+o.GetName()] = o.GetResourceVersion()
		}
	}
	return out
}
