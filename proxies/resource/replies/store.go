package replies

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

const (
	// KeptFor is how long a LastReplyStore keeps a reply.
	KeptFor = 30 * 24 * time.Hour
	// KeptBytes is the room of one owner in a LastReplyStore.
	KeptBytes = maxAgentBytes
)

// LastReplyStore keeps values across restarts, those of each owner in bounded room: what was
// kept the longest ago goes first. What it does not keep is no error.
// cmd/internal/argoredis has one.
type LastReplyStore interface {
	// Get returns at most limit bytes of a value, and nothing when there is none.
	Get(ctx context.Context, owner, key string, limit int) ([]byte, error)
	// Set writes a value that goes by itself. One without a byte is removed.
	Set(ctx context.Context, owner, key string, value []byte) error
	// Clear removes all values of an owner.
	Clear(ctx context.Context, owner string) error
}

// change is a reply that is new in memory, or one that is no longer true; without a
// path it is all that the agent has.
type change struct {
	key  Key
	gone bool
}

// Run writes replies to the store until ctx is done. It is called once.
func (r *Replies) Run(ctx context.Context) error {
	log := r.cfg.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-r.dirty:
			r.dequeued(c)
			if err := r.persist(ctx, c); err != nil && ctx.Err() == nil {
				r.metrics.results.WithLabelValues(replyNotKept).Inc()
				log.Warn().Err(err).Stringer("agent", c.key.Agent).Msg("a last known reply is only in memory")
			}
		}
	}
}

// persist brings one reply in the store up to date.
func (r *Replies) persist(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if c.key.Path == "" {
		return r.cfg.Store.Clear(ctx, c.key.owner())
	}
	known, found := r.inMemory(c.key)
	if found == c.gone {
		return nil // made room for others meanwhile, or is there again
	}
	if c.gone {
		return r.cfg.Store.Set(ctx, c.key.owner(), c.key.name(), nil)
	}
	value, err := known.encode()
	if err != nil {
		return err
	}
	return r.cfg.Store.Set(ctx, c.key.owner(), c.key.name(), value)
}

// changed has a change written to the store, or lost when too many wait, in all or of
// its agent.
func (r *Replies) changed(c change) {
	if r.cfg.Store == nil {
		return
	}
	r.waitMu.Lock()
	defer r.waitMu.Unlock()
	of := r.waiting[c.key.Agent]
	if _, waits := of[c]; waits {
		return
	}
	if len(of) < maxChangesOfAgent {
		select {
		case r.dirty <- c:
			if of == nil {
				of = map[change]struct{}{}
				r.waiting[c.key.Agent] = of
			}
			of[c] = struct{}{}
			return
		default:
		}
	}
	r.metrics.results.WithLabelValues(replyNotKept).Inc()
}

// dequeued records that a change no longer waits.
func (r *Replies) dequeued(c change) {
	r.waitMu.Lock()
	defer r.waitMu.Unlock()
	of := r.waiting[c.key.Agent]
	if delete(of, c); len(of) == 0 {
		delete(r.waiting, c.key.Agent)
	}
}

// owner is whose the key is in the store.
func (k Key) owner() string { return k.Agent.String() + "|" + k.UID }

// name is the key in the store, among those of its owner.
func (k Key) name() string {
	sum := sha256.Sum256([]byte(k.Path + "\n" + k.accept))
	return hex.EncodeToString(sum[:16])
}

// replyHeader is what stands before the packed body in the store, as a line of JSON.
type replyHeader struct {
	Agent  identity.AgentName `json:"agent"`
	UID    string             `json:"uid"`
	Path   string             `json:"path"`
	Accept string             `json:"accept"`
	At     time.Time          `json:"at"`
	Kind   string             `json:"kind"`
	ETag   string             `json:"etag"`
	Own    bool               `json:"own,omitempty"`
	Length int                `json:"length"`
}

// maxReplyHeader is the longest such line, in bytes.
const maxReplyHeader = 8 << 10

func (r *reply) encode() ([]byte, error) {
	line, err := json.Marshal(replyHeader{
		Agent: r.key.Agent, UID: r.key.UID, Path: r.key.Path, Accept: r.key.accept,
		At: r.at, Kind: r.kind, ETag: r.etag, Own: r.own, Length: r.length,
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(line, []byte("\n"), r.packed), nil
}

// decodeReply reads what encode wrote. The body is not unpacked.
func decodeReply(value []byte) (*reply, error) {
	line, packed, found := bytes.Cut(value, []byte("\n"))
	if !found || len(line) > maxReplyHeader || len(packed) > maxPacked {
		return nil, errors.New("a kept reply cannot be read")
	}
	var h replyHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("a kept reply: %w", err)
	}
	if h.Length < 0 || h.Length > maxReply {
		return nil, errors.New("a kept reply has an impossible length")
	}
	return &reply{
		key: Key{Agent: h.Agent, UID: h.UID, Path: h.Path, accept: h.Accept},
		at:  h.At, kind: h.Kind, etag: h.ETag, own: h.Own, length: h.Length, packed: packed,
	}, nil
}
