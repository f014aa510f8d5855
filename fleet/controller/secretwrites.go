package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/pause"
)

// conflictsOf returns the SPIFFE IDs and namespaces of agent that belong to others.
func (l *loop) conflictsOf(agent *v1alpha1.Agent,
	name identity.AgentName) ([]fleet.Conflict, []fleet.NamespaceConflict) {
	rivals := l.rivals(agent)
	agents := make([]v1alpha1.Agent, len(rivals))
	for i, rival := range rivals {
		agents[i] = *rival
	}
	_, ids := fleet.OwnersOfIDs(agents)
	_, namespaces := fleet.Namespaces(agents, l.cfg.Namespace)
	return ids[name], namespaces[name]
}

// reconcileSecret brings the cluster Secret of agent to where it should be.
func (l *loop) reconcileSecret(ctx context.Context, agent *v1alpha1.Agent,
	name identity.AgentName) (secretPlan, time.Duration, error) {
	have, seen, err := l.secretOf(ctx, name)
	if err != nil {
		return secretPlan{}, 0, err
	}
	var held []byte
	if have != nil && isOurs(have) {
		held = have.Data[dataConfig]
	}
	config, err := l.cfg.ClusterConfig(ctx, agent, held)
	if err != nil {
		return secretPlan{}, 0, fmt.Errorf("cluster config: %w", err)
	}
	want := wantSecret(name, agent.Spec.Labels, ClusterServer(l.cfg.ProxyURL, name), config.JSON)
	again := config.RenewAfter
	if have != nil && !seen {
		again = pause.Shorter(again, uncachedInterval)
	}
	plan := planSecret(want, have, l.claimsOn(want))
	if plan.action == secretKeep {
		return plan, again, nil
	}
	wait, err := l.applySecret(ctx, want, have, plan.action)
	if wait > 0 && !want.usableIn(have) {
		plan.ready, plan.problem = false, "another writer keeps changing the cluster Secret; it is restored again soon"
	}
	return plan, pause.Shorter(again, wait), err
}

// secretOf returns the Secret with the name of the agent's cluster Secret, nil
// when there is none, and whether the collection shows it. Without the label of
// cluster Secrets it does not.
func (l *loop) secretOf(ctx context.Context, name identity.AgentName) (secret *corev1.Secret, seen bool, err error) {
	if secret, seen := l.secrets.Get(secretName(name)); seen {
		return secret, true, nil
	}
	secret, err = l.getSecret(ctx, name)
	return secret, false, err
}

func (l *loop) getSecret(ctx context.Context, name identity.AgentName) (*corev1.Secret, error) {
	raw, err := l.secretClient.Get(ctx, secretName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get secret %s: %w", secretName(name), err)
	}
	secret, err := toSecret(raw)
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %w", secretName(name), err)
	}
	return secret, nil
}

// claimsOn returns the other cluster Secrets that claim to be the cluster of
// want, each once.
func (l *loop) claimsOn(want wantedSecret) []*corev1.Secret {
	found := make(map[string]*corev1.Secret)
	for _, claim := range []string{
		claimLabel + want.agent.String(),
		claimName + want.agent.String(),
		claimServer + string(want.data[dataServer]),
	} {
		for _, secret := range l.secrets.By(indexClaim, claim) {
			if secret.Name != secretName(want.agent) {
				found[secret.Name] = secret
			}
		}
	}
	out := make([]*corev1.Secret, 0, len(found))
	for _, secret := range found {
		out = append(out, secret)
	}
	return out
}

// applySecret writes what is wanted. It returns how long to wait instead when
// someone keeps undoing that.
func (l *loop) applySecret(ctx context.Context, want wantedSecret, have *corev1.Secret,
	action secretAction) (time.Duration, error) {
	p := l.stateOf(want.agent.String())
	now := time.Now()
	verb := verbCreate
	switch {
	case action == secretCreate:
	case p.applied == nil || !p.applied.equal(want):
		verb = verbUpdate
	case p.appliedOver == have.ResourceVersion:
		return 0, nil // the collection does not show our last write yet
	default:
		verb = verbRestore
		if wait := p.restores.Wait(restoreFirst, now); wait > 0 {
			return wait, nil
		}
	}
	_, err := l.secretClient.Apply(ctx, secretName(want.agent), want.applyObject(l.cfg.Namespace, have),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return 0, fmt.Errorf("apply secret %s: %w", secretName(want.agent), err)
	}
	if verb == verbRestore {
		p.restores.Restored(now)
	}
	p.applied, p.appliedOver = &want, ""
	if have != nil {
		p.appliedOver = have.ResourceVersion
	}
	l.metrics.secretWrites.WithLabelValues(verb).Inc()
	l.log.Info().Stringer("agent", want.agent).Str("verb", verb).Msg("cluster Secret applied")
	return 0, nil
}
