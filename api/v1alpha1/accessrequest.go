package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccessRequestKind is the kind of an AccessRequest.
const AccessRequestKind = "AccessRequest"

// Bounds of AccessRequestSpec.ExpirationSeconds, and of what is asked when it says nothing.
const (
	MinAccessSeconds     int64 = 300
	MaxAccessSeconds     int64 = 12 * 60 * 60
	DefaultAccessSeconds int64 = 60 * 60
)

// AccessRequest asks the principal for a token with which one person reaches the Kubernetes API of
// one agent's spoke through the hub, as "agentctl kubeconfig" does. The principal answers once, in
// the status, and deletes the object some minutes later. Who is asked about is checked by a
// ValidatingAdmissionPolicy of the principal's chart: a person can only ask for herself.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=argomesh
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user.username`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.status.decision`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AccessRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a request cannot be changed: make another one"
	Spec AccessRequestSpec `json:"spec"`
	// Status is the principal's answer.
	// +optional
	Status AccessRequestStatus `json:"status,omitempty"`
}

// SealedFor is the purpose for which the token of a request is sealed, as HPKE's info: a token that
// is copied into another request does not open.
func (r *AccessRequest) SealedFor() string { return "argomesh.io/accessrequest " + string(r.UID) }

// AccessRequestList is a list of AccessRequests.
//
// +kubebuilder:object:root=true
type AccessRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AccessRequest `json:"items"`
}

// AccessRequestSpec is what a person asks for.
type AccessRequestSpec struct {
	// Agent is the name of the agent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Agent string `json:"agent"`
	// User is who asks, as the hub's API server knows her.
	User AccessRequestUser `json:"user"`
	// PublicKey is that of a key pair of which only the asking program has the private part: the
	// answer is sealed to it, so that who may read the request learns nothing. It is an X25519 key
	// (RFC 7748) of 32 bytes in base64 (RFC 4648, section 4). It is no field of bytes, since API
	// servers read those in the alphabet of URLs when they evaluate a rule.
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`
	// ExpirationSeconds is how long the token is to live: 300 to 43200 seconds. The principal's own
	// bounds may make it shorter.
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=43200
	// +optional
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// AccessRequestUser is a user of the hub's Kubernetes API, with the fields of UserInfo of
// authentication.k8s.io/v1.
type AccessRequestUser struct {
	// Username is the name by which the audit of live access knows the person.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Username string `json:"username"`
	// UID is the user's, empty for none.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	UID string `json:"uid,omitempty"`
	// Groups are those of the user, in the order in which the API server has them.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Extra is what else the API server knows of the user.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Extra map[string]AccessRequestExtra `json:"extra,omitempty"`
}

// AccessRequestExtra are the values of one key of AccessRequestUser.Extra.
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=1024
type AccessRequestExtra []string

// AccessDecision is what the principal answers.
// +kubebuilder:validation:Enum=Granted;Refused
type AccessDecision string

// The values of [AccessDecision]. There is none before the principal has looked.
const (
	AccessGranted AccessDecision = "Granted"
	AccessRefused AccessDecision = "Refused"
)

// AccessRequestStatus is what the principal answers.
type AccessRequestStatus struct {
	// Decision is empty before there is an answer.
	// +optional
	Decision AccessDecision `json:"decision,omitempty"`
	// Reason is a word for why a request was refused.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says why, and what helps.
	// +optional
	Message string `json:"message,omitempty"`
	// SealedToken is the token, sealed to spec.publicKey by HPKE (RFC 9180) with DHKEM(X25519,
	// HKDF-SHA256), HKDF-SHA256 and ChaCha20Poly1305.
	// +optional
	SealedToken []byte `json:"sealedToken,omitempty"`
	// ExpirationTimestamp is when the token ends.
	// +optional
	ExpirationTimestamp *metav1.Time `json:"expirationTimestamp,omitempty"`
	// Server is the URL of the spoke's Kubernetes API behind the hub's resource proxy.
	// +optional
	Server string `json:"server,omitempty"`
	// TLSServerName is the name by which the certificate of the proxy is checked; empty for the
	// host of Server.
	// +optional
	TLSServerName string `json:"tlsServerName,omitempty"`
	// CAData are the authorities of that certificate, in PEM; empty for those of the system.
	// +optional
	CAData []byte `json:"caData,omitempty"`
}
