//go:build linux && cluster

package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/argomesh/argomesh/test/cluster/policy"
	"github.com/argomesh/argomesh/test/kit"
)

// netns is a network namespace. It ends, with its links, when its file is closed, and so with the test.
type netns struct{ file *os.File }

func newNetns(t *testing.T) netns {
	t.Helper()
	var n netns
	if err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	}); err != nil {
		t.Fatalf("a network namespace needs root: %v", err)
	}
	t.Cleanup(func() { _ = n.file.Close() })
	n.run(t, "", "ip", "link", "set", "lo", "up")
	return n
}

// onThread calls do on a thread of its own, which ends afterwards: what do does to the thread concerns no one.
func onThread(do func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		failed <- do()
	}()
	return <-failed
}

// within calls do on a thread that is in n. The sockets that it opens and the programs that it starts are too.
func (n netns) within(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

func (n netns) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// run runs a program in n, which may not fail, and returns what it prints.
func (n netns) run(t *testing.T, input string, line ...string) []byte {
	t.Helper()
	var out []byte
	if err := n.within(func() (err error) {
		cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
		cmd.Stdin = strings.NewReader(input)
		out, err = cmd.CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(line, " "), err, out)
	}
	return out
}

// serve answers with what it is told on a port, by TCP or UDP, until the test ends.
func (n netns) serve(t *testing.T, network string, port int) {
	t.Helper()
	address := fmt.Sprintf(":%d", port)
	var l net.Listener
	var p net.PacketConn
	if err := n.within(func() (err error) {
		if network == "udp" {
			p, err = net.ListenPacket("udp4", address)
		} else {
			l, err = net.Listen("tcp4", address)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if p != nil {
		t.Cleanup(func() { _ = p.Close() })
		go echoPackets(p)
		return
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				_, _ = io.Copy(conn, conn) // until the other end closes
				_ = conn.Close()
			}()
		}
	}()
}

func echoPackets(p net.PacketConn) {
	buffer := make([]byte, 100)
	for {
		size, from, err := p.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		_, _ = p.WriteTo(buffer[:size], from) // who asked sees that there is no answer
	}
}

// dial connects from n, and returns the connection once it has had an answer.
func (n netns) dial(network, address string, within time.Duration) (conn net.Conn, err error) {
	deadline := time.Now().Add(within)
	if err := n.within(func() (err error) {
		conn, err = (&net.Dialer{Deadline: deadline}).Dial(network+"4", address)
		return err
	}); err != nil {
		return nil, err
	}
	if err := ask(conn, deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func ask(conn net.Conn, deadline time.Time) error {
	const question = "who is there"
	answer := make([]byte, len(question))
	err := conn.SetDeadline(deadline)
	if err == nil {
		_, err = io.WriteString(conn, question)
	}
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) != question {
		err = fmt.Errorf("the answer is %q", answer)
	}
	return err
}

// The addresses of the test's network.
const (
	gateway = "10.77.0.1" // the node, to its pods
	service = "10.96.0.10"
)

// places are the addresses of what is dialled.
var places = map[string]string{
	"web": "10.77.0.2", "friend": "10.77.0.3", "stranger": "10.77.0.4", "tool": "10.77.0.5",
	"near": "192.0.2.10", "far": "198.51.100.10", "node": gateway, "service": service,
}

// pods are the objects of the pods, in two namespaces.
const pods = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: tools, labels: {kubernetes.io/metadata.name: tools}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: web, ports: [{name: http, containerPort: 8080}, {name: names, containerPort: 5353, protocol: UDP}]}]}
status: {podIPs: [{ip: 10.77.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, namespace: shop, labels: {app: friend}}
status: {podIPs: [{ip: 10.77.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: shop, labels: {app: stranger}}
status: {podIPs: [{ip: 10.77.0.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tool, namespace: tools, labels: {app: friend}}
status: {podIPs: [{ip: 10.77.0.5}]}
`

// proxy does for the Service what kube-proxy would.
const proxy = `
table ip proxy {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 10.96.0.10 tcp dport 80 dnat to 10.77.0.2:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr 10.77.0.2 ip daddr 10.77.0.2 masquerade
	}
}
`

// lab is a node, four pods, and two hosts beyond the node.
type lab struct {
	node   netns
	places map[string]netns
}

func newLab(t *testing.T) *lab {
	t.Helper()
	for _, program := range []string{"nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: install nftables and iproute2", program)
		}
	}
	l := &lab{node: newNetns(t), places: map[string]netns{}}
	l.places["node"] = l.node
	if err := l.node.within(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	for name, address := range places {
		if name != "node" && name != "service" {
			l.attach(t, name, address)
		}
	}
	l.node.run(t, proxy, "nft", "-f", "-")
	l.node.serve(t, "tcp", 6443)
	return l
}

// attach adds a place that is routed to the node by a link of its own, as the plugin ptp does.
func (l *lab) attach(t *testing.T, name, address string) {
	t.Helper()
	n := newNetns(t)
	l.places[name] = n
	l.node.run(t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", n.path())
	l.node.run(t, "", "ip", "address", "add", gateway+"/32", "dev", name)
	l.node.run(t, "", "ip", "link", "set", name, "up")
	l.node.run(t, "", "ip", "route", "add", address+"/32", "dev", name)
	n.run(t, "", "ip", "address", "add", address+"/32", "dev", "eth0")
	n.run(t, "", "ip", "link", "set", "eth0", "up")
	n.run(t, "", "ip", "route", "add", gateway+"/32", "dev", "eth0")
	n.run(t, "", "ip", "route", "add", "default", "via", gateway)
	for _, port := range []int{8080, 9001, 9002} {
		n.serve(t, "tcp", port)
	}
	n.serve(t, "udp", 5353)
}

// dropped tells how many packets our table has dropped since it is what it is.
func (l *lab) dropped(t *testing.T) (packets int) {
	t.Helper()
	var list struct {
		NFTables []struct {
			Rule struct {
				Expr []struct {
					Counter struct{ Packets int }
				}
			}
		}
	}
	if err := json.Unmarshal(l.node.run(t, "", "nft", "-j", "list", "table", "inet", policy.Table), &list); err != nil {
		t.Fatal(err)
	}
	for _, object := range list.NFTables {
		for _, e := range object.Rule.Expr {
			packets += e.Counter.Packets
		}
	}
	return packets
}

// try dials a way of the form "friend > web:8080" or "friend > udp web:5353".
func (l *lab) try(t *testing.T, way string, within time.Duration) (net.Conn, error) {
	t.Helper()
	from, to, _ := strings.Cut(way, " > ")
	network, to, isUDP := strings.Cut(to, " ")
	if !isUDP {
		network, to = "tcp", network
	}
	host, port, ok := strings.Cut(to, ":")
	if !ok || places[host] == "" || l.places[from].file == nil {
		t.Fatalf("there is no way %q", way)
	}
	return l.places[from].dial(network, places[host]+":"+port, within)
}

func (l *lab) allows(t *testing.T, way string) {
	t.Helper()
	conn, err := l.try(t, way, kit.Patience)
	if err != nil {
		t.Errorf("%s: %v", way, err)
		return
	}
	_ = conn.Close()
}

// denies fails unless the packets of a way are lost, and that in our table.
func (l *lab) denies(t *testing.T, way string) {
	t.Helper()
	before := l.dropped(t)
	conn, err := l.try(t, way, 300*time.Millisecond)
	if err == nil {
		_ = conn.Close()
	}
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%s: %v, want silence", way, err)
	}
	if l.dropped(t) == before {
		t.Errorf("%s: our rules have dropped nothing", way)
	}
}

// apply has the rules enforced that the policies make for the pods.
func (l *lab) apply(t *testing.T, policies string) {
	t.Helper()
	ruleset, err := policy.Ruleset(node, decode(t, []byte(pods+policies)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.node.within(func() error { return policy.Apply(t.Context(), ruleset) }); err != nil {
		t.Fatalf("%v\n%s", err, ruleset)
	}
}

// policyOf returns the document of a policy of namespace shop.
func policyOf(name, spec string) string {
	return fmt.Sprintf("\n---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: %s}\nspec: %s\n",
		name, strings.Join(strings.Fields(spec), " "))
}

// Real connections between real network namespaces are allowed and denied. What a policy denies works without
// it: the first case, without any, tries the ways of all others.
func TestRules(t *testing.T) {
	type rules struct {
		policies       string
		allows, denies []string
	}
	cases := map[string]rules{
		"deny all ingress": {
			policyOf("deny", `{podSelector: {matchLabels: {app: web}}}`),
			[]string{"node > web:8080", "node > udp web:5353", "web > friend:8080", "web > near:8080", "web > node:6443", "friend > stranger:8080"},
			[]string{"friend > web:8080", "friend > udp web:5353", "tool > web:8080", "near > web:8080", "friend > service:80"},
		},
		"deny all egress": {
			policyOf("deny", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
			[]string{"node > web:8080", "friend > web:8080", "near > web:9001", "friend > near:8080"},
			[]string{"web > friend:8080", "web > udp friend:5353", "web > near:8080", "web > node:6443"},
		},
		"pods of the namespace, by the names of ports": {
			policyOf("friend", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}],
				ports: [{port: http}, {port: names, protocol: UDP}]}]}`),
			[]string{"friend > web:8080", "friend > udp web:5353", "node > web:9001"},
			[]string{"friend > web:9001", "stranger > web:8080", "stranger > udp web:5353", "tool > web:8080", "near > web:8080"},
		},
		"after the address of the Service": {
			policyOf("friend", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 8080}]}]}`) +
				policyOf("to-web", `{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress],
				egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]}`),
			[]string{"friend > service:80", "friend > web:8080", "web > service:80"},
			[]string{"stranger > service:80", "friend > stranger:8080", "friend > near:8080"},
		},
		"pods of another namespace": {
			policyOf("tools", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tools}}}]}]}`),
			[]string{"tool > web:8080", "tool > udp web:5353", "tool > web:9001"},
			[]string{"friend > web:8080", "stranger > web:8080"},
		},
		"selected pods of all namespaces": {
			policyOf("friends", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: friend}}}]}]}`),
			[]string{"tool > web:8080", "friend > web:8080"},
			[]string{"stranger > web:8080", "near > web:8080"},
		},
		"a block without its exceptions": {
			policyOf("blocks", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress],
				ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [198.51.100.0/24, 10.77.0.4/32]}}]}],
				egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 8080}]}]}`),
			[]string{"near > web:8080", "friend > web:8080", "web > near:8080"},
			[]string{"far > web:8080", "stranger > web:8080", "web > far:8080", "web > near:9001"},
		},
		"ranges of ports, and all of a protocol": {
			policyOf("ports", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress],
				ingress: [{ports: [{port: 9001, endPort: 9002}]}], egress: [{ports: [{protocol: UDP}]}]}`),
			[]string{"friend > web:9001", "friend > web:9002", "web > udp friend:5353", "web > udp far:5353"},
			[]string{"friend > web:8080", "friend > udp web:5353", "web > friend:8080"},
		},
		"what two policies allow": {
			policyOf("one", `{podSelector: {}, ingress: [{ports: [{port: 9001}]}]}`) + policyOf("two", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 9002}]}]}`),
			[]string{"friend > web:9001", "friend > web:9002", "web > friend:9001", "friend > tool:9002"},
			[]string{"web > friend:9002", "friend > web:8080"},
		},
		"ingress of one pod and egress of the other": {
			policyOf("out", `{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress], egress: [{ports: [{port: 9001}, {port: 9002}]}]}`) +
				policyOf("in", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 9002}, {port: 8080}]}]}`),
			[]string{"friend > web:9002", "stranger > web:8080"},
			[]string{"friend > web:9001", "friend > web:8080"},
		},
	}
	l := newLab(t)
	l.apply(t, "")
	for _, c := range cases {
		for _, way := range slices.Concat(c.allows, c.denies) {
			l.allows(t, way)
		}
	}
	if t.Failed() {
		return // what follows would prove nothing
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l.apply(t, c.policies)
			for _, way := range c.allows {
				l.allows(t, way)
			}
			for _, way := range c.denies {
				l.denies(t, way)
			}
		})
	}
}

// A connection that was allowed goes on when a policy comes, and a new one is denied.
func TestRulesLeaveConnections(t *testing.T) {
	l := newLab(t)
	l.apply(t, "")
	conn, err := l.try(t, "friend > web:8080", kit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	l.apply(t, policyOf("deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	if err := ask(conn, time.Now().Add(kit.Patience)); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	l.denies(t, "friend > web:8080")
}

// nft takes every ruleset of testdata, whatever its addresses are.
func TestRulesAreTaken(t *testing.T) {
	l := newLab(t)
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".out.nft") {
			continue
		}
		ruleset, err := os.ReadFile("testdata/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.node.within(func() error { return policy.Apply(t.Context(), string(ruleset)) }); err != nil {
			t.Errorf("%s: %v", file.Name(), err)
		}
		taken++
	}
	if taken == 0 {
		t.Error("there is none")
	}
}

// What nft does not take is an error that has its words, and leaves the rules as they are.
func TestApplyAllOrNothing(t *testing.T) {
	l := newLab(t)
	l.apply(t, policyOf("deny", `{podSelector: {matchLabels: {app: web}}}`))
	err := l.node.within(func() error {
		return policy.Apply(t.Context(), "delete table inet "+policy.Table+"\nadd rule inet gone gone drop\n")
	})
	if err == nil || !strings.Contains(err.Error(), "No such file or directory") {
		t.Errorf("Apply() = %v", err)
	}
	l.denies(t, "friend > web:8080")
}

// The whole: an Enforcer that watches, nft and connections.
func TestEnforcerOnANode(t *testing.T) {
	l, ctx := newLab(t), kit.Context(t)
	client := fake.NewClientset()
	enforcer, err := policy.New(policy.Config{Client: client, Node: node, Apply: func(ctx context.Context, ruleset string) error {
		return l.node.within(func() error { return policy.Apply(ctx, ruleset) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, enforcer.Run)
	watched(t, client)
	objects := decode(t, []byte(pods+policyOf("deny", `{podSelector: {matchLabels: {app: web}}}`)))
	for _, n := range objects.Namespaces {
		create(t, client, n)
	}
	for _, p := range objects.Pods {
		create(t, client, p)
	}
	l.allows(t, "friend > web:8080")
	create(t, client, objects.Policies[0])
	denied := func() bool {
		conn, err := l.try(t, "friend > web:8080", 300*time.Millisecond)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}
	kit.Eventually(t, "isolation", denied)
	l.denies(t, "friend > web:8080")
	l.allows(t, "friend > stranger:8080")
	if err := client.NetworkingV1().NetworkPolicies("shop").Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the end of isolation", func() bool { return !denied() })
}
