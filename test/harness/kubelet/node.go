//go:build linux

// Package kubelet runs what is in the pods of a control plane as processes of this machine, as a kubelet
// would: kwok gives them addresses, and this package has the programs run, and says of the pods what these say
// of themselves. What they run with is read from the API server alone: arguments, environment and volumes of the
// pod, the token of its service account, and the SPIFFE IDs that its cluster registers for it.
//
//	node, err := kubelet.New(kubelet.Config{Name: "hub", Harness: h, ControlPlane: hub, Programs: programs, Network: network, ...})
//	...
//	err = node.Run(ctx) // until ctx is done
//
// A pod gets namespaces of its own (user_namespaces(7)), which need no rights: mounts, so that a file is where
// the pod has it, and a network, so that it listens on the ports that it names and no one else can reach
// them. Rewriting paths and ports would show another installation than the one that is there; what a program
// has of itself, such as where the token of its service account is, could not be rewritten at all. Where the kernel has no
// such namespaces for a user, Supported says so.
//
// A pod has its own address. By its only link it reaches Services, and load balancers of each cluster of the Network,
// all by name in /etc/hosts, with the addresses that they have when the pod starts. There is no DNS, no NetworkPolicy,
// and no way to the machine.
// kwok's kubelet forwards the pod's ports, and has the log of a pod of a Job. A volume is written once, when the pod
// starts. Probes of liveness, limits of memory and users are left out.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/test/harness"
)

// Config says what a Node runs. All fields but TrustDomain and CADir are required.
type Config struct {
	// Name is unique in the harness, short, and a valid file name.
	Name    string
	Harness *harness.Harness
	// ControlPlane has workloads, a kubelet of single pods (KubeletOfPods), and as that the Stages of Names.
	ControlPlane *harness.ControlPlane
	// Namespace is that of the pods.
	Namespace string
	// Names are those of the workloads whose pods run, as their label app.kubernetes.io/name says.
	Names []string
	// Programs are files of this machine that run for an image, by the last element of its repository; and for another
	// program of an image that a container runs, by its name.
	Programs map[string]string
	Network  *Network
	// TrustDomain is that of the cluster's SPIRE, whose authority is in CADir. Zero means that it has none.
	TrustDomain spiffeid.TrustDomain
	CADir       string
	// Logf is told what keeps a pod from running.
	Logf func(format string, args ...any)
}

// Node runs the pods of one control plane.
type Node struct {
	cfg    Config
	client kubernetes.Interface
	// Of reconcile, which runs one at a time: how many pods were started, ever, and why one does not run.
	started int
	said    map[types.UID]string

	mu      sync.Mutex // guards what follows
	running map[types.UID]*pod
}

// New adds a Node to its Network, and starts nothing.
func New(cfg Config) (*Node, error) {
	if cfg.Harness == nil || cfg.ControlPlane == nil || cfg.Network == nil || cfg.Logf == nil {
		return nil, errors.New("kubelet: harness, control plane, network and Logf are required")
	}
	client, err := kubernetes.NewForConfig(cfg.ControlPlane.REST())
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, client: client, running: map[types.UID]*pod{}, said: map[types.UID]string{}}
	cfg.Network.add(n)
	return n, nil
}

// lookEvery is how often the pods are looked at.
const lookEvery = 250 * time.Millisecond

// Run runs pods until ctx is done, and stops them. It fails when one of them cannot be stopped in order.
func (n *Node) Run(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if err := n.reconcile(ctx); err != nil {
			return errors.Join(err, n.stopAll(ctx))
		}
		select {
		case <-ctx.Done():
			return n.stopAll(ctx)
		case <-look.C:
		}
	}
}

