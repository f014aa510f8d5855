package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/warmplan"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const (
	// warmInterval is how often it is checked who is connected, and what has changed: what
	// changes several times in between is read once.
	warmInterval = time.Second
	// maxWarmSums is of how many Applications a refresh computes a sum since their agent has
	// connected, but for those of the last agent, which later ones make up for: more in a
	// second than are read of all, and little work, however often agents connect.
	maxWarmSums = 500
	// maxWarmReads bounds the keys that are read at a time, of all agents. Of one it is one.
	maxWarmReads = 16
	// warmReadTime bounds one of them, an answer that comes slowly included.
	warmReadTime = 30 * time.Second
	// warmFormatFor is how long values are read in one format before another one counts, in
	// which callers ask: there may be two Argo CDs, of which one follows the other.
	warmFormatFor = 10 * time.Minute
)

// WarmConfig holds what a Warm needs. All of it is required; its functions do not block, but for
// Stored.
type WarmConfig struct {
	// Hub is the one whose last values are read. It keeps them (HubConfig.LastKnown).
	Hub *Hub
	// Sessions returns the agents that are connected to this process, each with a text that is
	// another one once it has connected again.
	Sessions func() map[identity.AgentName]string
	// Applications returns those of an agent, as the hub's Argo CD names them, each with what
	// [ContentOf] says of it.
	Applications func(identity.AgentName) map[appkey.Instance]uint64
	// Lookup returns the same of one, and whose it is; false for one that is no one's, or of an
	// agent that is not connected.
	Lookup func(appkey.Instance) (agent identity.AgentName, content uint64, ok bool)
	// Stored is called whenever the managed resources of an Application are kept that no one
	// has asked for. It may block, for as long as ctx lasts: nothing else is read of that agent
	// meanwhile.
	Stored  func(ctx context.Context, agent identity.AgentName, i appkey.Instance)
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Warm reads the trees and managed resources of Applications that no one may have opened, so
// that they are kept when their spoke goes away: of each Application after its agent has connected,
// and when its resources have changed. What it reads is asked for as callers ask, with
// the same limits, and it takes room only where they leave enough.
type Warm struct {
	cfg     WarmConfig
	plan    *warmplan.Plan // of Run
	reads   *prometheus.CounterVec
	waiting prometheus.Gauge

	// Of Run: the format in which values are read, and since when, if callers ask in it.
	format string
	since  time.Time
	// summed is of how many Applications sums were computed for connections, less maxWarmSums
	// for each refresh.
	summed int

	mu      sync.Mutex // guards changed
	changed map[appkey.Instance]struct{}
}

// NewWarm checks cfg and starts nothing.
func NewWarm(cfg WarmConfig) (*Warm, error) {
	if cfg.Hub == nil || cfg.Hub.lastKnown == nil || cfg.Sessions == nil || cfg.Applications == nil ||
		cfg.Lookup == nil || cfg.Stored == nil {
		return nil,
			errors.New("unopened applications: a hub that keeps last values, and what says of Applications, are required")
	}
	w := &Warm{
		cfg: cfg, plan: warmplan.New(warmplan.MaxWarm), changed: map[appkey.Instance]struct{}{},
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_warm_reads_total",
			Help: "Keys of spokes that were read without a caller, to have them while the spoke is away, by result: kept, missing on the spoke, long or excess (more than is kept, or than passes), failed, another format of the cache, refused by the agent, moved to another agent; and limit: Applications beyond those that are remembered.",
		}, []string{"result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_proxy_warm_waiting", Help: "Applications that wait to be read without a caller.",
		}),
	}
	if err := register(cfg.Metrics, w.reads, w.waiting); err != nil {
		return nil, fmt.Errorf("unopened applications: metrics: %w", err)
	}
	return w, nil
}

// Changed takes note that an Application may have changed, or its owner. It does not
// block.
func (w *Warm) Changed(i appkey.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[i] = struct{}{} // as many as the hub has
}

// drainChanged returns what has changed.
func (w *Warm) drainChanged() map[appkey.Instance]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = map[appkey.Instance]struct{}{}
	return changed
}

// warmOutcome is what became of a key, and of a tree in how many parts it is.
type warmOutcome struct {
	job    warmplan.Job
	result warmplan.Result
	shards int
}

// Run reads until ctx is done. It is called once.
func (w *Warm) Run(ctx context.Context) error {
	var (
		reads    sync.WaitGroup
		outcomes = make(chan warmOutcome)
		refresh  = time.NewTicker(warmInterval)
		next     = time.NewTimer(0)
	)
	defer reads.Wait()
	defer refresh.Stop()
	defer next.Stop()
	for reading := 0; ; {
		for reading < maxWarmReads {
			now := time.Now()
			job, ok, retryAt := w.plan.Next(now, w.free)
			if !ok {
				if !retryAt.IsZero() {
					next.Reset(retryAt.Sub(now))
				}
				break
			}
			reading++
			format := w.format
			reads.Go(func() {
				o := w.read(ctx, job, format)
				w.notifyStored(ctx, o)
				select {
				case outcomes <- o:
				case <-ctx.Done():
				}
			})
		}
		w.waiting.Set(float64(w.plan.Waiting))
		select {
		case <-ctx.Done():
			return nil
		case <-refresh.C:
			w.refresh(time.Now())
		case <-next.C:
		case o := <-outcomes:
			reading--
			w.reads.WithLabelValues(string(o.result)).Inc()
			w.plan.Done(o.job, o.result, o.shards, time.Now())
		}
	}
}

