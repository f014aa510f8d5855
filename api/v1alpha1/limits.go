package v1alpha1

// AgentLimits bound what an agent may have the principal write to the hub's API server.
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
}
