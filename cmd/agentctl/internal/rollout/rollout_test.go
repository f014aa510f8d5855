package rollout

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOf(t *testing.T) {
	deployment := func(generation int64, is appsv1.DeploymentStatus) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: generation}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
			Status: is,
		}
	}
	for name, c := range map[string]struct {
		is    *appsv1.Deployment
		step  string
		ready bool
	}{
		"not seen yet": {deployment(2,
			appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 2}),
			"waits for its controller", false},
		"the first pod": {deployment(2, appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1, Replicas: 2}),
			"1 of 2 pods are of the newest revision", false},
		"an older one": {deployment(2,
			appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 3, AvailableReplicas: 3}),
			"1 older pods end", false},
		"one not ready": {deployment(2,
			appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 1}),
			"1 of 2 pods are ready", false},
		"all are ready": {deployment(2,
			appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, Replicas: 2, AvailableReplicas: 2}),
			"2 of 2 pods are ready", true},
		"no replicas": {&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(0))}}, "0 of 0 pods are ready",
			true},
		"one by default": {&appsv1.Deployment{}, "0 of 1 pods are of the newest revision", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(c.is); got.Step != c.step || got.Ready != c.ready {
				t.Errorf("Of() = %q, %t; want %q, %t", got.Step, got.Ready, c.step, c.ready)
			}
		})
	}
}

func TestProblem(t *testing.T) {
	waiting := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "agent",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}
	}
	pod := func(is corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: is}
	}
	for name, c := range map[string]struct {
		is   corev1.PodStatus
		want string
	}{
		"it runs": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent"}}}, ""},
		"it is being made": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating")}},
			""},
		"no image": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ImagePullBackOff")}},
			"container agent of pod p: ImagePullBackOff: why"},
		"no image of the init": {corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull")}},
			"container agent of pod p: ErrImagePull: why"},
		"it ends": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("CrashLoopBackOff")}},
			"container agent of pod p: CrashLoopBackOff: why"},
		"no node": {corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"},
		}}, "pod p is not scheduled: 0/3 nodes are available"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Problem(pod(c.is)); got != c.want {
				t.Errorf("Problem() = %q, want %q", got, c.want)
			}
		})
	}
}
