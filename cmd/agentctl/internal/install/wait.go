package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// lookEvery is how often a workload is looked at while it is waited for.
const lookEvery = time.Second

// workload is what has pods that are waited for.
type workload struct{ kind, name string }

// The kinds of workloads.
const (
	deployment  = "Deployment"
	statefulSet = "StatefulSet"
	daemonSet   = "DaemonSet"
)

// rollout is how far the newest revision of a workload is.
type rollout struct {
	step     string
	ready    bool
	selector *metav1.LabelSelector
}

// waitReady waits until the pods of the newest revision of a workload are ready, and says how far
// they are.
func (s *side) waitReady(ctx context.Context, w workload, timeout time.Duration) error {
	var problem string
	progress := cli.NewProgress(s.std)
	err := wait.PollUntilContextTimeout(ctx, lookEvery, timeout, true, func(ctx context.Context) (bool, error) {
		r, err := s.rollout(ctx, w)
		if err != nil {
			return false, s.explain(err, "wait for "+w.name)
		}
		if problem, err = s.problem(ctx, r.selector); err != nil {
			return false, s.explain(err, "wait for "+w.name)
		}
		step := r.step
		if problem != "" {
			step = problem
		}
		return r.ready, progress.Say(w.name + ": " + step)
	})
	err = errors.Join(err, progress.End())
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is installed, and not ready after %s: %s", w.name, timeout, s.cure(w.name, problem))
	}
	return err
}

// rollout asks how far a workload is.
func (s *side) rollout(ctx context.Context, w workload) (r rollout, err error) {
	switch apps := s.client.AppsV1(); w.kind {
	case deployment:
		d, err := apps.Deployments(s.namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return r, err
		}
		r.selector = d.Spec.Selector
		r.step, r.ready = Rollout(d)
	case statefulSet:
		set, err := apps.StatefulSets(s.namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return r, err
		}
		r.selector = set.Spec.Selector
		is := set.Status
		r.step, r.ready = rolloutOf(is.ObservedGeneration < set.Generation, orOne(set.Spec.Replicas), is.UpdatedReplicas,
			is.Replicas, min(is.AvailableReplicas, is.UpdatedReplicas))
	case daemonSet:
		set, err := apps.DaemonSets(s.namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return r, err
		}
		r.selector = set.Spec.Selector
		is := set.Status
		r.step, r.ready = rolloutOf(is.ObservedGeneration < set.Generation, is.DesiredNumberScheduled,
			is.UpdatedNumberScheduled, is.UpdatedNumberScheduled, is.NumberAvailable)
	default:
		return r, fmt.Errorf("%s %s has no pods to wait for", w.kind, w.name)
	}
	return r, nil
}

func orOne(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// Rollout says how far the newest revision of a Deployment is.
func Rollout(d *appsv1.Deployment) (step string, ready bool) {
	is := d.Status
	return rolloutOf(is.ObservedGeneration < d.Generation, orOne(d.Spec.Replicas), is.UpdatedReplicas, is.Replicas,
		is.AvailableReplicas)
}

// rolloutOf says how far a workload is of which so many pods are wanted, of the newest revision, there, and
// available; unseen says that its controller has not seen it yet.
func rolloutOf(unseen bool, want, updated, there, available int32) (step string, ready bool) {
	switch {
	case unseen:
		return "waits for its controller", false
	case updated < want:
		return fmt.Sprintf("%d of %d pods are of the newest revision", updated, want), false
	case there > updated:
		return fmt.Sprintf("%d older pods end", there-updated), false
	case available < want:
		return fmt.Sprintf("%d of %d pods are ready", available, want), false
	}
	return fmt.Sprintf("%d of %d pods are ready", available, want), true
}

// problem says what keeps a pod that is selected from getting ready; "" when nothing is known.
func (s *side) problem(ctx context.Context, selector *metav1.LabelSelector) (string, error) {
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(selector),
	})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if text := ProblemOf(&pods.Items[i]); text != "" {
			return text, nil
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodPending {
			continue
		}
		why, err := FailedMount(ctx, s.client, pod)
		if err != nil {
			return "", err
		}
		if why != "" {
			return fmt.Sprintf("pod %s: FailedMount: %s", pod.Name, why), nil
		}
	}
	return "", nil
}

// FailedMount says why a volume of a pod is not mounted, as the newest Event of that has it; "" when
// none says so.
func FailedMount(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (string, error) {
	events, err := client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + pod.Name + ",reason=FailedMount",
	})
	if err != nil || len(events.Items) == 0 {
		return "", err
	}
	return events.Items[len(events.Items)-1].Message, nil
}

// cure says what helps against what was seen last.
func (s *side) cure(name, problem string) string {
	if problem == "" {
		return fmt.Sprintf("look at \"kubectl describe pods -n %s -l app.kubernetes.io/name=%s\" and at their logs",
			s.namespace, name)
	}
	return problem
}
