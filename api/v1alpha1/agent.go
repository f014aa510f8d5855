package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer keeps a deleted Agent until its streams have ended and its cluster
// Secret is gone.
const Finalizer = "argomesh.io/agent"

// MaxParked is the largest number of objects AgentStatus.Parked names.
const MaxParked = 50

// Agent registers one spoke with the hub it lives on. The name of the object is
// the name of the agent, of its cluster in Argo CD, and by default of the
// namespace its Applications live in.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=agt,categories=argomesh
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Connected",type=boolean,JSONPath=`.status.connected`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Apps",type=integer,JSONPath=`.status.counts.applications`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,priority=1,JSONPath=`.spec.suspended`
// +kubebuilder:printcolumn:name="Parked",type=integer,priority=1,JSONPath=`.status.counts.parked`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.status.versions.agent`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,priority=1,JSONPath=`.status.versions.kubernetes`
// +kubebuilder:printcolumn:name="SVID expiry",type=string,format=date-time,priority=1,JSONPath=`.status.svidExpiry`
// +kubebuilder:printcolumn:name="SPIFFE ID",type=string,priority=1,JSONPath=`.spec.identity.spiffeIDs[*]`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label: at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.startsWith('kube-')",message="metadata.name must not begin with kube-: it is also a namespace of the hub, and those belong to Kubernetes"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'in-cluster'",message="metadata.name must not be in-cluster: Argo CD gives that name to the cluster it runs in"
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the hub's operator wants.
	Spec AgentSpec `json:"spec"`
	// Status is what the principal last saw.
	// +optional
	Status AgentStatus `json:"status,omitempty"`
}

// AgentList is a list of Agents.
//
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Agent `json:"items"`
}

// AgentMode says which side owns the Applications of an agent.
//
// +kubebuilder:validation:Enum=managed;autonomous
type AgentMode string

const (
	// ModeManaged means that Applications are written on the hub and run on the
	// spoke.
	ModeManaged AgentMode = "managed"
	// ModeAutonomous means that Applications are written on the spoke and shown
	// on the hub.
	ModeAutonomous AgentMode = "autonomous"
)

// DeletionPolicy says what deleting an Agent does to its spoke.
//
// +kubebuilder:validation:Enum=orphan
type DeletionPolicy string

// DeletionOrphan ends the agent's streams and removes its cluster Secret, and
// leaves everything on the spoke as it is.
const DeletionOrphan DeletionPolicy = "orphan"

