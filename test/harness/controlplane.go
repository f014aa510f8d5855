//go:build linux

package harness

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ControlPlaneConfig says what a control plane consists of.
type ControlPlaneConfig struct {
	// Name is unique in the harness and a valid file name. Required.
	Name string
	// Release is that of Kubernetes, one of KubernetesReleases. Empty means the newest.
	Release string
	// Etcd is shared with other control planes. Nil starts one for this one alone.
	Etcd *Etcd
	// Workloads adds what turns a Deployment into ready pods: controllers, scheduler,
	// kwok and one node. Without it the control plane stores objects, and only
	// namespaces and owned objects are cleaned up if Controllers says so.
	Workloads bool
	// Scheduler runs a scheduler, for nodes that are the caller's.
	Scheduler bool
	// Controllers are those of kube-controller-manager to run, by their names. Nil
	// means none, or with Workloads WorkloadControllers.
	Controllers []string
	// Manifests are files applied once the API server is ready, custom resource
	// definitions first. They may hold several YAML documents.
	Manifests []string
	// Kubelet is a file with kwok's kinds for what one does in a container (ClusterLogs,
	// ClusterExec, ClusterAttach, ClusterPortForward). With it the node of Workloads
	// serves logs, exec, attach and port-forward; commands run on this machine. kwok
	// asks no one who they are, so while it runs every user of this machine can run
	// commands as this one. Empty means that the node serves nothing.
	Kubelet string
	// KubeletOfPods has kwok read what Kubelet says of single pods from the API server, too: the kinds of PodKinds.
	KubeletOfPods bool
	// ServerArgs are added to those of kube-apiserver; the last of equal flags wins.
	ServerArgs []string
	// ServerMemory is the memory from which on kube-apiserver collects garbage ever
	// more often, in the form of GOMEMLIMIT. Empty means 800MiB. It gets by with 400MiB
	// as long as it has a hundred objects of any kind; with thousands it would do
	// little else then.
	ServerMemory string
}

// WorkloadControllers returns the controllers that a cluster with workloads needs.
func WorkloadControllers() []string {
	return []string{
		"deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller", "job-controller",
		"endpointslice-controller", "garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
	}
}

// KubernetesReleases are those that a control plane may have beside the newest, oldest first.
func KubernetesReleases() []string { return []string{"v1.35.4"} }

// ControlPlane is a Kubernetes API server with what belongs to it. Methods may be
// called concurrently.
type ControlPlane struct {
	Name string
	// URL of the API server. It stays the same across restarts, like all data.
	URL string
	// Kubeconfig is a file with the rights of system:masters.
	Kubeconfig string
	// Etcd is the one given, or its own.
	Etcd *Etcd
	// Server is the kube-apiserver. Stop it and start it again to see how clients
	// cope.
	Server *Process
	// ControllerManager, Scheduler and Kwok are nil where not asked for.
	ControllerManager, Scheduler, Kwok *Process

	h       *Harness
	release string
	defined []string // files of custom resource definitions that it had from the start
	rest    *rest.Config
	applier *applier
}

// etcdPrefix keeps control planes in one etcd apart.
func (c *ControlPlane) etcdPrefix() string { return "/" + c.Name }

// StartControlPlane starts a control plane and returns when its API server is ready,
// its manifests are applied and its node, if any, is Ready.
func (h *Harness) StartControlPlane(ctx context.Context, cfg ControlPlaneConfig) (*ControlPlane, error) {
	if cfg.Name == "" {
		return nil, errors.New("start control plane: a name is required")
	}
	c := &ControlPlane{Name: cfg.Name, Etcd: cfg.Etcd, h: h, release: cfg.Release}
	done, err := h.turn(ctx, cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("control plane %s: %w", cfg.Name, err)
	}
	defer done()
	if err := c.startAll(ctx, cfg); err != nil {
		return nil, fmt.Errorf("control plane %s: %w", cfg.Name, err)
	}
	return c, nil
}

