//go:build linux

package env

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// RedisEnv is a hub and a spoke with a Redis each, and real binaries between them.
type RedisEnv struct {
	H          *harness.Harness
	Hub, spoke *harness.ControlPlane
	hubRedis   *harness.Redis
	EdgeRedis  *harness.Redis
	Agent      *harness.Agent
	Door       *harness.FrontDoor
	Identity   *harness.WorkloadAPI // of principal and Envoy
}

// RedisTree is the key of an Application's tree in Argo CD's Redis.
const RedisTree = "app|resources-tree|edge-1_shop|1.8.3.gz"

// NewRedisEnv starts a RedisEnv, which ends with the test.
func NewRedisEnv(t *testing.T) *RedisEnv {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "redis-cli")
	h := harnesstest.New(t)
	w, ctx := &RedisEnv{H: h}, t.Context()
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	fatal(err)
	manifests, err := BareManifests(h)
	fatal(err)
	w.Hub, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "hub", Etcd: etcd, Manifests: manifests, Controllers: []string{"namespace-controller"}})
	fatal(err)
	w.spoke, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "spoke", Etcd: etcd, Manifests: manifests})
	fatal(err)
	for _, at := range []*harness.ControlPlane{w.Hub, w.spoke} {
		fatal(at.EnsureNamespace(ctx, harness.ArgoCDNamespace))
	}
	w.hubRedis, err = h.StartRedis(ctx, "hub-redis")
	fatal(err)
	w.EdgeRedis, err = h.StartRedis(ctx, "edge-redis")
	fatal(err)
	identities := map[string]*harness.WorkloadAPI{}
	for name, entry := range map[string]string{"principal": SPIFFEID("principal") + ",dns=localhost", Managed: SPIFFEID(Managed)} {
		identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: TrustDomain, CADir: h.Path("ca"), Entries: []string{entry},
		})
		fatal(err)
	}
	w.Identity = identities["principal"]
	w.Door, err = h.StartFrontDoor(ctx, harness.PrincipalConfig{ControlPlane: w.Hub, WorkloadAPI: w.Identity, Redis: w.hubRedis})
	fatal(err)
	_, err = h.Agentctl(ctx, w.Hub, "agent", "create", Managed, "--mode", "managed", "--spiffe-id", SPIFFEID(Managed), "--wait")
	fatal(err)
	w.Agent, err = h.StartAgent(ctx, harness.AgentConfig{
		Name: Managed, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: identities[Managed],
		PrincipalAddress: w.Door.Address, PrincipalIDs: []string{PrincipalID}, Redis: w.EdgeRedis,
		Settings: harness.Settings{"redis_proxy.enabled": true},
	})
	fatal(err)
	fatal(harness.Eventually(ctx, "the namespace of the agent", func() error {
		_, err := w.Hub.Resource(harness.Applications, Managed).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop"},
			"spec": map[string]any{
				"project": "default", "destination": map[string]any{"name": Managed, "namespace": "shop"},
				"source": map[string]any{"repoURL": "https://example.org/repo", "path": "."},
			},
		}}, metav1.CreateOptions{})
		return err
	}))
	return w
}

// RedisClient speaks RESP2 or RESP3 at an address.
func RedisClient(t *testing.T, address string, protocol int) *goredis.Client {
	t.Helper()
	return RedisClientTLS(t, address, protocol, nil)
}

// RedisClientTLS is RedisClient with TLS, unless that is nil.
func RedisClientTLS(t *testing.T, address string, protocol int, config *tls.Config) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{
		Addr: address, Protocol: protocol, TLSConfig: config, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: Patience, ReadTimeout: Patience, WriteTimeout: Patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() }) // the test is over
	return c
}

// Gzipped is text as Argo CD keeps it.
func Gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
