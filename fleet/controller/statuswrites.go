package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

// reconcileStatus writes the status of agent when it is due.
func (l *loop) reconcileStatus(ctx context.Context, agent *v1alpha1.Agent, found findings) (time.Duration, error) {
	p := l.stateOf(agent.Name)
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
		return d.requeueAfter, nil
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
	return d.requeueAfter, nil
}

// logHistory tells of what operators follow beside the status.
func (l *loop) logHistory(agent *v1alpha1.Agent, want v1alpha1.AgentStatus) {
	log := l.log.With().Str("agent", agent.Name).Logger()
	if fleet.HistoryID(agent.Status.History) != fleet.HistoryID(want.History) {
		log.Info().Bool("first", agent.Status.History == nil).Msg("history started")
	}
	switch held := want.DeletionsHeld; {
	case heldID(agent.Status.DeletionsHeld) == heldID(held):
	case held == nil:
		log.Info().Msg("deletions no longer held")
	default:
		log.Warn().Str("reason", string(held.Reason)).Int64("total", held.Total).Str("why", held.Message).
			Msg("deletions held")
	}
}

// applyStatus writes the status of agent and returns the resourceVersion it then
// has. It fails with a conflict when agent is no longer what the API server has:
// otherwise one that reads behind, or has not seen yet that etcd was restored,
// would write a history that is not the hub's.
func (l *loop) applyStatus(ctx context.Context, agent *v1alpha1.Agent, status v1alpha1.AgentStatus) (string, error) {
	status.Link = nil // is written by anyone who has the link, under a field manager of its own
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
	stored, err := l.agentClient.ApplyStatus(ctx, agent.Name, obj,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
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
	if !session.Connected || !isAcceptUsed(agent, session) {
		return nil
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AcceptDeletionsAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": agent.UID},
		{"op": "test", "path": path, "value": session.AcceptUsed},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	_, err = l.agentClient.Patch(ctx, agent.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	// Invalid is what a test says that fails.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("remove the annotation of accepted deletions from agent %s: %w", agent.Name, err)
	}
	return nil
}

func isAcceptUsed(agent *v1alpha1.Agent, session Session) bool {
	return session.AcceptUsed != "" && agent.Annotations[v1alpha1.AcceptDeletionsAnnotation] == session.AcceptUsed
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
	_, err = l.agentClient.Patch(ctx, agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of agent %s: %w", agent.Name, err)
	}
	return nil
}
