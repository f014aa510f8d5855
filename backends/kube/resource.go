package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/stream"
)

// FieldManager owns the fields we write, in metadata.managedFields.
const FieldManager = "argomesh"

const defaultTimeout = 15 * time.Second

// resourceOf says under which resource the API server serves a kind; empty for one that is
// none of ours.
func resourceOf(kind stream.Kind) schema.GroupVersionResource {
	r, _ := kind.APIResource()
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}
