package redis

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

// KeptFor is how long a LastKnownStore keeps a value: an outage of a long weekend is over then.
const KeptFor = 7 * 24 * time.Hour

const (
	// maxQueued bounds the values that wait to be kept; more are not.
	maxQueued = 64
	// maxUnasked is how many values that no one has asked for wait to be kept before no more
	// of these are read.
	maxUnasked = 4
	// storeTimeout bounds one call of the LastKnownStore.
	storeTimeout = 2 * time.Second
	// touchEvery is how often it is written down, at most, that a value was seen again and
	// has not changed: what a process knows that is killed is behind by no more. When an
	// agent goes it is written at once.
	touchEvery = 5 * time.Minute
	// touchBatch bounds the keys of one call of the LastKnownStore.
	touchBatch = 500
	// maxKnown bounds what is remembered of what was kept. Beyond it all is
	// forgotten, and kept once more.
	maxKnown = 65536
)

// lastKnownCache keeps the last values of spokes. A nil one keeps nothing.
type lastKnownCache struct {
	store   LastKnownStore
	metrics *hubMetrics
	log     zerolog.Logger
	queue   chan storeWrite
	// unasked are values that no one has asked for. They are taken when nothing else waits.
	unasked        chan storeWrite
	unaskedWaiting atomic.Int64 // callers of saveUnasked

	mu    sync.Mutex // guards known and count
	known map[identity.AgentName]map[string]fingerprint
	count int          // of all that is known
	seed  maphash.Seed // of fingerprints, which no one else can guess
}

// storeWrite is a value to be kept, or, when it is nil, to be forgotten.
type storeWrite struct {
	agent identity.AgentName
	key   string
	value []byte
	sum   uint64 // of value
	// seen are keys of values that were seen again, instead.
	seen []string
}

// fingerprint tells whether a value has changed, when it was last seen, and which time of that is
// written down.
type fingerprint struct {
	sum           uint64
	seen, written time.Time
}

func newLastKnownCache(store LastKnownStore, m *hubMetrics, log zerolog.Logger) *lastKnownCache {
	return &lastKnownCache{store: store, metrics: m, log: log,
		queue: make(chan storeWrite, maxQueued), unasked: make(chan storeWrite),
		known: map[identity.AgentName]map[string]fingerprint{}, seed: maphash.MakeSeed()}
}

// storeKey is a key by Agent object, so that one that is created again inherits nothing.
func storeKey(k owned) string { return k.target.UID + "|" + k.key.String() }

// save has value kept, soon. It does not block.
func (k *lastKnownCache) save(key owned, value []byte) {
	if k == nil {
		return
	}
	if v, due := k.observe(key, value); due {
		k.enqueue(v)
	}
}

// saveUnasked has a value kept that no one has asked for, and waits until it has its turn,
// which is after all that was given to save.
func (k *lastKnownCache) saveUnasked(ctx context.Context, key owned, value []byte) error {
	v, due := k.observe(key, value)
	if !due {
		return nil
	}
	k.unaskedWaiting.Add(1)
	defer k.unaskedWaiting.Add(-1)
	select {
	case k.unasked <- v:
		return nil
	case <-ctx.Done():
		k.notWritten(v, "dropped")
		return context.Cause(ctx)
	}
}

// hasRoom reports whether values that no one has asked for would keep no others waiting, nor
// wait long themselves.
func (k *lastKnownCache) hasRoom() bool {
	return len(k.queue) < maxQueued/2 && k.unaskedWaiting.Load() < maxUnasked
}

// observe takes note that a value was seen, and returns what is to be written down of that; due
// is false for nothing.
func (k *lastKnownCache) observe(key owned, value []byte) (v storeWrite, due bool) {
	agent, name, now := key.target.Agent, storeKey(key), time.Now()
	is := fingerprint{sum: maphash.Bytes(k.seed, value), seen: now, written: now}
	k.mu.Lock()
	before, found := k.known[agent][name]
	same := found && before.sum == is.sum
	recent := same && now.Sub(before.written) < touchEvery
	if recent {
		is.written = before.written
	}
	k.setKnown(agent, name, is)
	k.mu.Unlock()
	switch {
	case recent:
		return storeWrite{}, false
	case same:
		return storeWrite{agent: agent, seen: []string{name}}, true
	}
	return storeWrite{agent: agent, key: name, value: value, sum: is.sum}, true
}

