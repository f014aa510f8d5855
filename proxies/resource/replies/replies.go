// Package replies keeps the last replies of spokes to the questions that do not change, for
// the time when they are away.
package replies

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/argomesh/argomesh/proxies/resource/mediatype"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
)

// Bounds of the last known replies. A spoke with a hundred custom resources has
// about 300 KiB of them, packed, with every version of its OpenAPI.
const (
	// maxReply is the longest reply that is kept, in bytes, and maxPacked as it is kept.
	maxReply  = 64 << 20
	maxPacked = 4 << 20
	// maxReplies is the largest number of an agent, and maxAgentBytes what they may
	// take, packed.
	maxReplies    = 512
	maxAgentBytes = 8 << 20
	// maxReplyKey is the longest path, in bytes, for which a reply is kept, and
	// maxReplyTag the longest ETag or Content-Type with which one is.
	maxReplyKey = 512
	maxReplyTag = 512
	// recorders is the number of replies that are taken down at a time, and
	// recordersOfAgent that of one agent.
	recorders        = 16
	recordersOfAgent = 2
	// recordTime is after which time one that is not at its end is given up.
	recordTime = 30 * time.Second
	// replyAge is how old a reply may be before the same is taken down again.
	replyAge = time.Minute
	// storeTimeout bounds one call of the store.
	storeTimeout = 2 * time.Second
	// maxChanges is the number of changes that may wait for the store, and
	// maxChangesOfAgent that of one agent.
	maxChanges        = 1024
	maxChangesOfAgent = 64
	// windowBytes is how far back the packing looks, which bounds its memory.
	windowBytes = 128 << 10
)

// Config holds what Replies need. Fields without a stated default are
// required.
type Config struct {
	// MaxBytes bounds the replies of all agents together, packed. The one that was not
	// used for longest goes first. Zero means 128 MiB.
	MaxBytes int
	// Store outlives the process. Nil means that replies are lost with it.
	Store   LastReplyStore
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Replies are the last known replies of each spoke about its version and its kinds,
// without which Argo CD creates and edits no Application of a spoke that is away.
//
// They are in memory, packed and bounded, and behind that in a store: a principal
// that was restarted knows nothing of the spokes that are away just then, who are
// those for whom it is asked. A reply is worth nothing that a spoke could not send
// again, so a store may lose it; the hub's Redis does. Methods may be called
// concurrently.
type Replies struct {
	cfg     Config
	metrics *replyMetrics
	dirty   chan change // to be written to the store

	waitMu  sync.Mutex // guards waiting, which is what dirty holds
	waiting map[identity.AgentName]map[change]struct{}

	mu         sync.Mutex // guards what follows
	byKey      map[Key]*list.Element
	order      *list.List // of *reply, the one used last in front
	bytes      int
	agents     map[identity.AgentName]*agentReplies
	recordings map[identity.AgentName]int
	recording  int // of all agents
}

type agentReplies struct {
	count, bytes int
	// own says that all are of a spoke whose owner shows Kubernetes' own kinds alone.
	own bool
}

// Key names one reply. The UID is that of the Agent, so that another spoke that
// is registered under the same name later starts without any.
type Key struct {
	Agent  identity.AgentName
	UID    string
	Path   string // with the hash of an OpenAPI document, if any
	accept string // of acceptOf
}

// reply is what is kept of one.
type reply struct {
	key    Key
	at     time.Time
	kind   string // Content-Type
	etag   string
	own    bool   // of a spoke that shows Kubernetes' own kinds alone
	length int    // unpacked
	packed []byte // zstd
}

// size is what a reply counts for.
func (r *reply) size() int { return len(r.packed) + len(r.key.Path) + len(r.key.accept) + 512 }

// New checks cfg and starts nothing.
func New(cfg Config) (*Replies, error) {
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("last known replies: max bytes is %d", cfg.MaxBytes)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 128 << 20
	}
	r := &Replies{
		cfg: cfg, dirty: make(chan change, maxChanges), recordings: map[identity.AgentName]int{},
		waiting: map[identity.AgentName]map[change]struct{}{},
		byKey:   map[Key]*list.Element{}, order: list.New(), agents: map[identity.AgentName]*agentReplies{},
	}
	var err error
	if r.metrics, err = newReplyMetrics(cfg.Metrics, r.counts); err != nil {
		return nil, fmt.Errorf("last known replies: metrics: %w", err)
	}
	return r, nil
}