func (c *ControlPlane) startAll(ctx context.Context, cfg ControlPlaneConfig) error {
	if c.Etcd == nil {
		var err error
		if c.Etcd, err = c.h.StartEtcd(ctx, c.Name+"-etcd"); err != nil {
			return err
		}
	}
	files, err := writeServingFiles(c.h.Path(c.Name, "pki"))
	if err != nil {
		return err
	}
	address, err := c.h.Address()
	if err != nil {
		return err
	}
	c.URL = "https://" + address
	token, err := c.writeKubeconfig(files)
	if err != nil {
		return err
	}
	definitions, others, err := definitionsAmong(cfg.Manifests)
	if err != nil {
		return err
	}
	seed, err := c.seedFile(definitions)
	if err != nil {
		return err
	}
	sown, keep, err := c.begin(ctx, seed)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := c.startServer(ctx, files, token, cfg); err != nil {
		return err
	}
	if c.applier, err = newApplier(c.rest); err != nil {
		return err
	}
	if c.defined = definitions; !sown {
		if err := c.ApplyFiles(ctx, definitions...); err != nil {
			return err
		}
		if err := keep(ctx); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return c.startRest(ctx, files, others, cfg)
}

// startRest applies manifests, and starts what runs beside the API server.
func (c *ControlPlane) startRest(ctx context.Context, files servingFiles, manifests []string, cfg ControlPlaneConfig) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.ApplyFiles(ctx, manifests...) })
	controllers := cfg.Controllers
	if controllers == nil && cfg.Workloads {
		controllers = WorkloadControllers()
	}
	if len(controllers) > 0 {
		g.Go(func() (err error) {
			c.ControllerManager, err = c.startControllerManager(ctx, files, controllers)
			return err
		})
	}
	if cfg.Workloads || cfg.Scheduler {
		g.Go(func() (err error) {
			c.Scheduler, err = c.startScheduler(ctx, files)
			return err
		})
	}
	if cfg.Workloads {
		g.Go(func() (err error) {
			c.Kwok, err = c.startKwok(ctx, files, cfg)
			return err
		})
	}
	return g.Wait()
}

// clientQPS and clientBurst limit a client of tests, which is the only one that asks much.
const clientQPS, clientBurst = 500, 1000

// writeKubeconfig also sets c.rest and returns the admin's token.
func (c *ControlPlane) writeKubeconfig(files servingFiles) (token string, err error) {
	ca, err := os.ReadFile(files.ca)
	if err != nil {
		return "", err
	}
	token = rand.Text()
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: ca}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: "admin"}
	config.CurrentContext = c.Name
	c.Kubeconfig = c.h.Path(c.Name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, c.Kubeconfig); err != nil {
		return "", err
	}
	c.rest, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return "", err
	}
	c.rest.QPS, c.rest.Burst = clientQPS, clientBurst
	return token, nil
}

// Restore takes the control plane back to a snapshot of its etcd, which must be its
// own, as an operator does: the API server stops, etcd is restored as Etcd.Restore
// says, and the API server starts again under the same address.
func (c *ControlPlane) Restore(ctx context.Context, snapshot string, bump uint64) error {
	if err := c.Server.Stop(ctx); err != nil {
		return err
	}
	if err := c.Etcd.Restore(ctx, snapshot, bump); err != nil {
		return err
	}
	return c.Server.Start(ctx)
}

// REST returns a client configuration with the rights of system:masters, which the
// caller may change.
func (c *ControlPlane) REST() *rest.Config { return rest.CopyConfig(c.rest) }

