//go:build linux && cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/test/cluster/policy"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// connection is one that a pod may open or not.
type connection struct {
	n       *node
	from    *corev1.Pod
	address string
	to      string // for people
	chain   string // of nftables, that drops it
}

// dial opens the connection and closes it. A denied one is a timeout, since its packets are dropped.
func (c *connection) dial(t *testing.T, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	conn, err := c.n.networkOf(t, c.from).dial(ctx, c.address)
	if err != nil {
		return fmt.Errorf("from %s to %s: %w", c.from.Name, c.to, err)
	}
	return conn.Close()
}

// denied tries the connection, which has to be dropped where the policy program counts it.
func (c *connection) denied(t *testing.T) (packets int) {
	t.Helper()
	var before int
	harnesstest.Eventually(t, patience, "the rules of "+c.chain, func() (err error) {
		before, err = c.n.denials(t.Context(), c.chain)
		return err
	})
	var late net.Error
	if err := c.dial(t, 2*time.Second); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%s reaches %s: %v", c.from.Name, c.to, err)
	}
	after, err := c.n.denials(t.Context(), c.chain)
	if err != nil {
		t.Fatal(err)
	}
	if after == before {
		t.Errorf("what %s sent to %s is not counted in %s", c.from.Name, c.to, c.chain)
	}
	return after - before
}

// denials tells how many packets a chain of the policy program has dropped.
func (n *node) denials(ctx context.Context, chain string) (int, error) {
	list := n.spaces.inside("nft", "-j", "list", "chain", "inet", policy.Table, chain)
	out, err := command(ctx, "", list[0], list[1:]...)
	if err != nil {
		return 0, err
	}
	var listed struct {
		NFTables []struct {
			Rule *struct {
				Expr []struct {
					Counter *struct{ Packets int }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		return 0, err
	}
	for _, object := range listed.NFTables {
		if object.Rule == nil {
			continue
		}
		for _, e := range object.Rule.Expr {
			if e.Counter != nil {
				return e.Counter.Packets, nil
			}
		}
	}
	return 0, fmt.Errorf("chain %s counts nothing", chain)
}

// pod returns the first pod of a namespace that a selector selects.
func (n *node) pod(t *testing.T, namespace, selector string) *corev1.Pod {
	t.Helper()
	pods, err := n.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.PodIP == "" {
		t.Fatalf("no pod with an address is %s: %v", selector, err)
	}
	return &pods.Items[0]
}

// place makes a pod that does nothing and has labels, and waits until it runs.
func (n *node) place(t *testing.T, name, namespace string, labels map[string]any) *corev1.Pod {
	t.Helper()
	n.apply(t, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "workload", "image": "argomesh.test/workload:1"}}},
	})
	var pod *corev1.Pod
	harnesstest.Eventually(t, patience, "pod "+name, func() (err error) {
		pod, err = n.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "") {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	return pod
}

// port is the address of a port of a pod, by its name.
func port(t *testing.T, pod *corev1.Pod, name string) string {
	t.Helper()
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name {
				return fmt.Sprintf("%s:%d", pod.Status.PodIP, p.ContainerPort)
			}
		}
	}
	t.Fatalf("pod %s has no port %s", pod.Name, name)
	return ""
}

// testPolicies opens connections from the networks of pods. All that was tested so far went on under the
// charts' own NetworkPolicies; here is what they deny, with them, without, and with them again.
func (w *clusterEnv) testPolicies(t *testing.T) {
	principal := w.hub.pod(t, harness.ArgoCDNamespace, "app.kubernetes.io/name="+charts.Principal)
	agent := w.spoke.pod(t, harness.ArgoCDNamespace, "app.kubernetes.io/name="+charts.Agent)
	neighbour := w.hub.place(t, "neighbour", harness.ArgoCDNamespace, map[string]any{"app.kubernetes.io/part-of": "argocd"})
	stranger, strangerThere := w.hub.place(t, "stranger", "default", nil), w.spoke.place(t, "stranger", "default", nil)
	// in and out are the chains of what comes to a pod, and of what it sends.
	in := func(pod *corev1.Pod) string { return "ingress/" + pod.Namespace + "/" + pod.Name }
	out := func(pod *corev1.Pod) string { return "egress/" + pod.Namespace + "/" + pod.Name }

	for _, c := range []*connection{
		{n: w.hub, from: neighbour, to: "the resource proxy", address: port(t, principal, "proxy")},
		{n: w.hub, from: stranger, to: "the principal's port for agents", address: port(t, principal, "stream")},
	} {
		harnesstest.Eventually(t, patience, c.from.Name+" reaches "+c.to, func() error { return c.dial(t, 5*time.Second) })
	}
	denied := []*connection{
		{n: w.hub, from: stranger, to: "the resource proxy", address: port(t, principal, "proxy"), chain: in(principal)},
		{n: w.hub, from: neighbour, to: "the principal's metrics", address: port(t, principal, "admin"), chain: in(principal)},
		{n: w.hub, from: principal, to: "the hub's kubelet", address: w.hub.ip + ":10250", chain: out(principal)},
		{n: w.spoke, from: strangerThere, to: "the agent's metrics", address: port(t, agent, "admin"), chain: in(agent)},
		{n: w.spoke, from: agent, to: "the spoke's kubelet", address: w.spoke.ip + ":10250", chain: out(agent)},
	}
	before := make([]int, len(denied))
	for i, c := range denied {
		before[i] = c.denied(t)
	}
	for n, name := range map[*node]string{w.hub: charts.Principal, w.spoke: charts.Agent} {
		if err := n.client.NetworkingV1().NetworkPolicies(harness.ArgoCDNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range denied {
		harnesstest.Eventually(t, patience, c.from.Name+" reaches "+c.to, func() error { return c.dial(t, 5*time.Second) })
	}
	// What was deleted comes back.
	w.must(t, w.hub, w.hubInstall...)
	w.must(t, w.spoke, w.spokeInstall...)
	for i, c := range denied {
		w.report.denied = append(w.report.denied, fmt.Sprintf("| %s | %s | %s | `%s` | %d, then %d |", c.n.name, c.from.Name, c.to, c.chain, before[i], c.denied(t)))
	}
	for n, pods := range map[*node][]*corev1.Pod{w.hub: {neighbour, stranger}, w.spoke: {strangerThere}} {
		for _, pod := range pods {
			if err := n.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
