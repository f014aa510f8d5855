package controller

import (
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/internal/pause"
)

const (
	// workers is how many Agents are looked at at once.
	workers = 4
	// passTimeout bounds one pass over an Agent.
	passTimeout = 30 * time.Second
	// retryFirst and retryMost bound the pause before a failed pass is repeated.
	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// Names of indexes.
const (
	indexSPIFFEID  = "spiffe-id" // Agents by SPIFFE ID
	indexNamespace = "namespace" // Agents by namespace on the hub
	indexProjects  = "projects"  // autonomous Agents by their names, and by "-" and what these begin with
	indexClaim     = "claim"     // cluster Secrets by what they claim to be
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// loop is one run of a Controller.
type loop struct {
	cfg     Config
	metrics *metrics
	synced  func(bool)
	log     zerolog.Logger

	agentClient  dynamic.ResourceInterface
	secretClient dynamic.ResourceInterface
	agents       *collection.Collection[*v1alpha1.Agent]
	// secrets are those with the label of cluster Secrets.
	secrets *collection.Collection[*corev1.Secret]
	queue   workqueue.TypedRateLimitingInterface[string] // names of Agents

	mu     sync.Mutex
	states map[string]*agentState // guarded by mu; an entry belongs to the worker that has its name from the queue
}

func newLoop(c *Controller) *loop {
	l := &loop{
		cfg:          c.cfg,
		metrics:      c.metrics,
		synced:       c.synced.Store,
		log:          c.cfg.Log,
		agentClient:  c.cfg.Client.Resource(v1alpha1.AgentResource).Namespace(c.cfg.Namespace),
		secretClient: c.cfg.Client.Resource(secretResource).Namespace(c.cfg.Namespace),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost)),
		states: make(map[string]*agentState),
	}
	l.agents = collection.New(collection.Config[*v1alpha1.Agent]{
		Reflect: reflector.Config{Resource: l.agentClient, What: v1alpha1.AgentKind, Streams: c.cfg.Client},
		Value:   valueOf(l.log, v1alpha1.AgentKind, toAgent), Changed: each(l.agentChanged),
		Readable: readable(l.log, v1alpha1.AgentKind),
		Indexes: map[string]func(*v1alpha1.Agent) []string{indexSPIFFEID: spiffeIDsOf, indexNamespace: namespacesOf,
			indexProjects: projectNamesOf},
	})
	l.secrets = collection.New(collection.Config[*corev1.Secret]{
		Reflect: reflector.Config{Resource: l.secretClient, What: "Secret",
			Selector: labelSecretType + "=" + secretTypeCluster, Streams: c.cfg.Client},
		Value: valueOf(l.log, "Secret", toSecret), Changed: each(l.secretChanged), Readable: readable(l.log, "Secret"),
		Indexes: map[string]func(*corev1.Secret) []string{indexClaim: claimsOf},
	})
	return l
}

// agentChanged looks at an Agent, and at those that name one of its SPIFFE IDs or
// namespaces.
func (l *loop) agentChanged(agent *v1alpha1.Agent) {
	l.queue.Add(agent.Name)
	for _, rival := range l.rivals(agent) {
		l.queue.Add(rival.Name)
	}
}

// rivals returns the Agents that name a SPIFFE ID or a namespace of agent, itself
// included.
func (l *loop) rivals(agent *v1alpha1.Agent) []*v1alpha1.Agent {
	var out []*v1alpha1.Agent
	seen := make(map[string]bool)
	add := func(rivals []*v1alpha1.Agent) {
		for _, rival := range rivals {
			if !seen[rival.Name] {
				seen[rival.Name] = true
				out = append(out, rival)
			}
		}
	}
	for _, id := range agent.Spec.Identity.SPIFFEIDs {
		add(l.agents.By(indexSPIFFEID, id))
	}
	for _, mapped := range fleet.NamespacesOf(agent) {
		add(l.agents.By(indexNamespace, mapped.Hub))
	}
	shorter, longer := l.projectRivals(agent)
	add(shorter)
	add(longer)
	return out
}

// secretChanged looks at the Agents that a cluster Secret has to do with.
func (l *loop) secretChanged(secret *corev1.Secret) {
	candidates := []string{secret.Labels[labelAgentName], clusterName(secret)}
	if name, found := strings.CutPrefix(secret.Name, secretNamePrefix); found {
		candidates = append(candidates, name)
	}
	if name, found := strings.CutPrefix(clusterServer(secret), l.cfg.ProxyURL+agentsPathOfServer); found {
		candidates = append(candidates, name)
	}
	for _, name := range candidates {
		if _, registered := l.agents.Get(name); registered {
			l.queue.Add(name)
		}
	}
}

// agentState is what is remembered of an Agent between passes.
type agentState struct {
	// statusAt is when we last wrote the status, status what was written, and version
	// the resourceVersion the Agent has since. Behind are the versions before it:
	// while the collection still shows one of those, status and version are newer.
	// It is empty when the API server did not take that for true.
	statusAt time.Time
	status   v1alpha1.AgentStatus
	version  string
	behind   []string
	// begun is the wish that the last new history fulfilled.
	begun fleet.Wish
	// applied is the Secret as last applied, nil before the first time, and
	// appliedOver the resourceVersion it had before.
	applied     *wantedSecret
	appliedOver string
	restores    pause.Restores // of it
}

// stateOf returns that of the Agent that the caller has from the queue.
func (l *loop) stateOf(name string) *agentState {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, found := l.states[name]
	if !found {
		p = &agentState{}
		l.states[name] = p
	}
	return p
}

func (l *loop) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, name)
}

// spiffeIDsOf indexes Agents.
func spiffeIDsOf(agent *v1alpha1.Agent) []string { return agent.Spec.Identity.SPIFFEIDs }

// namespacesOf indexes Agents.
func namespacesOf(agent *v1alpha1.Agent) []string {
	var out []string
	for _, mapped := range fleet.NamespacesOf(agent) {
		out = append(out, mapped.Hub)
	}
	return out
}

// Kinds of claims of a cluster Secret.
const (
	claimLabel  = "label:"
	claimName   = "name:"
	claimServer = "server:"
)

// claimsOf indexes cluster Secrets.
func claimsOf(secret *corev1.Secret) []string {
	return []string{
		claimLabel + secret.Labels[labelAgentName],
		claimName + clusterName(secret),
		claimServer + clusterServer(secret),
	}
}
