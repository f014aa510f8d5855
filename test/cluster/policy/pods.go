package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// endpoint is a pod as the network sees it.
type endpoint struct {
	pod       *corev1.Pod
	namespace labels.Set // the labels of its namespace
	addresses []netip.Addr
}

// endpoints returns the pods that have addresses of their own, by namespace and name. An address that a pod
// has left may be another's before the API server knows: it is that of the pod that was created last.
func endpoints(objects Objects) ([]endpoint, error) {
	latest := map[netip.Addr]*corev1.Pod{}
	for _, pod := range objects.Pods {
		addresses, err := addressesOf(pod)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if before, taken := latest[a]; !taken || compareAge(pod, before) < 0 {
				latest[a] = pod
			}
		}
	}
	addresses := map[*corev1.Pod][]netip.Addr{}
	for a, pod := range latest {
		addresses[pod] = append(addresses[pod], a)
	}
	namespaces := map[string]labels.Set{}
	for _, n := range objects.Namespaces {
		namespaces[n.Name] = n.Labels
	}
	all := make([]endpoint, 0, len(addresses))
	for pod, own := range addresses {
		slices.SortFunc(own, netip.Addr.Compare)
		all = append(all, endpoint{pod: pod, namespace: namespaces[pod.Namespace], addresses: own})
	}
	slices.SortFunc(all, func(a, b endpoint) int { return compareNames(a.pod, b.pod) })
	return all, nil
}

// addressesOf returns the addresses that are a pod's alone. A pod of the host's network has none,
// and a pod whose containers have ended has none any more.
func addressesOf(pod *corev1.Pod) ([]netip.Addr, error) {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.HostNetwork || ended {
		return nil, nil
	}
	addresses := make([]netip.Addr, 0, len(pod.Status.PodIPs))
	for i, of := range pod.Status.PodIPs {
		a, err := netip.ParseAddr(of.IP)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: status.podIPs[%d]: %w", pod.Namespace, pod.Name, i, err)
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}

// portNumber returns the number of the container's port of this name and protocol. Containers that run
// beside the others, sidecars among the init containers, have ports too.
func portNumber(pod *corev1.Pod, name string, protocol corev1.Protocol) (number int32, ok bool) {
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

// compareAge orders the youngest pod first.
func compareAge(a, b *corev1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), compareNames(a, b))
}

func compareNames(a, b metav1.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}
