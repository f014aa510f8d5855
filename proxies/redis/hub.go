package redis

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"golang.org/x/sync/semaphore"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
)

// Hub is the hub's end.
type Hub struct {
	cfg       HubConfig
	metrics   *hubMetrics
	lastKnown *lastKnownCache     // nil when none are kept
	heldBytes *semaphore.Weighted // MaxHeldBytes
	// subscriptions are those of callers, by Application.
	subscriptions *subscriptionIndex
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
	if cfg.Format != "" && !appkey.IsFormat(cfg.Format) {
		return nil, fmt.Errorf("redis proxy: %q is not a format of a key", cfg.Format)
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
		cfg: cfg, metrics: m, heldBytes: semaphore.NewWeighted(cfg.MaxHeldBytes), subscriptions: newSubscriptionIndex(),
		remotes: map[identity.AgentName]*remote{},
	}
	if cfg.LastKnown != nil {
		h.lastKnown = newLastKnownCache(cfg.LastKnown, m, cfg.Log)
	}
	return h, nil
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

// cacheFormat is the one in which last values are kept; empty when it is not known.
func (h *Hub) cacheFormat() string {
	if asked := h.format.Load(); asked != nil {
		return *asked
	}
	return h.cfg.Format
}
