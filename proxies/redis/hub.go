package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
)

// Owners says to whom the Applications belong of which the hub's Argo CD speaks.
type Owners interface {
	// Owner returns the agent of an Application; owned is false for one that is the
	// hub's own affair. An error is about one that is an agent's, and wraps
	// identity.ErrDenied when that agent must not be reached. It does not block.
	Owner(Instance) (target Target, owned bool, err error)
	// Watch calls changed with an Application whenever Owner may say something else of
	// it than before, and with the zero Instance when it may of any, until ctx is done.
	// At its begin it does the latter. changed does not block.
	Watch(ctx context.Context, changed func(Instance))
}

// Target is where an agent's Application is.
type Target struct {
	Agent identity.AgentName
	// UID is that of the Agent object.
	UID string
	// Instance is the Application in the spoke's Argo CD.
	Instance Instance
	// Known says that the Application is on the hub. Of another one there is nothing.
	Known bool
}

// Keeper keeps values for some time, in bounded room. What it does not keep is no
// error.
type Keeper interface {
	Keep(ctx context.Context, key string, value []byte) error
	// Last returns nil when nothing is kept, and how long ago it was.
	Last(ctx context.Context, key string) (value []byte, age time.Duration, err error)
	Forget(ctx context.Context, key string) error
	// Touch says how long ago values were last seen to be what is kept, which makes those
	// of them younger that are older. It returns the keys of which nothing is kept.
	Touch(ctx context.Context, ages map[string]time.Duration) (missing []string, err error)
}

// HubConfig holds what a Hub needs. Fields without a stated default are required.
type HubConfig struct {
	// DialRedis opens a connection to the hub's Redis, on which nothing was said yet.
	DialRedis func(context.Context) (net.Conn, error)
	// DialSpoke opens a connection to the agent's Spoke. It returns
	// stream.ErrNotConnected at once when the agent is away, and an error that wraps
	// stream.ErrRefused when the agent does not serve its Redis.
	DialSpoke func(context.Context, identity.AgentName) (net.Conn, error)
	Owners    Owners
	// Found is told, in order and whenever that changes, how the cache of an agent's
	// Argo CD differs from what the hub's asks for; empty when it does not. It does not
	// block. Nil means that nobody is.
	Found func(agent identity.AgentName, mismatch string)
	// Away returns since when an agent is away, false while it is not, or nobody knows
	// since when. It does not block. Nil means that nobody ever does.
	Away func(identity.AgentName) (since time.Time, away bool)
	// Keep keeps last values for the time when their spoke is away. Nil keeps none.
	Keep Keeper
	// Format is the one of the hub's Argo CD, as [Key] has it, for as long as that has not
	// asked for any key. Empty means that it is not known.
	Format  string
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// MaxConnections bounds the callers; more are told so and closed. Zero means 4096.
	MaxConnections int
	// MaxPipelined bounds the commands of one caller that wait for their answers;
	// more are read later. Zero means 1024.
	MaxPipelined int
	// MaxSubscriptions bounds the channels of one caller. Zero means 1024.
	MaxSubscriptions int
	// MaxAgentCalls bounds the reads from one agent at a time; more wait, as long as
	// for an answer. Zero means 64.
	MaxAgentCalls int
	// MaxHeldBytes bounds the values that are held in memory; those beyond are passed
	// on piece by piece. Zero means 128 MiB.
	MaxHeldBytes int64
	// MaxKeptBytes is the longest value that Keep gets. Zero means 1 MiB.
	MaxKeptBytes int
	// AnswerTimeout bounds the wait for the begin of an agent's answer: less than the
	// 3s after which Argo CD's client gives up. Zero means 2s.
	AnswerTimeout time.Duration
	// WriteTimeout bounds the wait for a caller that does not read. Zero means 30s.
	WriteTimeout time.Duration
	// Quota is the room for trees that are marked with their age. Nil means one of its own.
	Quota *quota.Quota
}

// Hub is the hub's end.
type Hub struct {
	cfg     HubConfig
	metrics *hubMetrics
	keeping *keeping
	held    *semaphore.Weighted
	// followers are the callers' subscriptions by Application.
	followers *followers
	// format is the one in which callers ask for keys; nil before any did.
	format atomic.Pointer[string]
	// idle counts the connections to agents that are kept for the next call.
	idle atomic.Int64

	mu      sync.Mutex // guards remotes
	remotes map[identity.AgentName]*remote
}

