package release

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
)

// live compares a manifest with the objects that there are.
type live struct {
	getter    genericclioptions.RESTClientGetter
	namespace string
}

// Objects returns those of a manifest, in its order.
func Objects(manifest string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// missing names the objects that are not there, or that an apply would change.
func (l *live) missing(ctx context.Context, release, manifest string) ([]string, error) {
	var out []string
	err := l.each(manifest, func(o *unstructured.Unstructured, where dynamic.ResourceInterface) error {
		same := false
		if where != nil {
			is, err := where.Get(ctx, o.GetName(), metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err == nil {
				would, err := l.try(ctx, where, release, o, true)
				if err != nil {
					return err
				}
				same = equality.Semantic.DeepEqual(content(is), content(would))
			}
		}
		if !same {
			out = append(out, o.GetKind()+" "+o.GetName())
		}
		return nil
	})
	return out, err
}

// refusals are all reasons for which the API server would not take an object. With force it
// does not matter who owns a field.
func (l *live) refusals(ctx context.Context, release, manifest string, force bool) ([]error, error) {
	var out []error
	err := l.each(manifest, func(o *unstructured.Unstructured, where dynamic.ResourceInterface) error {
		if where == nil {
			return nil // its definition may come with the release
		}
		if _, err := l.try(ctx, where, release, o, force); err != nil {
			out = append(out, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err))
		}
		return nil
	})
	return out, err
}

// each calls f with the objects of a manifest, and where they belong; nil where their kind is
// not known.
func (l *live) each(manifest string, f func(*unstructured.Unstructured, dynamic.ResourceInterface) error) error {
	objects, err := Objects(manifest)
	if err != nil {
		return err
	}
	config, err := l.getter.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	mapper, err := l.getter.ToRESTMapper()
	if err != nil {
		return err
	}
	for _, o := range objects {
		where, err := l.where(client, mapper, o)
		if err == nil {
			err = f(o, where)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// where returns the collection of an object; nil when its kind is not known.
func (l *live) where(client dynamic.Interface, mapper meta.RESTMapper, o *unstructured.Unstructured) (
	dynamic.ResourceInterface, error,
) {
	kind := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), nil
	}
	return client.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), l.namespace)), nil
}

// try returns what the object would be after an apply. Nothing is stored.
func (l *live) try(ctx context.Context, where dynamic.ResourceInterface, release string, o *unstructured.Unstructured,
	force bool,
) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(l.owned(release, o))
	if err != nil {
		return nil, err
	}
	return where.Patch(ctx, o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: manager, Force: &force, DryRun: []string{metav1.DryRunAll},
	})
}

// owned returns o with what Helm adds to each object of a release.
func (l *live) owned(release string, o *unstructured.Unstructured) *unstructured.Unstructured {
	out := o.DeepCopy()
	labels, annotations := maps.Clone(out.GetLabels()), maps.Clone(out.GetAnnotations())
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "Helm"
	annotations["meta.helm.sh/release-name"] = release
	annotations["meta.helm.sh/release-namespace"] = l.namespace
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out
}

// content is an object without what each write changes.
func content(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	return out.Object
}
