package mirror

import (
	"slices"
	"strconv"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// quietTime is how long the spoke's Argo CD gets to end a reconciliation that it began
// before it was told to begin none. A reconciliation lasts as long as the making of
// manifests, mostly less than a second; one that lasts longer still is found out
// afterwards. The source asks again after 0.5, 1, 2 and 4 s, so it becomes 7.5 s to 9.5 s.
const quietTime = 7 * time.Second

// quiet is how a copy whose deletion was witnessed waits for the spoke's Argo CD.
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
type quiet struct {
	// Since is when the wait began, by the clock of the agent.
	Since time.Time `json:"since"`
	// Reconciled is the status' reconciledAt of that moment: when it moves, a
	// reconciliation has ended, and the wait begins anew.
	Reconciled string `json:"reconciled,omitempty"`
	// Set says that it was us who took the copy out of reconciliation.
	Set bool `json:"set,omitempty"`
	// Over says that the wait is over.
	Over bool `json:"over,omitempty"`
}

// hooked reports whether an Application has finalizers of delete hooks.
func hooked(o object) bool {
	return slices.ContainsFunc(o.finalizers(), func(f string) bool { return isArgoCD(f) && !isCascade(f) })
}

// skipped reports whether Argo CD leaves an Application alone.
func skipped(o object) bool {
	skip, err := strconv.ParseBool(o.annotation(skipReconcileKey))
	return err == nil && skip
}

// quieten takes next out of reconciliation, which is what will be written of current, and
// reports whether it has been for long enough. Until then it goes on with the wait, or
// begins it when something was written in between. kept says that the wait began, and
// that what it is for is still as it was written then.
func (r Rules) quieten(next, current object, rec *record, kept bool) (over bool) {
	q := rec.Quiet
	reconciled := stringAt(current.child("status"), "reconciledAt")
	waited := time.Duration(-1) // also when the clock was put back
	if kept && skipped(current) && q.Reconciled == reconciled {
		waited = r.now.Sub(q.Since)
	}
	switch {
	case kept && q.Over:
		return true
	case waited >= quietTime:
		rec.Quiet = &quiet{Since: q.Since, Reconciled: q.Reconciled, Set: q.Set, Over: true}
		return true
	case waited < 0:
		set := !skipped(current)
		if q != nil {
			set = set || q.Set
		}
		rec.Quiet = &quiet{Since: r.now.UTC(), Reconciled: reconciled, Set: set}
	}
	if !skipped(next) {
		next.setAnnotation(skipReconcileKey, "true")
	}
	return false
}

// resumes says that what takes a copy out of reconciliation is ours, and not meant to
// stay.
func (rec record) resumes() bool {
	if rec.Quiet != nil {
		return rec.Quiet.Set
	}
	return rec.Releasing
}

// resume lets Argo CD go on with a copy, unless its owner wants otherwise.
func resume(o object, rec record, annotations map[string]any) {
	if _, wanted := annotations[skipReconcileKey]; rec.resumes() && !wanted {
		delete(o.child("metadata", "annotations"), skipReconcileKey)
	}
}

// quietening is the answer to a deletion that waits.
var quietening = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "it has delete hooks, so it is deleted when the spoke's Argo CD has ended what it began before",
}
