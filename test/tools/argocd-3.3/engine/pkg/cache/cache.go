// Package cache is gitops-engine's of a later release: see go.mod.
package cache

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/cache"

type (
	ClusterCache       = engine.ClusterCache
	ClusterInfo        = engine.ClusterInfo
	Resource           = engine.Resource
	Settings           = engine.Settings
	UpdateSettingsFunc = engine.UpdateSettingsFunc
)

const (
	ClusterRetryTimeout = engine.ClusterRetryTimeout
	RespectRbacDisabled = engine.RespectRbacDisabled
	RespectRbacNormal   = engine.RespectRbacNormal
	RespectRbacStrict   = engine.RespectRbacStrict
)

var (
	NewClusterCache                = engine.NewClusterCache
	NewNoopSettings                = engine.NewNoopSettings
	SetBatchEventsProcessing       = engine.SetBatchEventsProcessing
	SetClusterResources            = engine.SetClusterResources
	SetClusterSyncRetryTimeout     = engine.SetClusterSyncRetryTimeout
	SetConfig                      = engine.SetConfig
	SetEventProcessingInterval     = engine.SetEventProcessingInterval
	SetListPageBufferSize          = engine.SetListPageBufferSize
	SetListPageSize                = engine.SetListPageSize
	SetListSemaphore               = engine.SetListSemaphore
	SetLogr                        = engine.SetLogr
	SetNamespaces                  = engine.SetNamespaces
	SetPopulateResourceInfoHandler = engine.SetPopulateResourceInfoHandler
	SetRespectRBAC                 = engine.SetRespectRBAC
	SetResyncTimeout               = engine.SetResyncTimeout
	SetRetryOptions                = engine.SetRetryOptions
	SetSettings                    = engine.SetSettings
	SetWatchResyncTimeout          = engine.SetWatchResyncTimeout
	TopLevelResource               = engine.TopLevelResource
)
