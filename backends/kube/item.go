package kube

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// item is an object on its way from the API server to the cache: the little
// metadata that client-go's reflector asks for, and the rest as JSON.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	object backends.Object
}

// DeepCopyObject implements runtime.Object. What object points to is immutable.
func (i *item) DeepCopyObject() runtime.Object {
	out := &item{TypeMeta: i.TypeMeta, object: i.object}
	i.DeepCopyInto(&out.ObjectMeta)
	return out
}

// itemList is one page of a list.
type itemList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*item
}

// DeepCopyObject implements runtime.Object.
func (l *itemList) DeepCopyObject() runtime.Object {
	out := &itemList{TypeMeta: l.TypeMeta, Items: make([]*item, 0, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for _, i := range l.Items {
		copied := *i
		out.Items = append(out.Items, &copied)
	}
	return out
}

// newItem takes u apart: it loses its managedFields.
func newItem(kind stream.Kind, u *unstructured.Unstructured) (*item, error) {
	object, err := newObject(kind, u)
	if err != nil {
		return nil, err
	}
	return &item{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       object.Key.Namespace,
			Name:            object.Key.Name,
			UID:             types.UID(object.UID),
			ResourceVersion: object.ResourceVersion,
		},
		object: object,
	}, nil
}

// newObject takes u apart: it loses its managedFields. The same content always
// gives the same bytes, since encoding/json sorts the keys of maps.
func newObject(kind stream.Kind, u *unstructured.Unstructured) (backends.Object, error) {
	managed := managedSize(u)
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return backends.Object{}, fmt.Errorf("marshal %s %s/%s: %w", kind, u.GetNamespace(), u.GetName(), err)
	}
	return backends.Object{
		Key:             stream.ResourceKey{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()},
		UID:             string(u.GetUID()),
		ResourceVersion: u.GetResourceVersion(),
		Raw:             raw,
		Managed:         managed,
	}, nil
}

// managedSize is how many bytes the managedFields of an object have as JSON, which are
// often more than all else, give or take what is escaped. They are counted and not made:
// no one reads them.
func managedSize(u *unstructured.Unstructured) int {
	fields, has, err := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	if !has || err != nil {
		return 0
	}
	return len(`"managedFields":,`) + jsonSize(fields)
}

// jsonSize is about the length of v as JSON.
func jsonSize(v any) int {
	size := 2 // brackets, quotes
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			size += len(key) + len(`"":,`) + jsonSize(value)
		}
	case []any:
		for _, value := range v {
			size += len(`,`) + jsonSize(value)
		}
	case string:
		size += len(v)
	default:
		size += 3 // numbers, booleans and null are few and short
	}
	return size
}
