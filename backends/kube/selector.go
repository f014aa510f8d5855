package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

func validateSelector(s backends.Selector, kind stream.Kind) error {
	if (s.Labels == "") == (s.Name == "") {
		return fmt.Errorf("a selector of %s has not exactly one of labels and name", kind)
	}
	if _, err := labels.Parse(s.Labels); err != nil {
		return fmt.Errorf("label selector of %s: %w", kind, err)
	}
	return nil
}

// selected is a resource of which only some objects are listed and watched.
type selected struct {
	dynamic.ResourceInterface
	selector backends.Selector
}

// List implements dynamic.ResourceInterface.
func (s selected) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return s.ResourceInterface.List(ctx, narrow(opts, s.selector))
}

// Watch implements dynamic.ResourceInterface.
func (s selected) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.ResourceInterface.Watch(ctx, narrow(opts, s.selector))
}

// narrow makes opts those of what is selected. The zero Selector leaves them as they are.
func narrow(opts metav1.ListOptions, s backends.Selector) metav1.ListOptions {
	opts.LabelSelector = s.Labels
	if s.Name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return opts
}
