package redis

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// KeptFor is how long a Keeper keeps a value.
const KeptFor = 24 * time.Hour

const (
	// keepQueue bounds the values that wait to be kept; more are not.
	keepQueue = 64
	// keepTime bounds one call of the Keeper.
	keepTime = 2 * time.Second
	// keepAgain is after which time the same value is kept again, so that its end
	// moves on.
	keepAgain = time.Hour
	// keepKnown bounds what is remembered of what was kept. Beyond it all is
	// forgotten, and kept once more.
	keepKnown = 65536
)

// keeping keeps the last values of spokes. A nil one keeps nothing.
type keeping struct {
	keeper  Keeper
	metrics *hubMetrics
	log     zerolog.Logger
	queue   chan kept

	mu    sync.Mutex // guards known
	known map[string]seal
	seed  maphash.Seed // of seals, which nobody else can guess
}

// kept is a value to be kept, or, when it is nil, to be forgotten.
type kept struct {
	key   string
	value []byte
}

// seal tells whether a value has changed.
type seal struct {
	sum uint64
	at  time.Time
}

func newKeeping(k Keeper, m *hubMetrics, log zerolog.Logger) *keeping {
	return &keeping{keeper: k, metrics: m, log: log, queue: make(chan kept, keepQueue), known: map[string]seal{}, seed: maphash.MakeSeed()}
}

// keptKey is a key by Agent object, so that one that is made anew inherits nothing.
func keptKey(k owned) string { return k.target.UID + "|" + k.key.String() }

// keep has value kept, soon. It does not block.
func (k *keeping) keep(key owned, value []byte) {
	if k == nil {
		return
	}
	name, now := keptKey(key), time.Now()
	seen := seal{sum: maphash.Bytes(k.seed, value), at: now}
	k.mu.Lock()
	before, found := k.known[name]
	if found && before.sum == seen.sum && now.Sub(before.at) < keepAgain {
		k.mu.Unlock()
		return
	}
	if len(k.known) >= keepKnown {
		clear(k.known)
	}
	k.known[name] = seen
	k.mu.Unlock()
	k.put(kept{name, value})
}

// forget has a value forgotten that the spoke no longer has. It does not block.
func (k *keeping) forget(key owned) {
	if k == nil {
		return
	}
	name := keptKey(key)
	k.mu.Lock()
	_, found := k.known[name]
	delete(k.known, name)
	k.mu.Unlock()
	if found { // else it was kept by an earlier process, and goes by itself
		k.put(kept{key: name})
	}
}

func (k *keeping) put(v kept) {
	select {
	case k.queue <- v:
	default:
		k.metrics.kept.WithLabelValues("dropped").Inc()
		k.mu.Lock()
		delete(k.known, v.key) // for the next time
		k.mu.Unlock()
	}
}

// run keeps until ctx is done.
func (k *keeping) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case v := <-k.queue:
			k.one(ctx, v)
		}
	}
}

func (k *keeping) one(ctx context.Context, v kept) {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	var err error
	if v.value == nil {
		err = k.keeper.Forget(ctx, v.key)
	} else {
		err = k.keeper.Keep(ctx, v.key, v.value)
	}
	if err != nil {
		k.metrics.kept.WithLabelValues("failed").Inc()
		k.log.Debug().Err(err).Msg("a last value cannot be kept")
		k.mu.Lock()
		delete(k.known, v.key)
		k.mu.Unlock()
		return
	}
	k.metrics.kept.WithLabelValues("kept").Inc()
}

// last returns what was kept; nil when nothing was, or cannot be had.
func (k *keeping) last(ctx context.Context, key owned) ([]byte, time.Duration) {
	if !key.target.Known {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	value, age, err := k.keeper.Last(ctx, keptKey(key))
	if err != nil {
		k.log.Debug().Err(err).Msg("a last value cannot be read")
		return nil, 0
	}
	return value, age
}
