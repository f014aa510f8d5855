package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer keeps a deleted Agent until what its deletion policy asks for is
// done, its streams have ended and its cluster Secret is gone.
const Finalizer = "argomesh.io/agent"

// AcceptDeletionsAnnotation accepts deletions that are held: its value is the ID
// of the hold in AgentStatus.DeletionsHeld. Any other value, such as the ID of an
// earlier hold, accepts nothing.
const AcceptDeletionsAnnotation = "argomesh.io/accept-deletions"

// MaxParked is the largest number of objects AgentStatus.Parked names.
const MaxParked = 50

// MaxShortened is the largest number of objects AgentStatus.Shortened names.
const MaxShortened = 50

// MaxHeld is the largest number of objects DeletionsHeld.Objects names.
const MaxHeld = 50

// MaxGone is the largest number of entries of AgentCascades.Gone.
const MaxGone = 64

// DefaultCascadeHold is AgentSpec.CascadeHold where the Agent says nothing, as in its
// definition.
const DefaultCascadeHold int32 = 10

// MaxHistoryTokens is the largest number of tokens AgentHistory.Tokens keeps.
const MaxHistoryTokens = 3

// Agent registers one spoke with the hub it lives on. The name of the object is
// the name of the agent, of its cluster in Argo CD, and by default of the
// namespace its Applications live in.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=agt,categories=argomesh
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Apps",type=integer,JSONPath=`.status.counts.applications`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Connected",type=boolean,priority=1,JSONPath=`.status.connected`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,priority=1,JSONPath=`.spec.suspended`
// +kubebuilder:printcolumn:name="Parked",type=integer,priority=1,JSONPath=`.status.counts.parked`
// +kubebuilder:printcolumn:name="Held",type=integer,priority=1,JSONPath=`.status.deletionsHeld.total`
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
// +kubebuilder:validation:Enum=orphan;cascade
type DeletionPolicy string

const (
	// DeletionOrphan ends the agent's streams and removes its cluster Secret, and
	// leaves everything on the spoke as it is.
	DeletionOrphan DeletionPolicy = "orphan"
	// DeletionCascade deletes the agent's Applications with their workloads first:
	// the Agent stays until the spoke has confirmed that they are gone. Only a
	// managed agent can have it.
	DeletionCascade DeletionPolicy = "cascade"
)

// ChildApplications says what the hub does about Applications of a managed spoke
// that it did not put there: children of an app of apps.
//
// +kubebuilder:validation:Enum=ignore;mirror
type ChildApplications string

const (
	// ChildApplicationsIgnore leaves them out of the hub.
	ChildApplicationsIgnore ChildApplications = "ignore"
	// ChildApplicationsMirror shows them on the hub, read-only: what is changed
	// there is undone.
	ChildApplicationsMirror ChildApplications = "mirror"
)

// ProjectRoles says what the hub does about the roles of an autonomous agent's
// AppProjects.
//
// +kubebuilder:validation:Enum=ignore;mirror
type ProjectRoles string

const (
	// ProjectRolesIgnore leaves them out of the mirrors.
	ProjectRolesIgnore ProjectRoles = "ignore"
	// ProjectRolesMirror gives the mirrors those roles whose every policy can be
	// written again for the mirror and the agent's namespaces.
	ProjectRolesMirror ProjectRoles = "mirror"
)

