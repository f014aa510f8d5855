package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// isProblem are the reasons of a container that waits, which time alone does not mend.
func isProblem(reason string) bool {
	return slices.Contains([]string{
		"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
	}, reason)
}

// Problem says why a pod is not ready; "" when it says nothing.
func Problem(pod *corev1.Pod) string {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range all {
			if w := c.State.Waiting; w != nil && isProblem(w.Reason) {
				return fmt.Sprintf("container %s of pod %s: %s: %s", c.Name, pod.Name, w.Reason, w.Message)
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s is not scheduled: %s", pod.Name, c.Message)
		}
	}
	return ""
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

// Unready says what keeps a pod that is selected from getting ready; "" when nothing is known.
func Unready(ctx context.Context, client kubernetes.Interface, namespace string,
	selector *metav1.LabelSelector) (string, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(selector),
	})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if text := Problem(&pods.Items[i]); text != "" {
			return text, nil
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodPending {
			continue
		}
		why, err := FailedMount(ctx, client, pod)
		if err != nil {
			return "", err
		}
		if why != "" {
			return fmt.Sprintf("pod %s: FailedMount: %s", pod.Name, why), nil
		}
	}
	return "", nil
}
