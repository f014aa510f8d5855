package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	version  = "1.8.3"
	password = "s3cret"
)

// patience bounds every wait of a test.
const patience = time.Minute

// server is a real Redis.
type server struct {
	path string
	cmd  *exec.Cmd
	args []string
	done chan struct{}
}

// folder is short enough for unix sockets.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// program returns one of Redis, which `make tools` sees to.
func program(t *testing.T, name string) string {
	t.Helper()
	harnesstest.SkipMissing(t, name)
	path, err := harnesstest.Tools(t).Path(name)
	must(t, err)
	return path
}

func startRedis(t *testing.T, args ...string) *server {
	t.Helper()
	path := program(t, "redis-server")
	s := &server{path: filepath.Join(folder(t), "r.sock")}
	s.args = append([]string{path, "--port", "0", "--unixsocket", s.path, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(s.path)}, args...)
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), s.args[0], s.args[1:]...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	s.done = done
	cmd := s.cmd
	go func() {
		_ = cmd.Wait() // killed by stop
		close(done)
	}()
	kit.EventuallyNil(t, "redis to listen", func() error {
		c, err := s.dial(t.Context())
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
}

func (s *server) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", s.path)
}

func (s *server) client(t *testing.T, protocol int) *goredis.Client {
	return client(t, s.path, protocol)
}

// client is go-redis as Argo CD uses it.
func client(t *testing.T, path string, protocol int) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{
		Network: "unix", Addr: path, Password: password, Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: patience, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c
}

// hubEnv is a hub with spokes, in this process but for Redis.
type hubEnv struct {
	t       *testing.T
	redis   *server // the hub's
	socket  string
	metrics *prometheus.Registry
	store   *mapStore
	hub     *redis.Hub

	mu     sync.Mutex // guards what follows
	spokes map[identity.AgentName]*edge
	found  []string // mismatches of caches, each with its agent before it
	// moved are Applications that are not where their namespace says; the zero Target is
	// the hub's own affair.
	moved    map[appkey.Instance]redis.Target
	unsureOf error                 // what Owner says of all, unless nil
	changed  func(appkey.Instance) // nil before Watch
}

// edge is one agent with the Redis of its spoke.
type edge struct {
	spoke *spoke.Spoke
	redis *server
	// away says that the agent is not connected, stuck that it takes connections and
	// does nothing, banned that the registry does not let it be reached.
	away, stuck, banned bool
	// breaks says that its answers break off after they have begun.
	breaks bool
	conns  map[net.Conn]struct{}
	// dials counts the connections, open those that the hub has not closed, and most
	// how many there were at a time.
	dials, open, most int
	// since is when it went, as the hub has it; zero while no one knows.
	since time.Time
}

func newHubEnv(t *testing.T, change func(*redis.HubConfig)) *hubEnv {
	t.Helper()
	w := &hubEnv{
		t: t, redis: startRedis(t, "--requirepass", password), socket: filepath.Join(folder(t), "p.sock"), metrics: prometheus.NewRegistry(),
		spokes: map[identity.AgentName]*edge{}, store: &mapStore{values: map[string][]byte{}},
		moved: map[appkey.Instance]redis.Target{},
	}
	cfg := redis.HubConfig{
		DialRedis: w.redis.dial, DialSpoke: w.dialSpoke, Owners: w, LastKnown: w.store, Metrics: w.metrics, Log: zerolog.New(zerolog.NewTestWriter(t)),
		FormatChanged: w.recordFormat,
		Away:          w.awaySince,
		AnswerTimeout: patience,
	}
	if change != nil {
		change(&cfg)
	}
	hub, err := redis.NewHub(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.hub = hub
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return hub.Run(ctx, l) })
	return w
}

// add adds a spoke with a Redis of its own.
func (w *hubEnv) add(name string, change func(*spoke.Config)) *edge {
	w.t.Helper()
	e := &edge{redis: startRedis(w.t, "--requirepass", password), conns: map[net.Conn]struct{}{}}
	cfg := spoke.Config{
		Dial:        e.redis.dial,
		Credentials: func(context.Context) (string, string, error) { return "", password, nil },
		Version:     version,
		Allow:       func(i appkey.Instance) bool { return i.Namespace == "" },
		Metrics:     prometheus.NewRegistry(), Log: zerolog.New(zerolog.NewTestWriter(w.t)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if e.spoke, err = spoke.New(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spokes[kit.Agent(w.t, name)] = e
	return e
}

// awaySince is HubConfig.Away.
func (w *hubEnv) awaySince(agent identity.AgentName) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.spokes[agent]
	return e.since, !e.since.IsZero()
}

// recordFormat is HubConfig.FormatChanged.
func (w *hubEnv) recordFormat(agent identity.AgentName, mismatch string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, agent.String()+": "+mismatch)
}

// drainFound returns what was found since the last call.
func (w *hubEnv) drainFound() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.found
	w.found = nil
	return found
}