// AgentSpec is what the hub's operator wants of an agent.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'cascade' || self.mode == 'managed'",message="deletionPolicy cascade is for mode managed: the Applications of an autonomous agent belong to its spoke"
// +kubebuilder:validation:XValidation:rule="!has(self.childApplications) || self.childApplications != 'mirror' || self.mode == 'managed'",message="childApplications mirror is for mode managed: of an autonomous agent the hub shows every Application"
// +kubebuilder:validation:XValidation:rule="!has(self.projectRoles) || self.projectRoles != 'mirror' || self.mode == 'autonomous'",message="projectRoles mirror is for mode autonomous: the AppProjects of a managed agent are the hub's own"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.tokenGeneration) || has(self.tokenGeneration) && self.tokenGeneration >= oldSelf.tokenGeneration",message="tokenGeneration never goes down: tokens that were ended would count again"
type AgentSpec struct {
	// Mode says which side owns the Applications of this agent: managed, the hub,
	// or autonomous, the spoke. It cannot be changed; delete and create the Agent
	// instead.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mode cannot be changed: delete the Agent and create it with the other mode"
	Mode AgentMode `json:"mode"`

	// Identity says who may connect as this agent.
	Identity AgentIdentity `json:"identity"`

	// Mapping says where on the hub the agent's Applications are. Absent means in the
	// namespace of the agent's name.
	// +optional
	Mapping *AgentMapping `json:"mapping,omitempty"`

	// TokenGeneration is that of the tokens with which Argo CD reaches this spoke: raising it
	// ends those that there are, and the cluster Secret gets a new one. It never goes down.
	// "agentctl agent revoke-tokens" raises it by one.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TokenGeneration int64 `json:"tokenGeneration,omitempty"`

	// Suspended ends the agent's streams and refuses new ones until it is false
	// again. The spoke keeps running what it has.
	// +optional
	Suspended bool `json:"suspended,omitempty"`

	// DeletionPolicy says what deleting this Agent does to the spoke. With orphan
	// nothing on the spoke is touched. With cascade the Agent stays until the spoke
	// has removed its Applications with their workloads; only mode managed can have
	// it. It can be changed while the Agent is being deleted: orphan lets one go
	// whose spoke does not come back.
	// +kubebuilder:default=orphan
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// CascadeHold is how many of this agent's Applications may be asked to go with their
	// workloads before those that the spoke was not yet told of wait for a person: when
	// there are more, and they are more than half of those that there were five minutes
	// before; counted within five minutes, and as long as they are not gone. Of all agents
	// together it is 10. With 0 nothing of this agent waits, and it is not counted with the
	// others. It has no meaning for mode autonomous.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +optional
	CascadeHold *int32 `json:"cascadeHold,omitempty"`

	// ChildApplications says what becomes of Applications on the spoke that the hub
	// did not put there, such as children of an app of apps. With ignore the hub
	// does not show them, with mirror it shows them read-only; the spoke's own are
	// never touched. A hub that maps by destination shows those of the namespace of the
	// spoke's Argo CD alone, in its namespace of the agent's name. Only mode managed can
	// have mirror.
	// +kubebuilder:default=ignore
	// +optional
	ChildApplications ChildApplications `json:"childApplications,omitempty"`

	// ProjectRoles says what becomes of the roles of the spoke's AppProjects. With ignore
	// their mirrors on the hub have none. With mirror they have those that are about
	// Applications, their logs and exec alone, rewritten for the mirror and the
	// agent's namespaces; a role with any other policy is left out, and named in
	// status.parked. So the spoke's owner says which groups of the hub's users have
	// which rights to the agent's mirrors. Tokens stay on the spoke. Only mode
	// autonomous can have mirror.
	// +kubebuilder:default=ignore
	// +optional
	ProjectRoles ProjectRoles `json:"projectRoles,omitempty"`

	// Adopt names the objects of the hub that mirrors of this agent may take over, as
	// globs of kind/name (application or appproject), with the namespace before the name
	// for an Application whose namespace is another one on the spoke than that of its Argo
	// CD. What was found comes back when the mirror goes. Absent means none: what is in
	// the way of a mirror stays, and the mirror is parked. Only mode autonomous uses it.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.matches('^(application|appproject|[*])/.+$'))",message="must be application/NAME, application/NAMESPACE/NAME or appproject/NAME, in which NAME may be a glob"
	// +listType=set
	// +optional
	Adopt []AdoptPattern `json:"adopt,omitempty"`

	// Labels are added to the cluster Secret of this agent, where the cluster
	// generator of an ApplicationSet can select on them.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('argocd.argoproj.io/secret-type' in self) && !('argocd-agent.argoproj-labs.io/agent-name' in self)",message="argocd.argoproj.io/secret-type and argocd-agent.argoproj-labs.io/agent-name are set by Argomesh"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="keys must be label keys: an optional DNS name and '/', then at most 63 of letters, digits, '-', '_' and '.'"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Access says what live access the hub may ask of this spoke. Absent means none.
	// +optional
	Access *AgentAccess `json:"access,omitempty"`

	// Limits bound what this agent may have the principal write to the hub. Absent means
	// the defaults. Condition OverBudget says when something waits for them.
	// +optional
	Limits *AgentLimits `json:"limits,omitempty"`
}

