// Package forward opens ports of a pod on loopback, through the API server and the kubelet, so that
// no NetworkPolicy and no Service is in the way.
package forward

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

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

// Open opens ports of a pod until Close is called or ctx is done. It waits until they are open, and
// opens them again where they were when the way to the pod is lost.
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
	start := func(wanted []string, ready chan struct{}) (*portforward.PortForwarder, error) {
		return portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, wanted, ctx.Done(), ready, io.Discard, io.Discard)
	}
	addresses, ended, err := open(ctx, start, wanted)
	if err != nil {
		stop()
		return nil, fmt.Errorf("forward ports of pod %s/%s: %w", namespace, pod, err)
	}
	p := &Ports{addresses: addresses, stop: stop, closed: make(chan struct{})}
	go p.keep(ctx, start, ended)
	return p, nil
}

// starter makes what forwards the wanted ports, each local:remote, and closes ready once they are open.
type starter func(wanted []string, ready chan struct{}) (*portforward.PortForwarder, error)

// open opens the ports, waits until they are open, and returns where each is. Ended is closed when they
// are open no more.
func open(ctx context.Context, start starter, wanted []string) (at map[int32]string, ended <-chan struct{}, err error) {
	ready, over := make(chan struct{}), make(chan struct{})
	forwarder, err := start(wanted, ready)
	if err != nil {
		return nil, nil, err
	}
	var end error
	go func() {
		defer close(over)
		end = forwarder.ForwardPorts() // nil when it is stopped
	}()
	select {
	case <-over:
		return nil, nil, cmp.Or(end, ctx.Err(), portforward.ErrLostConnectionToPod)
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, nil, err
	}
	at = map[int32]string{}
	for _, port := range ports {
		at[int32(port.Remote)] = fmt.Sprintf("127.0.0.1:%d", port.Local) //nolint:gosec // it came as one
	}
	return at, over, nil
}

// reopenAfter is how long ports stay closed that were lost, before they are opened again.
const reopenAfter = 200 * time.Millisecond

// keep opens the ports again, each where it was, whenever they are lost: a single connection that the
// pod resets ends the forwarding of all.
func (p *Ports) keep(ctx context.Context, start starter, ended <-chan struct{}) {
	defer close(p.closed)
	wanted := make([]string, 0, len(p.addresses))
	for remote, local := range p.addresses {
		wanted = append(wanted, fmt.Sprintf("%s:%d", strings.TrimPrefix(local, "127.0.0.1:"), remote))
	}
	for {
		if ended != nil { // nil: they could not be opened, and are tried again
			<-ended
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenAfter):
		}
		_, ended, _ = open(ctx, start, wanted)
	}
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
