package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

const (
	// unseenInterval is how soon to look again at what no collection shows: a Secret
	// of our name without the label of cluster Secrets.
	unseenInterval = 30 * time.Second
	// restoreFirst and restoreMost bound the pause before a Secret that somebody
	// keeps changing is restored again; the first time there is none. After
	// restoreCalm without a restore it is the first time again.
	restoreFirst = time.Second
	restoreMost  = time.Minute
	restoreCalm  = 10 * time.Minute
	// departTimeout bounds one call of Depart; the rest of a pass is for our writes.
	departTimeout = 20 * time.Second
	// departInterval is how soon Depart is called again while it is not done.
	departInterval = 3 * time.Second
)

// reconcile brings one Agent to where it should be, and says how soon to look
// again, zero for not before something changes.
func (l *loop) reconcile(ctx context.Context, key string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	agent, exists := l.agents.get(key)
	if !exists {
		// An Agent that went without our finalizer leaves its Secret: absence alone
		// deletes nothing.
		l.forget(key)
		return 0, nil
	}
	name, err := identity.ParseAgentName(key)
	if err != nil {
		l.log.Error().Err(err).Str("agent", key).Msg("agent cannot be served")
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
		conflicts: ids, namespaces: namespaces, projects: l.namedProjects(agent), mapping: l.cfg.Mapping(), children: l.children(ctx, agent, name), secret: plan, session: l.cfg.Sessions.Session(name),
	})
	return soonest(secretAgain, statusAgain), err
}

// conflictsOf returns the SPIFFE IDs and namespaces of agent that belong to others.
func (l *loop) conflictsOf(agent *v1alpha1.Agent, name identity.AgentName) ([]fleet.Conflict, []fleet.NamespaceConflict) {
	rivals := l.rivals(agent)
	agents := make([]v1alpha1.Agent, len(rivals))
	for i, rival := range rivals {
		agents[i] = *rival
	}
	_, ids := fleet.Owners(agents)
	_, namespaces := fleet.Namespaces(agents, l.cfg.Namespace)
	return ids[name], namespaces[name]
}

// reconcileSecret brings the cluster Secret of agent to where it should be.
func (l *loop) reconcileSecret(ctx context.Context, agent *v1alpha1.Agent, name identity.AgentName) (secretPlan, time.Duration, error) {
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
	again := config.Again
	if have != nil && !seen {
		again = soonest(again, unseenInterval)
	}
	plan := planSecret(want, have, l.claimsOn(want))
	if plan.action == secretKeep {
		return plan, again, nil
	}
	wait, err := l.applySecret(ctx, want, have, plan.action)
	if wait > 0 && !want.usableIn(have) {
		plan.ready, plan.problem = false, "somebody keeps changing the cluster Secret; it is restored again soon"
	}
	return plan, soonest(again, wait), err
}