// Owner implements redis.OwnerResolver. Applications called "unknown" are not on the hub.
func (w *hubEnv) Owner(i appkey.Instance) (redis.Target, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	target, moved := w.moved[i]
	if !moved {
		name, err := identity.ParseAgentName(i.Namespace)
		if err != nil {
			return redis.Target{}, false, nil // no agent has that name
		}
		target = redis.Target{Agent: name, UID: "uid-" + name.String(), Instance: appkey.Instance{Name: i.Name}, Known: i.Name != "unknown"}
	}
	e := w.spokes[target.Agent]
	if e == nil {
		return redis.Target{}, false, nil
	}
	if w.unsureOf != nil {
		return redis.Target{}, true, w.unsureOf
	}
	if e.banned {
		return redis.Target{}, true, fmt.Errorf("agent %s is suspended: %w", target.Agent, identity.ErrDenied)
	}
	return target, true, nil
}

// Watch implements redis.OwnerResolver.
func (w *hubEnv) Watch(ctx context.Context, changed func(appkey.Instance)) {
	w.mu.Lock()
	w.changed = changed
	w.mu.Unlock()
	changed(appkey.Instance{})
	<-ctx.Done()
}

// unsure lets Owner say nothing but that, of any Application of an agent; nil ends it.
func (w *hubEnv) unsure(err error) {
	w.mu.Lock()
	w.unsureOf = err
	w.mu.Unlock()
	w.ownerChanged(appkey.Instance{})
}

// ownerChanged says that the owner of an Application may have changed.
func (w *hubEnv) ownerChanged(i appkey.Instance) {
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	if changed != nil {
		changed(i)
	}
}

// move moves an Application to an agent, or with the zero Target to no one.
func (w *hubEnv) move(i appkey.Instance, to redis.Target) {
	w.mu.Lock()
	w.moved[i] = to
	w.mu.Unlock()
	w.ownerChanged(i)
}

func (w *hubEnv) dialSpoke(ctx context.Context, name identity.AgentName) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.spokes[name]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case e == nil || e.away:
		return nil, stream.ErrNotConnected
	}
	e.dials++
	e.open++
	e.most = max(e.most, e.open)
	pipe, far := net.Pipe()
	near := &counted{Conn: pipe, closed: sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.open--
	})}
	e.conns[far] = struct{}{}
	switch {
	case e.stuck:
		return near, nil
	case e.breaks:
		go func() {
			defer func() { _ = far.Close() }() // as below
			if _, err := far.Read(make([]byte, 1024)); err == nil {
				_, _ = far.Write([]byte("$2000000\r\nthe begin")) // the hub may have gone
			}
		}()
		return near, nil
	}
	go func() {
		defer func() { _ = far.Close() }() // the other end may have closed it
		if err := e.spoke.Serve(context.Background(), far); err != nil && !errors.Is(err, net.ErrClosed) {
			_, _ = fmt.Fprintln(os.Stderr, "spoke:", err)
		}
	}()
	return near, nil
}

// counted tells when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// set changes an edge, and with cut ends its connections.
func (w *hubEnv) set(e *edge, cut bool, change func(*edge)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(e)
	if cut {
		for c := range e.conns {
			_ = c.Close() // it may be closed
			delete(e.conns, c)
		}
	}
}

func (w *hubEnv) client(protocol int) *goredis.Client { return client(w.t, w.socket, protocol) }

// mapStore is a redis.LastKnownStore.
type mapStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (m *mapStore) Set(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	return nil
}

func (m *mapStore) Last(_ context.Context, key string) ([]byte, time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[key], time.Minute, nil
}

func (m *mapStore) Forget(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

func (m *mapStore) Touch(_ context.Context, ages map[string]time.Duration) (missing []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range ages {
		if m.values[key] == nil {
			missing = append(missing, key)
		}
	}
	return missing, nil
}

// all returns a copy.
func (m *mapStore) all() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values)
}

func (m *mapStore) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}

// tree is the key of an Application's tree, as the hub or, without an agent, a spoke
// has it.
func tree(agent, name string) string {
	if agent != "" {
		name = agent + "_" + name
	}
	return "app|resources-tree|" + name + "|" + version + ".gz"
}

// channel is the one on which Argo CD tells of changes.
func channel(agent, name string) string {
	return strings.TrimSuffix(strings.Replace(tree(agent, name), "resources-tree", "managed-resources", 1), ".gz")
}
