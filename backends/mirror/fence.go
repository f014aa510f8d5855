package mirror

import (
	"context"
	"fmt"

	"github.com/argomesh/argomesh/stream"
)

// Updates and deletes are tested on UID and resourceVersion, so a process that was frozen
// between deciding and sending does nothing to what its successor wrote. A create cannot be
// tested so: where an Application was deleted with its workloads meanwhile, nothing is
// there. It would be removed within a second, and Argo CD could have deployed it by then,
// which then stays.
//
// So a copy that Argo CD would act on by itself is created out of reconciliation, as
// unconfirmed. Config.Fence then says whether this process is still the one that may write,
// by a read that began after the create; if it is, no successor began before the copy was
// there, and each that comes sees it. Only then an update, tested like all others, lets
// Argo CD at the copy. What a process leaves unconfirmed counts as not held: the source
// sends it again, or has it removed, and whichever process is there by then does so.

// deploys reports whether Argo CD would act by itself on an Application, and not only look
// at it: synchronize what it finds, or write what it hydrates into a repository.
func deploys(o object) bool {
	return o.key.Kind == stream.Application && !skipped(o) &&
		(o.child("spec", "syncPolicy")["automated"] != nil || o.child("spec")["sourceHydrator"] != nil)
}

// create is the write that makes o, a copy. Where Argo CD would act on it by itself,
// another plan follows.
func (r Rules) create(o object) Write {
	fenced := r.fenced && deploys(o)
	if fenced {
		rec, _ := recordOf(o)
		// An earlier release knows that as a release that was abandoned, and lets Argo CD at it.
		rec.Unconfirmed, rec.Releasing = true, true
		o.setAnnotation(skipReconcileKey, "true")
		r.stamp(o, rec)
	}
	return Write{Op: Create, Raw: encode(o.fields), Strict: true, Again: fenced}
}

// unconfirmed reports whether Config.Fence has to be asked before Argo CD may act on a copy.
func (r Rules) unconfirmed(o object) bool {
	rec, _ := recordOf(o)
	return r.fenced && rec.Unconfirmed && !o.confirmed
}

// confirm asks the fence, once the current object was read.
func (w *writer) confirm(ctx context.Context) error {
	if err := w.m.cfg.Fence(ctx); err != nil {
		return fmt.Errorf("%w: %w", errFenced, err)
	}
	w.confirmed = w.current.UID
	return nil
}

// errFenced wraps the reason for which a copy stays unconfirmed.
var errFenced = fmt.Errorf("%w: the process cannot tell whether it may still write", stream.ErrUnavailable)