// AdoptPattern names objects of the hub: see AgentSpec.Adopt.
//
// +kubebuilder:validation:MaxLength=320
type AdoptPattern string

// AgentMapping says where on the hub the Applications of an agent are.
type AgentMapping struct {
	// Namespaces are the hub's namespaces that are this agent's alone, one for each
	// namespace of the spoke whose Applications the hub has. One that two Agents name
	// stays with the older one. Of a managed agent they have no meaning where the
	// principal maps by destination.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.hub == a.hub))",message="a namespace of the hub is there twice"
	// +listType=map
	// +listMapKey=spoke
	// +optional
	Namespaces []MappedNamespace `json:"namespaces,omitempty"`
}

// MappedNamespace is a namespace of the spoke and one of the hub.
type MappedNamespace struct {
	// Spoke is the namespace on the spoke; empty for that of its Argo CD. The agent's own
	// configuration has to name it too.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Spoke string `json:"spoke"`
	// Hub is the namespace on the hub.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kube-')",message="namespaces that begin with kube- belong to Kubernetes"
	Hub string `json:"hub"`
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

	// Summary is the state of the agent in a word or two, for people: Connected, Away,
	// Refused: mode (or name, version, protocol, SPIFFE ID), Never connected, Suspended,
	// Deleting, or what waits for a person, such as 5 deletions held.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Summary string `json:"summary,omitempty"`

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

	// SPIFFEID is the SPIFFE ID by which the agent last connected.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	SPIFFEID string `json:"spiffeID,omitempty"`

	// SVIDExpiry is when the newest SVID the agent proved expires.
	// +optional
	SVIDExpiry *metav1.Time `json:"svidExpiry,omitempty"`

	// ClusterProject is the AppProject to which the agent's cluster Secret scopes the
	// cluster, by its key project. It is absent when there is none.
	// +optional
	ClusterProject string `json:"clusterProject,omitempty"`

	// Counts are numbers of objects.
	// +optional
	Counts AgentCounts `json:"counts,omitempty,omitzero"`

	// Parked names objects that one side's API server refuses, oldest first, at
	// most 50. Each is tried again on its own and delays no other. An AppProject is
	// also named when its mirror is without a role that it has: see spec.projectRoles.
	// Counts.Parked is the whole number.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Parked []ParkedObject `json:"parked,omitempty"`

	// Shortened names objects that were applied without some fields, since the API
	// server that they went to does not know these, or since the policy of the spoke's
	// owner does not admit them any more, by name, at most 50. Counts.Shortened is the
	// whole number.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Shortened []ShortenedObject `json:"shortened,omitempty"`

	// History is what a spoke must continue, so that what is no longer on the hub
	// counts as deleted rather than as lost. It is absent until the first agent
	// connected.
	// +optional
	History *AgentHistory `json:"history,omitempty"`

	// Link says which principal had the agent's link last, by the newest connection whose
	// history was checked. It stays while the agent is away: what the hub shows of what
	// the spoke answered is for that principal to change. Absent until the first.
	// +optional
	Link *AgentLink `json:"link,omitempty"`

	// DeletionsHeld are deletions that wait until a person accepts them, with
	// annotation argomesh.io/accept-deletions or agentctl agent accept-deletions.
	// They stay here while the agent is away. Absent means that none are held.
	// +optional
	DeletionsHeld *DeletionsHeld `json:"deletionsHeld,omitempty"`

	// Cascades keeps over restarts of the principal which of the agent's Applications are
	// asked to go with their workloads.
	// +optional
	Cascades *AgentCascades `json:"cascades,omitempty"`

	// Budget keeps over restarts of the principal what is left of spec.limits. It is absent
	// while nothing is missing, and as of about ObservedAt.
	// +optional
	Budget *AgentBudget `json:"budget,omitempty"`

	// Conditions are Ready, Connected, ClusterSecretReady, ClusterSecretConflict,
	// Conflict, DeletionsHeld, OverBudget once the agent was connected and, where there is a
	// Redis proxy, CacheMismatch; ProjectNames
	// while the names of Agents share those of projects; MappingIgnored while something of the
	// mapping is not read; ChildApplications while something keeps them from being shown by
	// destination; MeshPolicy where the principal
	// looks after a mesh.
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
	// Shortened is the number of objects that were applied without some fields, also
	// of those Shortened does not name.
	// +optional
	Shortened int64 `json:"shortened,omitempty"`
	// Delayed is the number of objects that wait to be written since a budget is used up:
	// see condition OverBudget.
	// +optional
	Delayed int64 `json:"delayed,omitempty"`
}

