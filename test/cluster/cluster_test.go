//go:build linux && cluster

package cluster

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const (
	// Each cluster has a SPIRE of its own, and they trust each other.
	hubDomain, spokeDomain = "hub.test", "edge.test"
	principalID            = "spiffe://hub.test/argomesh/principal"
	agentID                = "spiffe://edge.test/argomesh/agent/edge-1"

	agentName = "edge-1"
	project   = "team" // admits Applications of the agent
	// registry and imageTag name the images of `make images`.
	registry = "argomesh.test"
	imageTag = "cluster"
	// busyboxImage has what "agentctl connectivity test" asks of an image.
	busyboxImage = "argomesh.test/busybox:1"
	// patience is how long a pod may take to do something; the machine may be busy.
	patience = 6 * time.Minute
)

// clusterEnv is a hub and a spoke.
type clusterEnv struct {
	h          *harness.Harness
	hub, spoke *node
	images     string // address of the registry that has all images
	repository string
	report     report
	// hubInstall and spokeInstall are the commands that installed.
	hubInstall, spokeInstall []string
}

// Both charts run as real pods, the principal with its Envoy and the agent, in two
// clusters between which only the spoke can open connections. An Application of the hub
// is synced by the spoke's own Argo CD, and the log of its pod is followed from the hub.
func TestCluster(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("namespaces and containers need root: run make e2e-cluster as root")
	}
	harnesstest.SkipMissing(t,
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy",
		"coredns", "spire-server", "spire-agent", "spire-controller-manager", "spiffe-csi-driver",
		"envoy", "argocd", "ko", "helm", "redis-server", "git")
	for _, program := range []string{"containerd", "ctr", "runc", "nft", "ip", "gpg", "gpg-agent", "nsenter", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: install %s", program, distribution)
		}
	}
	sweep(t)
	w := &clusterEnv{h: harnesstest.New(t)}
	defer w.keep(t)
	w.hub = &node{name: "hub", here: "10.98.1.1", ip: "10.98.1.2", pods: "10.90.0.0/24", dir: w.h.Path("hub"), policy: w.h.Path("policy"), h: w.h}
	w.spoke = &node{name: "spoke", here: "10.98.2.1", ip: "10.98.2.2", pods: "10.91.0.0/24", dir: w.h.Path("spoke"), policy: w.h.Path("policy"), h: w.h}
	for _, s := range []struct {
		title string
		do    func(t *testing.T)
	}{
		{"images are built", w.makeImages},
		{"two nodes have networks, and a firewall is between them", w.makeNodes},
		{"two clusters are ready", w.startClusters},
		{"the DNS server of each cluster answers", w.startDNS},
		{"a repository is served", w.startRepository},
		{"the hub reaches neither the spoke's node nor its pods", w.testFirewall},
		{"agentctl hub install --with spire,argocd: all pods are ready", w.installPrincipal},
		{"agentctl check spoke --pre: a pod of the spoke finds its way to the principal", w.testPath},
		{"agentctl spoke install --with spire,argocd: all pods are ready", w.installAgent},
		{"each kubelet has registered SPIFFE's CSI driver", w.testDrivers},
		{"the agent is connected", w.testConnected},
		{"an Application of the hub is synced and healthy", w.testApplication},
		{"its pod's log is followed from the hub", w.testLog},
		{"agentctl connectivity test: all that is possible works", w.testConnectivity},
		{"helm test: a pod of the hub tries the same", w.testHelm},
		{"agentctl check finds nothing wrong", w.testCheck},
		{"what the charts' NetworkPolicies deny is denied, and is not without them", w.testPolicies},
		{"both commands change nothing when they run again", w.testInstallsAgain},
		{"the hub still reaches neither", w.testFirewall},
		{"no container has failed", w.testNoFailures},
		{"agentctl uninstalls both, and the workload stays", w.testUninstall},
	} {
		if !w.step(t, s.title, s.do) {
			return
		}
	}
	w.report.write(t)
}

// distribution says what the distribution must have.
const distribution = "containerd, runc, the CNI plugins, nftables, iproute2, GnuPG and util-linux; on Debian: apt-get install containerd runc containernetworking-plugins nftables iproute2 gpg gpg-agent util-linux"