// reconcile starts and stops what has to be. An API server that does not answer is asked again later.
func (n *Node) reconcile(ctx context.Context) error {
	list, err := n.client.CoreV1().Pods(n.cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return n.again(ctx, "list pods", err)
	}
	wanted := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case n.runs(p):
			wanted[p.UID] = p
		case n.isNamed(p) && p.DeletionTimestamp != nil && n.get(p.UID) == nil:
			if err := n.forget(ctx, p); err != nil {
				return n.again(ctx, "remove pod "+p.Name, err)
			}
		}
	}
	var gone []*pod
	for uid, p := range n.all() {
		if wanted[uid] == nil {
			gone = append(gone, p)
		}
	}
	if err := n.stop(ctx, gone); err != nil {
		return err
	}
	if len(wanted) == 0 {
		return nil
	}
	ids, err := n.registered(ctx)
	if err != nil {
		return n.again(ctx, "read what is registered with SPIRE", err)
	}
	for _, uid := range slices.Sorted(maps.Keys(wanted)) {
		p := n.get(uid)
		if p == nil {
			if p, err = n.start(ctx, wanted[uid]); err != nil {
				n.says(uid, fmt.Sprintf("pod %s of %s does not run: %v", wanted[uid].Name, n.cfg.Name, err))
				continue
			}
		}
		if p.once() {
			if err := n.finish(ctx, p); err != nil {
				n.says(uid, fmt.Sprintf("pod %s of %s does not end: %v", p.is.Name, n.cfg.Name, err))
			}
			continue
		}
		if err := p.ended(); err != nil {
			return err
		}
		if err := p.identify(ids); err != nil {
			return err
		}
		if err := n.probe(ctx, p); err != nil && ctx.Err() == nil {
			n.says(uid, fmt.Sprintf("pod %s of %s is not asked whether it is ready: %v", p.is.Name, n.cfg.Name, err))
		}
	}
	return nil
}

// again is for what is tried again: it says what went wrong, unless that is the end.
func (n *Node) again(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil {
		n.cfg.Logf("node of %s: %s, trying again: %v", n.cfg.Name, doing, err)
	}
	return nil
}

// says says why a pod does not run, once.
func (n *Node) says(uid types.UID, why string) {
	if n.said[uid] != why {
		n.said[uid] = why
		n.cfg.Logf("%s", why)
	}
}

// runs reports whether a pod is to run here, and has an address.
func (n *Node) runs(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" {
		return false
	}
	return n.isNamed(p)
}

func (n *Node) isNamed(p *corev1.Pod) bool {
	return slices.Contains(n.cfg.Names, p.Labels["app.kubernetes.io/name"])
}

// forget removes a pod whose programs have ended, from the API server.
func (n *Node) forget(ctx context.Context, p *corev1.Pod) error {
	now := int64(0)
	err := n.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// nameOfImage is the last element of an image's repository.
func nameOfImage(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return name
}

func (n *Node) all() map[types.UID]*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.running)
}

func (n *Node) get(uid types.UID) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running[uid]
}

// inOrder are the pods that run, oldest first.
func (n *Node) inOrder() []*pod {
	return slices.SortedFunc(maps.Values(n.all()), func(a, b *pod) int { return a.number - b.number })
}

// Processes are those of the pods that run, oldest first.
func (n *Node) Processes() []*harness.Process {
	var out []*harness.Process
	for _, p := range n.inOrder() {
		out = append(out, p.process)
	}
	return out
}

// Dial connects to a port of a pod that runs, of the workload of a name as in Config.
func (n *Node) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	for _, p := range n.inOrder() {
		if p.is.Labels["app.kubernetes.io/name"] == name {
			return p.dial(ctx, port)
		}
	}
	return nil, fmt.Errorf("no pod of %s runs", name)
}

// stop stops pods, all at a time and in order, also when ctx is done.
func (n *Node) stop(ctx context.Context, gone []*pod) error {
	ctx = context.WithoutCancel(ctx)
	var g errgroup.Group
	for _, p := range gone {
		n.mu.Lock()
		delete(n.running, p.is.UID)
		n.mu.Unlock()
		g.Go(func() error { return p.stop(ctx) })
	}
	return g.Wait()
}

func (n *Node) stopAll(ctx context.Context) error {
	return n.stop(ctx, slices.Collect(maps.Values(n.all())))
}
