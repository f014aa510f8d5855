package redis

import (
	"context"
	"net"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/quota"
)

// OwnerResolver knows to whom the Applications belong that the hub's Argo CD asks about.
type OwnerResolver interface {
	// Owner returns the agent of an Application; owned is false for one that is the
	// hub's own affair. An error is about one that is an agent's, and wraps
	// identity.ErrDenied when that agent must not be reached. It does not block.
	Owner(appkey.Instance) (target Target, owned bool, err error)
	// Watch calls changed with an Application whenever Owner may return something else
	// for it than before, and with the zero Instance when it may of any, until ctx is done.
	// At its begin it does the latter. changed does not block.
	Watch(ctx context.Context, changed func(appkey.Instance))
}

// Target is where an agent's Application is.
type Target struct {
	Agent identity.AgentName
	// UID is that of the Agent object.
	UID string
	// Instance is the Application in the spoke's Argo CD.
	Instance appkey.Instance
	// Known says that the Application is on the hub. Of another one there is nothing.
	Known bool
}

// LastKnownStore keeps values for some time, in bounded room. What it does not keep is no
// error.
type LastKnownStore interface {
	Set(ctx context.Context, key string, value []byte) error
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
	Owners    OwnerResolver
	// FormatChanged is called, in order and whenever that changes, with how the cache of an
	// agent's Argo CD differs from what the hub's asks for; empty when it does not. It does
	// not block. It may be nil.
	FormatChanged func(agent identity.AgentName, mismatch string)
	// Away returns since when an agent is away, false while it is not, or no one knows
	// since when. It does not block. Nil means that no one ever does.
	Away func(identity.AgentName) (since time.Time, away bool)
	// LastKnown keeps last values for the time when their spoke is away. Nil keeps none.
	LastKnown LastKnownStore
	// Format is the one of the hub's Argo CD, as [Key] has it, for as long as that has not
	// asked for any key. Empty means that it is not known.
	Format  string
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// MaxConnections bounds the callers; more get an error and are closed. Zero means 4096.
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
	// MaxKeptBytes is the longest value that LastKnown gets. Zero means 1 MiB.
	MaxKeptBytes int
	// AnswerTimeout bounds the wait for the begin of an agent's answer: less than the
	// 3s after which Argo CD's client gives up. Zero means 2s.
	AnswerTimeout time.Duration
	// WriteTimeout bounds the wait for a caller that does not read. Zero means 30s.
	WriteTimeout time.Duration
	// Quota is the room for trees that are marked with their age. Nil means one of its own.
	Quota *quota.Quota
}

// spawn runs f in a goroutine of the Hub's, for which Run waits, with a context that
// ends with Run's. It is called by such goroutines only.
type spawn func(f func(context.Context))
