//go:build linux

package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stages is a file of kwok by which it leaves to a Node what it would say of pods: that they are ready, that a Job is
// done, and that they have ended. names are those of Config.
func Stages(names ...string) []byte {
	return []byte(strings.ReplaceAll(stages, "NAMES", strings.Join(names, ", ")))
}

const stages = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-starts}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.labels["app.kubernetes.io/name"]', operator: In, values: [NAMES]}
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  weight: 1
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {type: Ready, status: "False", lastTransitionTime: {{ $now | Quote }}}
      - {type: ContainersReady, status: "False", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      hostIP: {{ index ( NodeIPsWith .spec.nodeName ) 0 | Quote }}
      {{ $own := PodIPsWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace }}
      podIP: {{ index $own 0 | Quote }}
      podIPs: [{ip: {{ index $own 0 | Quote }}}]
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ends}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.labels["app.kubernetes.io/name"]', operator: In, values: [NAMES]}
    - {key: .metadata.deletionTimestamp, operator: Exists}
  weight: 1
  delay: {durationMilliseconds: 86400000}
  next: {}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: job-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.labels["app.kubernetes.io/name"]', operator: In, values: [NAMES]}
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}
  weight: 1
  delay: {durationMilliseconds: 86400000}
  next: {}
`

const (
	// probeEvery is how often a pod is asked whether it is ready.
	probeEvery = time.Second
	// probeTimeout bounds its answer, on a machine that is busy with other tests.
	probeTimeout = 5 * time.Second
)

// probe says of a pod whether it is ready, when that has changed.
func (n *Node) probe(ctx context.Context, p *pod) error {
	if time.Since(p.probed) < probeEvery {
		return nil
	}
	p.probed = time.Now()
	containers := map[string]bool{}
	all := true
	for i := range p.is.Spec.Containers {
		c := &p.is.Spec.Containers[i]
		is, err := p.isReady(ctx, c)
		if err != nil {
			return err
		}
		containers[c.Name] = is
		all = all && is
	}
	if all == p.ready {
		return nil
	}
	now, err := n.client.CoreV1().Pods(p.is.Namespace).Get(ctx, p.is.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := corev1.ConditionFalse
	if all {
		status = corev1.ConditionTrue
	}
	for i := range now.Status.Conditions {
		if c := &now.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.Status, c.LastTransitionTime = status, metav1.Now()
		}
	}
	for i := range now.Status.ContainerStatuses {
		s := &now.Status.ContainerStatuses[i]
		s.Ready = containers[s.Name]
	}
	if _, err := n.client.CoreV1().Pods(p.is.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
		return err
	}
	p.ready = all
	return nil
}

// isReady reports whether a container is: by its probe, and without one when it has begun.
func (p *pod) isReady(ctx context.Context, c *corev1.Container) (bool, error) {
	switch {
	case !p.begun.Load():
		return false, nil
	case c.ReadinessProbe == nil:
		return true, nil
	case c.ReadinessProbe.HTTPGet == nil:
		return false, fmt.Errorf("the readiness probe of container %s is of a kind that is not known here", c.Name)
	}
	get := c.ReadinessProbe.HTTPGet
	port := p.port(get.Port.String())
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, port) },
		// Where it is sent on to https: a kubelet does not look at certificates either.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as a kubelet
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pod"+get.Path, http.NoBody)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, nil //nolint:nilerr // which says that it is not ready
	}
	return resp.StatusCode < http.StatusBadRequest, resp.Body.Close()
}
