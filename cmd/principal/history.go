package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
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
	// caughtUp reports whether the caches have nothing of the agent that the hub has
	// not.
	caughtUp func(context.Context) (bool, error)

	mu         sync.Mutex // guards continuity
	continuity fleet.Continuity
}

// judge is mirror.Config.History.
func (h *historian) judge(ctx context.Context, peer mirror.Peer, known mirror.Known) (mirror.Judgement, error) {
	hub := h.hub()
	if hub == "" {
		return mirror.Judgement{}, fmt.Errorf("the identity of the hub is not known yet")
	}
	reading, cancel := context.WithTimeout(ctx, readTime)
	kept, revision, err := h.read(reading)
	cancel()
	if err != nil {
		return mirror.Judgement{}, err
	}
	broken, err := h.weigh(ctx, fleet.Reading{Hub: hub, Kept: kept, Revision: revision}, fleet.Connection{
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
	judgement := mirror.Judgement{Broken: broken, Now: historyOf(kept, revision)}
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

// read returns what the hub keeps of the agent's history, and the resourceVersion
// at which it does, from one consistent read.
func (h *historian) read(ctx context.Context) (*v1alpha1.AgentHistory, uint64, error) {
	list, err := h.client.Resource(v1alpha1.AgentResource).Namespace(h.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", h.agent.String()).String(),
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read agent: %w", err)
	}
	revision, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("resourceVersion of the hub: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, 0, fmt.Errorf("the agent is no longer registered")
	}
	var agent v1alpha1.Agent
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[0].Object, &agent); err != nil {
		return nil, 0, fmt.Errorf("read agent: %w", err)
	}
	return agent.Status.History, revision, nil
}

// historyOf is what an agent is told of what the hub keeps, which was so at
// revision.
func historyOf(kept *v1alpha1.AgentHistory, revision uint64) stream.History {
	if kept == nil || len(kept.Tokens) == 0 {
		return stream.History{}
	}
	return stream.History{ID: kept.ID, Token: kept.Tokens[0], Revision: revision}
}
