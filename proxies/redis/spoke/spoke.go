// Package spoke is the spoke's end of the Redis proxy: it lets the hub read and follow what
// the spoke's Argo CD keeps of Applications, and nothing else.
package spoke

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/stream"
)

const (
	// maxSpokeKeys bounds the keys of one command.
	maxSpokeKeys = 256
	// spokeWrite is how many bytes of an answer go to the hub at once: a tree of some
	// hundred resources, compressed.
	spokeWrite = 16 << 10
	// maxSpokeChannels bounds the subscriptions of one connection.
	maxSpokeChannels = 16384
	// spokeIdle ends a connection on which nothing is asked: longer than the hub keeps
	// one, so that the hub, which is about to use it, is who ends it.
	spokeIdle = 2 * time.Minute
)

// Config holds what a Spoke needs. Fields without a stated default are required.
type Config struct {
	// Dial opens a connection to the spoke's Redis, on which nothing was said yet.
	Dial func(context.Context) (net.Conn, error)
	// Credentials returns who we are there; nothing for no one.
	Credentials func(context.Context) (username, password string, err error)
	// Database is the number of Argo CD's.
	Database int
	// Version is that of the cache of the spoke's Argo CD, and Plain says that it does
	// not compress.
	Version string
	Plain   bool
	// Allow says which Applications the hub may see. It does not block.
	Allow   func(appkey.Instance) bool
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// MaxConnections bounds the hub's connections; more are refused. Zero means 256.
	MaxConnections int
	// MaxBytes bounds the values that are on their way to the hub on all connections, but
	// for those of at most shortValue: Redis has a copy of each for each connection until
	// the hub has read it. Zero means 128 MiB; one value may have it all.
	MaxBytes int64
	// AnswerTimeout bounds the wait for the spoke's Redis, and for others to be read. Zero
	// means 10s.
	AnswerTimeout time.Duration
}

// Spoke is the spoke's end: it lets the hub read and subscribe to what Argo CD keeps of
// Applications, and do nothing else. The credentials of the spoke's Redis stay here.
type Spoke struct {
	cfg     Config
	metrics *spokeMetrics
	open    chan struct{}
	room    *semaphore.Weighted // MaxBytes

	mu sync.Mutex // guards what follows
	// other is the format in which the spoke's keys are, when it is not ours; checked is
	// when that was checked.
	other   string
	checked time.Time
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Spoke, error) {
	if cfg.Dial == nil || cfg.Credentials == nil || cfg.Allow == nil {
		return nil, errors.New("redis of the spoke: dial, credentials and allow are required")
	}
	if !appkey.IsFormat(cfg.Version) || cfg.Database < 0 || cfg.MaxConnections < 0 || cfg.MaxBytes < 0 ||
		cfg.AnswerTimeout < 0 {
		return nil, errors.New("redis of the spoke: version, database or limits cannot be used")
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 256)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 128<<20)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, 10*time.Second)
	m, err := newSpokeMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("redis of the spoke: metrics: %w", err)
	}
	return &Spoke{cfg: cfg, metrics: m, open: make(chan struct{}, cfg.MaxConnections),
		room: semaphore.NewWeighted(cfg.MaxBytes)}, nil
}

// format is how the keys end.
func (s *Spoke) format() string {
	if s.cfg.Plain {
		return s.cfg.Version
	}
	return s.cfg.Version + ".gz"
}

// Serve serves one connection of the hub until it ends. An error before anything is
// read of conn is that the spoke's Redis cannot be used.
func (s *Spoke) Serve(ctx context.Context, conn net.Conn) error {
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		return fmt.Errorf("redis of the spoke: %d connections are open: %w", s.cfg.MaxConnections, stream.ErrUnavailable)
	}
	s.metrics.connections.Inc()
	defer s.metrics.connections.Dec()
	session := &spokeSession{spoke: s}
	opening, cancel := context.WithTimeout(ctx, s.cfg.AnswerTimeout)
	err := session.connect(opening)
	cancel()
	if err != nil {
		return fmt.Errorf("redis of the spoke: %w", err)
	}
	session.hub = &resp.DeadlineConn{Conn: conn, ReadTime: spokeIdle, WriteTime: s.cfg.AnswerTimeout}
	stop := context.AfterFunc(ctx, func() {
		_ = session.redis.Close() // it interrupts what is under way there
		session.hub.Interrupt()   // and here
	})
	defer func() {
		if stop() {
			_ = session.redis.Close() // all was answered
		}
	}()
	session.in, session.out = resp.NewWire(session.hub), bufio.NewWriterSize(session.hub, spokeWrite)
	return session.serve(ctx)
}

// refusal returns the error that answers the hub about a key; empty when it
// may have one.
func (s *Spoke) refusal(text, format string) (refusal, result string) {
	k, ok := appkey.ParseKey(text)
	switch {
	case !ok || !s.cfg.Allow(k.Instance):
		return appkey.SpokeDenied, resultDenied
	case k.Format != format:
		return appkey.SpokeFormat + " " + format, resultFormat
	}
	return "", resultOK
}
