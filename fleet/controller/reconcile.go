package controller

import (
	"context"
	"slices"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/pause"
)

const (
	// uncachedInterval is how soon to look again at what no collection shows: a Secret
	// of our name without the label of cluster Secrets.
	uncachedInterval = 30 * time.Second
	// restoreFirst is the pause before a Secret is restored a second time that someone keeps
	// changing; the next ones are longer (package pause).
	restoreFirst = time.Second
	// teardownTimeout bounds one call of Teardown; the rest of a pass is for our writes.
	teardownTimeout = 20 * time.Second
	// teardownInterval is how soon Teardown is called again while it is not done.
	teardownInterval = 3 * time.Second
)

// reconcile brings one Agent to where it should be, and says how soon to look
// again, zero for not before something changes.
func (l *loop) reconcile(ctx context.Context, key string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	agent, exists := l.agents.Get(key)
	if !exists {
		// An Agent that went without our finalizer leaves its Secret: absence alone
		// deletes nothing.
		l.forget(key)
		return 0, nil
	}
	name, err := identity.ParseAgentName(key)
	if err != nil {
		l.log.Error().Err(err).Str("agent", key).Msg("the name of an Agent is not valid, so it is left alone")
		return 0, nil // it does not get better by trying
	}
	if agent.DeletionTimestamp != nil {
		return l.finalize(ctx, agent, name)
	}
	if !slices.Contains(agent.Finalizers, v1alpha1.Finalizer) {
		// The collection shows the new version, which starts the next pass.
		return 0, l.setFinalizers(ctx, agent, append(slices.Clone(agent.Finalizers), v1alpha1.Finalizer))
	}
	plan, secretAgain, err := l.reconcileSecret(ctx, agent, name)
	if err != nil {
		return 0, err
	}
	ids, namespaces := l.conflictsOf(agent, name)
	statusAgain, err := l.reconcileStatus(ctx, agent, findings{
		conflicts: ids, namespaces: namespaces, projects: l.namedProjects(agent), mapping: l.cfg.Mapping(),
		children: l.children(ctx, agent, name), secret: plan, session: l.cfg.Sessions.Session(name),
	})
	return pause.Shorter(secretAgain, statusAgain), err
}
