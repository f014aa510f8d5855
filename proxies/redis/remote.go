package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis/resp"
	"github.com/argomesh/argomesh/proxies/redis/values"
	"github.com/argomesh/argomesh/stream"
)

const (
	// idleCalls is the number of connections to all agents that are kept for the next
	// call, beside the first idleReserved of each agent; to one agent there are never
	// more than calls to it at a time. A new one costs the agent a stream of its tunnel
	// and a connection to its Redis before it can be asked.
	idleCalls    = 1024
	idleReserved = 4
	// idleCallTime is how long one is kept. The agent keeps it longer.
	idleCallTime = 30 * time.Second
	// progressTimeout bounds the wait for the next bytes of an answer that has begun.
	progressTimeout = 10 * time.Second
)

// remote is an agent as the hub's end reaches it.
type remote struct {
	hub   *Hub
	agent identity.AgentName
	// calls has a value for each read under way.
	calls chan struct{}

	mu     sync.Mutex // guards what follows
	idle   []*link
	warned map[string]time.Time // when which warning was last logged
	format formatStatus
	// lastAnswer is when the agent's Redis last answered, and answering says that it has since it
	// was last counted as away.
	lastAnswer time.Time
	answering  bool

	subscriber *subscriber
}

func newRemote(h *Hub, agent identity.AgentName) *remote {
	r := &remote{hub: h, agent: agent, calls: make(chan struct{}, h.cfg.MaxAgentCalls), warned: map[string]time.Time{}}
	r.subscriber = newSubscriber(r)
	return r
}

// link is one connection to an agent's Spoke.
type link struct {
	conn *resp.DeadlineConn
	in   resp.Wire
	// expiry ends it when it is idle.
	expiry *time.Timer
}

func (r *remote) dial(ctx context.Context) (*link, error) {
	conn, err := r.hub.cfg.DialSpoke(ctx, r.agent)
	if err != nil {
		return nil, err
	}
	p := &resp.DeadlineConn{Conn: conn, ReadTime: progressTimeout, WriteTime: progressTimeout}
	return &link{conn: p, in: resp.NewWire(p)}, nil
}

// answered notes that the agent's Redis answered.
func (r *remote) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastAnswer, r.answering = time.Now(), true
}

// unanswered notes that it does not answer. What was seen there until now is written down, once.
func (r *remote) unanswered() {
	r.mu.Lock()
	was := r.answering
	r.answering = false
	r.mu.Unlock()
	if was {
		r.hub.lastKnown.flushSeen(r.agent)
	}
}

// awaySince returns since when the agent is away, as the hub has it.
func (r *remote) awaySince() (time.Time, bool) {
	if r.hub.cfg.Away == nil {
		return time.Time{}, false
	}
	return r.hub.cfg.Away(r.agent)
}

// absence says that the agent is away, or only its Redis, and since when if that is known.
func (r *remote) absence(err error) string {
	since, away := r.awaySince()
	if !away {
		r.mu.Lock()
		since = r.lastAnswer
		r.mu.Unlock()
	}
	text := "agent " + r.agent.String() + " does not answer"
	if away || errors.Is(err, stream.ErrNotConnected) {
		text = "agent " + r.agent.String() + " is away"
	}
	if since.IsZero() {
		return text
	}
	return text + " since " + values.Clock(since)
}

// takeIdle returns a connection that was kept; nil when there is none.
func (r *remote) takeIdle() *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.idle) > 0 {
		last := len(r.idle) - 1
		l := r.idle[last]
		r.idle[last] = nil
		r.idle = r.idle[:last]
		r.hub.idleEnds(1)
		if l.expiry.Stop() {
			return l
		}
	}
	return nil
}

// putIdle keeps a connection for the next call, or closes it.
func (r *remote) putIdle(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.idle) >= cap(r.calls) || l.in.Buffered() > 0 || !r.hub.idleBegins(len(r.idle) < idleReserved) {
		_ = l.conn.Close() // it has no error to return
		return
	}
	l.expiry = time.AfterFunc(idleCallTime, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = l.conn.Close() // as above
		before := len(r.idle)
		r.idle = slices.DeleteFunc(r.idle, func(other *link) bool { return other == l })
		r.hub.idleEnds(before - len(r.idle)) // none when it was taken in the same moment
	})
	r.idle = append(r.idle, l)
}

// idleBegins counts a connection that is to be kept, and reports whether it may be.
func (h *Hub) idleBegins(reserved bool) bool {
	if h.idle.Add(1) > idleCalls && !reserved {
		h.idle.Add(-1)
		return false
	}
	h.metrics.idle.Inc()
	return true
}

// idleEnds is called when connections are kept no more.
func (h *Hub) idleEnds(n int) {
	h.idle.Add(-int64(n))
	h.metrics.idle.Sub(float64(n))
}

// closeIdle closes the connections that are kept.
func (r *remote) closeIdle() {
	for l := r.takeIdle(); l != nil; l = r.takeIdle() {
		_ = l.conn.Close() // it has no error to return
	}
}

// warnEvery is how often the same is said of the same agent.
const warnEvery = time.Minute

// warn logs what someone has to mend at the agent, now and then.
func (r *remote) warn(kind, text string) {
	r.mu.Lock()
	due := time.Since(r.warned[kind]) > warnEvery
	if due {
		r.warned[kind] = time.Now()
	}
	r.mu.Unlock()
	if due {
		r.hub.cfg.Log.Warn().Stringer("agent", r.agent).Msg(text)
	}
}

// exceeded counts the limit, and logs it, if err says that a value is beyond one.
func (r *remote) exceeded(err error) {
	var e values.ExcessError
	if errors.As(err, &e) {
		r.hub.metrics.limits.WithLabelValues(e.Limit).Inc()
		r.warn("limit "+e.Limit, "a value of an agent is refused: "+e.Text)
	}
}

// warnFormat says that nothing can be read there, and what is to be done.
func (r *remote) warnFormat() {
	r.warn("format", "the spoke's Argo CD keeps its cache in another format than the hub's")
}

// noteFormat records what an answer says of the format of the agent's cache.
func (r *remote) noteFormat(asked, kept string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.format
	r.format = before.next(asked, kept, time.Now())
	if r.hub.cfg.FormatChanged != nil && (r.format.known != before.known || r.format.asked != before.asked ||
		r.format.kept != before.kept) {
		r.hub.cfg.FormatChanged(r.agent, r.format.String())
	}
}
