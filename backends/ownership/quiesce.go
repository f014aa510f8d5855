package ownership

import (
	"slices"
	"strconv"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// deploys reports whether Argo CD would act by itself on an Application, and not only look
// at it: synchronize what it finds, or write what it hydrates into a repository.
func deploys(o object.Object) bool {
	return o.Key.Kind == stream.Application && !skipped(o) &&
		(o.Child("spec", "syncPolicy")["automated"] != nil || o.Child("spec")["sourceHydrator"] != nil)
}

// creation is the write that makes o, a copy. Where Argo CD would act on it by itself,
// another plan follows.
func creation(r Rules, o object.Object) Write {
	fenced := r.Fenced && deploys(o)
	if fenced {
		rec, _ := record.Of(o)
		// An earlier release knows that as a release that was abandoned, and lets Argo CD at it.
		rec.Unconfirmed, rec.Releasing = true, true
		o.SetAnnotation(object.SkipReconcileKey, "true")
		stamp(o, rec)
	}
	return Write{Op: Create, Raw: object.Encode(o.Fields), Strict: true, Replan: fenced}
}

// unconfirmed reports whether Config.Fence has to be asked before Argo CD may act on a copy.
func unconfirmed(r Rules, o object.Object) bool {
	rec, _ := record.Of(o)
	return r.Fenced && rec.Unconfirmed && !o.Confirmed
}

// quiesceTime is how long the spoke's Argo CD gets to end a reconciliation that it began
// before it was told to begin none. A reconciliation lasts as long as the making of
// manifests, mostly less than a second; one that lasts longer still is found out
// afterwards. The source asks again after 0.5, 1, 2 and 4 s, so it becomes 7.5 s to 9.5 s.
const quiesceTime = 7 * time.Second

// hooked reports whether an Application has finalizers of delete hooks.
func hooked(o object.Object) bool {
	return slices.ContainsFunc(o.Finalizers(), func(f string) bool { return object.IsArgoCD(f) && !object.IsCascade(f) })
}

// skipped reports whether Argo CD leaves an Application alone.
func skipped(o object.Object) bool {
	skip, err := strconv.ParseBool(o.Annotation(object.SkipReconcileKey))
	return err == nil && skip
}

// quiesce takes next out of reconciliation, which is what will be written of current, and
// reports whether it has been for long enough. Until then it goes on with the wait, or
// begins it when something was written in between. kept says that the wait began, and
// that what it is for is still as it was written then.
func quiesce(r Rules, next, current object.Object, rec *record.Record, kept bool) (over bool) {
	q := rec.Quiescing
	reconciled := object.StringAt(current.Child("status"), "reconciledAt")
	waited := time.Duration(-1) // also when the clock was put back
	if kept && skipped(current) && q.Reconciled == reconciled {
		waited = r.Now.Sub(q.Since)
	}
	switch {
	case kept && q.Done:
		return true
	case waited >= quiesceTime:
		rec.Quiescing = &record.Quiescing{Since: q.Since, Reconciled: q.Reconciled, Set: q.Set, Done: true}
		return true
	case waited < 0:
		set := !skipped(current)
		if q != nil {
			set = set || q.Set
		}
		rec.Quiescing = &record.Quiescing{Since: r.Now.UTC(), Reconciled: reconciled, Set: set}
	}
	if !skipped(next) {
		next.SetAnnotation(object.SkipReconcileKey, "true")
	}
	return false
}

// resumeReconciliation lets Argo CD go on with a copy, unless its owner wants otherwise.
func resumeReconciliation(o object.Object, rec record.Record, annotations map[string]any) {
	if _, wanted := annotations[object.SkipReconcileKey]; rec.Resumes() && !wanted {
		delete(o.Child("metadata", "annotations"), object.SkipReconcileKey)
	}
}

// quiescing is the answer to a deletion that waits.
var quiescing = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "it has delete hooks, so it is deleted when the spoke's Argo CD has ended what it began before",
}