// NewHub checks cfg and starts nothing.
func NewHub(cfg HubConfig) (*Hub, error) {
	if cfg.DialRedis == nil || cfg.DialSpoke == nil || cfg.Owners == nil {
		return nil, errors.New("redis proxy: dial functions and owners are required")
	}
	if cfg.Format != "" && !isFormat(cfg.Format) {
		return nil, fmt.Errorf("redis proxy: %q is no format of a key", cfg.Format)
	}
	if cfg.MaxConnections < 0 || cfg.MaxPipelined < 0 || cfg.MaxSubscriptions < 0 || cfg.MaxAgentCalls < 0 ||
		cfg.MaxHeldBytes < 0 || cfg.MaxKeptBytes < 0 || cfg.AnswerTimeout < 0 || cfg.WriteTimeout < 0 {
		return nil, errors.New("redis proxy: limits must not be negative")
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 4096)
	cfg.MaxPipelined = cmp.Or(cfg.MaxPipelined, 1024)
	cfg.MaxSubscriptions = cmp.Or(cfg.MaxSubscriptions, 1024)
	cfg.MaxAgentCalls = cmp.Or(cfg.MaxAgentCalls, 64)
	cfg.MaxHeldBytes = cmp.Or(cfg.MaxHeldBytes, 128<<20)
	cfg.MaxKeptBytes = cmp.Or(cfg.MaxKeptBytes, 1<<20)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, 2*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 30*time.Second)
	if cfg.Quota == nil {
		var err error
		if cfg.Quota, err = quota.New(nil); err != nil {
			return nil, fmt.Errorf("redis proxy: %w", err)
		}
	}
	m, err := newHubMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("redis proxy: metrics: %w", err)
	}
	h := &Hub{
		cfg: cfg, metrics: m, held: semaphore.NewWeighted(cfg.MaxHeldBytes), followers: newFollowers(),
		remotes: map[identity.AgentName]*remote{},
	}
	if cfg.Keep != nil {
		h.keeping = newKeeping(cfg.Keep, m, cfg.Log)
	}
	return h, nil
}

// Run serves on l until ctx is done, then ends all connections. It closes l in every
// case and is called once.
func (h *Hub) Run(ctx context.Context, l net.Listener) error {
	h.cfg.Log.Info().Stringer("listener", l.Addr()).Msg("redis proxy listening")
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says so
	defer stop()
	if h.keeping != nil {
		g.Go(func() error { return h.keeping.run(ctx) })
	}
	var work sync.WaitGroup
	serving, end := context.WithCancel(ctx)
	work.Go(func() { h.followers.run(serving) })
	work.Go(func() { h.cfg.Owners.Watch(serving, h.followers.changed) })
	g.Go(func() error {
		defer func() {
			end()
			work.Wait()
			for _, r := range h.remotes { // nobody else is left
				r.closeIdle()
			}
		}()
		spawn := func(f func(context.Context)) { work.Go(func() { f(serving) }) }
		return h.accept(ctx, l, func(conn net.Conn, closed func()) {
			spawn(func(ctx context.Context) { h.count(ctx, conn, closed, spawn) })
		})
	})
	return g.Wait()
}

// count serves a connection and counts it while it is open.
func (h *Hub) count(ctx context.Context, conn net.Conn, closed func(), spawn spawn) {
	defer closed()
	h.metrics.connections.Inc()
	defer h.metrics.connections.Dec()
	h.serve(ctx, conn, spawn)
}

// accept takes connections until ctx is done, and hands them to serve, which does not block.
// One beyond MaxConnections that are not closed is refused.
func (h *Hub) accept(ctx context.Context, l net.Listener, serve func(conn net.Conn, closed func())) error {
	open := make(chan struct{}, h.cfg.MaxConnections)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil // closed by us
			}
			return errors.Join(fmt.Errorf("redis proxy: accept: %w", err), l.Close())
		}
		select {
		case open <- struct{}{}:
			serve(conn, func() { <-open })
		default:
			h.metrics.refused.WithLabelValues("connections").Inc()
			refuse(conn, "ERR max number of clients reached")
		}
	}
}

// refuseTime bounds what is said to a caller that is not served.
const refuseTime = time.Second

// refuse says why, and closes.
func refuse(conn net.Conn, text string) {
	_ = conn.SetDeadline(time.Now().Add(refuseTime))
	_, _ = conn.Write(encodeError(text)) // it is closed in any case
	_ = conn.Close()
}

// spawn runs f in a goroutine of the Hub's, for which Run waits, with a context that
// ends with Run's. It is called by such goroutines only.
type spawn func(f func(context.Context))

// serve serves one caller to its end.
func (h *Hub) serve(ctx context.Context, conn net.Conn, spawn spawn) {
	dial, cancel := context.WithTimeout(ctx, h.cfg.AnswerTimeout)
	up, err := h.cfg.DialRedis(dial)
	cancel()
	if err != nil {
		h.metrics.refused.WithLabelValues("redis").Inc()
		h.cfg.Log.Warn().Err(err).Msg("the hub's redis cannot be reached")
		refuse(conn, "ERR the hub's redis cannot be reached, the principal's log says why")
		return
	}
	newCaller(h, conn, up, spawn).run(ctx)
}

// remote returns what is known of an agent: for as long as the process runs, since the
// agents of a hub are not many.
func (h *Hub) remote(agent identity.AgentName) *remote {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.remotes[agent]
	if r == nil {
		r = newRemote(h, agent)
		h.remotes[agent] = r
	}
	return r
}

// keptFormat is the one in which last values are kept; empty when it is not known.
func (h *Hub) keptFormat() string {
	if said := h.format.Load(); said != nil {
		return *said
	}
	return h.cfg.Format
}
