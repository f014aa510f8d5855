//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// agentctl registers with objects of spire-controller-manager on a real API server, whose
// schemas are those that the real one installs.
func TestAgentctlRegistersIdentities(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	h := harnesstest.New(t)
	etcd, err := h.StartEtcd(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	// Hub and spoke are one cluster here; what is where is told by kinds.
	hub, err := h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{Name: "hub", Etcd: etcd})
	if err != nil {
		t.Fatal(err)
	}
	c := agentctl{t: t, harness: h, hub: hub}
	r := registrations{agentctl: c}
	t.Run("before installation", r.testBeforeInstallation)
	if err := hub.EnsureNamespace(t.Context(), harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	agents := filepath.Join(harnesstest.Tools(t).Checkout(), "charts", "argomesh-principal", "files", "crds", "argomesh.io_agents.yaml")
	if err := hub.ApplyFiles(t.Context(), agents, filepath.Join("..", "testdata", "spire-crds.yaml")); err != nil {
		t.Fatal(err)
	}
	t.Run("register", r.testRegister)
	t.Run("somebody else's", r.testOthers)
	t.Run("static entries", r.testStaticEntries)
	t.Run("agent create --register", r.testCreate)
	t.Run("federate", r.testFederate)
	t.Run("show --hub", r.testShow)
}

type registrations struct{ agentctl }

const registerEdge = "identity register edge-1 --trust-domain edge.test --serviceaccount argocd:agent --pod-label app=agent"

// edgeObject is how the API names the object of registerEdge.
const edgeObject = "clusterspiffeid.spire.spiffe.io/argomesh.edge-1.9a7fed4988f46ccf"

func (r registrations) say(t *testing.T, args, out string) {
	t.Helper()
	r.t = t
	r.run(agentctlCall{args: strings.Fields(args), wantOut: out})
}

func (r registrations) refuse(t *testing.T, args, why string) {
	t.Helper()
	r.t = t
	r.run(agentctlCall{args: strings.Fields(args), wantErr: why})
}

func (r registrations) testBeforeInstallation(t *testing.T) {
	const missing = "does not have the resources of spire-controller-manager: choose the cluster where that runs with --context, or work on the SPIRE server with --spire-server"
	for _, args := range []string{
		registerEdge, registerEdge + " --dry-run", "identity list", "identity revoke edge-1",
		"identity federate hub.test --bundle-endpoint-url https://a/ --bundle-endpoint-profile https_web", "identity federate hub.test --delete",
	} {
		r.refuse(t, args, missing)
	}
}

func (r registrations) testRegister(t *testing.T) {
	const spec = `    spec.namespaceSelector.matchLabels.kubernetes.io/metadata.name: argocd
    spec.podSelector.matchLabels.app: agent
    spec.spiffeIDTemplate: spiffe://edge.test/argomesh/agent/edge-1
    spec.workloadSelectorTemplates: k8s:sa:agent
`
	r.say(t, registerEdge+" --dry-run", "+ "+edgeObject+"\n"+spec)
	r.say(t, registerEdge, edgeObject+" created\n")
	r.say(t, registerEdge, edgeObject+" unchanged\n")
	r.say(t, registerEdge+" --x509-svid-ttl 30m --dry-run", "~ "+edgeObject+"\n    spec.ttl: unset -> 30m0s\n")
	r.say(t, registerEdge+" --x509-svid-ttl 30m", edgeObject+" updated\n")

	// What someone adds is taken away again; the controller's status is its own.
	client := r.hub.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "")
	name := edgeObject[strings.LastIndexByte(edgeObject, '/')+1:]
	for sub, patch := range map[string]string{"": `{"spec":{"admin":true},"metadata":{"annotations":{"note":"x"}}}`, "status": `{"status":{"stats":{"podsSelected":1}}}`} {
		var subresources []string
		if sub != "" {
			subresources = []string{sub}
		}
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
			t.Fatal(err)
		}
	}
	r.say(t, registerEdge+" --x509-svid-ttl 30m --dry-run", "~ "+edgeObject+"\n    spec.admin: true -> unset\n")
	r.say(t, registerEdge+" --x509-svid-ttl 30m", edgeObject+" updated\n")
	obj, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, _, _ := unstructured.NestedInt64(obj.Object, "status", "stats", "podsSelected")
	if admin, _, _ := unstructured.NestedBool(obj.Object, "spec", "admin"); admin || obj.GetAnnotations()["note"] != "x" || pods != 1 {
		t.Errorf("object is %v", obj.Object)
	}

	// What a dry run prints, the API server takes as it is, and it is the same.
	r.t = t
	out, _ := r.run(agentctlCall{args: strings.Fields(registerEdge + " --dry-run=client -o yaml"), wantOut: anything})
	if err := r.hub.ApplyYAML(t.Context(), []byte(out)); err != nil {
		t.Errorf("apply what --dry-run=client printed: %v", err)
	}

	// Another SPIFFE ID takes the place of the first one.
	r.run(agentctlCall{args: strings.Fields("identity register edge-1 --spiffe-id spiffe://edge.test/other --serviceaccount argocd:agent"), wantOut: anything})
	r.say(t, "identity list --no-headers", "edge-1   spiffe://edge.test/other   -\n")
	out, _ = r.run(agentctlCall{args: strings.Fields("identity list -o json"), wantOut: anything})
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 1 {
		t.Errorf("list -o json: %v, %s", err, out)
	}
	r.run(agentctlCall{args: strings.Fields("identity revoke edge-1"), wantOut: anything})
	r.refuse(t, "identity revoke edge-1", "has nothing that agentctl registered under that name")
	r.run(agentctlCall{args: strings.Fields("identity list"), wantNote: "No registrations and no federated trust domains.\n"})
}

