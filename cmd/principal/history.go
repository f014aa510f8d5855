package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

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

// historian judges for one link whether the hub's history continues, by quorum
// reads of its Agent. The link calls it one call at a time.
type historian struct {
	client    dynamic.Interface
	namespace string
	hub       func() string // identity of the hub; empty while it is not known
	agent     identity.AgentName
	// newest returns the newest token that the hub is known to have handed out.
	newest func() string

	connection string // the one that the rest is about
	broken     string // why it does not continue; for good, unless it begins anew
	id         string // of the history it is in; empty before there is one
	revision   uint64 // the highest that was read
}

// judge is mirror.Config.History.
func (h *historian) judge(ctx context.Context, peer mirror.Peer, begun bool) (string, error) {
	hub := h.hub()
	if hub == "" {
		return "", fmt.Errorf("the identity of the hub is not known yet")
	}
	newest := h.newest() // before the read, which then has it
	kept, revision, err := h.read(ctx)
	if err != nil {
		return "", err
	}
	if peer.Connection != h.connection {
		h.connection, h.revision = peer.Connection, revision
		h.broken = fleet.JudgeHistory(hub, kept, fleet.Shown{
			Hub: peer.Hello.HubUID, Token: peer.Hello.History.Token, Revision: peer.Hello.History.Revision,
			ClusterUID: peer.Hello.ClusterUID,
		}, revision)
		h.id = idOf(kept)
		return h.broken, nil
	}
	if begun {
		h.broken, h.id = "", idOf(kept)
	}
	switch {
	case h.broken != "":
		return h.broken, nil
	case revision < h.revision:
		h.broken = fmt.Sprintf("the hub is at resourceVersion %d and was at %d: it was restored from a backup", revision, h.revision)
	case h.id != "" && idOf(kept) != h.id:
		h.broken = "the hub has another history with the agent than before: it was restored from a backup"
	case newest != "" && kept != nil && !slices.Contains(kept.Tokens, newest):
		h.broken = "the hub has forgotten the newest token that it handed out: it was restored from a backup"
	}
	h.revision = max(h.revision, revision)
	if h.id == "" {
		h.id = idOf(kept) // the first one began
	}
	return h.broken, nil
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

func idOf(kept *v1alpha1.AgentHistory) string {
	if kept == nil {
		return ""
	}
	return kept.ID
}

// announced is what an agent is told of the history in its status.
func announced(a v1alpha1.Agent) stream.History {
	kept := a.Status.History
	if kept == nil || len(kept.Tokens) == 0 {
		return stream.History{}
	}
	// Whatever resourceVersion the Agent has, the hub has reached.
	revision, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	if err != nil {
		revision = 0
	}
	return stream.History{ID: kept.ID, Token: kept.Tokens[0], Revision: revision}
}