// secretOf returns the Secret with the name of the agent's cluster Secret, nil
// when there is none, and whether the collection shows it. Without the label of
// cluster Secrets it does not.
func (l *loop) secretOf(ctx context.Context, name identity.AgentName) (secret *corev1.Secret, seen bool, err error) {
	if secret, seen := l.secrets.get(secretName(name)); seen {
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
		for _, secret := range l.secrets.by(indexClaim, claim) {
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
// somebody keeps undoing that.
func (l *loop) applySecret(ctx context.Context, want wantedSecret, have *corev1.Secret, action secretAction) (time.Duration, error) {
	p := l.paceOf(want.agent.String())
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
		if wait := p.untilRestore(now); wait > 0 {
			return wait, nil
		}
	}
	_, err := l.secretClient.Apply(ctx, secretName(want.agent), want.applyObject(l.cfg.Namespace, have),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return 0, fmt.Errorf("apply secret %s: %w", secretName(want.agent), err)
	}
	if verb == verbRestore {
		p.restores++
		p.restoredAt = now
	}
	p.applied, p.appliedOver = &want, ""
	if have != nil {
		p.appliedOver = have.ResourceVersion
	}
	l.metrics.secretWrites.WithLabelValues(verb).Inc()
	l.log.Info().Stringer("agent", want.agent).Str("verb", verb).Msg("cluster secret applied")
	return 0, nil
}

// untilRestore returns how long to wait before the next restore.
func (p *pace) untilRestore(now time.Time) time.Duration {
	if now.Sub(p.restoredAt) > restoreCalm {
		p.restores = 0
	}
	if p.restores == 0 {
		return 0
	}
	pause := restoreMost
	if n := p.restores - 1; n < 6 {
		pause = min(restoreFirst<<n, restoreMost)
	}
	return pause - now.Sub(p.restoredAt)
}

// reconcileStatus writes the status of agent when it is due.
func (l *loop) reconcileStatus(ctx context.Context, agent *v1alpha1.Agent, found findings) (time.Duration, error) {
	p := l.paceOf(agent.Name)
	if slices.Contains(p.behind, agent.ResourceVersion) {
		current := *agent // the collection does not show our last write yet
		current.Status, current.ResourceVersion = p.status, p.version
		agent = &current
	} else {
		p.behind = nil
	}
	now := time.Now()
	if err := l.clearAcceptance(ctx, agent, found.session); err != nil {
		return 0, err
	}
	wish := found.session.History.Wish(found.session.Since.String())
	if wish == p.begun {
		found.session.History.Begin = false
	}
	want := wantStatus(agent, found, now)
	d := decide(agent.Status, want, found.session.Connected, now, p.statusAt)
	if !d.write {
		return d.again, nil
	}
	version, err := l.applyStatus(ctx, agent, want)
	if err != nil {
		if apierrors.IsConflict(err) {
			p.behind = nil // after a restore of etcd the collection is right, and we are wrong
		}
		return 0, err
	}
	if agent.Status.Connected != want.Connected {
		l.log.Info().Str("agent", agent.Name).Bool("connected", want.Connected).Msg("agent status written")
	}
	l.logHistory(agent, want)
	if fleet.HistoryID(agent.Status.History) != fleet.HistoryID(want.History) {
		p.begun = wish
	}
	p.statusAt, p.status, p.version = now, want, version
	p.behind = append(p.behind, agent.ResourceVersion)
	l.metrics.statusWrites.Inc()
	return d.again, nil
}

// logHistory tells of what operators follow beside the status.
func (l *loop) logHistory(agent *v1alpha1.Agent, want v1alpha1.AgentStatus) {
	log := l.log.With().Str("agent", agent.Name).Logger()
	if fleet.HistoryID(agent.Status.History) != fleet.HistoryID(want.History) {
		log.Info().Bool("first", agent.Status.History == nil).Msg("history begun")
	}
	switch held := want.DeletionsHeld; {
	case heldID(agent.Status.DeletionsHeld) == heldID(held):
	case held == nil:
		log.Info().Msg("deletions no longer held")
	default:
		log.Warn().Str("reason", string(held.Reason)).Int64("total", held.Total).Str("why", held.Message).Msg("deletions held")
	}
}

// applyStatus writes the status of agent and returns the resourceVersion it then
// has. It fails with a conflict when agent is no longer what the API server has:
// otherwise one that reads behind, or has not seen yet that etcd was restored,
// would write a history that is not the hub's.
func (l *loop) applyStatus(ctx context.Context, agent *v1alpha1.Agent, status v1alpha1.AgentStatus) (string, error) {
	status.Link = nil // is written by whoever has the link, under a field manager of its own
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Agent{Status: status})
	if err != nil {
		return "", err
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"status": body["status"]}}
	obj.SetGroupVersionKind(v1alpha1.AgentGroupVersionKind)
	obj.SetName(agent.Name)
	obj.SetNamespace(agent.Namespace)
	obj.SetUID(agent.UID) // never another Agent of the same name
	obj.SetResourceVersion(agent.ResourceVersion)
	stored, err := l.agentClient.ApplyStatus(ctx, agent.Name, obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) {
		return agent.ResourceVersion, nil // deleted meanwhile
	}
	if err != nil {
		return "", fmt.Errorf("apply status of agent %s: %w", agent.Name, err)
	}
	return stored.GetResourceVersion(), nil
}

// clearAcceptance removes the annotation by which a person accepted deletions once it
// was used. One of another ID, which may be newer than what the collection shows, stays.
// So it does while the agent is away: what was accepted may not have happened.
func (l *loop) clearAcceptance(ctx context.Context, agent *v1alpha1.Agent, session Session) error {
	if !session.Connected || !isSpent(agent, session) {
		return nil
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AcceptDeletionsAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": agent.UID},
		{"op": "test", "path": path, "value": session.Spent},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	_, err = l.agentClient.Patch(ctx, agent.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	// Invalid is what a test says that fails.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("remove the annotation of accepted deletions from agent %s: %w", agent.Name, err)
	}
	return nil
}

func isSpent(agent *v1alpha1.Agent, session Session) bool {
	return session.Spent != "" && agent.Annotations[v1alpha1.AcceptDeletionsAnnotation] == session.Spent
}

// setFinalizers writes the finalizers of agent. It fails with a conflict when
// agent is no longer what the API server has.
func (l *loop) setFinalizers(ctx context.Context, agent *v1alpha1.Agent, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             agent.UID,
		"resourceVersion": agent.ResourceVersion,
		"finalizers":      finalizers,
	}})
	if err != nil {
		return err
	}
	_, err = l.agentClient.Patch(ctx, agent.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of agent %s: %w", agent.Name, err)
	}
	return nil
}

// soonest returns the smaller of two pauses, where zero means none.
func soonest(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}
