//go:build linux

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// redisWorld is a hub and a spoke with a Redis each, and real binaries between them.
type redisWorld struct {
	h          *harness.Harness
	hub, spoke *harness.ControlPlane
	hubRedis   *harness.Redis
	edgeRedis  *harness.Redis
	agent      *harness.Agent
	door       *harness.FrontDoor
	identity   *harness.WorkloadAPI // of principal and Envoy
}

const (
	redisTree    = "app|resources-tree|edge-1_shop|1.8.3.gz"
	redisChannel = "app|managed-resources|edge-1_shop|1.8.3"
	edgeChannel  = "app|managed-resources|shop|1.8.3" // the same on the spoke
)

func newRedisWorld(t *testing.T) *redisWorld {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy", "etcd", "kube-apiserver", "redis-cli")
	h := harnesstest.New(t)
	w, ctx := &redisWorld{h: h}, t.Context()
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	etcd, err := h.StartEtcd(ctx, "etcd")
	fatal(err)
	manifests, err := quietManifests(h)
	fatal(err)
	w.hub, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "hub", Etcd: etcd, Manifests: manifests, Controllers: []string{"namespace-controller"}})
	fatal(err)
	w.spoke, err = h.StartControlPlane(ctx, harness.ControlPlaneConfig{Name: "spoke", Etcd: etcd, Manifests: manifests})
	fatal(err)
	for _, at := range []*harness.ControlPlane{w.hub, w.spoke} {
		fatal(at.EnsureNamespace(ctx, harness.ArgoCDNamespace))
	}
	w.hubRedis, err = h.StartRedis(ctx, "hub-redis")
	fatal(err)
	w.edgeRedis, err = h.StartRedis(ctx, "edge-redis")
	fatal(err)
	identities := map[string]*harness.WorkloadAPI{}
	for name, entry := range map[string]string{"principal": idOf("principal") + ",dns=localhost", managed: idOf(managed)} {
		identities[name], err = h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
			Name: "spire-" + name, TrustDomain: trustDomain, CADir: h.Path("ca"), Entries: []string{entry},
		})
		fatal(err)
	}
	w.identity = identities["principal"]
	w.door, err = h.StartFrontDoor(ctx, harness.PrincipalConfig{ControlPlane: w.hub, WorkloadAPI: w.identity, Redis: w.hubRedis})
	fatal(err)
	_, err = h.Agentctl(ctx, w.hub, "agent", "create", managed, "--mode", "managed", "--spiffe-id", idOf(managed), "--wait")
	fatal(err)
	w.agent, err = h.StartAgent(ctx, harness.AgentConfig{
		Name: managed, Mode: "managed", ControlPlane: w.spoke, WorkloadAPI: identities[managed],
		PrincipalAddress: w.door.Address, PrincipalIDs: []string{principalID}, Redis: w.edgeRedis,
		Settings: harness.Settings{"redis_proxy.enabled": true},
	})
	fatal(err)
	fatal(harness.Eventually(ctx, "the namespace of the agent", func() error {
		_, err := w.hub.Resource(harness.Applications, managed).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop"},
			"spec": map[string]any{
				"project": "default", "destination": map[string]any{"name": managed, "namespace": "shop"},
				"source": map[string]any{"repoURL": "https://example.org/repo", "path": "."},
			},
		}}, metav1.CreateOptions{})
		return err
	}))
	return w
}

// redisClient speaks RESP2 or RESP3 at an address.
func redisClient(t *testing.T, address string, protocol int) *goredis.Client {
	t.Helper()
	return redisClientTLS(t, address, protocol, nil)
}

// redisClientTLS is redisClient with TLS, unless that is nil.
func redisClientTLS(t *testing.T, address string, protocol int, config *tls.Config) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{
		Addr: address, Protocol: protocol, TLSConfig: config, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() }) // the test is over
	return c
}

