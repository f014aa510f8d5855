// Package appspec knows the specs of Argo CD's Applications and AppProjects: which fields they
// have, and what becomes of each on its way; the forms in which Argo CD stores them; and what
// of a sync operation an Application's own spec says. Pure.
package appspec

import (
	"slices"

	"github.com/argomesh/argomesh/backends/object"
)

// The fields that Argo CD asks to tell whether a block says anything at all: its IsZero
// functions (pkg/apis/application/v1alpha1/types.go), the same in 3.2 to 3.5. Other
// fields of these blocks do not count, such as forceCommonLabels: a block that has only
// those is dropped. valuesObject is not among them, since an empty one counts too.
var (
	kustomizeFields = []string{
		"namePrefix", "nameSuffix", "version", "namespace", "images", "replicas", "commonLabels", "commonAnnotations",
		"patches", "components", "kubeVersion", "apiVersions", "ignoreMissingComponents",
	}
	helmFields = []string{
		"version", "releaseName", "valueFiles", "parameters", "fileParameters", "values", "passCredentials",
		"ignoreMissingValueFiles", "skipCrds", "skipTests", "skipSchemaValidation", "kubeVersion", "apiVersions", "namespace",
	}
	jsonnetFields = []string{"extVars", "tlas", "libs"}
	// An empty "automated" is a setting, and so are the others when they are there.
	syncPolicyFields = []string{"automated", "retry", "managedNamespaceMetadata"}
)

// Normalize brings the spec of an Application into the form to which a spoke's
// application controller brings it (NormalizeApplicationSpec). A hub without a
// controller keeps what people wrote, and without this the two would undo each other
// for ever. Releases before 3.5 leave the list of sources as it is, and so they leave
// what this makes of it.
func Normalize(spec map[string]any) {
	if project, ok := spec["project"].(string); ok && project == "" {
		spec["project"] = object.DefaultProjectName
	}
	if policy, ok := spec["syncPolicy"].(map[string]any); ok && IsZero(policy["syncOptions"]) &&
		!hasAny(policy, syncPolicyFields, isThere) {
		delete(spec, "syncPolicy")
	}
	sources, _ := spec["sources"].([]any)
	if len(sources) == 0 {
		sources = []any{spec["source"]}
	}
	for _, s := range sources {
		if source, ok := s.(map[string]any); ok {
			normalizeSource(source)
		}
	}
}

func normalizeSource(source map[string]any) {
	if kustomize, ok := source["kustomize"].(map[string]any); ok && !hasAny(kustomize, kustomizeFields, IsSet) {
		delete(source, "kustomize")
	}
	if helm, ok := source["helm"].(map[string]any); ok && !isThere(helm["valuesObject"]) &&
		!hasAny(helm, helmFields, IsSet) {
		delete(source, "helm")
	}
	directory, ok := source["directory"].(map[string]any)
	if !ok || IsSet(directory["recurse"]) {
		return
	}
	if jsonnet, ok := directory["jsonnet"].(map[string]any); ok && hasAny(jsonnet, jsonnetFields, IsSet) {
		return
	}
	delete(directory, "recurse")
	delete(directory, "jsonnet")
	if IsZero(directory["exclude"]) && IsZero(directory["include"]) {
		delete(source, "directory")
	}
}

// hasAny reports whether one of these fields is as is says.
func hasAny(m map[string]any, fields []string, is func(any) bool) bool {
	return slices.ContainsFunc(fields, func(name string) bool { return is(m[name]) })
}

func isThere(v any) bool { return v != nil }

// IsSet reports whether a value says something.
func IsSet(v any) bool { return !IsZero(v) }

// IsZero reports whether a value is the one that Go leaves out as empty.
func IsZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
