// Package kube is gitops-engine's of a later release: see go.mod.
package kube

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"

type (
	APIResourceInfo      = engine.APIResourceInfo
	CleanupFunc          = engine.CleanupFunc
	Kubectl              = engine.Kubectl
	KubectlCmd           = engine.KubectlCmd
	OnKubectlRunFunc     = engine.OnKubectlRunFunc
	ResourceInfoProvider = engine.ResourceInfoProvider
	ResourceKey          = engine.ResourceKey
)

const (
	CustomResourceDefinitionKind = engine.CustomResourceDefinitionKind
	DaemonSetKind                = engine.DaemonSetKind
	DeploymentKind               = engine.DeploymentKind
	EndpointsKind                = engine.EndpointsKind
	IngressKind                  = engine.IngressKind
	JobKind                      = engine.JobKind
	NamespaceKind                = engine.NamespaceKind
	PodKind                      = engine.PodKind
	ReplicaSetKind               = engine.ReplicaSetKind
	SecretKind                   = engine.SecretKind
	ServiceAccountKind           = engine.ServiceAccountKind
	ServiceKind                  = engine.ServiceKind
	StatefulSetKind              = engine.StatefulSetKind
)

var (
	GetObjectRef          = engine.GetObjectRef
	GetResourceKey        = engine.GetResourceKey
	IsCRD                 = engine.IsCRD
	IsNamespacedOrUnknown = engine.IsNamespacedOrUnknown
	NewResourceKey        = engine.NewResourceKey
	RetryUntilSucceed     = engine.RetryUntilSucceed
	RunAllAsync           = engine.RunAllAsync
	SplitYAML             = engine.SplitYAML
	SplitYAMLToString     = engine.SplitYAMLToString
	ToUnstructured        = engine.ToUnstructured
	WriteKubeConfig       = engine.WriteKubeConfig
)