// setKnown records what is known of a value. It is called with mu locked.
func (k *lastKnownCache) setKnown(agent identity.AgentName, name string, is fingerprint) {
	if _, found := k.known[agent][name]; !found {
		if k.count >= maxKnown {
			clear(k.known)
			k.count = 0
		}
		k.count++
	}
	if k.known[agent] == nil {
		k.known[agent] = map[string]fingerprint{}
	}
	k.known[agent][name] = is
}

// dropKnown forgets what is known of a value, so that it is kept when it is seen again. It
// is called with mu locked.
func (k *lastKnownCache) dropKnown(agent identity.AgentName, name string) (found bool) {
	if _, found = k.known[agent][name]; found {
		delete(k.known[agent], name)
		k.count--
	}
	return found
}

// forget has a value forgotten that the spoke no longer has. It does not block.
func (k *lastKnownCache) forget(key owned) {
	if k == nil {
		return
	}
	agent, name := key.target.Agent, storeKey(key)
	k.mu.Lock()
	found := k.dropKnown(agent, name)
	k.mu.Unlock()
	if found { // else it was kept by an earlier process, and goes by itself
		k.enqueue(storeWrite{agent: agent, key: name})
	}
}

// flushSeen has it written down when each value of an agent was last seen. It does not block.
func (k *lastKnownCache) flushSeen(agent identity.AgentName) {
	if k == nil {
		return
	}
	var seen []string
	k.mu.Lock()
	for name, is := range k.known[agent] {
		if is.seen.After(is.written) {
			is.written = is.seen
			k.known[agent][name] = is
			seen = append(seen, name)
		}
	}
	k.mu.Unlock()
	for batch := range slices.Chunk(seen, touchBatch) {
		k.enqueue(storeWrite{agent: agent, seen: batch})
	}
}

func (k *lastKnownCache) enqueue(v storeWrite) {
	select {
	case k.queue <- v:
	default:
		k.notWritten(v, "dropped")
	}
}

// notWritten records that something was not kept, for the next time.
func (k *lastKnownCache) notWritten(v storeWrite, result string) {
	k.metrics.kept.WithLabelValues(result).Inc()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range v.seen {
		if is, found := k.known[v.agent][name]; found {
			is.written = time.Time{}
			k.known[v.agent][name] = is
		}
	}
	if v.seen == nil {
		k.dropKnown(v.agent, v.key)
	}
}

// run keeps until ctx is done.
func (k *lastKnownCache) run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case v := <-k.queue:
			k.write(ctx, v)
			continue
		default:
		}
		select {
		case <-ctx.Done():
		case v := <-k.queue:
			k.write(ctx, v)
		case v := <-k.unasked:
			if !k.outdated(v) {
				k.write(ctx, v)
			}
		}
	}
	return nil
}

// outdated reports whether another value was seen while one waited.
func (k *lastKnownCache) outdated(v storeWrite) bool {
	if v.seen != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is, found := k.known[v.agent][v.key]
	return found && is.sum != v.sum
}

func (k *lastKnownCache) write(ctx context.Context, v storeWrite) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var err error
	switch {
	case v.seen != nil:
		err = k.touch(ctx, v)
	case v.value == nil:
		err = k.store.Forget(ctx, v.key)
	default:
		err = k.store.Set(ctx, v.key, v.value)
	}
	if err != nil {
		k.log.Debug().Err(err).Msg("a last value cannot be kept")
		k.notWritten(v, "failed")
		return
	}
	k.metrics.kept.WithLabelValues("kept").Inc()
}

// touch writes down when values were last seen. Those of which nothing is kept any more
// are kept when they are seen again.
func (k *lastKnownCache) touch(ctx context.Context, v storeWrite) error {
	ages, now := map[string]time.Duration{}, time.Now()
	k.mu.Lock()
	for _, name := range v.seen {
		if is, found := k.known[v.agent][name]; found {
			ages[name] = now.Sub(is.seen)
		}
	}
	k.mu.Unlock()
	missing, err := k.store.Touch(ctx, ages)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range missing {
		k.dropKnown(v.agent, name)
	}
	return nil
}

// last returns what was kept, and how long ago it was last seen; nil when nothing was, or
// cannot be had.
func (k *lastKnownCache) last(ctx context.Context, key owned) ([]byte, time.Duration) {
	if !key.target.Known {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	value, age, err := k.store.Last(ctx, storeKey(key))
	if err != nil {
		k.log.Debug().Err(err).Msg("a last value cannot be read")
		return nil, 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if is, found := k.known[key.target.Agent][storeKey(key)]; found && value != nil &&
		is.sum == maphash.Bytes(k.seed, value) {
		age = min(age, time.Since(is.seen))
	}
	return value, age
}
