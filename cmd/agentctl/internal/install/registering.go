package install

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/internal/diff"
)

// registering is what SPIRE is to know of one side; planned, and then carried out.
type registering struct {
	objects *registration.Objects
	plan    []diff.Change[*unstructured.Unstructured]
	wants   []*unstructured.Unstructured
}

// will says, before it is done, what do will do.
func (r *registering) will() []string {
	if r == nil {
		return nil
	}
	return registration.Will(r.plan)
}

// do carries the plan out, or says what it would do. Nothing is planned for nil.
func (r *registering) do(ctx context.Context, out io.Writer, dryRun bool) error {
	if r == nil {
		return nil
	}
	apply := func(done func(diff.Change[*unstructured.Unstructured])) error {
		return r.objects.Apply(ctx, r.plan, dryRun, done)
	}
	return registration.CarryOut(out, r.plan, dryRun, apply)
}