func (c *ControlPlane) startServer(ctx context.Context, files servingFiles, token string, cfg ControlPlaneConfig) error {
	path, err := c.program("kube-apiserver")
	if err != nil {
		return err
	}
	tokens := c.h.Path(c.Name, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	ready, err := c.readyz(files)
	if err != nil {
		return err
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(c.URL, "https://"), ":")
	args := []string{
		"--etcd-servers=" + c.Etcd.URL,
		"--etcd-prefix=" + c.etcdPrefix(),
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--tls-cert-file=" + files.cert,
		"--tls-private-key-file=" + files.key,
		"--service-account-key-file=" + files.serviceAccount,
		"--service-account-signing-key-file=" + files.serviceAccount,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--token-auth-file=" + tokens,
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		// Nothing connects by the address in Service kubernetes; without these two the
		// server looks for a routable address of the machine and publishes it.
		"--advertise-address=192.0.2.1", // TEST-NET-1, RFC 5737
		"--endpoint-reconciler-type=none",
		// It taints new nodes until a node lifecycle controller finds them ready. kwok's
		// always are.
		"--disable-admission-plugins=TaintNodesByCondition",
		// Without it SIGTERM waits a minute for open watches.
		"--shutdown-watch-termination-grace-period=2s",
		// Lean: no queues per priority, no profiles.
		"--enable-priority-and-fairness=false",
		"--profiling=false",
		"--event-ttl=30m",
		// No name of a node can be resolved.
		"--kubelet-preferred-address-types=InternalIP",
	}
	c.Server, err = c.h.Start(ctx, Command{
		Name: c.Name + "-kube-apiserver",
		Path: path,
		Args: append(args, cfg.ServerArgs...),
		// It needs 200 MiB. A limit near that would keep a core busy collecting garbage.
		// Below the limit garbage may grow: collecting it early took a third of its time.
		Env:   c.h.serverEnv("GOGC=300", "GOMEMLIMIT="+cmp.Or(cfg.ServerMemory, "800MiB")),
		Ready: ready,
	})
	return err
}

// program returns the place of a program of the release.
func (c *ControlPlane) program(name string) (string, error) {
	if c.release != "" {
		name += "-" + c.release
	}
	return c.h.tools.Path(name)
}

// readyz asks the API server, as no one: the path is open to all.
func (c *ControlPlane) readyz(files servingFiles) (func(context.Context) error, error) {
	config, err := clientTLS(files)
	if err != nil {
		return nil, err
	}
	return httpsReady(config, c.URL+"/readyz"), nil
}

func clientTLS(files servingFiles) (*tls.Config, error) {
	ca, err := os.ReadFile(files.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", files.ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (c *ControlPlane) startControllerManager(ctx context.Context, files servingFiles, controllers []string) (*Process, error) {
	return c.startComponent(ctx, "kube-controller-manager", files,
		"--controllers="+strings.Join(controllers, ","),
		"--service-account-private-key-file="+files.serviceAccount,
		"--root-ca-file="+files.ca,
		"--concurrent-gc-syncs=2",
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (c *ControlPlane) startScheduler(ctx context.Context, files servingFiles) (*Process, error) {
	return c.startComponent(ctx, "kube-scheduler", files,
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (c *ControlPlane) startComponent(ctx context.Context, program string, files servingFiles, args ...string) (*Process, error) {
	path, err := c.program(program)
	if err != nil {
		return nil, err
	}
	port, err := c.h.Port()
	if err != nil {
		return nil, err
	}
	config, err := clientTLS(files)
	if err != nil {
		return nil, err
	}
	return c.h.Start(ctx, Command{
		Name: c.Name + "-" + program,
		Path: path,
		Env:  c.h.serverEnv(),
		Args: append([]string{
			"--kubeconfig=" + c.Kubeconfig,
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + files.cert,
			"--tls-private-key-file=" + files.key,
			"--leader-elect=false",
			"--profiling=false",
		}, args...),
		Ready: httpsReady(config, fmt.Sprintf("https://127.0.0.1:%d/healthz", port)),
	})
}

// startKwok gives the control plane a node, whose kubelet kwok plays.
func (c *ControlPlane) startKwok(ctx context.Context, files servingFiles, cfg ControlPlaneConfig) (*Process, error) {
	path, err := c.h.tools.Path("kwok")
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return nil, err
	}
	const node = "node-1"
	if err := c.Apply(ctx, nodeObject(node)); err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig=" + c.Kubeconfig,
		"--manage-all-nodes=true",
		"--node-ip=127.0.0.1",
		"--node-lease-duration-seconds=0", // no controller here evicts from silent nodes
	}
	if cfg.KubeletOfPods {
		var kinds []string
		for kind, resource := range PodKinds() {
			if err := c.Apply(ctx, podKind(kind, resource)); err != nil {
				return nil, err
			}
			kinds = append(kinds, kind)
		}
		args = append(args, "--enable-crds="+strings.Join(kinds, ","))
	}
	if cfg.Kubelet != "" {
		port, err := c.h.Port()
		if err != nil {
			return nil, err
		}
		args = append(args,
			"--config="+cfg.Kubelet,
			fmt.Sprintf("--server-address=127.0.0.1:%d", port),
			fmt.Sprintf("--node-port=%d", port),
			"--tls-cert-file="+files.cert,
			"--tls-private-key-file="+files.key,
		)
	}
	stages, err := c.h.tools.Files("kwok", "stages")
	if err != nil {
		return nil, err
	}
	for _, stage := range stages {
		args = append(args, "--config="+stage)
	}
	return c.h.Start(ctx, Command{
		Name: c.Name + "-kwok",
		Path: path,
		Args: args,
		Env:  c.h.serverEnv(),
		Ready: func(ctx context.Context) error {
			n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("node %s is not ready", node)
		},
	})
}

// PodKinds are kinds of kwok that say what its kubelet does for one pod, which has the same name.
func PodKinds() map[string]schema.GroupVersionResource {
	kinds := schema.GroupVersion{Group: "kwok.x-k8s.io", Version: "v1alpha1"}
	return map[string]schema.GroupVersionResource{"PortForward": kinds.WithResource("portforwards"), "Logs": kinds.WithResource("logs")}
}

// podKind is the definition of one of PodKinds.
func podKind(kind string, resource schema.GroupVersionResource) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": resource.Resource + "." + resource.Group},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": resource.Resource, "singular": strings.ToLower(kind)},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

func nodeObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": map[string]any{
			"name": name,
			"labels": map[string]any{
				"kubernetes.io/hostname": name,
				"kubernetes.io/os":       "linux",
				"type":                   "kwok",
			},
		},
	}}
}

// Version asks the API server for its release, such as v1.36.1.
func (c *ControlPlane) Version() (string, error) {
	client, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return "", err
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}
