package cli

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
)

// EachOf calls f with each object that there is, page by page, until it returns an error.
func EachOf(ctx context.Context, where dynamic.ResourceInterface, f func(*unstructured.Unstructured) error) error {
	list := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return where.List(ctx, opts)
	})
	return list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		obj, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the API server answers with a %T", o)
		}
		return f(obj)
	})
}
