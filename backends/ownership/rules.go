package ownership

import (
	"time"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Rules are the ownership rules of one side of one link (docs/design: ownership.md,
// commands.md and deletes-and-history.md). Where the Applications of an agent are follows
// from Pairs or, by destination, from Namespaces. Its methods are pure.
type Rules struct {
	copies.Marks
	// ClusterProject is the project to which that Secret scopes the cluster; empty for
	// none. Used on the hub.
	ClusterProject string
	// Terminating says that the Agent is being deleted with a cascade: cascading
	// deletions and what confirms them pass, and nothing else leaves the hub. What is
	// not being deleted is left on the spoke as it is, changed or gone on the hub or
	// not, and so are AppProjects. Used on the hub of a managed agent.
	Terminating bool
	// ProjectRoles says that mirrors of AppProjects have the roles of their originals, as
	// far as those are about the mirrors. Used on the hub of an autonomous agent.
	ProjectRoles bool
	// SharesUnscoped says that Secrets of repositories without a project go to those
	// agents of which an Application uses them; else they go to none. Used on the hub.
	SharesUnscoped bool
	// WriteCredentials says that the spoke takes Secrets that may write to
	// repositories: the hub sends them only then. A Mirror has it from the handshake of
	// its connection. Used on the hub.
	WriteCredentials bool
	// DefaultProject says whether the spoke gets the hub's AppProject default. Used on
	// the hub of a managed agent.
	DefaultProject DefaultProject
	// GivesUp says that the spoke can give an object up. A Mirror has it from the
	// handshake of its connection. Used on the hub.
	GivesUp bool
	// Schemas says what the API server of this side keeps of a kind; one whose definition
	// is not known is not in it. A Mirror sets it.
	Schemas map[stream.Kind]*schema.Schema
	// Policy is what the owner of the spoke allows. Nil allows all that is allowed by
	// default. Used on the spoke of a managed agent.
	Policy *policy.Policy
	// Adopt names what mirrors may adopt, as Policy.Adopt does. Used on the hub.
	Adopt []string
	// Fenced says that an Application on which Argo CD acts by itself is created out of
	// reconciliation. A Mirror sets it, on the spoke of a managed agent.
	Fenced bool
	// Live says that what there is was read from the API server itself. A Mirror sets it.
	Live bool
	// Now is when a plan is made, by the clock of this side. A Mirror sets it.
	Now time.Time
	// Needed says for what a copy of an AppProject is needed. A Mirror sets it, on the spoke.
	Needed ProjectNeed
	// Projects finds an AppProject by its name; it returns nil for none. A Mirror sets it,
	// on the spoke. Nil finds none.
	Projects func(name string) *object.Object
}

// Paused is how the source of c is paused; held is what the Mirror was told of all.
func (r Rules) Paused(c stream.Collection, held bool) link.Paused {
	departing := r.Terminating && r.Side == stream.Hub && r.Mode == stream.Managed
	waits := link.PauseNone
	switch {
	case held, departing && c != stream.Applications:
		waits = link.PauseAll
	case departing:
		waits = link.PauseChanges
	}
	return link.Paused{Collection: c, Waits: waits}
}

// DefaultProject says whether a managed agent gets the hub's AppProject default, which
// by its destinations is for every agent: each argocd-server makes one that permits all.
type DefaultProject uint8

const (
	// NotShared means that spokes keep the one of their own.
	NotShared DefaultProject = iota
	// Shared means that it travels as every other project.
	Shared
	// NoLongerShared means that spokes have copies from a time when it was shared. They
	// give them up; one that cannot goes on getting it, since it would delete its copy.
	NoLongerShared
)

// Shares reports whether a project of that name may be for the agent.
func (r Rules) Shares(project string) bool {
	return project != object.DefaultProjectName || r.DefaultProject == Shared ||
		r.DefaultProject == NoLongerShared && !r.GivesUp
}

// GivesUpEntry reports whether the spoke is to give an entry up that the hub does not send.
func (r Rules) GivesUpEntry(entry stream.EntryKey) bool {
	return r.GivesUp && r.Sources(stream.AppProjects) && r.Side == stream.Hub &&
		entry.Collection == stream.AppProjects && !r.Shares(entry.Name)
}

// ProjectNeed is for what a spoke needs the copy of an AppProject.
type ProjectNeed uint8

const (
	// ForNothing says that nothing needs it.
	ForNothing ProjectNeed = iota
	// ForCopy says that a copy that is not going names it.
	ForCopy
	// ForCascade says that Argo CD deletes the workloads of a copy that names it.
	ForCascade
)
