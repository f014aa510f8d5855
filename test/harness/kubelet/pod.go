//go:build linux

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/harness"
)

// pod is one that runs.
type pod struct {
	node    *Node
	is      *corev1.Pod
	number  int // of the node's pods
	dir     string
	process *harness.Process
	api     *devworkload.Server // the Workload API; nil without a volume of it
	told    string              // what api was told last
	routes  map[string]route    // by address in the pod's network
	volumes map[string]string   // their folders, by name
	env     []string            // of each container
	stops   []func() error      // what serves it, in the order of its start
	begun   atomic.Bool         // its containers run, or are about to
	probed  time.Time           // when it was asked whether it is ready
	ready   bool                // and what is said of it since
}

// Sockets by which a pod's network is left and entered.
const (
	socketOut = "out.sock"
	socketIn  = "in.sock"
)

// start starts what is in a pod, which does not run yet.
func (n *Node) start(ctx context.Context, is *corev1.Pod) (*pod, error) {
	p := &pod{node: n, is: is, number: n.started + 1}
	p.dir = n.cfg.Harness.Path(n.cfg.Name+"-pods", strconv.Itoa(p.number))
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.launch(ctx); err != nil {
		return nil, errors.Join(err, p.stop(context.WithoutCancel(ctx)), os.RemoveAll(p.dir))
	}
	n.started++
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running[is.UID] = p
	return p, nil
}

func (p *pod) launch(ctx context.Context) error {
	services, err := p.node.cfg.Network.services(ctx)
	if err != nil {
		return err
	}
	if p.env, err = apiServerEnv(services[p.node]); err != nil {
		return err
	}
	s := spec{Hostname: p.is.Name, Address: p.is.Status.PodIP, Out: filepath.Join(p.dir, socketOut), In: filepath.Join(p.dir, socketIn)}
	s.Hosts, p.routes = p.network(services)
	for address := range p.routes {
		s.Listen = append(s.Listen, address)
	}
	p.volumes = map[string]string{}
	for _, v := range p.is.Spec.Volumes {
		p.volumes[v.Name] = filepath.Join(p.dir, "v", v.Name)
		if err := os.MkdirAll(p.volumes[v.Name], 0o700); err != nil {
			return err
		}
		if err := p.fill(ctx, v, p.volumes[v.Name]); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	if s.Init, err = p.containers(ctx, p.is.Spec.InitContainers); err != nil {
		return err
	}
	if p.once() {
		if len(p.is.Spec.Containers) != 1 {
			return errors.New("a Job of several containers is not known here")
		}
		s.Output, s.Exit = filepath.Join(p.dir, outputFile), filepath.Join(p.dir, exitFile)
	}
	if err := p.serve(ctx, s.Out, p.route); err != nil {
		return err
	}
	if err := p.run(ctx, s); err != nil {
		return err
	}
	return p.served(ctx)
}

// served has kwok's kubelet serve the log and the ports of the pod, these last: what a start that failed has said of the
// log still holds.
func (p *pod) served(ctx context.Context) error {
	file := filepath.Join(p.dir, logFile)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := p.says(ctx, "Logs", map[string]any{"logs": []any{map[string]any{"logsFile": file}}}); err != nil {
		return err
	}
	return p.forward(ctx)
}

// run starts the process that is the pod.
func (p *pod) run(ctx context.Context, s spec) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, "pod.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.process, err = p.node.cfg.Harness.Start(ctx, harness.Command{
		Name: "pod-" + p.node.cfg.Name + "-" + p.is.Name, Path: self, Args: []string{argument, file}, Isolated: true,
	})
	return err
}