// What a spoke's Argo CD keeps is read and heard of on the hub, through an agent's restart.
func TestRedisProxy(t *testing.T) {
	t.Parallel()
	w, ctx := newRedisWorld(t), t.Context()
	spoke, begin := redisClient(t, w.edgeRedis.Address, 3), time.Now()
	tree := gzipped(t, `{"nodes":[{"kind":"Deployment","name":"shop"}]}`)
	if err := spoke.Set(ctx, "app|resources-tree|shop|1.8.3.gz", tree, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []int{2, 3} {
		c := redisClient(t, w.door.RedisAddress, protocol)
		eventually(t, "the tree to be shown", func() error {
			got, err := c.Get(ctx, redisTree).Result()
			if err == nil && got != tree {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
		if err := c.Set(ctx, redisTree, "x", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTCOMMAND ") {
			t.Errorf("SET = %v", err)
		}
		if err := c.Get(ctx, "app|resources-tree|edge-1_other|1.8.3.gz").Err(); !errors.Is(err, goredis.Nil) {
			t.Errorf("the tree of an Application that is not on the hub: %v", err)
		}
		if err := c.Get(ctx, "app|resources-tree|edge-1_shop|1.8.2.gz").Err(); err == nil || !strings.HasPrefix(err.Error(), "AGENTFORMAT ") {
			t.Errorf("another version of the cache: %v", err)
		}
	}
	c := redisClient(t, w.door.RedisAddress, 3)
	s := c.Subscribe(ctx, redisChannel)
	defer func() { _ = s.Close() }() // the test is over
	if _, err := s.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	hear := func(what string) {
		t.Helper()
		timed, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if m, err := s.ReceiveMessage(timed); err != nil || m.Channel != redisChannel {
			t.Fatalf("%s: %v, %v", what, m, err)
		}
	}
	publish := func() {
		t.Helper()
		if err := spoke.Publish(ctx, edgeChannel, "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	hear("a change on the spoke")
	if err := w.agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last value to be shown, with its age", func() error {
		got, err := c.Get(ctx, redisTree).Result()
		if err != nil {
			return err
		}
		return asOf(got, begin)
	})
	if left, err := c.TTL(ctx, redisTree).Result(); err != nil || left > 7*24*time.Hour || left < 6*24*time.Hour {
		t.Errorf("TTL of a last value = %s, %v", left, err)
	}
	if err := w.agent.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	hear("the agent's return")
	publish()
	hear("a change after that")

	// An open subscription is with the agent for as long as the Application is its.
	subscribed := func(want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d to be subscribed on the spoke", want), func() error {
			n, err := spoke.PubSubNumSub(ctx, edgeChannel).Result()
			if err == nil && n[edgeChannel] != want {
				err = fmt.Errorf("%d are", n[edgeChannel])
			}
			return err
		})
	}
	apps := w.hub.Resource(harness.Applications, managed)
	patch(t, apps, "shop", map[string]any{"spec": map[string]any{"destination": map[string]any{"name": "in-cluster"}}})
	subscribed(0)
	hear("that it runs elsewhere")
	patch(t, apps, "shop", map[string]any{"spec": map[string]any{"destination": map[string]any{"name": managed}}})
	subscribed(1)
	hear("that it is back")
	redisDoor{t, w, tree}.speaksTLS()
}

// gzipped is text as Argo CD keeps it.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// gunzipped is the text of what Argo CD keeps.
func gunzipped(t *testing.T, value string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asOf checks that a tree says as of when it is, and that this is no earlier than begin.
func asOf(value string, begin time.Time) error {
	r, err := gzip.NewReader(strings.NewReader(value))
	if err != nil {
		return err
	}
	var tree struct {
		Nodes []struct {
			Info []struct{ Name, Value string }
		}
	}
	if err := json.NewDecoder(r).Decode(&tree); err != nil {
		return err
	}
	if len(tree.Nodes) != 1 || len(tree.Nodes[0].Info) != 1 || tree.Nodes[0].Info[0].Name != "Last known" {
		return fmt.Errorf("it is %+v", tree)
	}
	at, _, err := markedAt(tree.Nodes[0].Info[0].Value, managed)
	if err == nil && (at.Before(begin.Truncate(time.Second)) || at.After(time.Now())) {
		err = fmt.Errorf("it is as of %s, and was written after %s", at, begin)
	}
	return err
}
