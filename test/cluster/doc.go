// Package cluster holds the test of `make e2e-cluster`: hub and spoke, installed by agentctl as
// real pods on two Kubernetes clusters of one machine. Each cluster has namespaces of its own for networks,
// mounts and processes, in which a containerd, a kubelet and a kube-proxy run; between the
// two a firewall lets only connections of the spoke through. Control planes run as
// processes, as in test/e2e.
//
// It needs root, Linux with overlayfs, and containerd, runc, the CNI plugins and nft of
// the distribution; it starts a containerd of its own and leaves that of the machine
// alone. It leaves nothing behind: see node.open.
package cluster