// AgentSpec is what the hub's operator wants of an agent.
type AgentSpec struct {
	// Mode says which side owns the Applications of this agent: managed, the hub,
	// or autonomous, the spoke. It cannot be changed; delete and create the Agent
	// instead.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mode cannot be changed: delete the Agent and create it with the other mode"
	Mode AgentMode `json:"mode"`

	// Identity says who may connect as this agent.
	Identity AgentIdentity `json:"identity"`

	// Suspended ends the agent's streams and refuses new ones until it is false
	// again. The spoke keeps running what it has.
	// +optional
	Suspended bool `json:"suspended,omitempty"`

	// DeletionPolicy says what deleting this Agent does to the spoke. With orphan
	// nothing on the spoke is touched.
	// +kubebuilder:default=orphan
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Labels are added to the cluster Secret of this agent, where the cluster
	// generator of an ApplicationSet can select on them.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('argocd.argoproj.io/secret-type' in self) && !('argocd-agent.argoproj-labs.io/agent-name' in self)",message="argocd.argoproj.io/secret-type and argocd-agent.argoproj-labs.io/agent-name are set by Argomesh"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be label keys: an optional DNS name and '/', then at most 63 of letters, digits, '-', '_' and '.'"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// LabelValue is the value of a Kubernetes label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string

// AgentIdentity says who may connect as an agent.
type AgentIdentity struct {
	// SPIFFEIDs are the SPIFFE IDs this agent may present: of workloads, each with
	// a trust domain and a path, at most 2048 bytes (SPIFFE-ID, section 2). They
	// are compared exactly, trust domain included. An ID that two Agents name
	// stays with the older one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:Pattern=`^spiffe://[a-z0-9._-]{1,255}(/[A-Za-z0-9._-]+)+$`
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^spiffe://[^/]+/(.*/)?[.][.]?(/|$)')",message="a segment of a SPIFFE ID's path must not be . or .."
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^spiffe://[^/]+/spire(/|$)')",message="paths under /spire belong to SPIRE's servers and agents"
	// +listType=set
	SPIFFEIDs []string `json:"spiffeIDs"`
}

// AgentStatus is what the principal last saw of an agent. Values about the spoke
// stay when the agent disconnects; ObservedAt says how old they are.
type AgentStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions are
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Connected says whether the agent has a live sync stream.
	Connected bool `json:"connected"`

	// Replica is the principal that holds the stream; empty when there is none.
	// +optional
	Replica string `json:"replica,omitempty"`

	// Since is when Connected took its present value.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// ObservedAt is when the agent was last seen connected, by the hub's clock. It
	// is written at most once a minute.
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`

	// Versions are those the agent reported.
	// +optional
	Versions AgentVersions `json:"versions,omitempty,omitzero"`

	// SVIDExpiry is when the newest SVID the agent proved expires.
	// +optional
	SVIDExpiry *metav1.Time `json:"svidExpiry,omitempty"`

	// Counts are numbers of objects.
	// +optional
	Counts AgentCounts `json:"counts,omitempty,omitzero"`

	// Parked names objects that one side's API server refuses, oldest first, at
	// most 50. Each is tried again on its own and delays no other.
	// Counts.Parked is the whole number.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Parked []ParkedObject `json:"parked,omitempty"`

	// Conditions are Ready, Connected, ClusterSecretReady, ClusterSecretConflict
	// and Conflict.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentVersions are the versions an agent reported.
type AgentVersions struct {
	// Agent is the version of the agent binary.
	// +optional
	Agent string `json:"agent,omitempty"`
	// Kubernetes is the version of the spoke's API server; empty when unknown.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// AgentCounts are numbers of objects of one agent.
type AgentCounts struct {
	// Applications is the number of Applications in sync scope.
	Applications int64 `json:"applications"`
	// AppProjects is the number of AppProjects in sync scope.
	AppProjects int64 `json:"appProjects"`
	// Parked is the number of parked objects, also of those Parked does not name.
	Parked int64 `json:"parked"`
}

// ParkedObject is an object that cannot be applied at present.
type ParkedObject struct {
	// Kind is the kind of the object, such as Application.
	Kind string `json:"kind"`
	// Namespace is the namespace of the object on the hub.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// Reason is a word in CamelCase for programs.
	Reason string `json:"reason"`
	// Message says for people what is wrong.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the object was parked.
	Since metav1.Time `json:"since"`
}

// Types of AgentStatus.Conditions.
const (
	// ConditionReady is true when the registration is in force: the cluster Secret
	// is kept, no SPIFFE ID is in conflict, the Agent is neither suspended nor
	// being deleted. It says nothing about the connection, since a spoke may be
	// away for weeks.
	ConditionReady = "Ready"
	// ConditionConnected is AgentStatus.Connected, for kubectl wait.
	ConditionConnected = "Connected"
	// ConditionClusterSecretReady is true when the cluster Secret exists as this
	// Agent needs it.
	ConditionClusterSecretReady = "ClusterSecretReady"
	// ConditionClusterSecretConflict is true when a Secret that is not ours has
	// the name, the cluster name or the server of this agent. The message names
	// it. Nothing new is sent to the agent meanwhile.
	ConditionClusterSecretConflict = "ClusterSecretConflict"
	// ConditionConflict is true when a SPIFFE ID of this Agent belongs to an older
	// one. The message names both.
	ConditionConflict = "Conflict"
)
