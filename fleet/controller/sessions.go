package controller

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Sessions tells which agents are connected and what they reported. It may be
// called from several goroutines at once.
type Sessions interface {
	// Session returns what is known of an agent now: the zero value of one that neither
	// is nor was connected, nor was refused. The caller does not change what it points to.
	Session(identity.AgentName) Session
	// Subscribe has changed called with the name of each agent whose Session from now on
	// differs in more than its ObservedAt, until the returned function is called. It
	// neither blocks nor calls back.
	Subscribe(changed func(identity.AgentName)) (cancel func())
}

// Session is what is known of an agent that is, or was, connected. Zero values of
// what the agent reports leave those of an earlier session in its Agent's status.
type Session struct {
	// Connected says whether the agent has a live sync stream.
	Connected bool
	// Replica names the principal that holds the stream.
	Replica string
	// Since is when Connected took its value.
	Since time.Time
	// ObservedAt is when the agent was last heard of, by the hub's clock.
	ObservedAt time.Time
	// AgentVersion and KubernetesVersion are what the agent said in its hello.
	AgentVersion      string
	KubernetesVersion string
	// Refused is why the last attempt to connect was refused, nil when none was, or when
	// the agent connected since.
	Refused *Refused
	// SPIFFEID is the one by which the agent connected.
	SPIFFEID spiffeid.ID
	// SVIDExpiry is when the newest SVID the agent proved expires.
	SVIDExpiry time.Time
	// Counts are the numbers of objects of a connected agent. Parked and Shortened in it
	// are derived from these fields here when they have more.
	Counts v1alpha1.AgentCounts
	// Parked are the objects that cannot be applied, in any order; the status
	// names the v1alpha1.MaxParked oldest.
	Parked []v1alpha1.ParkedObject
	// Elsewhere are child applications that are to be shown and are in namespaces of the
	// spoke of which the hub shows none. They are not among Parked, and count with BudgetKnown.
	Elsewhere ChildrenElsewhere
	// Shortened are the objects that were applied without some fields, in any order; the
	// status names the first v1alpha1.MaxShortened of them by name.
	Shortened []v1alpha1.ShortenedObject
	// ClusterUID is the UID of the spoke's namespace kube-system.
	ClusterUID string
	// History is what was found out about the past that hub and spoke share. It is
	// that of a connected agent only.
	History fleet.SessionHistory
	// Held are the deletions of a connected agent that wait for a person, nil when
	// none do. Its Since is zero: the status keeps when an ID was first held. Its
	// Objects may be more than a status names, in any order, and Total may be less
	// than their number.
	Held *v1alpha1.DeletionsHeld
	// AcceptUsed is the ID of deletions that a person accepted and that was used up with that:
	// the annotation goes, so that the same ones wait again when they come again.
	AcceptUsed string
	// HeldUnknown says that Held is not known yet, such as right after a connect.
	// The status then keeps what it shows.
	HeldUnknown bool
	// CascadesKnown says that Cascades is what is known of Applications that are asked to
	// go with their workloads, nil for none; whether or not the agent is connected. Else
	// the status keeps what it has.
	CascadesKnown bool
	Cascades      *v1alpha1.AgentCascades
	// CacheKnown says that the hub's Argo CD asked for a tree of the spoke's since this
	// process began, and CacheMismatch why that could not be shown: how the cache of
	// the spoke's Argo CD differs. It is empty when it does not.
	CacheKnown    bool
	CacheMismatch string
	// BudgetKnown says that OverBudget is what is known of a connected agent, nil when no
	// limit is exceeded. Else the status keeps what it has.
	BudgetKnown bool
	OverBudget  *OverBudget
	// Budget is what is left of the agent's limits, nil when nothing is missing. It counts
	// with BudgetKnown.
	Budget *v1alpha1.AgentBudget
}

// Refused says why an agent gets no connection until a person changes something.
type Refused struct {
	// UID is that of the Agent, and ID the SPIFFE ID that was proven: of another Agent of the
	// name, and of one that has given the ID away since, it says nothing. With [RefusedSPIFFEID]
	// it says nothing of one that has the ID by now.
	UID types.UID
	ID  spiffeid.ID
	// What is a word for what is wrong: name, mode, version, protocol or [RefusedSPIFFEID].
	What string
	// Message says the same for people, with a cure. It is empty with RefusedSPIFFEID.
	Message string
	// Since is when it was first refused for that.
	Since time.Time
}

// RefusedSPIFFEID is what is wrong when no Agent has the SPIFFE ID, and it is probably meant for this one.
const RefusedSPIFFEID = "SPIFFE ID"

// OverBudget says which limit an agent exceeds.
type OverBudget struct {
	// Reason is a word in CamelCase for programs.
	Reason string
	// Message says for people what is exceeded, and how to raise it. It has no number that
	// changes from one moment to the next.
	Message string
}

// Children is what a hub that maps by destination makes of the child applications of an
// agent. The zero value says that nothing is in their way.
type Children struct {
	// Namespace is the one where they are shown; empty when Taken.
	Namespace string
	// Taken says that this namespace is someone else's: Owner's, or for the zero name that
	// of the hub's Argo CD.
	Taken bool
	Owner identity.AgentName
	// Unwatched says that application.namespaces of the hub's Argo CD, as far as it can be
	// read, does not name the namespace.
	Unwatched bool
	// Projects are AppProjects of those that are shown whose sourceNamespaces do not name
	// the namespace, in order; the first MaxNamed of them.
	Projects []string
}

// ChildrenElsewhere are child applications in namespaces of which none are shown.
type ChildrenElsewhere struct {
	Total int64
	// Names are the first MaxNamed by namespace and name, of the spoke.
	Names string
}

// MaxNamed is how many objects, or Agents, a message of a condition names.
const MaxNamed = maxNamed
