package v1alpha1

// AgentAccess says what live access the hub may ask of a spoke: what Argo CD shows
// and does there at once, through the resource proxy. The agent's own configuration
// says the same for its side, and a call goes through only when both allow it.
// Enabled alone allows discovery and reading the common kinds.
type AgentAccess struct {
	// Enabled switches live access on.
	Enabled bool `json:"enabled"`

	// Writes allows create, update, patch, delete, evictions and scale.
	// +optional
	Writes bool `json:"writes,omitempty"`
	// Secrets allows access to Secrets; changing them needs writes too. With masked they
	// are read with their keys and the sizes of their values alone, and never changed.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Enum=true;false;masked
	// +optional
	Secrets SecretAccess `json:"secrets,omitzero"`
	// Tokens allows what hands out or tests credentials: tokens of service accounts,
	// token reviews, certificate requests.
	// +optional
	Tokens bool `json:"tokens,omitempty"`
	// Proxy allows subresource proxy of pods, services and nodes, which reaches
	// whatever listens in the spoke's Kubernetes cluster.
	// +optional
	Proxy bool `json:"proxy,omitempty"`
	// Exec allows exec, attach, port-forward and all else that upgrades its connection,
	// but for watches, logs and proxies.
	// +optional
	Exec bool `json:"exec,omitempty"`
	// EphemeralContainers allows adding containers to a running pod.
	// +optional
	EphemeralContainers bool `json:"ephemeralContainers,omitempty"`
	// Nodes allows access to nodes; changing them needs writes too, their proxy proxy and exec.
	// +optional
	Nodes bool `json:"nodes,omitempty"`

	// Impersonate are the users that a call may ask to be, by their exact names, such
	// as system:serviceaccount:web:deployer. Groups are never impersonated.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([^\s*]|[^\s].*[^\s])$`
	// +listType=set
	// +optional
	Impersonate []string `json:"impersonate,omitempty"`

	// TrackedOnly restricts calls to objects that an Argo CD Application tracks, or
	// that belong to one of those.
	// +optional
	TrackedOnly bool `json:"trackedOnly,omitempty"`

	// Rules say which calls the switches above are about. Without rules that is one,
	// common-kinds, for the common kinds in every namespace.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	// +optional
	Rules []AccessRule `json:"rules,omitempty"`
}

// AccessRule covers calls. A call is covered when every list that is not empty has
// it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.groups) && size(self.groups) > 0) == (has(self.resources) && size(self.resources) > 0)",message="groups and resources are given both or neither"
type AccessRule struct {
	// Name is what a refusal and the audit call the rule. The names of the switches
	// are taken.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['enabled', 'discovery', 'non-resource-paths', 'impersonation', 'secrets', 'tokens', 'proxy', 'exec', 'ephemeral-containers', 'nodes', 'writes', 'hub-controller', 'tracked-only', 'deny-by-default'])",message="this name is built in: choose another"
	Name string `json:"name"`
	// Verbs are those of RBAC. Empty means all that the switches let through.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=get;list;watch;create;update;patch;delete;deletecollection
	// +listType=set
	// +optional
	Verbs []string `json:"verbs,omitempty"`
	// Groups are API groups: "" for the core, "*" for all. They are given together
	// with resources, or neither is, which means the common kinds.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\*)?$`
	// +listType=set
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Resources are plural names as in RBAC: pods, pods/log, */scale, or "*" for all
	// resources and subresources.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\*)(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	// +listType=set
	// +optional
	Resources []string `json:"resources,omitempty"`
	// Namespaces are exact names. Empty means all, and what has no namespace.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are exact names of objects. Empty means all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^/%\\*\s]([^/%\\]*[^/%\\\s])?$`
	// +listType=set
	// +optional
	Names []string `json:"names,omitempty"`
}
