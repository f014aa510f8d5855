package clusterinfo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

const (
	// readInterval is how often the entry is read. Argo CD writes it every 10 s.
	readInterval = 2 * time.Second
	// missingTime is how long the entry may be missing before it is looked for
	// under other keys: an Argo CD that starts has not written it yet. searchInterval
	// is how far apart two such searches are.
	missingTime    = 30 * time.Second
	searchInterval = 5 * time.Minute
)

// Source is the Redis of a spoke's Argo CD. Its methods return when ctx is done.
type Source interface {
	// Get returns the value of a key, of a longer one the first limit bytes, and
	// nothing when there is none.
	Get(ctx context.Context, key string, limit int) ([]byte, error)
	// Find returns keys that begin with a prefix, perhaps not all, in no order.
	Find(ctx context.Context, prefix string) ([]string, error)
}

// ReaderConfig holds what a Reader needs. Fields without a stated default are
// required.
type ReaderConfig struct {
	Source Source
	// Format is how the spoke's Argo CD keeps values. Zero means by default.
	Format  Format
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Reader follows what a spoke's Argo CD knows of its own Kubernetes cluster. Its
// methods may be called concurrently.
type Reader struct {
	cfg   ReaderConfig
	reads *prometheus.CounterVec
	tried chan struct{} // closed after the first read

	mu      sync.Mutex // guards what follows
	latest  stream.SpokeInfo
	changed notify.Broadcast
}

// NewReader checks cfg and registers metrics; it starts nothing.
func NewReader(cfg ReaderConfig) (*Reader, error) {
	if cfg.Source == nil || cfg.Metrics == nil {
		return nil, errors.New("cluster info reader: source and metrics are required")
	}
	r := &Reader{cfg: cfg, tried: make(chan struct{}), reads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_clusterinfo_reads_total",
		Help: "Reads of the cluster info in the spoke's Redis, by result: ok, missing, invalid, error.",
	}, []string{"result"})}
	if err := cfg.Metrics.Register(r.reads); err != nil {
		return nil, fmt.Errorf("register metrics of the cluster info reader: %w", err)
	}
	return r, nil
}

// Latest returns what was last read, and a channel that is closed when that has
// changed. It is zero before the first read and while Argo CD has no entry; while
// Redis is away, or the entry is not to be understood, it stays.
func (r *Reader) Latest() (stream.SpokeInfo, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.changed.Next()
}

// Tried returns a channel that is closed once Run has read, or has found out that
// it cannot, which takes 2 s at most.
func (r *Reader) Tried() <-chan struct{} { return r.tried }

// Run reads until ctx is done, and returns nil then. It is called once.
func (r *Reader) Run(ctx context.Context) error {
	away := outage{log: r.cfg.Log}
	search := search{since: time.Now()}
	invalid := false // the entry was not to be understood the last time
	var once sync.Once
	for going := true; going; {
		value, err := r.get(ctx)
		if ctx.Err() == nil {
			away.met(err)
		}
		switch {
		case err != nil:
			r.reads.WithLabelValues(resultError).Inc()
			search.since = time.Now()
		case len(value) == 0:
			r.reads.WithLabelValues(resultMissing).Inc()
			r.set(stream.SpokeInfo{})
			r.search(ctx, &search)
		default:
			search.since = time.Now()
			invalid = !r.readValue(value, invalid)
		}
		once.Do(func() { close(r.tried) })
		going = wait(ctx, nil, max(readInterval, away.pause))
	}
	return nil
}

// readValue reads an entry; false when it is not to be understood, which it logs unless
// logged.
func (r *Reader) readValue(value []byte, logged bool) bool {
	info, err := r.cfg.Format.Decode(value)
	if err != nil {
		r.reads.WithLabelValues(resultInvalid).Inc()
		if !logged {
			r.cfg.Log.Warn().Err(err).Msg("cannot read the cluster info of the spoke's Argo CD")
		}
		return false
	}
	r.reads.WithLabelValues(resultOK).Inc()
	r.set(info)
	return true
}

// More values of the label result.
const (
	resultMissing = "missing"
	resultInvalid = "invalid"
)

func (r *Reader) get(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// One byte more than may be, so that a longer one is found out.
	return r.cfg.Source.Get(ctx, r.cfg.Format.Key(LocalServer), MaxBytes+1)
}

func (r *Reader) set(info stream.SpokeInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info != r.latest {
		r.latest = info
		r.changed.Notify()
	}
}

// search is when the entry was last there, and when it was last searched for under
// other keys.
type search struct{ since, tried time.Time }

// search says so when the entry is under a key of another form: Argo CD's version
// of it, and its compression, are settings, and a wrong one of ours would look
// like a spoke without applications.
func (r *Reader) search(ctx context.Context, s *search) {
	now := time.Now()
	if now.Sub(s.since) < missingTime || now.Sub(s.tried) < searchInterval {
		return
	}
	s.tried = now
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	others, err := r.cfg.Source.Find(ctx, keyPrefix+LocalServer+"|")
	if err != nil || len(others) == 0 {
		return // the next read tells what is wrong, or no one writes one
	}
	slices.Sort(others)
	r.cfg.Log.Warn().Str("expected", r.cfg.Format.Key(LocalServer)).Strs("found", others[:min(len(others), 10)]).
		Msg("the spoke's Argo CD keeps its cluster info under another key; set redis.cache_version and redis.compression to what it uses")
}