// step runs a part of the story, without which the rest has no sense. It is no subtest,
// since what a step starts lives on.
func (w *clusterEnv) step(t *testing.T, title string, do func(t *testing.T)) bool {
	t.Helper()
	start := time.Now()
	do(t)
	w.report.add(title, time.Since(start))
	t.Logf("%s: %s", title, time.Since(start).Round(time.Second))
	return !t.Failed()
}

// keep leaves everything up until it is interrupted, if it is asked to (KEEP), whatever became of the test.
func (w *clusterEnv) keep(t *testing.T) {
	t.Helper()
	if os.Getenv("KEEP") == "" || w.spoke == nil || w.spoke.plane == nil {
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t.Logf("kept until Ctrl-C: export KUBECONFIG=%s (contexts hub and spoke); a node's network: %s, %s", w.kubeconfig(t),
		strings.Join(w.hub.spaces.network("sh"), " "), strings.Join(w.spoke.spaces.network("sh"), " "))
	<-ctx.Done()
}

// makeImages builds ours with `make images`, and those of others from the programs of this
// machine. A registry has them all.
func (w *clusterEnv) makeImages(t *testing.T) {
	w.images = serveImages(t, w.h.Path("registry"))
	checkout := w.h.Tools().Checkout()
	ours := w.h.Path("images")
	cmd := exec.CommandContext(t.Context(), "make", "images", "IMAGES="+ours, "PLATFORMS=linux/"+runtime.GOARCH)
	cmd.Dir = checkout
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make images: %v\n%s", err, out)
	}
	for _, name := range []string{"principal", "agent", "agentctl"} {
		w.push(t, registry+"/"+name+":"+imageTag, readLayout(t, filepath.Join(ours, name)))
	}
	// As agentctl calls it before anything is installed.
	w.push(t, registry+"/agentctl:"+appVersion(t, checkout), readLayout(t, filepath.Join(ours, "agentctl")))
	for _, program := range []string{"workload", "cmd/policy", "cmd/registrar"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", w.h.Path(filepath.Base(program)), "./test/cluster/"+program)
		build.Dir, build.Env = checkout, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	tool := func(name string) string {
		path, err := w.h.Tools().Path(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	workload := newContent()
	workload.add(t, w.workload(), "/workload")
	w.push(t, sandboxImage, workload.image(t, "65535:65535", "/workload", "pause"))
	w.push(t, "argomesh.test/workload:1", workload.image(t, "65532:65532", "/workload"))
	busybox := newContent()
	busybox.add(t, "/bin/sh", "/bin/sh")
	busybox.add(t, w.workload(), "/workload")
	for _, name := range []string{"echo", "httpd"} {
		busybox.links["/bin/"+name] = "/workload"
	}
	w.push(t, busyboxImage, busybox.image(t, "65532:65532", "/bin/sh"))
	envoy := newContent()
	envoy.add(t, tool("envoy"), "/usr/local/bin/envoy")
	w.push(t, "argomesh.test/envoy:1", envoy.image(t, "65532:65532", "/usr/local/bin/envoy"))
	w.makeSPIREImages(t)
	dns := newContent()
	dns.add(t, tool("coredns"), "/coredns")
	w.push(t, dnsImage, dns.image(t, "", "/coredns"))
	w.makeArgoCDImages(t)
}

// workload is the program of test/cluster/workload.
func (w *clusterEnv) workload() string { return w.h.Path("workload") }

func (w *clusterEnv) makeNodes(t *testing.T) {
	w.hub.open(t, w.workload())
	w.spoke.open(t, w.workload())
	makeNetworks(t, w.hub, w.spoke)
}

func (w *clusterEnv) startClusters(t *testing.T) {
	for _, n := range []*node{w.hub, w.spoke} {
		caller := n.makeCaller(t)
		var err error
		if n.plane, err = w.h.StartControlPlane(t.Context(), harness.ControlPlaneConfig{
			Name: n.name, Scheduler: true, Controllers: append(harness.WorkloadControllers(), "root-ca-certificate-publisher-controller"),
			ServerArgs: []string{"--kubelet-client-certificate=" + caller.certificate, "--kubelet-client-key=" + caller.key},
		}); err != nil {
			t.Fatal(err)
		}
		if n.client, err = kubernetes.NewForConfig(n.plane.REST()); err != nil {
			t.Fatal(err)
		}
		n.start(t, w.images, caller.certificate)
	}
}

// testFirewall connects from the hub to what listens on the spoke's node, its kubelet, and
// in a pod, its DNS server: packets are lost in the firewall. From the spoke itself either
// answers, and the way in the other direction is open.
func (w *clusterEnv) testFirewall(t *testing.T) {
	dns := w.spoke.pod(t, metav1.NamespaceSystem, "k8s-app=kube-dns")
	dial := func(from *node, address string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		conn, err := from.spaces.netns().dial(ctx, address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(w.spoke, wanHub+":10250", 30*time.Second); err != nil {
		t.Errorf("the spoke does not reach the hub: %v", err)
	}
	for _, address := range []string{wanSpoke + ":10250", dns.Status.PodIP + ":53"} {
		if err := dial(w.spoke, address, 30*time.Second); err != nil {
			t.Errorf("nobody listens on %s of the spoke: %v", address, err)
		}
		before := w.spoke.refused(t)
		var late net.Error
		if err := dial(w.hub, address, 3*time.Second); !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("the hub reaches %s of the spoke: %v", address, err)
		}
		refused := w.spoke.refused(t) - before
		if refused == 0 {
			t.Errorf("what the hub sent to %s did not come to the firewall", address)
		}
		w.report.refused += refused
	}
}

// agentctl runs agentctl with a kubeconfig that has hub and spoke as contexts, and returns what it
// prints. The error has what it says of that.
func (w *clusterEnv) agentctl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := w.h.Binary("agentctl")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig(t), "HOME="+home)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("agentctl %s: %w\n%s%s", strings.Join(args, " "), err, out, complaint.String())
	}
	return string(out), nil
}

// kubeconfig has hub and spoke as contexts. Their users have one name in the files of the control
// planes.
func (w *clusterEnv) kubeconfig(t *testing.T) string {
	t.Helper()
	both := clientcmdapi.NewConfig()
	for _, n := range []*node{w.hub, w.spoke} {
		config, err := clientcmd.LoadFromFile(n.plane.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		is := config.Contexts[config.CurrentContext]
		both.Clusters[n.name], both.AuthInfos[n.name] = config.Clusters[is.Cluster], config.AuthInfos[is.AuthInfo]
		both.Contexts[n.name] = &clientcmdapi.Context{Cluster: n.name, AuthInfo: n.name}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*both, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// must runs agentctl, and ends the test with how the node is if that fails.
func (w *clusterEnv) must(t *testing.T, n *node, args ...string) string {
	t.Helper()
	out, err := w.agentctl(t, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, n.explain(t))
	}
	return out
}

// The registry that has the images is called so on the nodes alone.
var offline = []string{"--registry", registry, "--check-images=false", "--timeout", patience.String()}

func (w *clusterEnv) installPrincipal(t *testing.T) {
	file := w.hub.write(t, "argomesh-principal.yaml", map[string]any{
		"image": map[string]any{"tag": imageTag},
		"envoy": map[string]any{
			"image":          map[string]any{"repository": "argomesh.test/envoy", "tag": "1"},
			"bootstrapImage": map[string]any{"tag": imageTag},
		},
		"service": map[string]any{"type": "NodePort"},
		"test":    map[string]any{"image": busyboxImage},
		"config":  map[string]any{"mapping": map[string]any{"by": "namespace"}},
	})
	w.hubInstall = append([]string{
		"hub", "install", "--context", "hub", "--values", file, "--trust-domain", hubDomain,
		"--with", "spire,argocd", "--spire-values", w.hub.spireValues(t, map[string]any{"type": "NodePort"}),
	}, offline...)
	w.must(t, w.hub, w.hubInstall...)
}

// appVersion is that of the chart of the agent.
func appVersion(t *testing.T, checkout string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(checkout, "charts", "argomesh-agent", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(raw, &chart); err != nil || chart.AppVersion == "" {
		t.Fatalf("the chart says %q, %v", chart.AppVersion, err)
	}
	return chart.AppVersion
}

// nodePort is the port of the node on which a Service is reached from outside.
func (n *node) nodePort(t *testing.T, namespace, name string) int32 {
	t.Helper()
	service, err := n.client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service.Spec.Ports[0].NodePort
}

// principal is where agents reach the principal.
func (w *clusterEnv) principal(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s:%d", principalHost, w.hub.nodePort(t, harness.ArgoCDNamespace, "argomesh-principal-stream"))
}

// testPath has a Job of the spoke look at the way to the principal, at one on which nobody listens, and at a name that
// no DNS server knows.
func (w *clusterEnv) testPath(t *testing.T) {
	if err := w.spoke.plane.EnsureNamespace(t.Context(), harness.ArgoCDNamespace); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		w.principal(t): "ok", principalHost + ":1": "problem", "nowhere.hub.test:443": "problem",
	} {
		// It finds more, such as that there is no CSI driver, and fails for that.
		out, err := w.agentctl(t, "check", "spoke", "--pre", "--context", "spoke", "--principal", address, "--principal-id", principalID,
			"--registry", registry, "-o", "json")
		var report struct {
			Findings []struct{ Word, Level, Says string }
		}
		if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil {
			t.Fatalf("%v, %v", err, jsonErr)
		}
		levels := map[string]string{}
		for _, f := range report.Findings {
			levels[f.Word] = f.Level
			t.Logf("%s: %s: %s (%s)", address, f.Level, f.Says, f.Word)
		}
		if got := levels["PrincipalUnreachable"]; got != want {
			t.Errorf("of the way to %s a pod says %q, want %q\n%s", address, got, want, w.spoke.explain(t))
		}
	}
	jobs, err := w.spoke.client.BatchV1().Jobs(harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) > 0 {
		t.Errorf("%d Jobs are left, %v", len(jobs.Items), err)
	}
}

func (w *clusterEnv) installAgent(t *testing.T) {
	file := w.spoke.write(t, "argomesh-agent.yaml", map[string]any{"image": map[string]any{"tag": imageTag}})
	w.spokeInstall = append([]string{
		"spoke", "install", agentName, "--context", "spoke", "--hub-context", "hub", "--values", file, "--trust-domain", spokeDomain,
		"--access", "read,writes,exec", "--principal", w.principal(t),
		"--with", "spire,argocd", "--spire-values", w.spoke.spireValues(t, map[string]any{}),
		"--hub-bundle-endpoint",
		"https://" + net.JoinHostPort(principalHost, fmt.Sprint(w.hub.nodePort(t, spireNamespace, "argomesh-spire-bundle"))),
	}, offline...)
	w.must(t, w.spoke, w.spokeInstall...)
}

func (w *clusterEnv) testConnectivity(t *testing.T) {
	out, err := w.agentctl(t, "connectivity", "test", agentName, "--context", "hub", "--image", busyboxImage)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, w.hub.explain(t), w.spoke.explain(t))
	}
	w.report.connectivity = out
	t.Logf("agentctl connectivity test:\n%s", w.report.connectivity)
}

// testHelm runs the test of the principal's chart, which is a pod that calls the resource proxy by its name. The
// agent's chart has none.
func (w *clusterEnv) testHelm(t *testing.T) {
	helm, err := w.h.Tools().Path("helm")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), helm, "test", charts.Principal, "--kube-context", "hub",
		"--namespace", harness.ArgoCDNamespace, "--timeout", patience.String())
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig(t), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("helm test: %v\n%s\n%s", err, out, w.hub.explain(t))
	}
	t.Logf("helm test:\n%s", out)
	for _, step := range []string{"watch", "logs", "exec", "port-forward", "sync"} {
		if !regexp.MustCompile(`ok +` + step + ` `).Match(out) { // Helm prints the pod's lines as one, quoted
			t.Errorf("the pod has not seen that %s works", step)
		}
	}
}

