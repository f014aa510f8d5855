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

	"github.com/argomesh/argomesh/stream"
)

// Selector names some objects of a kind: those with certain labels, or the one of a
// name, which a Role can grant alone (resourceNames). Exactly one field is set.
type Selector struct {
	// Labels is a label selector, such as "tier in (front, back)".
	Labels string
	// Name is the name of one object.
	Name string
}

func (s Selector) validate(kind stream.Kind) error {
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
	selector Selector
}

// List implements dynamic.ResourceInterface.
func (s selected) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return s.ResourceInterface.List(ctx, s.selector.narrow(opts))
}

// Watch implements dynamic.ResourceInterface.
func (s selected) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.ResourceInterface.Watch(ctx, s.selector.narrow(opts))
}

// narrow makes opts those of what is selected. The zero Selector leaves them as they
// are.
func (s Selector) narrow(opts metav1.ListOptions) metav1.ListOptions {
	opts.LabelSelector = s.Labels
	if s.Name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return opts
}
