package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentLimits bound what an agent may have the principal write to, and keep in, the hub's
// API server.
// What is absent has its default. A limit that is raised is in force at once.
type AgentLimits struct {
	// WritesPerSecond is how many writes a second; 100 when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	WritesPerSecond int64 `json:"writesPerSecond,omitempty"`
	// WritesBurst is how many writes at once, as for a first sync, after an hour without
	// any; 20000 when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	WritesBurst int64 `json:"writesBurst,omitempty"`
	// BytesPerSecond is how many bytes a second, of the objects as the API server keeps
	// them, managedFields included; 1048576 (1 MiB) when absent.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1099511627776
	// +optional
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// BytesBurst is how many bytes at once, after an hour without any; 67108864 (64 MiB)
	// when absent.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1099511627776
	// +optional
	BytesBurst int64 `json:"bytesBurst,omitempty"`
	// Applications is how many Applications of an autonomous spoke, or child applications,
	// the hub shows; 1000 when absent. What is shown stays and is updated when the limit is
	// lowered.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Applications int64 `json:"applications,omitempty"`
	// AppProjects is how many AppProjects of an autonomous spoke the hub shows; 50 when
	// absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	AppProjects int64 `json:"appProjects,omitempty"`
	// ApplicationBytes is the most that one Application may have, as JSON without
	// managedFields; 1048576 (1 MiB) when absent. A status that does not fit is shown without
	// its resources, and says so.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=3145728
	// +optional
	ApplicationBytes int64 `json:"applicationBytes,omitempty"`
	// AppProjectBytes is the same of one AppProject; 65536 (64 KiB) when absent.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=3145728
	// +optional
	AppProjectBytes int64 `json:"appProjectBytes,omitempty"`
	// TotalBytes is the most that all Applications and AppProjects of the agent may have
	// together on the hub; 268435456 (256 MiB) when absent. One that is shown already and
	// stays below 64 KiB is updated all the same.
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1099511627776
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`
}

// AgentBudget is what is left of the limits of an agent. Less than nothing is left where more
// was used than there was.
type AgentBudget struct {
	// Writes is how many writes are left.
	Writes int64 `json:"writes"`
	// Bytes is how many bytes are left.
	Bytes int64 `json:"bytes"`
	// At is when that was so, by the hub's clock.
	At metav1.Time `json:"at"`
}
