package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/stream"
)

// FieldManager owns the fields we write, in metadata.managedFields.
const FieldManager = "argomesh"

const defaultTimeout = 15 * time.Second

// resources says under which resource the API server serves a kind.
var resources = map[stream.Kind]schema.GroupVersionResource{
	stream.Application: {Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
	stream.AppProject:  {Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
	stream.Secret:      {Version: "v1", Resource: "secrets"},
	stream.ConfigMap:   {Version: "v1", Resource: "configmaps"},
}
