package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// readTime bounds the read of an Agent.
const readTime = 10 * time.Second

// historian judges for one link whether the hub's history continues, by quorum
// reads of its Agent. A call for a connection that has ended may still run beside
// that for the next one.
type historian struct {
	client    dynamic.Interface
	namespace string
	hub       func() string // identity of the hub; empty while it is not known
	agent     identity.AgentName
	// replica names this principal, and life this start of it.
	replica, life string
	// caughtUp reports whether the caches have nothing of the agent that the hub has
	// not.
	caughtUp func(context.Context) (bool, error)

	// restores are those of the hub, of which the first began were before the link was.
	restores *restores
	began    int
	// look has restores know of what was before the call.
	look func(context.Context) error

	mu         sync.Mutex // guards what follows
	continuity fleet.Continuity
	other      int64 // epoch of the newest claim of another principal, or another start of this one
}

// judge is mirror.Config.History.
func (h *historian) judge(ctx context.Context, peer mirror.Peer, known mirror.Known) (mirror.Judgement, error) {
	hub := h.hub()
	if hub == "" {
		return mirror.Judgement{}, fmt.Errorf("the identity of the hub is not known yet")
	}
	reading, cancel := context.WithTimeout(ctx, readTime)
	agent, revision, err := h.claim(reading, peer)
	if err == nil {
		err = h.look(reading)
	}
	cancel()
	if err != nil {
		return mirror.Judgement{}, err
	}
	kept := agent.Status.History
	broken, err := h.weigh(ctx, fleet.Reading{Hub: hub, Kept: kept, Revision: revision, Restores: h.restores.count() - h.began}, fleet.Connection{
		ID: peer.Connection,
		Shown: fleet.Shown{
			Hub: peer.Hello.HubUID, Token: peer.Hello.History.Token, Revision: peer.Hello.History.Revision,
			ClusterUID: peer.Hello.ClusterUID,
		},
		Sent: known.Sent, Behind: known.Behind, Begins: known.Begins,
	})
	if err != nil {
		return mirror.Judgement{}, err
	}
	judgement := mirror.Judgement{Broken: broken, Now: historyOf(kept, revision), Epoch: agent.Status.Link.Epoch, Other: h.otherEpoch()}
	if broken != "" {
		// A cache that has not seen the restore shows agreement where there is none.
		caughtUp, err := h.caughtUp(ctx)
		if err != nil {
			return mirror.Judgement{}, err
		}
		judgement.Stale = !caughtUp
	}
	return judgement, nil
}

// weigh is Continuity.Judge for a connection that has not ended.
func (h *historian) weigh(ctx context.Context, now fleet.Reading, c fleet.Connection) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return h.continuity.Judge(now, c), nil
}

// meet notes whether an Agent names another process. It counts for good, since the answer
// to a claim may be lost.
func (h *historian) meet(has *v1alpha1.AgentLink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if has != nil && has.Life != h.life {
		h.other = has.Epoch
	}
}

func (h *historian) otherEpoch() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.other
}

// claimAttempts bounds the reads for one claim: others write the status, too.
const claimAttempts = 5

// claim has status.link of the Agent name the connection, and returns the Agent as one
// consistent read shows it, with the resourceVersion of that read. A write is tested on
// that read, so that of two principals the later one is seen by the other.
func (h *historian) claim(ctx context.Context, peer mirror.Peer) (agent v1alpha1.Agent, revision uint64, err error) {
	want := v1alpha1.AgentLink{
		Replica: h.replica, Life: h.life, Connection: peer.Connection, Process: peer.Hello.Process, Turn: int64(peer.Hello.Turn),
	}
	for range claimAttempts {
		if agent, revision, err = h.read(ctx); err != nil {
			return agent, 0, err
		}
		h.meet(agent.Status.Link)
		next := fleet.ClaimLink(agent.Status.Link, want)
		switch next {
		case nil:
			return agent, 0, fmt.Errorf("%w, to principal %s", mirror.ErrSuperseded, agent.Status.Link.Replica)
		case agent.Status.Link:
			return agent, revision, nil
		}
		agent.Status.Link = next
		if err = h.write(ctx, agent); err == nil || !apierrors.IsConflict(err) {
			return agent, revision, err
		}
	}
	return agent, 0, err
}

// write writes status.link of an Agent that has not changed since it was read.
func (h *historian) write(ctx context.Context, agent v1alpha1.Agent) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": agent.UID, "resourceVersion": agent.ResourceVersion},
		"status":   map[string]any{"link": agent.Status.Link},
	})
	if err != nil {
		return err
	}
	_, err = h.client.Resource(v1alpha1.AgentResource).Namespace(h.namespace).Patch(ctx, agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "argomesh-principal-link"}, "status")
	if err != nil {
		return fmt.Errorf("write the link of agent %s: %w", agent.Name, err)
	}
	return nil
}

// read returns the Agent, and a resourceVersion of the hub that is not before it. The Agent
// is read from etcd; a consistent list an API server may answer from its own cache, which
// outlives a restore of etcd.
func (h *historian) read(ctx context.Context) (v1alpha1.Agent, uint64, error) {
	var agent v1alpha1.Agent
	agents := h.client.Resource(v1alpha1.AgentResource).Namespace(h.namespace)
	stored, err := agents.Get(ctx, h.agent.String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return agent, 0, fmt.Errorf("the agent is no longer registered")
	}
	if err != nil {
		return agent, 0, fmt.Errorf("read agent: %w", err)
	}
	list, err := agents.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return agent, 0, fmt.Errorf("read the resourceVersion of the hub: %w", err)
	}
	revision, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return agent, 0, fmt.Errorf("resourceVersion of the hub: %w", err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &agent); err != nil {
		return agent, 0, fmt.Errorf("read agent: %w", err)
	}
	return agent, revision, nil
}

// historyOf is what an agent is told of what the hub keeps, which was so at
// revision.
func historyOf(kept *v1alpha1.AgentHistory, revision uint64) stream.History {
	if kept == nil || len(kept.Tokens) == 0 {
		return stream.History{}
	}
	return stream.History{ID: kept.ID, Token: kept.Tokens[0], Revision: revision}
}