func (r registrations) testOthers(t *testing.T) {
	client := r.hub.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "")
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": spire.GroupVersion.String(), "kind": spire.ClusterSPIFFEIDKind,
		"metadata": map[string]any{"name": edgeObject[strings.LastIndexByte(edgeObject, '/')+1:], "labels": map[string]any{spire.RegistrationLabel: "edge-1"}},
		"spec":     map[string]any{"spiffeIDTemplate": "spiffe://edge.test/theirs"},
	}}
	stored, err := client.Create(t.Context(), theirs, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.refuse(t, registerEdge, "was made by another writer and is never changed")
	r.refuse(t, "identity revoke edge-1", "has nothing that agentctl registered")
	now, err := client.Get(t.Context(), theirs.GetName(), metav1.GetOptions{})
	if err != nil || now.GetResourceVersion() != stored.GetResourceVersion() {
		t.Errorf("theirs is now %v, %v", now, err)
	}
	if err := client.Delete(t.Context(), theirs.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r registrations) testStaticEntries(t *testing.T) {
	const edge = "identity register edge-2 --trust-domain edge.test --selector unix:uid:7 --parent-id spiffe://edge.test/nodes/a"
	r.t = t
	r.run(agentctlCall{args: strings.Fields(edge + " --parent-id spiffe://edge.test/nodes/b"), wantOut: anything})
	out, _ := r.run(agentctlCall{args: strings.Fields("identity list -o name"), wantOut: anything})
	if strings.Count(out, "clusterstaticentry.spire.spiffe.io/argomesh.edge-2.") != 2 {
		t.Errorf("list -o name:\n%s", out)
	}
	out, _ = r.run(agentctlCall{args: strings.Fields(edge), wantOut: anything})
	if !strings.Contains(out, " deleted\n") || !strings.Contains(out, " unchanged\n") {
		t.Errorf("one node less:\n%s", out)
	}
	// The workload moves into pods: an object of another kind takes the place.
	out, _ = r.run(agentctlCall{args: strings.Fields("identity register edge-2 --trust-domain edge.test --serviceaccount argocd:agent"), wantOut: anything})
	if !strings.HasPrefix(out, "clusterspiffeid.") || !strings.Contains(out, "clusterstaticentry.") || !strings.HasSuffix(out, " deleted\n") {
		t.Errorf("another kind:\n%s", out)
	}
	r.run(agentctlCall{args: strings.Fields("identity revoke edge-2"), wantOut: anything})
}

func (r registrations) testCreate(t *testing.T) {
	const create = "agent create edge-1 --mode managed --trust-domain edge.test --register --serviceaccount argocd:agent --pod-label app=agent"
	r.t = t
	out, _ := r.run(agentctlCall{args: strings.Fields(create + " --dry-run=client -o yaml"), wantOut: anything})
	if !strings.Contains(out, "kind: Agent\n") || !strings.Contains(out, "kind: ClusterSPIFFEID\n") {
		t.Errorf("--dry-run=client -o yaml:\n%s", out)
	}
	out, _ = r.run(agentctlCall{args: strings.Fields(create + " --dry-run=server"), wantOut: anything})
	if !strings.HasPrefix(out, "+ "+edgeObject+"\n") || !strings.HasSuffix(out, "agent.argomesh.io/edge-1 created (server dry run)\n") {
		t.Errorf("--dry-run=server:\n%s", out)
	}
	r.run(agentctlCall{args: strings.Fields(create), wantOut: edgeObject + " created\nagent.argomesh.io/edge-1 created\n", wantNote: anything})
	r.run(agentctlCall{args: strings.Fields(create), wantOut: edgeObject + " unchanged\nagent.argomesh.io/edge-1 unchanged\n", wantNote: anything})
	// The same at a SPIRE server, beside the Agent.
	server := spiretest.New(spiffeid.RequireTrustDomainFromString("edge.test"))
	socket := r.harness.Path("spire.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	stop := kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l) })
	defer stop()
	direct := "agent create edge-6 --mode managed --trust-domain edge.test --register --selector unix:uid:7 --parent-id spiffe://edge.test/n --spire-server unix://" + socket
	out, _ = r.run(agentctlCall{args: strings.Fields(direct), wantOut: anything, wantNote: anything})
	if !strings.HasPrefix(out, "entry/argomesh.edge-6.") || !strings.HasSuffix(out, " created\nagent.argomesh.io/edge-6 created\n") || len(server.Entries()) != 1 {
		t.Errorf("with --spire-server:\n%s%v", out, server.Entries())
	}
	r.refuse(t, direct+" --federates-with hub.test", `agent "edge-6" is unchanged, but its identity is not registered`)

	r.refuse(t, "agent create edge-5 --mode managed --trust-domain edge.test --register", "--serviceaccount is missing")
	r.refuse(t, create+" --register-context absent", `agent "edge-1" is unchanged, but its identity is not registered: kubeconfig: context "absent" does not exist`)
}

func (r registrations) testFederate(t *testing.T) {
	bundle := filepath.Join("..", "..", "..", "mesh", "spire", "testdata", "partner.bundle.json")
	federate := "identity federate partner.test --bundle-endpoint-url https://partner.test:8443/ --bundle " + bundle
	const object = "clusterfederatedtrustdomain.spire.spiffe.io/argomesh.federation.partner.test"
	r.say(t, federate, object+" created\n")
	r.say(t, federate, object+" unchanged\n")
	r.say(t, federate+" --class-name x", object+" updated\n")
	r.t = t
	r.run(agentctlCall{
		args:    strings.Fields("identity federate partner.test --bundle-endpoint-url https://partner.test:8443/ --bundle-endpoint-profile https_web"),
		wantOut: object + " updated\n", wantNote: "--push-bundle --spire-server",
	})
	out, _ := r.run(agentctlCall{args: strings.Fields("identity list -o wide"), wantOut: anything})
	if !strings.Contains(out, "partner.test   https://partner.test:8443/   https_web") {
		t.Errorf("list:\n%s", out)
	}
	r.say(t, "identity federate partner.test --delete --dry-run", "- "+object+"\n")
	r.say(t, "identity federate partner.test --delete", object+" deleted\n")
	r.refuse(t, "identity federate partner.test --delete", "has no object for it that agentctl made")
}

func (r registrations) testShow(t *testing.T) {
	api, err := r.harness.StartWorkloadAPI(t.Context(), harness.WorkloadAPIConfig{
		Name: "spire", TrustDomain: "edge.test", CADir: r.harness.Path("ca"), Entries: []string{"spiffe://edge.test/argomesh/agent/edge-1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.t = t
	out, _ := r.run(agentctlCall{args: []string{"identity", "show", "--hub", "--socket", api.Socket}, wantOut: anything})
	if !strings.Contains(out, "spiffe://edge.test/argomesh/agent/edge-1   edge-1") {
		t.Errorf("show --hub:\n%s", out)
	}
	out, _ = r.run(agentctlCall{args: []string{"identity", "doctor", "--hub", "--socket", api.Socket}, wantOut: anything})
	if strings.Count(out, "ok: ") != 3 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "ok: spiffe://edge.test/argomesh/agent/edge-1 is agent edge-1 to the hub\n") {
		t.Errorf("doctor --hub where all is well:\n%s", out)
	}
	r.run(agentctlCall{args: strings.Fields("agent create far --mode managed --trust-domain far.test"), wantOut: anything, wantNote: anything})
	out, _ = r.run(agentctlCall{args: []string{"identity", "doctor", "--hub", "--socket", api.Socket}, wantOut: anything})
	if !strings.Contains(out, "warning: agent far is of trust domain far.test, whose bundle is not here") {
		t.Errorf("doctor --hub:\n%s", out)
	}
}