// containers are what some of the pod's run.
func (p *pod) containers(ctx context.Context, of []corev1.Container) (out []container, err error) {
	for i := range of {
		c, err := p.container(ctx, &of[i])
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// tellContainers is a connection by which the pod is told its containers.
func (p *pod) tellContainers(ctx context.Context) net.Conn {
	out, in := net.Pipe()
	go func() {
		var told containers
		var err error
		if told.Are, err = p.containers(ctx, p.is.Spec.Containers); err != nil {
			told.Why = err.Error()
		}
		p.begun.Store(err == nil)
		_ = errors.Join(json.NewEncoder(in).Encode(told), in.Close()) // the pod asks again
	}()
	return out
}

// program is what a container runs: a file of this machine, what it is called if that is not the program of its image,
// and its arguments.
func (p *pod) program(of *corev1.Container) (file, as string, args []string, err error) {
	name := nameOfImage(of.Image)
	args = slices.Concat(of.Command, of.Args)
	if len(args) > 1 && path.Base(args[0]) == "tini" && args[1] == "--" {
		args = args[2:] // it passes signals on
	}
	if len(args) > 0 && (len(of.Command) > 0 || path.IsAbs(args[0])) {
		if first := path.Base(args[0]); first != name {
			name, as = first, first
		}
		args = args[1:]
	}
	if file = p.node.cfg.Programs[name]; file == "" {
		return "", "", nil, fmt.Errorf("container %s: image %s has no program %s", of.Name, of.Image, name)
	}
	return file, as, args, nil
}

// container is what a container of the pod runs.
func (p *pod) container(ctx context.Context, of *corev1.Container) (out container, err error) {
	out = container{Name: of.Name, Root: filepath.Join(p.dir, "r", of.Name), Dir: of.WorkingDir}
	if len(of.EnvFrom) > 0 {
		return out, fmt.Errorf("container %s: envFrom is not known here", of.Name)
	}
	var args []string
	if out.Program, out.As, args, err = p.program(of); err != nil {
		return out, err
	}
	own, err := p.environment(ctx, of.Env)
	if err != nil {
		return out, fmt.Errorf("container %s: %w", of.Name, err)
	}
	for _, arg := range args {
		out.Args = append(out.Args, expand(arg, own.values))
	}
	out.Env = append(append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "HOSTNAME=" + p.is.Name}, p.env...), own.list()...)
	for _, m := range of.VolumeMounts {
		out.Mounts = append(out.Mounts, mount{From: filepath.Join(p.volumes[m.Name], m.SubPath), To: m.MountPath})
	}
	return out, nil
}

// apiServerEnv is what each container is told of the API server.
func apiServerEnv(services []corev1.Service) ([]string, error) {
	for i := range services {
		if s := &services[i]; s.Namespace == "default" && s.Name == "kubernetes" && len(s.Spec.Ports) > 0 {
			return []string{"KUBERNETES_SERVICE_HOST=" + s.Spec.ClusterIP, fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", s.Spec.Ports[0].Port)}, nil
		}
	}
	return nil, errors.New("there is no Service kubernetes yet")
}

// ended tells how a pod ended by itself, whose containers are started again when they end.
func (p *pod) ended() error {
	select {
	case <-p.process.Exited():
		const lines = 30
		return fmt.Errorf("pod %s of %s has ended; end of its log:\n%s", p.is.Name, p.node.cfg.Name, p.process.LogTail(lines))
	default:
		return nil
	}
}

func (p *pod) stop(ctx context.Context) error {
	var errs []error
	if p.process != nil {
		errs = append(errs, p.process.Stop(ctx))
	}
	for _, stop := range p.stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// port is that of the pod by number or name; 0 for none.
func (p *pod) port(name string) int {
	if number, err := strconv.Atoi(name); err == nil {
		return number
	}
	for _, c := range p.is.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name {
				return int(port.ContainerPort)
			}
		}
	}
	return 0
}

// dial connects to a port of the pod's own address.
func (p *pod) dial(ctx context.Context, port int) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(p.dir, socketIn))
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s\n", net.JoinHostPort(p.is.Status.PodIP, strconv.Itoa(port))); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// hosts are lines of /etc/hosts.
type hosts struct{ strings.Builder }

func (h *hosts) add(address string, names ...string) {
	h.WriteString(address + " " + strings.Join(names, " ") + "\n")
}
