package argocd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/cache/appstate"
	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// values is what a Redis holds, as a hook of a client that never dials.
type values map[string]string

func (values) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (values) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (v values) ProcessHook(goredis.ProcessHook) goredis.ProcessHook {
	return func(_ context.Context, cmd goredis.Cmder) error {
		key := fmt.Sprint(cmd.Args()[1])
		switch reply := cmd.(type) {
		case *goredis.StatusCmd: // SET
			v[key] = fmt.Sprintf("%s", cmd.Args()[2])
			reply.SetVal("OK")
		case *goredis.StringCmd: // GET
			value, ok := v[key]
			if !ok {
				reply.SetErr(goredis.Nil)
				return goredis.Nil
			}
			reply.SetVal(value)
		default:
			return fmt.Errorf("command %s is not expected", cmd.Name())
		}
		return nil
	}
}

// argoCDs are the ways in which an Argo CD can keep values, and our formats.
var argoCDs = map[cache.RedisCompressionType]clusterinfo.Format{
	cache.RedisCompressionGZip: {},
	cache.RedisCompressionNone: {Plain: true},
}

func cacheOver(v values, compression cache.RedisCompressionType) *appstate.Cache {
	client := goredis.NewClient(&goredis.Options{})
	client.AddHook(v)
	return appstate.NewCache(cache.NewCache(cache.NewRedisCache(client, time.Hour, compression)), time.Hour)
}

func TestCacheVersion(t *testing.T) {
	if clusterinfo.Version != common.CacheVersion {
		t.Errorf("clusterinfo.Version is %s, Argo CD's %s", clusterinfo.Version, common.CacheVersion)
	}
	if clusterinfo.LocalServer != v1alpha1.KubernetesInternalAPIServerAddr {
		t.Errorf("clusterinfo.LocalServer is %s, Argo CD's %s", clusterinfo.LocalServer, v1alpha1.KubernetesInternalAPIServerAddr)
	}
}

// What we write is read by Argo CD's own cache, under its own key.
func TestArgoCDReadsOurClusterInfo(t *testing.T) {
	agent, err := identity.ParseAgentName(agentName)
	if err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	synced := metav1.NewTime(at.Add(-time.Minute))
	for compression, format := range argoCDs {
		for status, connected := range map[string]bool{v1alpha1.ConnectionStatusSuccessful: true, v1alpha1.ConnectionStatusFailed: false} {
			t.Run(fmt.Sprint(compression, " ", status), func(t *testing.T) {
				v := values{format.Key(clusterServer): string(format.Encode(agent, clusterinfo.Session{
					Connected: connected, Since: at.Time, LastSeen: at.Time, Kubernetes: "v1.36.3-eks-1",
					Spoke: stream.SpokeInfo{Applications: 3, APIs: 90, Resources: 4000, CacheSynced: synced.Time},
				}))}
				var got v1alpha1.ClusterInfo
				if err := cacheOver(v, compression).GetClusterInfo(clusterServer, &got); err != nil {
					t.Fatal(err)
				}
				message := "agent edge-1 is connected since 2023-11-14T22:13:20Z"
				if !connected {
					message = "agent edge-1 is not connected since 2023-11-14T22:13:20Z"
				}
				want := v1alpha1.ClusterInfo{
					ConnectionState:   v1alpha1.ConnectionState{Status: status, Message: message, ModifiedAt: &at},
					ServerVersion:     "v1.36.3",
					CacheInfo:         v1alpha1.ClusterCacheInfo{ResourcesCount: 4000, APIsCount: 90, LastCacheSyncTime: &synced},
					ApplicationsCount: 3,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("Argo CD reads (-want +got)\n%s", diff)
				}
			})
		}
	}
}

// What Argo CD's own cache writes, we find and read.
func TestWeReadArgoCDsClusterInfo(t *testing.T) {
	synced := metav1.NewTime(time.Unix(1_700_000_000, 0))
	now := metav1.Now()
	for name, tt := range map[string]struct {
		written v1alpha1.ClusterInfo
		want    stream.SpokeInfo
	}{
		"watched": {
			v1alpha1.ClusterInfo{
				ConnectionState: v1alpha1.ConnectionState{Status: v1alpha1.ConnectionStatusSuccessful, ModifiedAt: &now},
				ServerVersion:   "v1.36.3", APIVersions: []string{"v1", "apps/v1/Deployment"},
				CacheInfo:         v1alpha1.ClusterCacheInfo{ResourcesCount: 4000, APIsCount: 90, LastCacheSyncTime: &synced},
				ApplicationsCount: 3,
			},
			stream.SpokeInfo{Applications: 3, APIs: 90, Resources: 4000, CacheSynced: synced.UTC()},
		},
		"without applications": {
			v1alpha1.ClusterInfo{ConnectionState: v1alpha1.ConnectionState{Status: v1alpha1.ConnectionStatusUnknown}},
			stream.SpokeInfo{},
		},
	} {
		for compression, format := range argoCDs {
			t.Run(fmt.Sprint(name, " ", compression), func(t *testing.T) {
				v := values{}
				if err := cacheOver(v, compression).SetClusterInfo(clusterinfo.LocalServer, &tt.written); err != nil {
					t.Fatal(err)
				}
				value, ok := v[format.Key(clusterinfo.LocalServer)]
				if !ok {
					t.Fatalf("Argo CD writes %v", slices.Collect(maps.Keys(v)))
				}
				if got, err := format.Decode([]byte(value)); err != nil || got != tt.want {
					t.Errorf("Decode() = %v, %v, want %v", got, err, tt.want)
				}
			})
		}
	}
}
