package cli

import (
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// annotators bounds concurrent patches.
const annotators = 8

// AnnotateApplications sets an annotation of Applications and AppProjects to true, unless they
// are gone.
func (h *Hub) AnnotateApplications(ctx context.Context, objects []*unstructured.Unstructured, key string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(annotators)
	for _, o := range objects {
		g.Go(func() error {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": o.GetUID(), "annotations": map[string]any{key: "true"},
			}})
			if err != nil {
				return err
			}
			where := h.Applications
			if o.GetKind() == "AppProject" {
				where = h.Projects
			}
			_, err = where.Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: "agentctl"})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict of its UID
				return nil
			}
			return err
		})
	}
	return g.Wait()
}
