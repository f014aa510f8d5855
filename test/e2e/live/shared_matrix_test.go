//go:build linux && matrix

package live

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// counted forwards TCP connections and counts their bytes.
type counted struct {
	address  string
	up, down atomic.Int64 // to the target, and from it
}

// count forwards to a target for as long as the test runs.
func count(t *testing.T, target string) *counted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &counted{address: listener.Addr().String()}
	var open sync.WaitGroup
	t.Cleanup(func() {
		stop()
		_ = listener.Close() // nothing more to learn
		open.Wait()
	})
	open.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.forward(ctx, from, target) })
		}
	})
	return c
}

func (c *counted) forward(ctx context.Context, from net.Conn, target string) {
	var dialer net.Dialer
	to, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		_ = from.Close() // which is the answer
		return
	}
	end := func() { _, _ = from.Close(), to.Close() } // nothing more to learn
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var both sync.WaitGroup
	copying := func(to, from net.Conn, n *atomic.Int64) {
		defer end()
		_, _ = io.Copy(io.MultiWriter(to, adder{n}), from) // either end may go
	}
	both.Go(func() { copying(to, from, &c.up) })
	both.Go(func() { copying(from, to, &c.down) })
	both.Wait()
}

type adder struct{ n *atomic.Int64 }

func (a adder) Write(p []byte) (int, error) { a.n.Add(int64(len(p))); return len(p), nil }

// bytesCodec leaves messages as they are on the wire.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) {
	return *v.(*[]byte), nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// manifestRequest is what an application controller asks a repo server for (Argo CD
// 3.5, reposerver/repository/repository.proto).
type manifestRequest struct {
	url, user, password       string
	path, revision, app, into string
	fresh                     bool
}

func (r manifestRequest) wire() []byte {
	text := func(b []byte, field protowire.Number, s string) []byte {
		if s == "" {
			return b
		}
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	yes := func(b []byte, field protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), 1)
	}
	repo := text(text(text(nil, 1, r.url), 2, r.user), 3, r.password)
	if r.password != "" {
		repo = yes(repo, 22) // as a header: git asks no program
	}
	source := text(text(text(nil, 1, r.url), 2, r.path), 4, r.revision)
	b := text(text(nil, 1, string(repo)), 2, r.revision)
	if r.fresh {
		b = yes(b, 3)
	}
	b = text(text(text(b, 5, r.app), 8, r.into), 10, string(source))
	return text(text(text(b, 19, "annotation"), 24, "*"), 25, "default")
}

// generate asks a repo server, and returns the manifests and the length of the answer.
func generate(ctx context.Context, repoServer *grpc.ClientConn, r manifestRequest) (manifests []string, length int, err error) {
	in, out := r.wire(), []byte(nil)
	if err := repoServer.Invoke(ctx, "/repository.RepoServerService/GenerateManifest", &in, &out, grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		return nil, 0, err
	}
	length = len(out)
	for len(out) > 0 {
		field, kind, n := protowire.ConsumeTag(out)
		if n < 0 {
			return nil, 0, protowire.ParseError(n)
		}
		out = out[n:]
		if field == 1 && kind == protowire.BytesType {
			s, _ := protowire.ConsumeString(out) // its length is checked below
			manifests = append(manifests, s)
		}
		if n = protowire.ConsumeFieldValue(field, kind, out); n < 0 {
			return nil, 0, protowire.ParseError(n)
		}
		out = out[n:]
	}
	return manifests, length, nil
}

// private serves a git repository to anyone who knows a password.
func private(t *testing.T, repository *harness.Repository, user, password string) string {
	t.Helper()
	core, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	git := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(repository.Dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + repository.Dir},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		git.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/" + filepath.Base(repository.Dir) + "/.git"
}

// configMapFile is a manifest.
func configMapFile(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  value: \"" + value + "\"\n"
}

