package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/internal/pause"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// finalize ends what we keep for a deleted Agent. Orphan: its streams end, Teardown
// is done, the cluster Secret goes, last the finalizer; the spoke is not touched.
// Cascade: Teardown is done while the agent stays connected, then the same; without
// its Agent the registry ends the streams.
func (l *loop) finalize(ctx context.Context, agent *v1alpha1.Agent, name identity.AgentName) (time.Duration, error) {
	if !slices.Contains(agent.Finalizers, v1alpha1.Finalizer) {
		return 0, nil
	}
	session := l.cfg.Sessions.Session(name)
	if !fleet.Cascades(agent) && session.Connected {
		// The registry ends the streams of an orphaned Agent; Sessions tells when it
		// is done, and starts the next pass.
		return l.leaving(ctx, agent, name, session, "its streams to end")
	}
	waits, err := l.teardown(ctx, agent)
	switch {
	case errors.Is(err, errOutdated):
		return 0, nil // the collection shows the new version, which starts the next pass
	case err != nil:
		// Anyone who looks at the Agent sees why it stays; a pass that failed is repeated.
		_, statusErr := l.leaving(ctx, agent, name, session, "another attempt, since one failed: "+cut(err.Error()))
		return 0, errors.Join(err, statusErr)
	case waits != "":
		switch {
		case !fleet.Cascades(agent) || session.Connected:
		case agent.Spec.Suspended:
			waits += "; the agent may not connect, since spec.suspended is true"
		default:
			waits += "; the agent is not connected"
		}
		again, err := l.leaving(ctx, agent, name, session, waits)
		return pause.Shorter(again, teardownInterval), err
	}
	if err := l.deleteSecret(ctx, name); err != nil {
		return 0, err
	}
	err = l.setFinalizers(ctx, agent, slices.DeleteFunc(slices.Clone(agent.Finalizers), func(f string) bool {
		return f == v1alpha1.Finalizer
	}))
	if err == nil {
		l.forget(agent.Name)
	}
	return 0, err
}

// errOutdated says that the Agent is not what the collection shows.
var errOutdated = errors.New("the agent changed meanwhile")

// teardown calls Teardown with agent as the API server has it: a collection may lag,
// and a cascade that was just called off must not go on.
func (l *loop) teardown(ctx context.Context, agent *v1alpha1.Agent) (waits string, err error) {
	raw, err := l.agentClient.Get(ctx, agent.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", errOutdated
	}
	if err != nil {
		return "", fmt.Errorf("get agent %s: %w", agent.Name, err)
	}
	current, err := toAgent(raw)
	if err != nil {
		return "", fmt.Errorf("read agent %s: %w", agent.Name, err)
	}
	if current.UID != agent.UID || current.DeletionTimestamp == nil || fleet.Cascades(current) != fleet.Cascades(agent) {
		return "", errOutdated
	}
	ctx, cancel := context.WithTimeout(ctx, teardownTimeout)
	defer cancel()
	return l.cfg.Teardown(ctx, *current)
}

// leaving keeps the cluster Secret and the status of an Agent that is being
// deleted and waits for something.
func (l *loop) leaving(ctx context.Context, agent *v1alpha1.Agent, name identity.AgentName, session Session,
	waits string) (time.Duration, error) {
	found := findings{session: session, waits: waits}
	found.conflicts, found.namespaces = l.conflictsOf(agent, name)
	var secretAgain time.Duration
	if fleet.Cascades(agent) {
		// Deletes reach the spoke only while Argo CD knows the cluster.
		var err error
		if found.secret, secretAgain, err = l.reconcileSecret(ctx, agent, name); err != nil {
			return 0, err
		}
	} else {
		have, err := l.getSecret(ctx, name)
		if err != nil {
			return 0, err
		}
		found.secret = secretPlan{ready: have != nil &&
			isOurs(have), problem: "the Agent is being deleted", project: agent.Status.ClusterProject}
	}
	statusAgain, err := l.reconcileStatus(ctx, agent, found)
	return pause.Shorter(secretAgain, statusAgain), err
}

// deleteSecret removes the cluster Secret of an agent, if it is ours.
func (l *loop) deleteSecret(ctx context.Context, name identity.AgentName) error {
	have, err := l.getSecret(ctx, name)
	if err != nil || have == nil || !isOurs(have) {
		return err
	}
	err = l.secretClient.Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &have.UID, ResourceVersion: &have.ResourceVersion,
	}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete secret %s: %w", have.Name, err)
	}
	l.metrics.secretWrites.WithLabelValues(verbDelete).Inc()
	l.log.Info().Stringer("agent", name).Msg("cluster Secret deleted")
	return nil
}
