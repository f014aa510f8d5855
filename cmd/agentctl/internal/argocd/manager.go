package argocd

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manager names the tool that manages an object and would put back what someone else changes in
// it; "" for none that is known.
func Manager(o metav1.Object) string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return fmt.Sprintf("%s %s", owner.Kind, owner.Name)
	}
	if o.GetAnnotations()["meta.helm.sh/release-name"] == Stock {
		return "" // agentctl brought it, and leaves out of the release what it changes
	}
	for _, by := range []struct{ key, tool string }{
		{"argocd.argoproj.io/tracking-id", "Argo CD"},
		{"argocd.argoproj.io/instance", "Argo CD"},
		{"kustomize.toolkit.fluxcd.io/name", "Flux"},
		{"helm.toolkit.fluxcd.io/name", "Flux"},
		{"meta.helm.sh/release-name", "helm"},
	} {
		if o.GetAnnotations()[by.key] != "" || o.GetLabels()[by.key] != "" {
			return by.tool
		}
	}
	return ""
}
