//go:build linux && cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// command runs a program of this machine and returns what it prints.
func command(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// run is command with a whole line, which may not fail.
func run(t *testing.T, input string, line ...string) string {
	t.Helper()
	out, err := command(t.Context(), input, line[0], line[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// namespaces are those of a node: network, mounts and processes. They are named by the
// process that holds them, whose end is that of all in them.
type namespaces int

func (n namespaces) pid() string { return strconv.Itoa(int(n)) }

// inside is a command line that runs in n.
func (n namespaces) inside(line ...string) []string {
	return append([]string{"nsenter", "--target", n.pid(), "--net", "--mount", "--pid", "--"}, line...)
}

// network is a command line that runs in n's network and is of this machine otherwise, so
// that a signal to it is one to the program.
func (n namespaces) network(line ...string) []string {
	return append([]string{"nsenter", "--target", n.pid(), "--net", "--"}, line...)
}

// netns is the one for networks.
func (n namespaces) netns() netns { return netns("/proc/" + n.pid() + "/ns/net") }

// netns is a namespace for networks, by the path of a file of it: that of a node, or of a pod.
type netns string

// within calls do on a thread that is in n. What it opens stays there.
func (n netns) within(do func() error) error {
	failed := make(chan error, 1)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and nothing else ever
		// runs in n.
		runtime.LockOSThread()
		fd, err := unix.Open(string(n), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd) // only read from
		}
		if err != nil {
			failed <- fmt.Errorf("enter network %s: %w", n, err)
			return
		}
		failed <- do()
	}()
	return <-failed
}

// dial connects from n to an IP address and port.
func (n netns) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = n.within(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// forward listens in n, and connects anyone who comes with an address of this machine until
// the test ends.
func (n namespaces) forward(t *testing.T, listen, to string) {
	t.Helper()
	var l net.Listener
	if err := n.netns().within(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return // closed
			}
			go connect(down, to)
		}
	}()
}

// connect passes bytes until either end is done.
func connect(down net.Conn, to string) {
	defer func() { _ = down.Close() }()
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return // the other end sees it
	}
	defer func() { _ = up.Close() }()
	ended := make(chan struct{}, 2)
	for to, from := range map[net.Conn]net.Conn{up: down, down: up} {
		go func() {
			_, _ = io.Copy(to, from) // either end sees what became of the other
			ended <- struct{}{}
		}()
	}
	<-ended
}

// The networks. The API server of a cluster, which is a process of this machine, reaches
// the cluster's kubelet by the one; the other lies between the clusters.
const (
	wanHub, wanSpoke = "10.99.0.1", "10.99.0.2"
	wanNet           = "10.99.0.0/30"
	serviceNet       = "10.96.0.0/16" // of both clusters
)

// wall lets no one into the spoke or through it but its own pods, its API server and the
// answers that it has asked for. What else comes is counted.
const wall = `
table inet argomesh {
	counter refused {
	}
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iifname { "lo", "management", "veth*" } accept
		counter name "refused"
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		iifname "veth*" accept
		counter name "refused"
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		oifname "wan" masquerade
	}
}
`

// makeNetworks connects the two nodes with this machine and with one another. The
// firewall is the spoke's. It all goes with the namespaces.
func makeNetworks(t *testing.T, hub, spoke *node) {
	t.Helper()
	for _, n := range []*node{hub, spoke} {
		here := fmt.Sprintf("am%s%d", n.name[:1], os.Getpid())
		run(t, "", "ip", "link", "add", here, "type", "veth", "peer", "name", "management", "netns", n.spaces.pid())
		run(t, "", "ip", "address", "add", n.here+"/30", "dev", here)
		run(t, "", "ip", "link", "set", here, "up")
		n.do(t, "ip", "link", "set", "lo", "up")
		n.do(t, "ip", "address", "add", n.ip+"/30", "dev", "management")
		n.do(t, "ip", "link", "set", "management", "up")
		// Without a route nothing is sent that kube-proxy could bring elsewhere.
		n.do(t, "ip", "route", "add", serviceNet, "dev", "management")
		n.do(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	}
	run(t, "", "ip", "link", "add", "wan", "netns", hub.spaces.pid(), "type", "veth", "peer", "name", "wan", "netns", spoke.spaces.pid())
	for n, address := range map[*node]string{hub: wanHub, spoke: wanSpoke} {
		n.do(t, "ip", "address", "add", address+"/30", "dev", "wan")
		n.do(t, "ip", "link", "set", "wan", "up")
	}
	// The hub knows the way to the spoke's pods: what stops it is the firewall alone.
	hub.do(t, "ip", "route", "add", spoke.pods, "via", wanSpoke)
	run(t, wall, spoke.spaces.inside("nft", "-f", "-")...)
}

// networkOf is the network of a pod of the node, by one of the pod's processes: their cgroups are named for it.
func (n *node) networkOf(t *testing.T, pod *corev1.Pod) netns {
	t.Helper()
	// Process IDs are those of the node.
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/proc/[0-9]*/cgroup", n.spaces))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(groups), "/pod"+string(pod.UID)) { // one that has ended has none
			return netns(filepath.Join(filepath.Dir(file), "ns", "net"))
		}
	}
	t.Fatalf("pod %s/%s has no process", pod.Namespace, pod.Name)
	return ""
}

// do runs a program on the node, which may not fail.
func (n *node) do(t *testing.T, line ...string) string {
	t.Helper()
	return run(t, "", n.spaces.inside(line...)...)
}

// refused tells how many packets the node's firewall has dropped.
func (n *node) refused(t *testing.T) int {
	t.Helper()
	var list struct {
		NFTables []struct {
			Counter *struct{ Packets int }
		}
	}
	if err := json.Unmarshal([]byte(n.do(t, "nft", "-j", "list", "counter", "inet", "argomesh", "refused")), &list); err != nil {
		t.Fatal(err)
	}
	for _, object := range list.NFTables {
		if object.Counter != nil {
			return object.Counter.Packets
		}
	}
	t.Fatal("the firewall counts nothing")
	return 0
}
