// Package v1alpha1 is version v1alpha1 of the API group argomesh.io. It owns
// the custom resources Agent and AccessRequest: their Go types, the rules the API server
// checks, and the CustomResourceDefinitions generated from both. What an Agent means (which
// SPIFFE ID belongs to which agent, which cluster Secret is kept for it) is
// decided in packages fleet and fleet/controller.
//
//	apiVersion: argomesh.io/v1alpha1
//	kind: Agent
//	metadata:
//	  name: edge-1
//	  namespace: argocd
//	spec:
//	  mode: managed
//	  identity:
//	    spiffeIDs: ["spiffe://example.org/argomesh/agent/edge-1"]
//
// +kubebuilder:object:generate=true
// +groupName=argomesh.io
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object paths=. output:object:dir=.
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd paths=. output:crd:dir=../../charts/argomesh-principal/files/crds
