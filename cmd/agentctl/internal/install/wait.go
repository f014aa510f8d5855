package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
)

// lookEvery is how often a workload is looked at while it is waited for.
const lookEvery = time.Second

// waitReady waits until the pods of the newest revision of a workload are ready, and says how far
// they are. A timeout of 0 means without limit.
func (s *side) waitReady(ctx context.Context, w rollout.Workload, timeout time.Duration) error {
	var problem string
	progress := cli.NewProgress(s.std)
	ctx, cancel := watchtools.ContextWithOptionalTimeout(ctx, timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		is, err := rollout.Observe(ctx, s.client, s.namespace, w)
		if err != nil {
			return false, s.explain(err, "wait for "+w.Name)
		}
		if problem, err = rollout.Unready(ctx, s.client, s.namespace, is.Selector); err != nil {
			return false, s.explain(err, "wait for "+w.Name)
		}
		return is.Ready, progress.Say(w.Name + ": " + cmp.Or(problem, is.Step))
	})
	err = errors.Join(err, progress.End())
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is installed, and not ready after %s: %s", w.Name, timeout, cmp.Or(problem, fmt.Sprintf(
			`look at "kubectl describe pods -n %s -l app.kubernetes.io/name=%s" and at their logs`, s.namespace, w.Name)))
	}
	return err
}
