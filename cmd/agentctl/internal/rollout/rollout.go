// Package rollout says how far the pods of a workload are, and what keeps one of them from getting ready.
package rollout

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The kinds of workloads.
const (
	Deployment  = "Deployment"
	StatefulSet = "StatefulSet"
	DaemonSet   = "DaemonSet"
)

// Workload names what has pods.
type Workload struct{ Kind, Name string }

// Progress is how far the newest revision of a workload is.
type Progress struct {
	// Step says it in words, such as "1 of 2 pods are ready".
	Step string
	// Ready says that all its pods are ready, and no older one is there.
	Ready bool
	// Selector selects its pods.
	Selector *metav1.LabelSelector
}

// Observe asks how far a workload of a namespace is.
func Observe(ctx context.Context, client kubernetes.Interface, namespace string, w Workload) (p Progress, err error) {
	switch apps := client.AppsV1(); w.Kind {
	case Deployment:
		d, err := apps.Deployments(namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return p, err
		}
		p = Of(d)
	case StatefulSet:
		set, err := apps.StatefulSets(namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return p, err
		}
		is := set.Status
		p = of(is.ObservedGeneration < set.Generation, orOne(set.Spec.Replicas), is.UpdatedReplicas,
			is.Replicas, min(is.AvailableReplicas, is.UpdatedReplicas))
		p.Selector = set.Spec.Selector
	case DaemonSet:
		set, err := apps.DaemonSets(namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return p, err
		}
		is := set.Status
		p = of(is.ObservedGeneration < set.Generation, is.DesiredNumberScheduled,
			is.UpdatedNumberScheduled, is.UpdatedNumberScheduled, is.NumberAvailable)
		p.Selector = set.Spec.Selector
	default:
		return p, fmt.Errorf("%s %s has no pods to wait for", w.Kind, w.Name)
	}
	return p, nil
}

func orOne(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// Of says how far the newest revision of a Deployment is.
func Of(d *appsv1.Deployment) Progress {
	is := d.Status
	p := of(is.ObservedGeneration < d.Generation, orOne(d.Spec.Replicas), is.UpdatedReplicas, is.Replicas,
		is.AvailableReplicas)
	p.Selector = d.Spec.Selector
	return p
}

// of says how far a workload is of which so many pods are wanted, of the newest revision, there, and available;
// unseen says that its controller has not seen it yet.
func of(unseen bool, want, updated, there, available int32) Progress {
	switch {
	case unseen:
		return Progress{Step: "waits for its controller"}
	case updated < want:
		return Progress{Step: fmt.Sprintf("%d of %d pods are of the newest revision", updated, want)}
	case there > updated:
		return Progress{Step: fmt.Sprintf("%d older pods end", there-updated)}
	}
	return Progress{Step: fmt.Sprintf("%d of %d pods are ready", available, want), Ready: available >= want}
}