// KeyOf returns the key of a call whose reply is kept: a plain GET of the version or the
// kinds of an API server.
func KeyOf(agent identity.AgentName, uid string, request access.Request, target *url.URL, h http.Header) (Key, bool) {
	accept, known := mediatype.AcceptOf(h["Accept"])
	if !known || request.Method != http.MethodGet || request.IsResource() || !request.Impersonate.IsZero() ||
		!describes(request.Path) ||
		len(target.RawQuery)+len(target.Path) > maxReplyKey || h.Get("Upgrade") != "" || h.Get("Range") != "" {
		return Key{}, false
	}
	path := strings.TrimSuffix(request.Path, "/")
	for name, values := range target.Query() {
		switch {
		case name == "timeout": // how long the caller would wait
		case name == "hash" && len(values) == 1 && strings.HasPrefix(path, "/openapi/v3/"): // others have no hash
			path += "?hash=" + values[0]
		default:
			return Key{}, false
		}
	}
	return Key{Agent: agent, UID: uid, Path: path, accept: accept}, true
}

// describes reports whether path is that of the version or the kinds of an API server.
func describes(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch segments[0] {
	case "version":
		return len(segments) == 1
	case "api":
		return len(segments) <= 2
	case "apis":
		return len(segments) <= 3
	case "openapi":
		return len(segments) >= 2 && (segments[1] == "v2" && len(segments) == 2 || segments[1] == "v3" && len(segments) <= 5)
	}
	return false
}

// Observe looks at an answer of the spoke's API server to a call with that key. Of
// one that is to be kept it takes the body down as it passes. When its owner shows
// Kubernetes' own kinds alone, what is known of others is forgotten.
func (r *Replies) Observe(key Key, own bool, res *http.Response, now time.Time) {
	if own && !r.knowsOwnAlone(key.Agent) {
		r.ForgetAgent(key.Agent, key.UID)
	}
	switch {
	case res.StatusCode == http.StatusNotModified:
		return
	case res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests:
		return // it says nothing of what the spoke has
	case res.StatusCode != http.StatusOK:
		r.Forget(key) // gone, or no longer for us
		return
	}
	coding := res.Header.Get("Content-Encoding")
	etag := res.Header.Get("Etag")
	if (coding != "" && coding != "gzip") || res.ContentLength > maxReply || len(etag) > maxReplyTag ||
		len(res.Header.Get("Content-Type")) > maxReplyTag {
		r.metrics.results.WithLabelValues(replyNotStored).Inc()
		return
	}
	// One of the store may be of a clock that was ahead.
	if known, found := r.inMemory(key); found && now.Sub(known.at).Abs() < replyAge && etag == known.etag {
		return
	}
	if !r.mayRecord(key.Agent) {
		return // the next one of its kind comes soon
	}
	recording := &recording{
		replies: r, gzip: coding == "gzip",
		reply: reply{key: key, at: now, kind: res.Header.Get("Content-Type"), etag: etag, own: own},
	}
	recording.begin()
	res.Body = &recordedBody{ReadCloser: res.Body, recording: recording}
}

// knowsOwnAlone reports whether all that is known of an agent is of a spoke that shows
// Kubernetes' own kinds alone. What only the store has may be of another.
func (r *Replies) knowsOwnAlone(agent identity.AgentName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.agents[agent]
	return of != nil && of.own
}

// mayRecord counts a recording in, when there is room for one. recorded must be
// called then.
func (r *Replies) mayRecord(agent identity.AgentName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recording >= recorders || r.recordings[agent] >= recordersOfAgent {
		return false
	}
	r.recording++
	r.recordings[agent]++
	return true
}

// recorded counts a recording out.
func (r *Replies) recorded(agent identity.AgentName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording--
	if r.recordings[agent]--; r.recordings[agent] == 0 {
		delete(r.recordings, agent)
	}
}

// inMemory returns a reply that is in memory.
func (r *Replies) inMemory(key Key) (*reply, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	element, found := r.byKey[key]
	if !found {
		return nil, false
	}
	r.order.MoveToFront(element)
	return element.Value.(*reply), true
}

