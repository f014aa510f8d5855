// Package generators tells which ApplicationSets of a hub select the cluster of an Agent, and what
// they do when it changes. It knows only what the labels of the cluster can say.
package generators

import (
	"context"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// applicationSetResource is Argo CD's.
var applicationSetResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applicationsets"}

// Choice is whether an ApplicationSet selects a cluster.
type Choice int

const (
	// NotSelected is of a cluster that the generators leave out.
	NotSelected Choice = iota
	// MaybeSelected is a generator whose answer depends on the parameters of others.
	MaybeSelected
	// Selected is of a cluster that one of the generators takes.
	Selected
)

// Chooses returns whether a cluster generator of set selects the cluster Secret that has
// these labels, as far as its labels alone can say.
func Chooses(set *unstructured.Unstructured, of map[string]string) Choice {
	spec, _, _ := unstructured.NestedMap(set.Object, "spec")
	return anyOf(spec["generators"], of)
}

// anyOf is the best answer of a list of generators.
func anyOf(generators any, of map[string]string) Choice {
	best := NotSelected
	list, _ := generators.([]any)
	for _, g := range list {
		if generator, ok := g.(map[string]any); ok {
			best = max(best, generatorChooses(generator, of))
		}
	}
	return best
}

func generatorChooses(generator map[string]any, of map[string]string) Choice {
	best := NotSelected
	if clusters, ok := generator["clusters"].(map[string]any); ok {
		best = selectorChooses(clusters["selector"], of)
	}
	for _, kind := range []string{"matrix", "merge"} { // which have generators of their own
		if combined, ok := generator[kind].(map[string]any); ok {
			best = max(best, anyOf(combined["generators"], of))
		}
	}
	if generator["selector"] != nil { // of what it generates
		best = min(best, MaybeSelected)
	}
	return best
}

func selectorChooses(selector any, of map[string]string) Choice {
	fields, _ := selector.(map[string]any)
	var typed metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &typed); err != nil {
		return MaybeSelected
	}
	chosen, err := metav1.LabelSelectorAsSelector(&typed)
	switch {
	case err != nil: // such as a value that another generator of a matrix fills in
		return MaybeSelected
	case len(fields) == 0 || chosen.Matches(labels.Set(of)):
		return Selected
	}
	return NotSelected
}

// DeletesWorkloads reports whether set deletes, with its workloads, an Application that it
// no longer generates.
func DeletesWorkloads(set *unstructured.Unstructured) bool {
	keeps, _, _ := unstructured.NestedBool(set.Object, "spec", "syncPolicy", "preserveResourcesOnDeletion")
	sync, _, _ := unstructured.NestedString(set.Object, "spec", "syncPolicy", "applicationsSync")
	return !keeps && sync != "create-only" && sync != "create-update"
}

// ReadsLabels reports whether what set generates depends on the labels of clusters, so that
// it may generate another Application when one changes.
func ReadsLabels(set *unstructured.Unstructured) bool {
	spec, err := json.Marshal(set.Object["spec"])
	// of text and of Go templates
	return err != nil || strings.Contains(string(spec), "metadata.labels") || strings.Contains(string(spec), ".metadata")
}

// List returns the ApplicationSets of the hub, of all namespaces; none where Argo CD has no such
// kind.
func List(ctx context.Context, h *cli.Hub) ([]*unstructured.Unstructured, error) {
	var sets []*unstructured.Unstructured
	err := cli.EachOf(ctx, dynamic.New(h.Rest).Resource(applicationSetResource), func(o *unstructured.Unstructured) error {
		sets = append(sets, o)
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return sets, err
}