// TestSharedRepoServerAndRedis shows what becomes of two spokes that use one repo server
// and one Redis: it is why docs/patterns.md refuses that. When a release of Argo CD
// makes it fail, the reasons have to be looked at again.
func TestSharedRepoServerAndRedis(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "argocd", "redis-server", "git")
	h, ctx := harnesstest.New(t), t.Context()
	files := map[string]string{
		"first/cm.yaml": configMapFile("of-first", "1"), "second/cm.yaml": configMapFile("of-second", "1"),
		"evil/cm.yaml": configMapFile("evil", "1"),
	}
	for i := range 200 {
		files[fmt.Sprintf("large/cm-%03d.yaml", i)] = configMapFile(fmt.Sprintf("large-%03d", i), strings.Repeat("x", 2<<10))
	}
	repository, err := h.NewRepository(ctx, "repo", files)
	if err != nil {
		t.Fatal(err)
	}
	var spokes [2]*harness.ControlPlane
	for i, name := range []string{"one", "two"} {
		if spokes[i], err = env.StartBareControlPlane(ctx, h, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	// The first is the hub's, too; the controller of the second uses what it has.
	shared, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{ControlPlane: spokes[0], Controller: true, DefaultProject: true})
	if err != nil {
		t.Fatal(err)
	}
	toRepoServer, toRedis := count(t, shared.RepoServerAddress), count(t, shared.Redis.Address)
	if _, err := h.StartArgoCD(ctx, harness.ArgoCDConfig{
		ControlPlane: spokes[1], Controller: true, DefaultProject: true,
		ControllerArgs: []string{"--redis", toRedis.address, "--repo-server", toRepoServer.address},
	}); err != nil {
		t.Fatal(err)
	}
	redis := env.RedisClient(t, shared.Redis.Address, 3)
	repoServer, err := grpc.NewClient(shared.RepoServerAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = repoServer.Close() }) // the test is over

	t.Run("the state of one spoke is written over by another", func(t *testing.T) {
		const tree = "app|resources-tree|guestbook|*"
		deploy := func(i int, path string) {
			t.Helper()
			apps := spokes[i].Resource(harness.Applications, harness.ArgoCDNamespace)
			env.Create(t, apps, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "guestbook"},
				"spec": map[string]any{
					"project": "default", "destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": "default"},
					"source":     map[string]any{"repoURL": repository.URL, "path": path, "targetRevision": harness.Branch},
					"syncPolicy": map[string]any{"automated": map[string]any{}},
				},
			}})
			env.Eventually(t, path+" is deployed", func() error { return env.Healthy(ctx, apps, "guestbook") })
		}
		shows := func(name string) func() error {
			return func() error {
				keys, err := redis.Keys(ctx, tree).Result()
				if err != nil || len(keys) != 1 {
					return errors.Join(err, fmt.Errorf("trees are %q", keys))
				}
				text, err := unzipped(ctx, redis, keys[0])
				if err == nil && !strings.Contains(text, name) {
					err = fmt.Errorf("it shows %.300s", text)
				}
				return err
			}
		}
		deploy(0, "first")
		env.Eventually(t, "the tree shows the first spoke", shows("of-first"))
		deploy(1, "second")
		env.Eventually(t, "the same key shows the second", shows("of-second"))
		clusters, err := redis.Keys(ctx, "cluster|info|*").Result()
		if err != nil || len(clusters) != 1 {
			t.Errorf("the two clusters are kept as %q, %v", clusters, err)
		}
	})

	t.Run("what passes between spoke and hub", func(t *testing.T) {
		const looks = 20
		apps := spokes[1].Resource(harness.Applications, harness.ArgoCDNamespace)
		before := [...]int64{toRepoServer.up.Load(), toRepoServer.down.Load(), toRedis.up.Load(), toRedis.down.Load()}
		for i := range looks {
			env.Patch(t, apps, "guestbook", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
			env.Eventually(t, fmt.Sprintf("look %d", i), func() error {
				return env.FieldIs(ctx, apps, "guestbook", nil, "metadata", "annotations", "argocd.argoproj.io/refresh")
			})
		}
		after := [...]int64{toRepoServer.up.Load(), toRepoServer.down.Load(), toRedis.up.Load(), toRedis.down.Load()}
		t.Logf("one reconciliation of an Application with one ConfigMap, bytes: to the repo server %d, from it %d; to Redis %d, from it %d",
			(after[0]-before[0])/looks, (after[1]-before[1])/looks, (after[2]-before[2])/looks, (after[3]-before[3])/looks)
		for _, path := range []string{"first", "large"} {
			r := manifestRequest{url: repository.URL, path: path, revision: harness.Branch, app: "measured", into: "default"}
			var kept, fresh []time.Duration
			length := 0
			for i := range 40 {
				r.fresh = i < 10
				begun := time.Now()
				if _, length, err = generate(ctx, repoServer, r); err != nil {
					t.Fatal(err)
				}
				if r.fresh {
					fresh = append(fresh, time.Since(begun))
				} else {
					kept = append(kept, time.Since(begun))
				}
			}
			slices.Sort(kept)
			slices.Sort(fresh)
			t.Logf("manifests of %s: %d bytes, made in %s, from the cache in %s (medians)", path, length, fresh[len(fresh)/2], kept[len(kept)/2])
		}
	})

	// From here on the second spoke is in the wrong hands. All it has is what the pattern
	// gives it: a connection to the repo server, and one to Redis.
	secret, err := h.NewRepository(ctx, "secret", map[string]string{"app/cm.yaml": configMapFile("secret", env.Password)})
	if err != nil {
		t.Fatal(err)
	}
	commit, err := secret.Git(ctx, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	url := private(t, secret, "first", "pass")
	mine := manifestRequest{url: url, user: "first", password: "pass", path: "app", revision: commit, app: "private", into: "default"}
	theirs := mine
	theirs.user, theirs.password = "", ""
	if _, _, err := generate(ctx, repoServer, theirs); err == nil {
		t.Fatal("the repository is not private")
	}
	manifests, _, err := generate(ctx, repoServer, mine)
	if err != nil || len(manifests) != 1 || !strings.Contains(manifests[0], env.Password) {
		t.Fatalf("with the password the manifests are %q, %v", manifests, err)
	}

	t.Run("manifests of a private repository go to whoever names the commit", func(t *testing.T) {
		got, _, err := generate(ctx, repoServer, theirs)
		if err != nil || !slices.Equal(got, manifests) {
			t.Errorf("without the password the manifests are %q, %v", got, err)
		}
	})

	t.Run("one spoke decides what another deploys", func(t *testing.T) {
		cached := func() map[string]string {
			t.Helper()
			keys, err := redis.Keys(ctx, "mfst|*").Result()
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]string{}
			for _, key := range keys {
				if out[key], err = redis.Get(ctx, key).Result(); err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		before := cached()
		if _, _, err := generate(ctx, repoServer, manifestRequest{url: repository.URL, path: "evil", revision: harness.Branch, app: "evil", into: "default"}); err != nil {
			t.Fatal(err)
		}
		own := cached()
		maps.DeleteFunc(own, func(key, _ string) bool { _, was := before[key]; return was })
		if len(own) != 1 {
			t.Fatalf("what came into the cache is %d keys", len(own))
		}
		for key := range before {
			if !strings.Contains(key, commit) {
				continue
			}
			for _, value := range own {
				if err := redis.Set(ctx, key, value, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, _, err := generate(ctx, repoServer, mine)
		if err != nil || len(got) != 1 || !strings.Contains(got[0], `"name":"evil"`) {
			t.Errorf("the manifests are %q, %v", got, err)
		}
	})
}

// unzipped is a value of a Redis that Argo CD compressed.
func unzipped(ctx context.Context, redis *goredis.Client, key string) (string, error) {
	value, err := redis.Get(ctx, key).Bytes()
	if err != nil {
		return "", err
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}
