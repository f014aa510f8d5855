//go:build linux

package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// Network is what pods of several clusters reach: the load balancers of all of them.
type Network struct {
	mu    sync.Mutex // guards nodes
	nodes []*Node
}

func (w *Network) add(n *Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = append(w.nodes, n)
}

func (w *Network) all() []*Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nodes)
}

// services are the Services of each cluster.
func (w *Network) services(ctx context.Context) (map[*Node][]corev1.Service, error) {
	out := map[*Node][]corev1.Service{}
	for _, n := range w.all() {
		list, err := n.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list Services of %s: %w", n.cfg.Name, err)
		}
		out[n] = list.Items
	}
	return out, nil
}

// route leads to a port of a Service.
type route struct {
	node    *Node
	service *corev1.Service
	port    corev1.ServicePort
}

// loadBalancers is the network of load balancers that have a name alone (TEST-NET-3, RFC 5737).
var loadBalancers = netip.MustParseAddr("203.0.113.0")

// network is what a pod finds in its network: the hosts file, and where what listens leads.
func (p *pod) network(services map[*Node][]corev1.Service) (names string, routes map[string]route) {
	routes = map[string]route{}
	var file hosts
	file.add("127.0.0.1", "localhost")
	file.add(p.is.Status.PodIP, p.is.Name)
	for _, alias := range p.is.Spec.HostAliases {
		file.add(alias.IP, alias.Hostnames...)
	}
	lead := func(node *Node, s *corev1.Service, address string) {
		for _, port := range s.Spec.Ports {
			if port.Protocol == corev1.ProtocolTCP {
				routes[net.JoinHostPort(address, strconv.Itoa(int(port.Port)))] = route{node, s, port}
			}
		}
	}
	balancer := loadBalancers
	for _, node := range p.node.cfg.Network.all() {
		for i := range services[node] {
			s := &services[node][i]
			if ip := s.Spec.ClusterIP; node == p.node && ip != "" && ip != corev1.ClusterIPNone {
				in := []string{s.Name + "." + s.Namespace, s.Name + "." + s.Namespace + ".svc", s.Name + "." + s.Namespace + ".svc.cluster.local"}
				if s.Namespace == p.is.Namespace {
					in = append(in, s.Name)
				}
				file.add(ip, in...)
				lead(node, s, ip)
			}
			for _, ingress := range s.Status.LoadBalancer.Ingress {
				address := ingress.IP
				if address == "" {
					balancer = balancer.Next()
					address = balancer.String()
					file.add(address, ingress.Hostname)
				}
				lead(node, s, address)
			}
		}
	}
	return file.String(), routes
}

// route connects to what has an address in the pod's network.
func (p *pod) route(ctx context.Context, address string) (net.Conn, error) {
	if address == containersPlease {
		return p.tellContainers(ctx), nil
	}
	r, known := p.routes[address]
	if !known {
		return nil, fmt.Errorf("nothing has the address %s", address)
	}
	if r.service.Namespace == "default" && r.service.Name == "kubernetes" {
		to, err := url.Parse(r.node.cfg.ControlPlane.URL)
		if err != nil {
			return nil, err
		}
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", to.Host)
	}
	selector := labels.SelectorFromSet(r.service.Spec.Selector)
	for _, other := range r.node.inOrder() {
		port := other.port(r.port.TargetPort.String())
		if len(r.service.Spec.Selector) > 0 && selector.Matches(labels.Set(other.is.Labels)) && port != 0 {
			return other.dial(ctx, port)
		}
	}
	return nil, fmt.Errorf("no pod is behind Service %s", r.service.Name)
}

// serve has connections to a unix socket led on, each to the address that its first line names, until the pod stops.
func (p *pod) serve(ctx context.Context, socket string, to func(context.Context, string) (net.Conn, error)) error {
	l, err := listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	p.stops = append(p.stops, kit.Start(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return accept(ctx, l, func(ctx context.Context, from net.Conn) { lead(ctx, from, to) })
	}))
	return nil
}

// forward has the kubelet's port-forwards of the pod led to its ports.
func (p *pod) forward(ctx context.Context) error {
	var forwards []any
	for _, c := range p.is.Spec.Containers {
		for _, port := range c.Ports {
			l, err := listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			p.stops = append(p.stops, kit.Start(context.WithoutCancel(ctx), func(ctx context.Context) error {
				return accept(ctx, l, func(ctx context.Context, from net.Conn) {
					if to, err := p.dial(ctx, int(port.ContainerPort)); err == nil {
						join(ctx, from, from, to)
					}
					_ = from.Close() // who asks is told that nothing answers
				})
			}))
			at, err := netip.ParseAddrPort(l.Addr().String())
			if err != nil {
				return err
			}
			forwards = append(forwards, map[string]any{
				"ports": []any{int64(port.ContainerPort)}, "target": map[string]any{"address": at.Addr().String(), "port": int64(at.Port())},
			})
		}
	}
	return p.says(ctx, "PortForward", map[string]any{"forwards": forwards})
}

// says tells kwok's kubelet of the pod, for as long as that is there.
func (p *pod) says(ctx context.Context, kind string, spec map[string]any) error {
	resource := harness.PodKinds()[kind]
	_, err := p.node.cfg.ControlPlane.Resource(resource, p.is.Namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": p.is.Name, "ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "Pod", "name": p.is.Name, "uid": string(p.is.UID),
		}}},
		"spec": spec,
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // by a start that failed
	}
	return err
}

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, network, address)
}

// accept has each connection handled until ctx is done, and returns when all of that has ended.
func accept(ctx context.Context, l net.Listener, handle func(context.Context, net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says so
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() { handle(ctx, conn) })
	}
}

// lead reads whereto a connection is to lead, and joins it with one to there. Without one it is closed.
func lead(ctx context.Context, from net.Conn, to func(context.Context, string) (net.Conn, error)) {
	stop := context.AfterFunc(ctx, func() { _ = from.Close() }) // what reads from it says so
	in := bufio.NewReader(from)
	address, err := in.ReadString('\n')
	stop()
	if err == nil {
		var target net.Conn
		if target, err = to(ctx, strings.TrimSpace(address)); err == nil {
			join(ctx, from, in, target)
			return
		}
	}
	_ = from.Close() // the other end sees that
}

// halfCloser are connections of TCP and of unix sockets.
type halfCloser interface{ CloseWrite() error }

// join passes on what comes from either side, until both have ended or ctx is done. read is what is read of a.
func join(ctx context.Context, a net.Conn, read io.Reader, b net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(a.Close(), b.Close()) }) // what is copied ends
	defer stop()
	var both sync.WaitGroup
	pass := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, can := to.(halfCloser); err == nil && can && half.CloseWrite() == nil {
			return
		}
		_ = errors.Join(a.Close(), b.Close()) // one side is lost, and so is the other
	}
	both.Go(func() { pass(b, read) })
	both.Go(func() { pass(a, b) })
	both.Wait()
	_ = errors.Join(a.Close(), b.Close()) // both have ended
}
