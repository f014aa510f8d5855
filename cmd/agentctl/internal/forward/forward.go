// Package forward opens ports of a pod on loopback, through the API server and the kubelet, so that
// no NetworkPolicy and no Service is in the way.
package forward

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Ports are ports of a pod that are open.
type Ports struct {
	addresses map[int32]string
	stop      context.CancelFunc
	closed    chan struct{}
}

// Open opens ports of a pod until Close is called or ctx is done. It waits until they are open.
func Open(ctx context.Context, config *rest.Config, namespace, pod string, ports ...int32) (*Ports, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	wanted := make([]string, len(ports))
	for i, port := range ports {
		wanted[i] = fmt.Sprintf("0:%d", port)
	}
	ctx, stop := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, wanted, ctx.Done(), ready, io.Discard,
		io.Discard)
	if err != nil {
		stop()
		return nil, err
	}
	p := &Ports{addresses: map[int32]string{}, stop: stop, closed: make(chan struct{})}
	go func() {
		defer close(p.closed)
		ended <- forwarder.ForwardPorts() // nil when it is stopped, else the connection was lost, as a dial tells
	}()
	select {
	case err := <-ended:
		stop()
		return nil, fmt.Errorf("forward ports of pod %s/%s: %w", namespace, pod, err)
	case <-ctx.Done():
		p.Close()
		return nil, ctx.Err()
	case <-ready:
	}
	open, err := forwarder.GetPorts()
	if err != nil {
		p.Close()
		return nil, err
	}
	for _, port := range open {
		p.addresses[int32(port.Remote)] = fmt.Sprintf("127.0.0.1:%d", port.Local) //nolint:gosec // it came as one
	}
	return p, nil
}

// PortOf is the port of a pod that has a name, or ends in it after a hyphen; 0 for none.
func PortOf(pod *corev1.Pod, name string) int32 {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name || strings.HasSuffix(p.Name, "-"+name) {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// Address is where a port of the pod is open on loopback; empty for one that was not asked for.
func (p *Ports) Address(port int32) string { return p.addresses[port] }

// Close closes the ports and waits until they are.
func (p *Ports) Close() {
	p.stop()
	<-p.closed
}
