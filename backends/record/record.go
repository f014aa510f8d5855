// Package record is what marks an object that has its source elsewhere: the Record on
// a copy on a spoke, or a mirror on the hub, and what it says of whose that is. Pure.
package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Record is kept on a copy, in annotation object.RecordKey.
type Record struct {
	// Hash is the version at the source that was written.
	Hash string `json:"hash"`
	// Revision is the source's resourceVersion of that version.
	Revision uint64 `json:"revision"`
	// History is the hub's history in which Revision and Created are comparable to
	// others; empty when it was not known.
	History string `json:"history,omitempty"`
	// Created is the source's resourceVersion from which the copy was made; 1 when
	// that was in an earlier history than History.
	Created uint64 `json:"created"`
	// Agent is the one whose copy it is: the names of projects alone do not tell on the
	// hub, since one agent's prefix may begin with another's, and one Kubernetes cluster
	// may have several agents. Empty on a copy that an earlier release made on a spoke.
	Agent string `json:"agent,omitempty"`
	// Child says that the copy shows a child application.
	Child bool `json:"child,omitempty"`
	// Shaping says by which settings the mirror of a project got its roles, when the copy was written.
	Shaping string `json:"shaping,omitempty"`
	// Lacks says which roles of a project its mirror has not, and why.
	Lacks []string `json:"lacks,omitempty"`
	// Adopted is the UID of the object that was there before, of which is kept what was
	// found; empty for a copy that we made, and for one that an earlier release adopted.
	Adopted string `json:"adopted,omitempty"`
	// Wrote is the hash of what was written, to tell whether someone changed it.
	Wrote string `json:"wrote"`
	// Leaving says that the deletion of source and workloads was witnessed.
	Leaving bool `json:"leaving,omitempty"`
	// Releasing says that the copy is about to go without its workloads.
	Releasing bool `json:"releasing,omitempty"`
	// Unconfirmed says that the copy was created by a process that does not know yet
	// whether it was still the one that may write. Releasing is set beside it.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Quiescing says how the copy waits before it is deleted; nil for one that does not.
	Quiescing *Quiescing `json:"quiet,omitempty"`
	// Dropped are the paths that the API server of this side did not know, sorted, and
	// Schema is the id of the schema that says so.
	// Bounds is the id of the policy that left something out of a project, which is
	// among Dropped then.
	Dropped []string `json:"dropped,omitempty"`
	Schema  string   `json:"schema,omitempty"`
	Bounds  string   `json:"bounds,omitempty"`
	// Labels and Annotations are the keys that the source owns.
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// Items are the ids of the items of a ConfigMap that the source owns, and Found
	// those of them that were there before, the same: they are not ours to take away.
	Items []string `json:"items,omitempty"`
	Found []string `json:"found,omitempty"`
}

// Has reports whether an object is a copy, which what was released no longer is.
func Has(o object.Object) bool {
	// An annotation that cannot be a UID was not written by us, and as part of a
	// version it would break the protocol.
	return stream.ValidUID(o.Annotation(object.SourceUIDKey)) && o.Annotation(object.RecordKey) != "" && !IsReleased(o)
}

// Of returns the record of a copy; false for an object that is none. What its slices and
// Quiescing point to is shared between callers, who replace it and do not change it.
func Of(o object.Object) (Record, bool) {
	var rec Record
	is := Has(o)
	if is {
		rec = object.DecodedOnce(o, o.Annotation(object.RecordKey), decode)
	}
	return rec, is
}

// decode decodes a record. One that someone damaged counts as one that nothing matches: the
// object is ours by its source UID, and will be written again.
func decode(text string) Record {
	var rec Record
	_ = json.Unmarshal([]byte(text), &rec)
	return rec
}

// ReleasedKey is the annotation that gives a mirror to the hub, whatever its value: the hub
// neither changes nor deletes it from then on, and it is the hub's own, as if no one had ever
// mirrored it. What the spoke has of that name is refused like beside any other object of the
// hub. Once the annotation is gone, the object is a mirror again.
const ReleasedKey = object.OwnPrefix + "released"

