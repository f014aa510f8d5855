//go:build linux

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns the fields that Apply sets.
const fieldManager = "argomesh-harness"

// applier applies objects of any kind.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}, nil
}

// Dynamic returns a client for objects of any kind.
func (c *ControlPlane) Dynamic() dynamic.Interface { return c.applier.client }

// Apply creates or updates the objects by server-side apply, in order, and waits for
// each custom resource definition to be served.
func (c *ControlPlane) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := c.applier.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s %s to %s: %w", object.GetKind(), describe(object), c.Name, err)
		}
	}
	return nil
}

// ApplyYAML applies the objects of a YAML or JSON stream, those first on which others
// depend: custom resource definitions, then namespaces.
func (c *ControlPlane) ApplyYAML(ctx context.Context, content []byte) error {
	objects, err := decode(content)
	if err != nil {
		return err
	}
	return c.Apply(ctx, inOrder(objects)...)
}

// ApplyFiles is ApplyYAML for the objects of all files together.
func (c *ControlPlane) ApplyFiles(ctx context.Context, files ...string) error {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		some, err := decode(content)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		objects = append(objects, some...)
	}
	return c.Apply(ctx, inOrder(objects)...)
}

// Resource returns the client for one kind, in a namespace unless it is empty.
func (c *ControlPlane) Resource(gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.applier.client.Resource(gvr)
	}
	return c.applier.client.Resource(gvr).Namespace(namespace)
}

func decode(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	stream := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := stream.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // an empty document
			objects = append(objects, object)
		}
	}
}

func inOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(o *unstructured.Unstructured) int {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			return 0
		case "Namespace":
			return 1
		default:
			return 2
		}
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := a.mapping(object.GroupVersionKind())
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = a.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	apply := func() error {
		_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	}
	// An API server gives each write 34 s. On a machine that much else uses that may be too
	// little for the largest definitions, and an apply can be made again.
	for err = apply(); apierrors.IsTimeout(err) && object.GetKind() == "CustomResourceDefinition" && ctx.Err() == nil; {
		err = apply()
	}
	if err != nil {
		return err
	}
	if object.GetKind() == "CustomResourceDefinition" {
		return waitEstablished(ctx, resource, object.GetName())
	}
	return nil
}

// mapping looks again when the kind is unknown: it may be new.
func (a *applier) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		mapping, err = a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}

func waitEstablished(ctx context.Context, crds dynamic.ResourceInterface, name string) error {
	return Eventually(ctx, "it to be served", func() error {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions") // null at first
		for _, condition := range conditions {
			if m, ok := condition.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
				return nil
			}
		}
		return errors.New("not established")
	})
}

// EnsureNamespace creates a namespace if it does not exist.
func (c *ControlPlane) EnsureNamespace(ctx context.Context, name string) error {
	namespaces := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
	return createOnce(ctx, namespaces, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	})
}

// createOnce leaves an object that exists as it is.
func createOnce(ctx context.Context, resource dynamic.ResourceInterface, object map[string]any) error {
	_, err := resource.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func describe(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
