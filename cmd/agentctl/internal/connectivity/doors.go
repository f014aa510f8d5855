package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/forward"
)

// doors are the proxies of the hub, as the person who tests reaches them.
type doors struct {
	ask       *options
	namespace string // of the hub's Argo CD
	config    *rest.Config
	client    kubernetes.Interface
	ports     *forward.Ports // of the principal's pod; nil while none is needed
	found     principalPod
}

// principalPod is the pod to which ports are forwarded. A port is 0 where the pod has none.
type principalPod struct {
	name         string
	proxy, redis int32
}

// resourceProxy is where the resource proxy is.
func (d *doors) resourceProxy(ctx context.Context) (*url.URL, error) {
	if d.ask.proxy != nil {
		return d.ask.proxy, nil
	}
	if err := d.forward(ctx); err != nil {
		return nil, fmt.Errorf("reach the resource proxy: %w; name where you reach it by --resource-proxy", err)
	}
	if d.found.proxy == 0 {
		return nil, fmt.Errorf("pod %s has no port proxy: the principal serves no live access; see docs/access.md", d.found.name)
	}
	return &url.URL{Scheme: "https", Host: d.ports.Address(d.found.proxy)}, nil
}

// forward opens the ports of the principal's pod, once.
func (d *doors) forward(ctx context.Context) error {
	if d.ports != nil {
		return nil
	}
	pods, err := d.client.CoreV1().Pods(d.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + charts.Principal})
	if err != nil {
		return unlessForbidden(err, "list the pods of the hub's Argo CD namespace")
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			d.found = principalPod{pod.Name, forward.PortOf(pod, "proxy"), forward.PortOf(pod, "redis")}
		}
	}
	if d.found.name == "" {
		return fmt.Errorf("no pod of the principal runs in namespace %s", d.namespace)
	}
	var ports []int32
	for _, port := range []int32{d.found.proxy, d.found.redis} {
		if port != 0 {
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		return errors.New("pod " + d.found.name + " has neither a port proxy nor a port redis")
	}
	// For longer than this step, whose ctx ends: until clean-up closes them.
	d.ports, err = forward.Open(context.WithoutCancel(ctx), d.config, d.namespace, d.found.name, ports...)
	return err
}

// redisAddress is where the Redis proxy is.
func (d *doors) redisAddress(ctx context.Context) (string, error) {
	if d.ask.redis != "" {
		if _, _, err := net.SplitHostPort(d.ask.redis); err != nil {
			return "", fmt.Errorf("--redis %q is not host:port", d.ask.redis)
		}
		return d.ask.redis, nil
	}
	if d.ask.proxy != nil { // no port is forwarded, so this is inside, or someone knows
		return "", skipError{"--redis says where the Redis proxy is, beside --resource-proxy"}
	}
	if err := d.forward(ctx); err != nil {
		return "", err
	}
	if d.found.redis == 0 {
		return "", skipError{"the principal has no Redis proxy: see docs/redis.md"}
	}
	return d.ports.Address(d.found.redis), nil
}

// close closes what was opened.
func (d *doors) close() {
	if d.ports != nil {
		d.ports.Close()
	}
}