// store puts a reply into memory, and takes others out of it until all fits.
func (r *Replies) store(next *reply) {
	if next.size() > min(maxAgentBytes, r.cfg.MaxBytes) {
		r.metrics.results.WithLabelValues(replyNotStored).Inc()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, found := r.byKey[next.key]; found {
		r.remove(old)
	}
	r.byKey[next.key] = r.order.PushFront(next)
	of := r.agents[next.key.Agent]
	if of == nil {
		of = &agentReplies{}
		r.agents[next.key.Agent] = of
	}
	of.own = next.own && (of.own || of.count == 0)
	of.count++
	of.bytes += next.size()
	r.bytes += next.size()
	for of.count > maxReplies || of.bytes > maxAgentBytes {
		r.remove(r.oldest(next.key.Agent))
	}
	for r.bytes > r.cfg.MaxBytes {
		r.remove(r.order.Back())
	}
}

// oldest returns the reply of an agent that was not used for longest. The caller
// holds mu.
func (r *Replies) oldest(agent identity.AgentName) *list.Element {
	at := r.order.Back()
	for at.Value.(*reply).key.Agent != agent {
		at = at.Prev()
	}
	return at
}

// remove takes a reply out of memory. The caller holds mu.
func (r *Replies) remove(element *list.Element) {
	old := r.order.Remove(element).(*reply)
	delete(r.byKey, old.key)
	r.bytes -= old.size()
	of := r.agents[old.key.Agent]
	of.count--
	of.bytes -= old.size()
	if of.count == 0 {
		delete(r.agents, old.key.Agent)
	}
}

// Forget removes a reply that is no longer true, from the store too.
func (r *Replies) Forget(key Key) {
	r.mu.Lock()
	if element, found := r.byKey[key]; found {
		r.remove(element)
	}
	r.mu.Unlock()
	r.changed(change{key: key, gone: true}) // an earlier process may have kept it
}

// ForgetAgent removes all replies of an agent, from the store too.
func (r *Replies) ForgetAgent(agent identity.AgentName, uid string) {
	r.mu.Lock()
	for r.agents[agent] != nil {
		r.remove(r.oldest(agent))
	}
	r.mu.Unlock()
	r.changed(change{key: Key{Agent: agent, UID: uid}, gone: true})
}

// lookup returns the last known reply, from memory or the store.
func (r *Replies) lookup(ctx context.Context, key Key) (*reply, bool) {
	if known, found := r.inMemory(key); found {
		return known, true
	}
	if r.cfg.Store == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	value, err := r.cfg.Store.Get(ctx, key.owner(), key.name(), maxPacked+maxReplyHeader)
	if err != nil || len(value) == 0 {
		return nil, false // without its store a hub knows no less than without a spoke
	}
	known, err := decodeReply(value)
	if err != nil || known.key != key {
		r.metrics.results.WithLabelValues(replyUnreadable).Inc()
		return nil, false
	}
	r.store(known)
	return known, true
}

// Has reports whether there is a last reply, kept or in memory.
func (r *Replies) Has(ctx context.Context, key Key) bool {
	_, has := r.lookup(ctx, key)
	return has
}

// Cached reports whether there is one in memory.
func (r *Replies) Cached(key Key) bool {
	_, cached := r.inMemory(key)
	return cached
}

// Serve answers with the last known reply; false when there is none. The answer says
// how old it is, and why the spoke has not answered.
func (r *Replies) Serve(w http.ResponseWriter, req *http.Request, key Key, warning string) bool {
	known, found := r.lookup(req.Context(), key)
	if !found {
		r.metrics.results.WithLabelValues(replyMiss).Inc()
		return false
	}
	body, err := zstd.NewReader(bytes.NewReader(known.packed), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderMaxMemory(maxReply), zstd.WithDecoderLowmem(true))
	if err != nil {
		r.metrics.results.WithLabelValues(replyUnreadable).Inc()
		return false
	}
	defer body.Close()
	h := w.Header()
	h.Set("Warning",
		fmt.Sprintf(`299 - "agent %s %s: this is its last known reply, of %s"`, key.Agent, warning, known.at.UTC().
			Format(time.RFC3339)))
	if known.kind != "" {
		h.Set("Content-Type", known.kind)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(known.length))
	r.metrics.results.WithLabelValues(replyServed).Inc()
	w.WriteHeader(http.StatusOK)
	// What is short of its Content-Length is an aborted answer to net/http.
	_, _ = io.Copy(w, io.LimitReader(body, int64(known.length)))
	return true
}

// counts returns the number of replies in memory, and their bytes.
func (r *Replies) counts() (count, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len(), r.bytes
}

// The values of label result.
const (
	replyStored     = "stored"
	replyNotStored  = "not-stored" // too long, broken off, or in a coding that is not known
	replyServed     = "served"
	replyMiss       = "miss"
	replyNotKept    = "not-kept" // only in memory
	replyUnreadable = "unreadable"
)

type replyMetrics struct{ results *prometheus.CounterVec }

func newReplyMetrics(r prometheus.Registerer, counts func() (count, bytes int)) (*replyMetrics, error) {
	if r == nil {
		return nil, errors.New("metrics are required")
	}
	m := &replyMetrics{results: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_resource_replies_total", Help: "Last known replies of spokes, by what became of them.",
	}, []string{"result"})}
	entries := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_replies", Help: "Last known replies in memory.",
	}, func() float64 { count, _ := counts(); return float64(count) })
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_replies_bytes", Help: "Memory of the last known replies.",
	}, func() float64 { _, bytes := counts(); return float64(bytes) })
	for _, c := range []prometheus.Collector{m.results, entries, size} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for _, result := range []string{replyStored, replyNotStored, replyServed, replyMiss, replyNotKept, replyUnreadable} {
		m.results.WithLabelValues(result)
	}
	return m, nil
}
