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
)

// lookEvery is how often the Deployment is looked at while it is waited for.
const lookEvery = time.Second

// waitReady waits until the pods of the newest revision of a Deployment are ready, and says each
// step.
func (s *side) waitReady(ctx context.Context, name string, timeout time.Duration) error {
	var said, problem string
	err := wait.PollUntilContextTimeout(ctx, lookEvery, timeout, true, func(ctx context.Context) (bool, error) {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, s.explain(err, "wait for "+name)
		}
		step, ready := Rollout(d)
		if problem, err = s.problem(ctx, d); err != nil {
			return false, s.explain(err, "wait for "+name)
		}
		if problem != "" {
			step = problem
		}
		if step != said {
			said = step
			if err := s.say("%s: %s", name, step); err != nil {
				return false, err
			}
		}
		return ready, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is installed, and not ready after %s: %s", name, timeout, s.cure(name, problem))
	}
	return err
}

// Rollout says how far the newest revision of a Deployment is.
func Rollout(d *appsv1.Deployment) (step string, ready bool) {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	is := d.Status
	switch {
	case is.ObservedGeneration < d.Generation:
		return "waits for the Deployment's controller", false
	case is.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d pods are of the newest revision", is.UpdatedReplicas, want), false
	case is.Replicas > is.UpdatedReplicas:
		return fmt.Sprintf("%d older pods end", is.Replicas-is.UpdatedReplicas), false
	case is.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d pods are ready", is.AvailableReplicas, want), false
	}
	return fmt.Sprintf("%d of %d pods are ready", is.AvailableReplicas, want), true
}

// problem says what keeps a pod of the Deployment from getting ready; "" when nothing is known.
func (s *side) problem(ctx context.Context, d *appsv1.Deployment) (string, error) {
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
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