// testCheck waits until the project of the connectivity test has followed its Application away.
func (w *clusterEnv) testCheck(t *testing.T) {
	var out string
	harnesstest.Eventually(t, patience, "a check that finds no problem", func() (err error) {
		out, err = w.agentctl(t, "check", "spoke", "--context", "spoke", "--hub-context", "hub")
		return err
	})
	t.Logf("agentctl check:\n%s", out)
}

// testInstallsAgain compares what the charts made, and the records of helm, before and after. Of a
// Deployment, whose status lives on, it is the generation.
func (w *clusterEnv) testInstallsAgain(t *testing.T) {
	versions := func() (all []string) {
		add := func(n *node, resource schema.GroupVersionResource, selector string) {
			objects, err := n.plane.Resource(resource, harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
			if err != nil || len(objects.Items) == 0 {
				t.Fatalf("%s of %s that are %s: %v, %v", resource.Resource, n.name, selector, objects, err)
			}
			for i := range objects.Items {
				o := &objects.Items[i]
				version := o.GetResourceVersion()
				switch {
				case o.GetGeneration() != 0:
					version = fmt.Sprint("generation ", o.GetGeneration())
				case o.GetKind() == "ConfigMap":
					version = writes(o)
				}
				all = append(all, fmt.Sprintf("%s %s %s: %s, %s", n.name, resource.Resource, o.GetName(), o.GetUID(), version))
			}
		}
		for _, n := range []*node{w.hub, w.spoke} {
			add(n, appsv1.SchemeGroupVersion.WithResource("deployments"), "app.kubernetes.io/managed-by=Helm")
			add(n, corev1.SchemeGroupVersion.WithResource("configmaps"), "app.kubernetes.io/managed-by=Helm")
			add(n, corev1.SchemeGroupVersion.WithResource("secrets"), "owner=helm")
		}
		return all
	}
	before := versions()
	w.must(t, w.hub, w.hubInstall...)
	w.must(t, w.spoke, w.spokeInstall...)
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("a second run changed\n%s\ninto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// writes says who wrote an object and when, but for the agent: it keeps what it saw of the hub's history in the
// ConfigMap that its chart makes.
func writes(o *unstructured.Unstructured) string {
	var all []string
	for _, of := range o.GetManagedFields() {
		if of.Manager != charts.Agent {
			all = append(all, fmt.Sprint(of.Manager, " ", of.Operation, " ", of.Time))
		}
	}
	return strings.Join(all, ", ")
}

func (w *clusterEnv) testUninstall(t *testing.T) {
	w.must(t, w.spoke, "spoke", "uninstall", "--context", "spoke", "--yes")
	w.must(t, w.hub, "hub", "uninstall", "--context", "hub", "--yes")
	for _, n := range []*node{w.hub, w.spoke} {
		harnesstest.Eventually(t, patience, "the end of the pods of "+n.name, func() error {
			pods, err := n.client.CoreV1().Pods(harness.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (argomesh-principal, argomesh-agent)"})
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("%d are there", len(pods.Items))
			}
			return err
		})
	}
	pods, err := w.spoke.client.CoreV1().Pods("speaker").List(t.Context(), metav1.ListOptions{LabelSelector: "app=speaker"})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
		t.Errorf("the pod of the Application: %v, %v", pods, err)
	}
}

// available waits until all pods of a Deployment are ready.
func (n *node) available(t *testing.T, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := harness.Eventually(ctx, "Deployment "+name, func() error {
		d, err := n.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !ready(d) {
			return fmt.Errorf("%d of %d pods are ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, n.explain(t))
	}
}

func ready(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == *d.Spec.Replicas && d.Status.UpdatedReplicas == *d.Spec.Replicas
}

// explain says how the pods of a node are, and what ours say and those that are not ready.
func (n *node) explain(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	pods, err := n.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, p := range pods.Items {
		fmt.Fprintf(&out, "%s/%s is %s\n", p.Namespace, p.Name, p.Status.Phase)
		ours := p.Labels["app.kubernetes.io/part-of"] == "argomesh"
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.Ready && !ours {
				continue
			}
			state, err := json.Marshal(c.State)
			fmt.Fprintf(&out, "  %s: %s %v\n", c.Name, state, err)
			options := &corev1.PodLogOptions{Container: c.Name, TailLines: new(int64(40))}
			log, err := n.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, options).DoRaw(t.Context())
			fmt.Fprintf(&out, "    %s %v\n", strings.ReplaceAll(string(log), "\n", "\n    "), err)
		}
	}
	events, err := n.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return out.String() + err.Error()
	}
	for _, e := range events.Items {
		fmt.Fprintf(&out, "%s %s/%s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
	}
	return out.String()
}

func (w *clusterEnv) testConnected(t *testing.T) {
	harnesstest.Eventually(t, patience, "the agent's connection", func() error {
		o, err := w.hub.plane.Resource(v1alpha1.AgentResource, harness.ArgoCDNamespace).Get(t.Context(), agentName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		connected, _, err := unstructured.NestedBool(o.Object, "status", "connected")
		id, _, idErr := unstructured.NestedString(o.Object, "status", "spiffeID")
		if err := errors.Join(err, idErr); err != nil || !connected || id != agentID {
			return fmt.Errorf("its status is %v: %w", o.Object["status"], err)
		}
		return nil
	})
}

func (w *clusterEnv) testApplication(t *testing.T) {
	if err := w.hub.plane.EnsureNamespace(t.Context(), agentName); err != nil {
		t.Fatal(err)
	}
	w.hub.apply(t, map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": project, "namespace": harness.ArgoCDNamespace},
		"spec": map[string]any{
			"sourceRepos": []any{w.repository}, "sourceNamespaces": []any{agentName},
			"destinations":             []any{map[string]any{"name": agentName, "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "", "kind": "Namespace"}},
		},
	})
	w.hub.apply(t, map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": "speaker", "namespace": agentName},
		"spec": map[string]any{
			"project":     project,
			"source":      map[string]any{"repoURL": w.repository, "path": "app", "targetRevision": "HEAD"},
			"destination": map[string]any{"name": agentName, "namespace": "speaker"},
			"syncPolicy":  map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}},
		},
	})
	harnesstest.Eventually(t, patience, "the Application on the hub", func() error {
		o, err := w.hub.plane.Resource(harness.Applications, agentName).Get(t.Context(), "speaker", metav1.GetOptions{})
		if err != nil {
			return err
		}
		sync, _, _ := unstructured.NestedString(o.Object, "status", "sync", "status")
		health, _, _ := unstructured.NestedString(o.Object, "status", "health", "status")
		if sync != "Synced" || health != "Healthy" {
			return fmt.Errorf("it is %q and %q: %v", sync, health, o.Object["status"])
		}
		return nil
	})
}

// testLog follows the log of the Application's pod with kubectl, from the hub's network
// and with what Argo CD has of the spoke.
func (w *clusterEnv) testLog(t *testing.T) {
	access, err := w.h.ClusterAccess(t.Context(), w.hub.plane, agentName)
	if err != nil {
		t.Fatal(err)
	}
	service, err := w.hub.client.CoreV1().Services(harness.ArgoCDNamespace).Get(t.Context(), "argomesh-principal", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// kubectl is in no pod, and asks the DNS server of this machine.
	const host = "argomesh-principal.argocd.svc"
	if !strings.Contains(access.Host, host) {
		t.Fatalf("the cluster Secret's server is %s", access.Host)
	}
	access.Host = strings.Replace(access.Host, host, service.Spec.ClusterIP, 1)
	kubeconfig := filepath.Join(w.hub.dir, "spoke.kubeconfig")
	if err := harness.WriteKubeconfig(kubeconfig, access); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.TLSServerName = host
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	kubectl, err := w.h.Tools().Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	line := w.hub.spaces.network(kubectl, "--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(w.hub.dir, rand.Text()),
		"--namespace", "speaker", "logs", "-f", "deployment/speaker")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay = 10 * time.Second
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The pod says a line a second: lines that come that much later than those before were
	// not there when kubectl began.
	var all []string
	followed, before := 0, time.Time{}
	for lines := bufio.NewScanner(out); followed < 3 && lines.Scan(); {
		all = append(all, lines.Text())
		now := time.Now()
		if !before.IsZero() && now.Sub(before) > 500*time.Millisecond && strings.HasPrefix(lines.Text(), "line ") {
			followed++
		}
		before = now
	}
	cancel()
	_ = cmd.Wait() // it was ended
	if followed < 3 || all[0] != "line 1" {
		t.Fatalf("the log is %q: %s", all, complaint.String())
	}
	w.report.log = all
}

// All containers run, and none has ended in error but that of Dex, which does until argocd-server has made its key.
// On a busy machine kubelet may find one too slow and start it again, which the report shows.
func (w *clusterEnv) testNoFailures(t *testing.T) {
	for _, n := range []*node{w.hub, w.spoke} {
		pods, err := n.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				ended := c.LastTerminationState.Terminated
				if c.State.Running == nil || ended != nil && ended.ExitCode != 0 && c.Name != "dex" {
					t.Errorf("%s of pod %s/%s: %+v, and before %+v", c.Name, p.Namespace, p.Name, c.State, c.LastTerminationState)
				}
			}
		}
		w.report.pods = append(w.report.pods, n.list(t))
	}
}

// list is what kubectl says of the node's pods.
func (n *node) list(t *testing.T) string {
	t.Helper()
	kubectl, err := n.h.Tools().Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return run(t, "", kubectl, "--kubeconfig", n.plane.Kubeconfig, "--cache-dir", t.TempDir(), "get", "pods", "--all-namespaces", "-o",
		"custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,CONTAINERS:.spec.containers[*].name,READY:.status.containerStatuses[*].ready,RESTARTS:.status.containerStatuses[*].restartCount,IP:.status.podIP")
}

// report is what docs/cluster.md says of a run.
type report struct {
	rows []string
	// pods are the lists of each cluster, log what kubectl printed of the pod's log,
	// refused how many packets the firewall dropped of those that the hub sent.
	pods, log []string
	refused   int
	// denied are rows about what NetworkPolicies denied.
	denied []string
	// connectivity is what "agentctl connectivity test" printed.
	connectivity string
}

func (r *report) add(title string, took time.Duration) {
	r.rows = append(r.rows, fmt.Sprintf("| %s | %d s |", title, int(took.Round(time.Second).Seconds())))
}

// The part of docs/cluster.md that is made here.
const (
	resultFile  = "../../docs/cluster.md"
	resultBegin = "<!-- result: written by `make e2e-cluster UPDATE=1` -->\n"
	resultEnd   = "<!-- end of result -->\n"
)

// write writes the result into the document, if it is asked to.
func (r *report) write(t *testing.T) {
	t.Helper()
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		t.Fatal(err)
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(kernel.Release[:]), "-") // what follows names a build of it
	result := fmt.Sprintf(`
On %s, Linux %s, %d cores:

| Step | Took |
|---|---|
%s

Pods of the hub and of the spoke at the end:

`+"```"+`
%s
%s`+"```"+`

The log of the Application's pod, from the hub's network and with what its cluster Secret says, until three lines had come that were not there when it began:

`+"```"+`
$ kubectl --kubeconfig spoke.kubeconfig --namespace speaker logs -f deployment/speaker
%s
`+"```"+`

What agentctl said of the way to the spoke:

`+"```"+`
$ agentctl connectivity test edge-1 --context hub --image argomesh.test/busybox:1
%s`+"```"+`

The firewall dropped %d packets of the connections that the hub tried to open.

Connections that the charts' NetworkPolicies deny, twice each, and that came about while the policy was deleted:

| Cluster | From | To | Chain that dropped them | Packets dropped |
|---|---|---|---|---|
%s

`, time.Now().Format(time.DateOnly), release, runtime.NumCPU(), strings.Join(r.rows, "\n"),
		r.pods[0], r.pods[1], strings.Join(r.log, "\n"), r.connectivity, r.refused,
		strings.Join(r.denied, "\n"))
	t.Log(result)
	if t.Failed() || !golden.Updating() {
		return
	}
	content, err := os.ReadFile(resultFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), resultBegin)
	_, after, also := strings.Cut(rest, resultEnd)
	if !ok || !also {
		t.Fatalf("%s has no place for the result", resultFile)
	}
	if err := os.WriteFile(resultFile, []byte(before+resultBegin+result+resultEnd+after), 0o644); err != nil { //nolint:gosec // a file of the tree
		t.Fatal(err)
	}
}
