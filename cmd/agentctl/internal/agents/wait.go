package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

var errGone = errors.New("it was deleted meanwhile")

// waitReady waits until the principal has made the cluster Secret of obj, and
// returns the Agent as it then is. A condition that waiting does not mend ends
// it at once.
func waitReady(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured,
	timeout time.Duration) (*unstructured.Unstructured, error) {
	var last *unstructured.Unstructured
	err := watchAgent(ctx, h, obj.GetName(), timeout, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil || seen.GetUID() != obj.GetUID() {
			return false, errGone
		}
		last = seen
		agent, err := cli.ParseAgent(seen)
		if err != nil {
			return false, err
		}
		return registered(agent)
	})
	if err == nil {
		return last, nil
	}
	doing := fmt.Sprintf("agent %q is stored, but not ready", obj.GetName())
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s after %s: check that the principal runs in namespace %s of the hub", doing, timeout,
			h.Namespace)
	}
	return nil, h.Explain(err, doing)
}

// WaitConnected waits until the hub shows the agent connected and, unless release is empty, running that
// release.
func WaitConnected(ctx context.Context, h *cli.Hub, name, release string, timeout time.Duration) error {
	doing, why := "not connected", "it has not connected yet"
	err := watchAgent(ctx, h, name, timeout, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil {
			return false, errGone
		}
		agent, err := cli.ParseAgent(seen)
		if err != nil {
			return false, err
		}
		c := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionConnected)
		if c == nil || c.Status != metav1.ConditionTrue {
			doing = "not connected"
			if c != nil && c.Message != "" {
				why = c.Message + cli.SeeReason(c.Reason)
			}
			return false, nil
		}
		runs := agent.Status.Versions.Agent
		doing = fmt.Sprintf("runs %s, not %s", cmp.Or(runs, "an unknown release"), release)
		why = `look whether its values name an image by tag or digest ("helm get values argomesh-agent"), ` +
			"and give the new one by --set"
		return release == "" || runs == release, nil
	})
	doing = fmt.Sprintf("agent %q is installed, but %s", name, doing)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s after %s: %s", doing, timeout, why)
	}
	if err != nil {
		return h.Explain(err, doing)
	}
	return nil
}

// registered reports whether the principal has done all it does for a new Agent.
func registered(agent *v1alpha1.Agent) (bool, error) {
	if agent.Status.ObservedGeneration < agent.Generation {
		return false, nil // the conditions are about an older spec
	}
	for _, bad := range []string{v1alpha1.ConditionConflict, v1alpha1.ConditionClusterSecretConflict} {
		if c := meta.FindStatusCondition(agent.Status.Conditions, bad); c != nil && c.Status == metav1.ConditionTrue {
			return false, errors.New(c.Message + cli.SeeReason(c.Reason))
		}
	}
	return meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionClusterSecretReady), nil
}

// waitGone waits until agent, which is being deleted, is gone. What the principal
// says it waits for is told to progress, one line whenever it changes.
func waitGone(ctx context.Context, h *cli.Hub, agent *v1alpha1.Agent, timeout time.Duration, progress io.Writer) error {
	last := ""
	err := watchAgent(ctx, h, agent.Name, timeout, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil || seen.GetUID() != agent.UID {
			return true, nil
		}
		now, err := cli.ParseAgent(seen)
		if err != nil {
			return false, err
		}
		// Of an Agent that is being deleted the condition says what it waits for.
		c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		if now.DeletionTimestamp == nil || c == nil || c.ObservedGeneration < now.Generation || c.Message == last {
			return false, nil
		}
		last = c.Message
		_, err = fmt.Fprintf(progress, "%s: %s\n", agent.Name, last)
		return false, err
	})
	doing := fmt.Sprintf("agent %q is being deleted, but not gone", agent.Name)
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return h.Explain(err, doing)
	case last == "":
		return fmt.Errorf("%s after %s: check that the principal runs in namespace %s of the hub", doing, timeout,
			h.Namespace)
	}
	return fmt.Errorf("%s after %s: %s", doing, timeout, last)
}

// watchAgent calls done with the Agent of that name, nil when there is none, now and
// whenever it changes, until done says so or fails. A timeout of 0 means without
// limit. It lives through restarts of the API server.
func watchAgent(ctx context.Context, h *cli.Hub, name string, timeout time.Duration,
	done func(*unstructured.Unstructured) (bool, error)) error {
	ctx, cancel := watchtools.ContextWithOptionalTimeout(ctx, timeout)
	defer cancel()
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	// The informer below retries for ever, so what retrying does not mend, such as
	// a missing right, has to show before.
	if _, err := h.Agents.List(ctx, metav1.ListOptions{FieldSelector: one}); err != nil {
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = one
			return h.Agents.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = one
			return h.Agents.Watch(ctx, opts)
		},
	}
	absent := func(store cache.Store) (bool, error) {
		if len(store.ListKeys()) > 0 {
			return false, nil // the informer shows it as an event next
		}
		return done(nil)
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, absent,
		func(event watch.Event) (bool, error) {
			seen, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Deleted {
				return done(nil)
			}
			return done(seen)
		})
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return ctxErr // however the watch put it
	}
	return err
}
