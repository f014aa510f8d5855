//go:build linux

package bounds

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const (
	// lookEvery is the pace of who looks at an attacker's cluster: as many pages of Argo CD
	// as are open.
	lookEvery = 50 * time.Millisecond
	// longestAnswer is the most that an answer may have that has an end.
	longestAnswer = 128 << 20
)

// doors are where the hub's Argo CD calls: the principal's own sockets, since what is held
// against a spoke is held behind Envoy.
type doors struct{ proxy, redis string }

// openDoors returns the settings of a principal that serves live access and Redis there.
func openDoors(h *harness.Harness, redis *harness.Redis) (doors, harness.Settings) {
	d := doors{proxy: h.Path("proxy.sock"), redis: h.Path("redis.sock")}
	return d, harness.Settings{
		"redis.address": redis.Address, "redis_proxy.listen": "unix://" + d.redis,
		"resource_proxy.listen": "unix://" + d.proxy, "resource_proxy.audit.file": "",
		"resource_proxy.credentials.enabled": true, "resource_proxy.credentials.ca_bundle": true,
	}
}

// lookers are people who look at clusters while there is an attack: at those of attackers,
// of whom they expect nothing, and at one of an honest agent, which answers each time.
type lookers struct {
	doors doors
	http  *http.Client

	end context.CancelFunc
	all errgroup.Group

	mu  sync.Mutex     // guards got
	got map[string]int // what came of it, by kind
}

// look begins to look. Each attacker has an Application, by name; old is what an Agent left that
// had the name of the honest one before.
func look(t *testing.T, w *env.Bare, d doors, honest string, old *rest.Config, attackers map[string]string) *lookers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &lookers{doors: d, end: cancel, got: map[string]int{}, http: &http.Client{Transport: &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.proxy)
		},
	}}}
	access := func(agent string) *rest.Config {
		config, err := w.Harness.ClusterAccess(ctx, w.Hub, agent)
		if err != nil {
			t.Fatal(err)
		}
		config.Host = strings.Replace(config.Host, "https://", "http://", 1)
		return config
	}
	for agent, application := range attackers {
		config, redis := access(agent), env.RedisClient(t, d.redis, 3)
		tree := "app|resources-tree|" + agent + "_" + application + "|1.8.3.gz"
		for range 3 {
			l.every(ctx, lookEvery, func(i int) error { return l.call(ctx, config, i) })
			l.every(ctx, lookEvery, func(i int) error { l.read(ctx, redis, tree, i); return nil })
		}
		subscription := redis.Subscribe(ctx, "app|managed-resources|"+agent+"_"+application+"|1.8.3")
		l.all.Go(func() error {
			defer subscription.Close() //nolint:errcheck // it is over
			for ctx.Err() == nil {
				_, err := subscription.ReceiveTimeout(ctx, time.Second)
				l.note("subscription", err)
			}
			return nil
		})
	}
	l.every(ctx, lookEvery, func(int) error { return l.tryOld(ctx, old) })
	config := access(honest)
	l.every(ctx, honestEvery, func(int) error { return l.version(ctx, honest, config) })
	return l
}

// every does something again and again until ctx is done, or it fails.
func (l *lookers) every(ctx context.Context, pace time.Duration, do func(i int) error) {
	l.all.Go(func() error {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := do(i); err != nil && ctx.Err() == nil {
				return err
			}
		}
	})
}

func (l *lookers) get(ctx context.Context, config *rest.Config, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + config.BearerToken}, "Accept": {"application/json"}}
	return l.http.Do(request)
}

// call makes a call to an attacker's cluster. Whatever comes of it, nothing passes that
// no one has looked at.
func (l *lookers) call(ctx context.Context, config *rest.Config, i int) error {
	path := []string{"/version", "/api/v1/pods", "/apis", "/openapi/v2", "/api/v1/namespaces/default/pods/x", "/api/v1/pods?watch=1"}[i%6]
	early := ""
	answer, err := l.get(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			early = fmt.Sprint(code, header)
			return nil
		},
	}), config, path)
	if err != nil {
		l.note("call", err)
		return nil
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil {
		err = fmt.Errorf("%d", answer.StatusCode) //nolint:err113 // it is counted
	}
	l.note("call", err)
	switch {
	case early != "":
		return fmt.Errorf("%s: an early answer has passed: %s", path, early)
	case answer.Header.Get("Set-Cookie") != "" || answer.Header.Get("Argomesh-Refused-By") != "":
		return fmt.Errorf("%s: an attacker's header has passed: %v", path, answer.Header)
	case n > longestAnswer && !strings.Contains(path, "watch"):
		return fmt.Errorf("%s: %d bytes have passed", path, n)
	}
	return nil
}

// read reads what an attacker's Redis has.
func (l *lookers) read(ctx context.Context, redis *goredis.Client, tree string, i int) {
	var err error
	if i%2 == 0 {
		err = redis.Get(ctx, tree).Err()
	} else {
		err = redis.MGet(ctx, tree, strings.Replace(tree, "resources-tree", "managed-resources", 1)).Err()
	}
	l.note("read", err)
}

// version asks an honest agent's cluster, and not what is remembered of it.
func (l *lookers) version(ctx context.Context, agent string, config *rest.Config) error {
	answer, err := l.get(ctx, config, "/version")
	if err != nil {
		return fmt.Errorf("cluster of agent %s: %w", agent, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Warning") != "" {
		return fmt.Errorf("cluster of agent %s: %s, %v: %.200s: %w", agent, answer.Status, answer.Header, body, err)
	}
	l.note("honest", nil)
	return nil
}

// tryOld calls an honest agent's cluster with a token of an Agent that had its name before, and
// expects that it is not let in.
func (l *lookers) tryOld(ctx context.Context, old *rest.Config) error {
	answer, err := l.get(ctx, old, "/version")
	if err != nil {
		return fmt.Errorf("the token of an Agent that is gone: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("the token of an Agent that is gone is answered by %s: %.200s (%v)", answer.Status, body, err) //nolint:errorlint // it may be nil
	}
	l.note("old token", nil)
	return nil
}

// note counts what came of something.
func (l *lookers) note(what string, err error) {
	if err != nil {
		what += fmt.Sprintf(": %.60s", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got[what]++
}

// stop ends it, and fails the test for what must not be.
func (l *lookers) stop(t *testing.T) {
	t.Helper()
	l.end()
	if err := l.all.Wait(); err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(l.got)) {
		t.Logf("%d times %s", l.got[what], what)
	}
	if l.got["honest"] == 0 {
		t.Error("nobody has looked at the cluster of an honest agent")
	}
	if l.got["old token"] == 0 {
		t.Error("nobody has tried the token of an Agent that is gone")
	}
}
