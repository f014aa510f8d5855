package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/internal/diff"
)

// Writer carries out changes. It has no state and may be used concurrently.
type Writer struct {
	Client dynamic.Interface
	// Manager is that of [Plan].
	Manager string
	// Resources says under which resource the API serves each kind that is written.
	Resources map[string]schema.GroupVersionResource
	// DryRun has the API server check everything and store nothing.
	DryRun bool
}

// Write carries out one change and returns what the API server then has, nil after
// Delete. Refuse and Keep do nothing, and return what is there. An error for which
// apierrors.IsConflict is true says that the object is not Have any more: plan again.
//
// What others have put into the spec goes, which server-side apply alone would leave.
// What the API server itself puts in stays, and is in the result.
func (w Writer) Write(ctx context.Context, c Change) (*unstructured.Unstructured, error) {
	switch c.Action {
	case diff.Create, diff.Update:
		return w.apply(ctx, c)
	case diff.Delete:
		return nil, w.delete(ctx, c)
	}
	return c.Have, nil
}

func (w Writer) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := w.Client.Resource(w.Resources[o.GetKind()])
	if o.GetNamespace() == "" {
		return resource
	}
	return resource.Namespace(o.GetNamespace())
}

func (w Writer) dry() []string {
	if w.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (w Writer) apply(ctx context.Context, c Change) (*unstructured.Unstructured, error) {
	resource := w.resource(c.Want)
	body := c.Want.DeepCopy()
	if c.Action == diff.Create {
		// An apply cannot ask that nothing be there, and would change what is others'.
		switch _, err := resource.Get(ctx, c.Want.GetName(), metav1.GetOptions{}); {
		case err == nil:
			return nil, apierrors.NewConflict(w.Resources[c.Want.GetKind()].GroupResource(), c.Want.GetName(),
				fmt.Errorf("it is there meanwhile"))
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get %s: %w", c.Name, err)
		}
	} else {
		body.SetUID(c.Have.GetUID())
		body.SetResourceVersion(c.Have.GetResourceVersion())
		// What others have put in goes first: an apply leaves it in what admission sees, which may deny that.
		if !w.DryRun && hasMore(c.Have, c.Want) {
			patched, err := w.patch(ctx, resource, c.Name, c.Have, c.Want)
			if err != nil {
				return nil, err
			}
			body.SetResourceVersion(patched.GetResourceVersion())
		}
	}
	stored, err := resource.Apply(ctx, body.GetName(), body,
		metav1.ApplyOptions{FieldManager: w.Manager, Force: true, DryRun: w.dry()})
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", c.Name, err)
	}
	if w.DryRun || !foreign(stored, c.Want) {
		return stored, nil
	}
	return w.patch(ctx, resource, c.Name, stored, c.Want)
}

// patch makes the spec of have that of want.
func (w Writer) patch(ctx context.Context, resource dynamic.ResourceInterface, name string,
	have, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	patch, err := specPatch(have, want)
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", name, err)
	}
	stored, err := resource.Patch(ctx, have.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: w.Manager})
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", name, err)
	}
	return stored, nil
}

// hasMore reports whether a spec has fields that are not wanted.
func hasMore(have, want *unstructured.Unstructured) bool {
	for _, field := range Compare(have, want) {
		if strings.HasPrefix(field.Path, "spec") && field.Have != "" && field.Want == "" {
			return true
		}
	}
	return false
}

// foreign reports whether a spec that was applied has more than was wanted.
func foreign(stored, want *unstructured.Unstructured) bool {
	for _, field := range Compare(stored, want) {
		if strings.HasPrefix(field.Path, "spec") {
			return true
		}
	}
	return false
}

// specPatch returns a merge patch that makes the spec of have that of want, unless
// someone changes it first.
func specPatch(have, want *unstructured.Unstructured) ([]byte, error) {
	before, err := json.Marshal(map[string]any{"spec": have.Object["spec"]})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(map[string]any{"spec": want.Object["spec"]})
	if err != nil {
		return nil, err
	}
	raw, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, err
	}
	patch["metadata"] = map[string]any{"resourceVersion": have.GetResourceVersion()}
	return json.Marshal(patch)
}

func (w Writer) delete(ctx context.Context, c Change) error {
	uid, version := c.Have.GetUID(), c.Have.GetResourceVersion()
	err := w.resource(c.Have).Delete(ctx, c.Have.GetName(), metav1.DeleteOptions{
		DryRun: w.dry(), Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", c.Name, err)
	}
	return nil
}
