package links

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/division"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream/quota"
)

// Config is what links need. Fields without a stated default are required.
type Config struct {
	// Namespace is Argo CD's own on the hub.
	Namespace string
	// Rules are those of the hub's side of an agent's link, by what the hub has decided.
	Rules func(decided hub.Hub, name identity.AgentName, a v1alpha1.Agent) ownership.Rules
	// Owners tells whose Applications are, once it is known what the hub has decided.
	Owners func() *division.Division
	// Replica names this principal, and Life this start of it, in the Agents whose link it has.
	Replica, Life string

	Client dynamic.Interface
	// Writes writes what agents have us write.
	Writes dynamic.Interface
	// Reads tells which namespaces and definitions are being deleted.
	Reads metadata.Interface
	// Confirm has Restores know of what was before the call, if this process holds the Lease.
	// An error that wraps NotHeld says that it does not: then it knows by what it watches alone.
	Confirm func(ctx context.Context) error
	NotHeld error

	Store       *kube.Store
	Schemas     *kube.Definitions
	Consistency *kube.ConsistencyChecker
	Witness     *kube.Witness
	Registry    *fleet.Registry
	Sessions    *sessions.Sessions
	Hub         *hub.State
	Restores    *Restores
	Budgets     *Budgets
	// Dirty are the agents whose Agent says something new to its link.
	Dirty *keyset.Set[identity.AgentName]
	// EventRate is that of the events of all agents.
	EventRate *appevents.Common
	Quota     *quota.Quota
	Metrics   *linkmetrics.Metrics
	Tracer    trace.Tracer
	Log       zerolog.Logger
}

// Links runs the hub's side of the link of each registered agent, connected or
// not, and hands it the agent's connections.
type Links struct {
	cfg Config
	log zerolog.Logger
	// historyChanged are the agents of whose history their link has come to know something.
	historyChanged *keyset.Set[identity.AgentName]

	// cleanedNamespaces are the namespaces of agents when orphaned mirrors were last removed; of Run's
	// goroutine.
	cleanedNamespaces map[string]identity.AgentName
	// cleanedProjects are the agents by the begin of whose names projects are told apart,
	// then.
	cleanedProjects map[identity.AgentName]bool

	mu      sync.Mutex // guards what follows
	running map[identity.AgentName]*runningLink
	// retired are the Agents, by UID, whose link has nothing left to do.
	retired    map[types.UID]bool
	retirement notify.Signal // has a value when retired may have changed
}

// New starts nothing.
func New(cfg Config) *Links {
	return &Links{
		cfg: cfg, log: cfg.Log, historyChanged: keyset.New[identity.AgentName](),
		running: map[identity.AgentName]*runningLink{}, retired: map[types.UID]bool{}, retirement: notify.NewSignal(),
	}
}

// RulesOf are the rules of the hub's side of an agent's link.
func (l *Links) RulesOf(name identity.AgentName, a v1alpha1.Agent) ownership.Rules {
	decided, _ := l.cfg.Hub.Now()
	return l.cfg.Rules(decided, name, a)
}

func (l *Links) link(name identity.AgentName) *runningLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[name]
}

func (l *Links) all() map[identity.AgentName]*runningLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[identity.AgentName]*runningLink, len(l.running))
	for name, r := range l.running {
		out[name] = r
	}
	return out
}
