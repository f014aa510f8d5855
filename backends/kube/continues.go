package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/stream"
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

// CaughtUp reports whether all that the cache shows of a kind in a namespace is
// there by a consistent read, and the same objects. A cache whose watch stands
// before a restore of the API server's etcd shows what is no more.
func (s *Store) CaughtUp(ctx context.Context, kind stream.Kind, namespace string) (bool, error) {
	cached := s.List(kind, namespace) // before the read, which may only know more
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	there := make(map[types.NamespacedName]types.UID, len(cached))
	for _, i := range s.informers {
		if i.kind != kind || !i.covers(namespace) {
			continue
		}
		if err := i.uids(ctx, namespace, there); err != nil {
			return false, fmt.Errorf("list %s of %s: %w", kind, namespace, err)
		}
	}
	for _, o := range cached {
		if there[types.NamespacedName{Namespace: o.Key.Namespace, Name: o.Key.Name}] != types.UID(o.UID) {
			return false, nil
		}
	}
	return true, nil
}

// uids adds the objects of a namespace that are the informer's by a consistent read.
func (i *informer) uids(ctx context.Context, namespace string, there map[types.NamespacedName]types.UID) error {
	resource := i.resource
	if i.namespace == "" { // it covers all of them
		resource = i.store.client.Resource(resources[i.kind]).Namespace(namespace)
	}
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := resource.List(ctx, opts)
		if err != nil {
			return err
		}
		for n := range page.Items {
			there[types.NamespacedName{Namespace: page.Items[n].GetNamespace(), Name: page.Items[n].GetName()}] = page.Items[n].GetUID()
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}
