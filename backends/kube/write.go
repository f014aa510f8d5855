package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Read implements backends.Store.
func (s *Store) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	return s.call(ctx, verbRead, key,
		func(ctx context.Context, c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			return c.Get(ctx, key.Name, metav1.GetOptions{})
		})
}

// Create implements backends.Store. ErrRefused when the namespace is missing.
func (s *Store) Create(ctx context.Context, key stream.ResourceKey, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	return s.call(ctx, verbCreate, key,
		func(ctx context.Context, c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			u, err := decode(key, raw)
			if err != nil {
				return nil, err
			}
			if u.GetResourceVersion() != "" {
				return nil, contentError("resourceVersion is set on an object to be created")
			}
			return c.Create(ctx, u, metav1.CreateOptions{FieldManager: FieldManager, FieldValidation: validationOf(opts)})
		})
}

// Update implements backends.Store.
func (s *Store) Update(ctx context.Context, old backends.Object, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	return s.call(ctx, verbUpdate, old.Key,
		func(ctx context.Context, c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			if old.UID == "" || old.ResourceVersion == "" {
				return nil, contentError("uid and resourceVersion of the object to replace are required")
			}
			u, err := decode(old.Key, raw)
			if err != nil {
				return nil, err
			}
			u.SetUID(types.UID(old.UID))
			u.SetResourceVersion(old.ResourceVersion)
			return c.Update(ctx, u, metav1.UpdateOptions{FieldManager: FieldManager, FieldValidation: validationOf(opts)})
		})
}

// validationOf is how an API server treats fields that it does not know.
func validationOf(opts []backends.WriteOption) string {
	if slices.Contains(opts, backends.Strict) {
		return metav1.FieldValidationStrict
	}
	return metav1.FieldValidationIgnore // a warning would be for no one
}

// Delete implements backends.Store.
func (s *Store) Delete(ctx context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	_, err := s.call(ctx, verbDelete, key,
		func(ctx context.Context, c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
			opts := metav1.DeleteOptions{}
			if pre != (backends.Preconditions{}) {
				opts.Preconditions = &metav1.Preconditions{}
			}
			if pre.UID != "" {
				uid := types.UID(pre.UID)
				opts.Preconditions.UID = &uid
			}
			if pre.ResourceVersion != "" {
				opts.Preconditions.ResourceVersion = &pre.ResourceVersion
			}
			return nil, c.Delete(ctx, key.Name, opts)
		})
	return err
}

// call makes one call to the API server; do may return neither object nor error.
func (s *Store) call(ctx context.Context, verb verb, key stream.ResourceKey,
	do func(context.Context, dynamic.ResourceInterface) (*unstructured.Unstructured, error),
) (backends.Object, error) {
	start := time.Now()
	object, err := s.try(ctx, key, do)
	kind := kindOf(verb, err)
	s.metrics.called(verb, key.Kind, kind, time.Since(start))
	if err != nil {
		return backends.Object{}, &callError{verb: verb, key: key, kind: kind, cause: err}
	}
	return object, nil
}

func (s *Store) try(ctx context.Context, key stream.ResourceKey,
	do func(context.Context, dynamic.ResourceInterface) (*unstructured.Unstructured, error),
) (backends.Object, error) {
	resource := resourceOf(key.Kind)
	switch {
	case resource.Empty() || !s.watches(key.Kind):
		return backends.Object{}, contentError("the store does not hold this kind")
	case key.Namespace == "" || key.Name == "":
		return backends.Object{}, contentError("namespace and name are required")
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	u, err := do(ctx, s.writes.Resource(resource).Namespace(key.Namespace))
	if err != nil || u == nil {
		return backends.Object{}, err
	}
	return newObject(key.Kind, u)
}

func (s *Store) watches(kind stream.Kind) bool {
	for _, i := range s.informers {
		if i.kind == kind {
			return true
		}
	}
	return false
}

func decode(key stream.ResourceKey, raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, errors.Join(contentError("decode the object"), err)
	}
	if u.GetKind() != string(key.Kind) || u.GetNamespace() != key.Namespace || u.GetName() != key.Name {
		return nil, contentError(fmt.Sprintf("the object is %s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()))
	}
	u.SetManagedFields(nil)
	return u, nil
}

func (e contentError) Error() string { return string(e) }
