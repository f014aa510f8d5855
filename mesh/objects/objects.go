// Package objects compares the Kubernetes objects that were rendered for a mesh with
// those that are there, plans what makes them equal, and carries that out by
// server-side apply. It knows no mesh: what an object means is its renderer's to say.
//
// An object is ours when our field manager has applied it, which the API server
// remembers. Others' objects are never changed, and nothing else is deleted.
//
//	plan := objects.Plan(want, have, objects.Manager("argocd"))
//	for _, change := range plan {
//		_, err := writer.Write(ctx, change)
//	}
package objects

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scope is where objects of one kind are.
type Scope struct {
	Kind     string
	Resource schema.GroupVersionResource
	// Namespace is empty for a kind without namespaces.
	Namespace string
}

// Difference is a sentence about how what is there differs from what should be.
type Difference struct {
	Text string
	// About is the SPIFFE ID without its scheme that the sentence is about. Empty means
	// that it is about no one in particular.
	About string
}

// String returns the sentence.
func (d Difference) String() string { return d.Text }

// managerPrefix begins the field managers of all hubs.
const managerPrefix = "argomesh-mesh."

// Manager returns the field manager of the hub in a namespace. Two hubs of one Kubernetes
// cluster have two, so that neither takes the other's objects for its own.
func Manager(namespace string) string { return managerPrefix + namespace }

// AppliedBy reports whether manager has applied the object.
func AppliedBy(o *unstructured.Unstructured, manager string) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return true
		}
	}
	return false
}

// otherHub returns the namespace of another hub that has applied the object, if any.
func otherHub(o *unstructured.Unstructured, manager string) string {
	for _, entry := range o.GetManagedFields() {
		if namespace, ok := strings.CutPrefix(entry.Manager, managerPrefix); ok && entry.Manager != manager {
			return namespace
		}
	}
	return ""
}

// Name names an object among all kinds and namespaces, as sentences do.
func Name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}
