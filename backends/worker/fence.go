package worker

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

// confirm asks the fence, once the current object was read.
func (w *writer) confirm(ctx context.Context) error {
	if err := w.worker.cfg.Fence(ctx); err != nil {
		return fmt.Errorf("%w: %w", errFenced, err)
	}
	w.confirmed = w.current.UID
	return nil
}

// errFenced wraps the reason for which a copy stays unconfirmed.
var errFenced = fmt.Errorf("%w: the process cannot tell whether it may still write", stream.ErrUnavailable)