// IsReleased reports whether a mirror was given to the hub. A spoke's copy cannot be: it is
// its hub that says so.
func IsReleased(o object.Object) bool {
	_, says := o.Child("metadata", "annotations")[ReleasedKey]
	return says && o.Annotation(object.PrincipalUIDKey) == ""
}

// IsForeign reports whether an object came from the other side of a link, and was not given
// to this one.
func IsForeign(o object.Object) bool {
	return o.Annotation(object.SourceUIDKey) != "" && !IsReleased(o)
}

// ShownBy returns the agent whose object a mirror on the hub shows; false for what is no
// mirror, or was released.
func ShownBy(fields map[string]any) (identity.AgentName, bool) {
	o := object.Object{Fields: fields}
	rec, ok := Of(o)
	if !ok || !IsMirror(o) {
		return identity.AgentName{}, false
	}
	name, err := identity.ParseAgentName(rec.Agent)
	return name, err == nil
}

// Outdates is the answer to an event that was read before what the object has.
func (rec Record) Outdates(e stream.Event) *stream.Refusal {
	return &stream.Refusal{
		Kind: stream.RefusalOutdated,
		Message: fmt.Sprintf("it was read at revision %d of the hub, and the spoke has what was read at revision %d",
			e.Revision, rec.Revision),
	}
}

// Put are the items of a record that are there because we put them there.
func (rec Record) Put() []string {
	found := map[string]bool{}
	for _, id := range rec.Found {
		found[id] = true
	}
	return slices.DeleteFunc(slices.Clone(rec.Items), func(id string) bool { return found[id] })
}

// Quiescing is how a copy whose deletion was witnessed waits for the spoke's Argo CD.
//
// At the end of a reconciliation in which delete hooks came or went, Argo CD's controller
// writes all finalizers by a patch without a resourceVersion, from what it read at the
// beginning (updateFinalizers). A cascade finalizer that came in between is lost by it, and
// of an Application that is being deleted nothing is left: the API server takes a patch
// that adds no finalizer. So a copy that has hook finalizers is not deleted in the step in
// which it gets the cascade finalizer. It is taken out of reconciliation in that step and
// deleted when all that was begun before has had time to end; what begins later reads the
// cascade finalizer, and keeps it. A copy without hook finalizers does not wait: that patch
// could only add some, which the API server refuses of what is being deleted.
type Quiescing struct {
	// Since is when the wait began, by the clock of the agent.
	Since time.Time `json:"since"`
	// Reconciled is the status' reconciledAt of that moment: when it moves, a
	// reconciliation has ended, and the wait starts over.
	Reconciled string `json:"reconciled,omitempty"`
	// Set says that it was us who took the copy out of reconciliation.
	Set bool `json:"set,omitempty"`
	// Done says that the wait is over.
	Done bool `json:"over,omitempty"`
}

// Resumes says that what takes a copy out of reconciliation is ours, and not meant to
// stay.
func (rec Record) Resumes() bool {
	if rec.Quiescing != nil {
		return rec.Quiescing.Set
	}
	return rec.Releasing
}

// IsMirror reports whether an object of the hub shows one of a spoke, whichever agent's
// that is.
func IsMirror(o object.Object) bool {
	return Has(o) && o.Annotation(object.PrincipalUIDKey) == ""
}

// ChildOf returns the agent whose child application a mirror on the hub shows; the zero
// name for what is no such mirror, or was released.
func ChildOf(o object.Object) identity.AgentName {
	rec, ok := Of(o)
	if !ok || !IsMirror(o) || !rec.Child {
		return identity.AgentName{}
	}
	name, err := identity.ParseAgentName(rec.Agent)
	if err != nil {
		return identity.AgentName{}
	}
	return name
}
