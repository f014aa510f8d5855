//go:build linux && cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/cluster/policy"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// node is one Kubernetes cluster of one node.
type node struct {
	name   string
	spaces namespaces
	// ip is the node's address for its API server, here that of this machine on the way.
	ip, here string
	// pods are the addresses of pods.
	pods string
	dir  string
	// policy is the program that enforces NetworkPolicies.
	policy string

	h      *harness.Harness
	plane  *harness.ControlPlane
	client *kubernetes.Clientset
}

// open makes the node's namespaces. A process holds them (workload, with argument pause),
// which is the first of its PID namespace: when it ends, however that comes, the kernel
// ends containerd, kubelet and every container, and takes networks and mounts away.
// Where kubelet and containerd have fixed places, it is the node's own.
func (n *node) open(t *testing.T, workload string) {
	t.Helper()
	program, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	holder, err := n.h.Start(t.Context(), harness.Command{
		Name: n.name + "-node", Path: program,
		Args: []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", own, workload},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.spaces != 0 {
			if err := unix.Kill(int(n.spaces), unix.SIGTERM); err != nil {
				t.Error(err)
			}
			select {
			case <-holder.Exited(): // and with it all that was inside
			case <-time.After(time.Minute):
				t.Error("the namespaces live on, a minute after their holder was asked to end")
			}
		}
		if err := errors.Join(holder.Kill(), removeCgroups(n.cgroup())); err != nil {
			t.Error(err)
		}
	})
	harnesstest.Eventually(t, patience, "the namespaces of "+n.name, func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", holder.PID()))
		if err != nil {
			return harness.Permanent(errors.Join(err, errors.New(holder.LogTail(10))))
		}
		first, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return fmt.Errorf("no first process: %w", err)
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first))
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(line, []byte(workload)) {
			return fmt.Errorf("the first process is still %q", line)
		}
		n.spaces = namespaces(first)
		return nil
	})
}

// own gives a node folders of its own, and settings of the kernel: kubelet writes some that
// are the whole machine's. It goes on as the holder of the namespaces.
const own = `
for folder in /run /var/lib /var/log; do
	mount -t tmpfs -o mode=755 tmpfs $folder
done
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p /run/settings/${setting%/*}
	cat /proc/sys/$setting > /run/settings/$setting
	mount --bind /run/settings/$setting /proc/sys/$setting
done
exec "$0" pause
`

// cgroupPrefix begins the names of nodes' cgroups, which end with the test's process.
const cgroupPrefix = "argomesh-cluster-"

func (n *node) cgroup() string { return fmt.Sprintf("%s%s-%d", cgroupPrefix, n.name, os.Getpid()) }

// cgroupRoots are where cgroups are: one place with version 2, one for each controller
// with version 1.
func cgroupRoots() ([]string, error) {
	const place = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(place, "cgroup.procs")); err == nil {
		return []string{place}, nil
	}
	found, err := filepath.Glob(filepath.Join(place, "*", "cgroup.procs"))
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found, err
}

// makeCgroups makes the one below which the node's pods have theirs.
func (n *node) makeCgroups(t *testing.T) {
	t.Helper()
	roots, err := cgroupRoots()
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, n.cgroup()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// removeCgroups removes those of a node, whose processes have ended.
func removeCgroups(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	var problems []error
	for _, root := range roots {
		var all []string
		problems = append(problems, filepath.WalkDir(filepath.Join(root, name), func(path string, entry os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				all = append(all, path)
			}
			return err
		}))
		slices.Reverse(all) // what is below first
		for _, folder := range all {
			problems = append(problems, unix.Rmdir(folder))
		}
	}
	return errors.Join(problems...)
}

