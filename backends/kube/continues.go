package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// Continues returns an error when the API server is behind resourceVersion, as after
// its etcd was restored from a backup. A watch from there on is not refused: it shows
// nothing until the API server has caught up, and what was written meanwhile never.
// The error is the one with which an API server says that it has forgotten a
// resourceVersion, so that a reflector lists again. Where the API server stands is
// asked of its etcd.
func Continues(ctx context.Context, resource dynamic.ResourceInterface, resourceVersion string) error {
	now, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if older(now.GetResourceVersion(), resourceVersion) {
		return apierrors.NewResourceExpired(fmt.Sprintf("the API server is at resourceVersion %s and was at %s",
			now.GetResourceVersion(), resourceVersion))
	}
	return nil
}