// ShortenedObject is an object that was applied without some fields.
type ShortenedObject struct {
	// Kind is the kind of the object, such as AppProject.
	Kind string `json:"kind"`
	// Namespace is the namespace of the object on the hub.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// Paths lead to the fields, as in spec.sources[].tagPrefix.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Paths []string `json:"paths"`
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

// AgentLink says who has, or last had, the link of an agent.
type AgentLink struct {
	// Replica is the principal, as in AgentStatus.Replica.
	// +kubebuilder:validation:MaxLength=253
	Replica string `json:"replica"`
	// Life is random at each start of a principal.
	// +kubebuilder:validation:MaxLength=64
	Life string `json:"life"`
	// Connection is the ID of the connection in both logs.
	// +kubebuilder:validation:MaxLength=64
	Connection string `json:"connection"`
	// Process is random at each start of an agent; empty of one that does not say.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Process string `json:"process,omitempty"`
	// Turn counts the connections that this process of the agent has opened.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Turn int64 `json:"turn,omitempty"`
	// Epoch grows by one with each connection.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
}

// AgentHistory names what hub and spoke have in common. The spoke keeps the newest
// token it was told and shows it when it connects. A token that is not here means
// that the hub was restored from a backup, or made again; no token, or another
// cluster UID, that the spoke was. Then nothing is deleted for being absent until
// a person accepts it, and a new history begins.
type AgentHistory struct {
	// ID names the history. It is random, and new after each break.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Tokens are random, newest first, at most 3. A new one is added when
	// ObservedAt is renewed, once the spoke has confirmed the one before; the second
	// as soon as it has confirmed the first.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	Tokens []string `json:"tokens"`
	// ClusterUID is the UID of the spoke's namespace kube-system, which no other
	// Kubernetes cluster has.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID"`
}

// HoldReason says why deletions are held.
type HoldReason string

const (
	// HoldHistoryBroken means that hub or spoke is not the one that the other knew:
	// restored, made again or replaced.
	HoldHistoryBroken HoldReason = "HistoryBroken"
	// HoldTooMany means that more than 10 objects and more than 20 % of a collection
	// would go at once.
	HoldTooMany HoldReason = "TooMany"
	// HoldCascade means that Applications are asked to go with their workloads, and that
	// there are too many of them, or that their namespace is being deleted, or their
	// definition.
	HoldCascade HoldReason = "CascadeHeld"
)

// DeletionsHeld are deletions that wait for a person.
type DeletionsHeld struct {
	// ID names this set of deletions for this reason. Another set has another ID, so
	// that only what was shown can be accepted.
	ID string `json:"id"`
	// Since is when they were first held, by the hub's clock.
	Since metav1.Time `json:"since"`
	// Reason is HistoryBroken, CascadeHeld or TooMany.
	Reason HoldReason `json:"reason"`
	// Message says for people what happened.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// Total is the number of objects held, also of those Objects does not name.
	Total int64 `json:"total"`
	// WithWorkloads is how many of them would take their workloads along. Those can also
	// be let go without them, with agentctl agent keep-workloads.
	// +optional
	WithWorkloads int64 `json:"withWorkloads,omitempty"`
	// Objects names the objects held, at most 50.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Objects []HeldObject `json:"objects,omitempty"`
}

// HeldObject is an object whose deletion is held.
type HeldObject struct {
	// Kind is the kind of the object, such as Application.
	Kind string `json:"kind"`
	// Namespace is the namespace of the object where it would be deleted.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// WithWorkloads says that it would take its workloads along.
	// +optional
	WithWorkloads bool `json:"withWorkloads,omitempty"`
}

// AgentCascades is what is remembered of Applications that are asked to go with their
// workloads, beside what the Applications say themselves.
type AgentCascades struct {
	// Held says for people why those wait that the spoke was not yet told of; empty when
	// they do not.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Held string `json:"held,omitempty"`
	// AcceptedUntil is until when what was asked for is accepted.
	// +optional
	AcceptedUntil *metav1.Time `json:"acceptedUntil,omitempty"`
	// Gone are numbers of Applications that went of late, oldest first.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Gone []GoneApplications `json:"gone,omitempty"`
}

// GoneApplications are Applications that went at about one time.
type GoneApplications struct {
	// At is when those that went with their workloads were asked to, and the others went.
	At metav1.Time `json:"at"`
	// WithWorkloads is how many went with their workloads.
	// +optional
	WithWorkloads int64 `json:"withWorkloads,omitempty"`
	// Others is how many went without.
	// +optional
	Others int64 `json:"others,omitempty"`
}

// Types of AgentStatus.Conditions.
const (
	// ConditionReady is true when the registration is in force: the cluster Secret
	// is kept, no SPIFFE ID and no namespace is in conflict, the Agent is neither suspended nor
	// being deleted, and an agent has connected by it. It says nothing about the connection
	// of this moment, since a spoke may be away for weeks.
	ConditionReady = "Ready"
	// ConditionConnected is AgentStatus.Connected, for kubectl wait. Its message says since
	// when, and of an agent that is refused why, with a cure.
	ConditionConnected = "Connected"
	// ConditionClusterSecretReady is true when the cluster Secret exists as this
	// Agent needs it.
	ConditionClusterSecretReady = "ClusterSecretReady"
	// ConditionClusterSecretConflict is true when a Secret that is not ours has
	// the name, the cluster name or the server of this agent. The message names
	// it. Nothing new is sent to the agent meanwhile.
	ConditionClusterSecretConflict = "ClusterSecretConflict"
	// ConditionConflict is true when a SPIFFE ID, or a namespace on the hub, of this
	// Agent belongs to an older one. The message names both.
	ConditionConflict = "Conflict"
	// ConditionDeletionsHeld is true while deletions wait for a person. Its reason
	// is that of AgentStatus.DeletionsHeld; the message names the numbers and the
	// command that accepts them.
	ConditionDeletionsHeld = "DeletionsHeld"
	// ConditionOverBudget is true when within the last minute something of this agent waited
	// for spec.limits, or for the limit of all agents together. The message says for which, and how to
	// raise it. It is as of the last connection, and absent until one was.
	ConditionOverBudget = "OverBudget"
	// ConditionProjectNames is there, and true, while the name of another autonomous Agent
	// begins with this one's and a dash, or the other way round: the mirror of a project
	// whose name fits both is that of the longer name.
	ConditionProjectNames = "ProjectNames"
	// ConditionMappingIgnored is there, and true, while someone has written of the mapping
	// what no one reads: mapping.by of the principal is not the mapping of the hub, or the
	// Agent has spec.mapping.namespaces where those of a managed agent do not count.
	ConditionMappingIgnored = "MappingIgnored"
	// ConditionChildApplications is there, and true, while the hub maps by destination and
	// something keeps child applications from being shown that spec.childApplications asks
	// for: their namespace on the hub is someone else's, the hub's Argo CD does not show it,
	// or they are in a namespace of the spoke of which none are shown.
	ConditionChildApplications = "ChildApplications"
	// ConditionCacheMismatch is true when the spoke's Argo CD keeps its cache in
	// another version, or compressed in another way, than the hub's asks for, so that
	// the hub cannot show trees. The message names both. It is as of the last tree
	// that was asked for, and absent until one was.
	ConditionCacheMismatch = "CacheMismatch"
	// ConditionMeshPolicy is true when the mesh of the hub admits this agent as its
	// registration says. It is there only while the principal looks after the mesh's
	// objects; the message says how they differ, in sentences about this agent first.
	ConditionMeshPolicy = "MeshPolicy"
)
