package install

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// isProblem are the reasons of a container that waits, which time alone does not mend.
func isProblem(reason string) bool {
	return slices.Contains([]string{
		"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CrashLoopBackOff",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
	}, reason)
}

// ProblemOf says why a pod is not ready; "" when it says nothing.
func ProblemOf(pod *corev1.Pod) string {
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