// notifyStored calls Stored if the managed resources of an Application are kept now.
func (w *Warm) notifyStored(ctx context.Context, o warmOutcome) {
	if o.result != warmplan.Kept || o.job.Family != appkey.ManagedResources {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, warmReadTime)
	defer cancel()
	w.cfg.Stored(ctx, o.job.Agent.Name, o.job.Instance)
}

// free reports whether callers leave room for a read from an agent: they come first.
func (w *Warm) free(name identity.AgentName) bool {
	calls := w.cfg.Hub.remote(name).calls
	return w.cfg.Hub.lastKnown.hasRoom() && 2*len(calls) < cap(calls)
}

// refresh brings the plan up to date with who is connected, and what has changed.
func (w *Warm) refresh(now time.Time) {
	if w.chooseFormat(now); w.format == "" {
		return
	}
	changed, sessions := w.drainChanged(), w.cfg.Sessions()
	for name := range w.plan.Agents {
		if _, connected := sessions[name]; !connected {
			w.plan.Disconnect(name)
		}
	}
	w.summed = max(w.summed-maxWarmSums, 0)
	for name, session := range sessions {
		if w.summed >= maxWarmSums {
			break // the next refresh goes on, with any of them
		}
		if !w.plan.Connect(name, session+" "+w.format) { // in another one all is read again
			continue
		}
		apps := w.cfg.Applications(name)
		w.summed += len(apps)
		for i, content := range apps {
			w.observe(name, i, content)
		}
	}
	for i := range changed {
		if name, content, ok := w.cfg.Lookup(i); ok {
			w.observe(name, i, content)
		} else {
			w.plan.Forget(i)
		}
	}
}

// chooseFormat chooses the format: the one in which callers ask, and until they do the one that is
// configured.
func (w *Warm) chooseFormat(now time.Time) {
	is := w.cfg.Hub.cacheFormat()
	if is == w.format || !w.since.IsZero() && now.Sub(w.since) < warmFormatFor {
		return
	}
	w.format = is
	if w.cfg.Hub.format.Load() != nil { // else it changes as soon as someone asks
		w.since = now
	}
}

func (w *Warm) observe(name identity.AgentName, i appkey.Instance, content uint64) {
	if !w.plan.Observe(name, i, content) {
		w.reads.WithLabelValues(string(warmplan.Limit)).Inc()
	}
}

// read reads a key, and has it kept.
func (w *Warm) read(ctx context.Context, job warmplan.Job, format string) warmOutcome {
	ctx, cancel := context.WithTimeout(ctx, warmReadTime)
	defer cancel()
	h := w.cfg.Hub
	target, isOwned, err := h.cfg.Owners.Owner(job.Instance)
	switch {
	case err != nil && !errors.Is(err, identity.ErrDenied):
		return warmOutcome{job: job, result: warmplan.Failed} // it is not known yet
	case err != nil || !isOwned || !target.Known || target.Agent != job.Agent.Name:
		return warmOutcome{job: job, result: warmplan.Moved}
	}
	key := owned{key: appkey.Key{Family: job.Family, Instance: job.Instance, Format: format}, target: target}
	if job.Shard > 0 {
		key.key.Shard = strconv.Itoa(job.Shard)
	}
	f := &fetch{hub: h, verb: "GET", keys: []owned{key}, asked: []owned{key}, remote: h.remote(target.Agent),
		unasked: true}
	r, err := f.ask(ctx)
	if err != nil {
		return warmOutcome{job: job, result: w.failed(f, err)}
	}
	defer r.close()
	f.remote.answered()
	o := warmOutcome{job: job, result: resultOf(r, h.cfg.MaxKeptBytes)}
	if o.result != warmplan.Kept {
		return o
	}
	if job.Family == appkey.ResourcesTree && job.Shard == 0 {
		o.shards = warmplan.ShardsOf(r.value, strings.HasSuffix(format, appkey.CompressedFormat))
	}
	if h.lastKnown.saveUnasked(ctx, key, r.value) != nil {
		o.result = warmplan.Failed
	}
	return o
}

// resultOf returns what a reply to GET is; a value that can be kept is warmplan.Kept.
func resultOf(r *reply, longest int) warmplan.Result {
	switch {
	case r.value != nil:
		return warmplan.Kept
	case r.link != nil && r.size > longest:
		return warmplan.Long
	case r.link != nil:
		return warmplan.Failed // others have the room
	case r.raw[0] == '-':
		return warmplan.Excess
	}
	return warmplan.Missing
}

// failed returns what an error means.
func (w *Warm) failed(f *fetch, err error) warmplan.Result {
	var answered resp.RefusalError
	isAnswer := errors.As(err, &answered)
	switch {
	case isAnswer && answered.Code == appkey.SpokeFormat && appkey.IsFormat(answered.Rest):
		f.noteFormat(answered.Rest)
		return warmplan.Format
	case errors.Is(err, stream.ErrRefused), isAnswer && answered.Code == appkey.SpokeDenied:
		return warmplan.Refused
	}
	w.cfg.Log.Debug().Err(err).Stringer("agent", f.remote.agent).
		Msg("cannot read what an agent's Redis has of an Application, retrying")
	return warmplan.Failed
}
