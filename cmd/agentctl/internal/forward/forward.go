// Package forward opens ports of a pod on loopback, through the API server and the kubelet, so that
// no NetworkPolicy and no Service is in the way.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Ports are ports of a pod that are open. The forwarder of client-go ends them all as soon as the pod resets
// one connection; here that one alone ends.
type Ports struct {
	addresses map[int32]string
	dialer    httpstream.Dialer
	stop      context.CancelFunc
	running   sync.WaitGroup // what listens, and each connection

	mu      sync.Mutex
	way     httpstream.Connection // to the pod
	calls   int                   // connections so far, which the other end tells apart by number
	stopped bool
}

// Open opens ports of a pod until Close is called or ctx is done. It waits until they are open. A way to the pod
// that is lost takes its connections with it; the next connection opens it again.
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
	dialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	p, err := open(ctx, dialer, ports)
	if err != nil {
		return nil, fmt.Errorf("forward ports of pod %s/%s: %w", namespace, pod, err)
	}
	return p, nil
}

// open opens ports by a dialer.
func open(ctx context.Context, dialer httpstream.Dialer, ports []int32) (*Ports, error) {
	p := &Ports{addresses: map[int32]string{}, dialer: dialer}
	var err error
	if p.way, err = p.dial(); err != nil {
		return nil, err
	}
	ctx, p.stop = context.WithCancel(ctx)
	for _, port := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			p.Close()
			return nil, errors.Join(err, p.shut())
		}
		p.addresses[port] = l.Addr().String()
		context.AfterFunc(ctx, func() { _ = l.Close() }) // only accepted from
		p.running.Go(func() { p.accept(l, port) })
	}
	p.running.Go(func() {
		<-ctx.Done()
		_ = p.shut() // what was on it has ended
	})
	return p, nil
}

// dial opens a way to the pod.
func (p *Ports) dial() (httpstream.Connection, error) {
	way, protocol, err := p.dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		return nil, errors.Join(fmt.Errorf("the API server speaks %q", protocol), way.Close())
	}
	return way, nil
}

// shut closes the way for good, and with it all connections.
func (p *Ports) shut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	return p.way.Close()
}

// accept forwards what connects to l, until that is closed.
func (p *Ports) accept(l net.Listener, port int32) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() {
			defer func() { _ = conn.Close() }() // either end sees what became of the other
			p.forward(conn, port)
		})
	}
}

// next returns the way to the pod, opened again if it was lost, and a number for a connection.
func (p *Ports) next() (httpstream.Connection, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, "", net.ErrClosed
	}
	select {
	case <-p.way.CloseChan():
		way, err := p.dial()
		if err != nil {
			return nil, "", err
		}
		p.way = way
	default:
	}
	p.calls++
	return p.way, strconv.Itoa(p.calls), nil
}

// forward passes on what conn says, and what the pod answers, until the pod ends or conn fails. A connection that
// comes to nothing is closed: who dialled sees it.
func (p *Ports) forward(conn net.Conn, port int32) {
	way, number, err := p.next()
	if err != nil {
		return
	}
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, number)
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := way.CreateStream(header)
	if err != nil {
		return
	}
	defer way.RemoveStreams(problems)
	_ = problems.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := way.CreateStream(header)
	if err != nil {
		return
	}
	defer way.RemoveStreams(data)

	ended := make(chan struct{}, 2)
	p.running.Go(func() {
		_, _ = io.Copy(conn, data) // either end sees what became of the other
		ended <- struct{}{}
	})
	p.running.Go(func() {
		if _, err := io.Copy(data, conn); err != nil {
			ended <- struct{}{}
		}
		_ = data.Close() // the pod may have more to say
	})
	<-ended
	_ = data.Reset()                     // else what is not read blocks the other streams
	_, _ = io.Copy(io.Discard, problems) // and so would this
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
	p.running.Wait()
}
