package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of Argomesh.
const GroupName = "argomesh.io"

// AgentKind is the kind of an Agent.
const AgentKind = "Agent"

var (
	// SchemeGroupVersion is the group and version of this package's types.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// AgentResource is the resource a dynamic client asks for Agents.
	AgentResource = SchemeGroupVersion.WithResource("agents")

	// AccessRequestResource is the resource a dynamic client asks for AccessRequests.
	AccessRequestResource = SchemeGroupVersion.WithResource("accessrequests")

	// AccessRequestGroupVersionKind is the kind an AccessRequest object carries.
	AccessRequestGroupVersionKind = SchemeGroupVersion.WithKind(AccessRequestKind)

	// AgentGroupVersionKind is the kind an Agent object carries.
	AgentGroupVersionKind = SchemeGroupVersion.WithKind(AgentKind)
)

// AddToScheme makes s know this package's types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Agent{}, &AgentList{}, &AccessRequest{}, &AccessRequestList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