// sweep removes the cgroups of tests that were killed. All else went with them.
func sweep(t *testing.T) {
	t.Helper()
	roots, err := cgroupRoots()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, root := range roots {
		found, err := filepath.Glob(filepath.Join(root, cgroupPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range found {
			names[filepath.Base(folder)] = true
		}
	}
	for name := range names {
		pid, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
		if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue // of a test that runs
		}
		if err := removeCgroups(name); err != nil {
			t.Error(err)
		}
	}
}

// sandboxImage is what holds the network of a pod.
const sandboxImage = "argomesh.test/pause:1"

// start starts what makes a node of the namespaces, and waits until it is Ready. images is the address of
// the registry, and caller the authority of the certificate with which the API server calls kubelet.
func (n *node) start(t *testing.T, images, caller string) {
	t.Helper()
	for _, folder := range []string{"cni", "ipam", "logs", "kubelet", "containerd", "state"} {
		if err := os.MkdirAll(filepath.Join(n.dir, folder), 0o755); err != nil { //nolint:gosec // pods enter some
			t.Fatal(err)
		}
	}
	n.makeCgroups(t)
	n.startContainerd(t, n.useRegistry(t, images))
	// The API server is a process of this machine, which the node does not see.
	api := n.ip + ":6443"
	n.spaces.forward(t, api, strings.TrimPrefix(n.plane.URL, "https://"))
	kubeconfig := n.kubeconfig(t, "https://"+api)
	n.publish(t)
	// What the CSI driver mounts into pods, in a pod of its own, is seen outside of it.
	n.do(t, "mount", "--bind", n.root(), n.root())
	n.do(t, "mount", "--make-rshared", n.root())
	n.startKubelet(t, kubeconfig, caller)
	n.startProxy(t, kubeconfig)
	n.startPolicy(t, kubeconfig)
}

// root is the folder of kubelet.
func (n *node) root() string { return filepath.Join(n.dir, "kubelet") }

func (n *node) socket() string { return filepath.Join(n.dir, "c.sock") }

// kubeconfig writes one for programs of the node.
func (n *node) kubeconfig(t *testing.T, server string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(n.plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = server, "kubernetes.default.svc"
	}
	file := filepath.Join(n.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// publish says where pods find the API server.
func (n *node) publish(t *testing.T) {
	t.Helper()
	n.apply(t, map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": "kubernetes", "namespace": "default", "labels": map[string]any{"kubernetes.io/service-name": "kubernetes"}},
		"endpoints": []any{map[string]any{"addresses": []any{n.ip}, "conditions": map[string]any{"ready": true}}},
		"ports":     []any{map[string]any{"name": "https", "port": 6443, "protocol": "TCP"}},
	})
}

// apply applies an object to the cluster.
func (n *node) apply(t *testing.T, object map[string]any) {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.plane.ApplyYAML(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
}

// write writes a file of settings, in YAML or, for CNI, in JSON.
func (n *node) write(t *testing.T, name string, content any) string {
	t.Helper()
	encode := yaml.Marshal
	if filepath.Ext(name) == ".conflist" {
		encode = json.Marshal
	}
	raw, err := encode(content)
	file := filepath.Join(n.dir, name)
	if err := errors.Join(err, os.WriteFile(file, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func (n *node) startContainerd(t *testing.T, registries string) {
	t.Helper()
	n.write(t, "cni/pods.conflist", map[string]any{"cniVersion": "0.4.0", "name": "pods", "plugins": []any{map[string]any{
		"type": "ptp", // each pod is routed, so that what comes by a Service goes back by it
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(n.dir, "ipam"),
			"ranges": []any{[]any{map[string]any{"subnet": n.pods}}}, "routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
	}}})
	plugins := filepath.Dir(firstOf(t, "/usr/lib/cni/ptp", "/opt/cni/bin/ptp", "/usr/libexec/cni/ptp"))
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, filepath.Join(n.dir, "containerd"), filepath.Join(n.dir, "state"), n.socket(), filepath.Join(n.dir, "opt"),
		sandboxImage, plugins, filepath.Join(n.dir, "cni"), registries)
	file := filepath.Join(n.dir, "containerd.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.run(t, "containerd", func(ctx context.Context) error {
		_, err := command(ctx, "", "ctr", "--address", n.socket(), "version")
		return err
	}, "containerd", "--config", file)
}

// run starts a process of the node.
func (n *node) run(t *testing.T, name string, ready func(context.Context) error, line ...string) {
	t.Helper()
	line = n.spaces.inside(line...)
	enter, err := exec.LookPath(line[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.h.Start(t.Context(), harness.Command{
		Name: n.name + "-" + name, Path: enter, Args: line[1:], Ready: ready, ReadyTimeout: patience,
	}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) startKubelet(t *testing.T, kubeconfig, caller string) {
	t.Helper()
	path, err := n.h.Tools().Path("kubelet")
	if err != nil {
		t.Fatal(err)
	}
	resolv := filepath.Join(n.dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+wanHub+"\n"), 0o644); err != nil { //nolint:gosec // pods read it
		t.Fatal(err)
	}
	config := n.write(t, "kubelet.yaml", map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"address":                  "0.0.0.0", "port": 10250, "readOnlyPort": 0, "healthzBindAddress": "127.0.0.1",
		// The API server comes with a certificate, SPIRE's agent with the token of its account. The API server says what
		// each of them may.
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": caller},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		// Two kubelets of a machine would tidy up each other's cgroups.
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "cgroupRoot": "/" + n.cgroup(), "enforceNodeAllocatable": []any{},
		"clusterDNS": []any{dnsService}, "clusterDomain": clusterDomain,
		"failSwapOn": false, "makeIPTablesUtilChains": false, "resolvConf": resolv, "podLogsDir": filepath.Join(n.dir, "logs"),
		"imageGCHighThresholdPercent": 100, "evictionHard": map[string]any{"memory.available": "1Mi"}, "maxPods": 50,
		"syncFrequency": "10s", "nodeStatusUpdateFrequency": "5s", "volumePluginDir": filepath.Join(n.dir, "plugins"),
	})
	n.run(t, "kubelet", func(ctx context.Context) error {
		found, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it is not ready: %v", found.Status.Conditions)
	}, path, "--config", config, "--kubeconfig", kubeconfig, "--hostname-override", n.name, "--node-ip", n.ip,
		"--root-dir", n.root(), "--cert-dir", filepath.Join(n.dir, "pki"))
}

func (n *node) startProxy(t *testing.T, kubeconfig string) {
	t.Helper()
	path, err := n.h.Tools().Path("kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	config := n.write(t, "kube-proxy.yaml", map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "clientConnection": map[string]any{"kubeconfig": kubeconfig}, "hostnameOverride": n.name,
		"clusterCIDR": n.pods, "detectLocalMode": "ClusterCIDR", "nodePortAddresses": []any{wanNet},
		"healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	n.run(t, "kube-proxy", func(ctx context.Context) error {
		conn, err := n.spaces.netns().dial(ctx, "10.96.0.1:443") // Service kubernetes
		if err != nil {
			return err
		}
		return conn.Close()
	}, path, "--config", config)
}

// startPolicy starts what enforces NetworkPolicies. From then on they hold for each pod that comes.
func (n *node) startPolicy(t *testing.T, kubeconfig string) {
	t.Helper()
	n.run(t, "policy", func(ctx context.Context) error {
		list := n.spaces.inside("nft", "list", "table", "inet", policy.Table)
		_, err := command(ctx, "", list[0], list[1:]...)
		return err
	}, n.policy, "--kubeconfig", kubeconfig, "--node", n.name)
}
