package fleet

import (
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Shown is what a spoke says about the past when it connects. It is a claim: it
// can hold deletions back, never set them free.
type Shown struct {
	// Hub is the identity of the hub whose history the spoke saw last; empty when it
	// saw none.
	Hub string
	// Token is the newest token of that history that the spoke stored; empty when it
	// stored none.
	Token string
	// Revision is the highest resourceVersion of that hub the spoke saw; zero when
	// it saw none.
	Revision uint64
	// ClusterUID is the UID of the spoke's namespace kube-system. It is always set.
	ClusterUID string
}

// JudgeHistory says whether hub and spoke still have the past in common in which
// they last met, so that what is missing on one side was deleted there. It
// returns nothing when they have, else one sentence for people that says what
// does not continue.
//
// The hub is known by its identity hub and is at resourceVersion revision; kept
// is status.history of the Agent, nil when there is none. Both must come from one
// quorum read after the spoke said what it shows: an older read could lack a
// token or be behind a revision that the spoke already saw.
//
// An agent's first contact continues: there is no past to break. A spoke that saw
// this hub, but was never given a token, continues as well as long as the hub has
// handed out none. All else that does not fit is a break, and it is named by the
// cause that explains most:
//
//   - the spoke's history is of another hub: this hub lost its identity, or the
//     spoke was moved;
//   - the cluster UID is another: a rebuilt or a second Kubernetes cluster under
//     the agent's name;
//   - the hub is at a lower resourceVersion than the spoke saw of it: an older
//     state of its etcd was restored;
//   - the hub kept no history, but the spoke has a token of it: the Agent was
//     restored from a backup or deleted and created again;
//   - the spoke shows no token, but one was handed out: it was rebuilt or lost its
//     memory. A spoke that was cut off before it could store its first token looks
//     the same;
//   - the spoke's token is not among those kept: one of the two was restored to a
//     state before the other's last token, whatever its resourceVersion says now.
//
// A restore to a state after the newest token is not seen.
func JudgeHistory(hub string, kept *v1alpha1.AgentHistory, shown Shown, revision uint64) string {
	var past bool // the spoke's, of this hub
	switch {
	case shown.Hub == hub:
		past = true
	case shown.Hub != "":
		return fmt.Sprintf("the spoke continues the history of hub %s, but this is hub %s: "+
			"it lost its identity, or the spoke belonged to another hub", shown.Hub, hub)
	case shown.Token != "" || shown.Revision != 0:
		return "the spoke continues a history, but does not say of which hub"
	}
	switch {
	case kept != nil && shown.ClusterUID != kept.ClusterUID:
		return fmt.Sprintf("the spoke is Kubernetes cluster %s, but the agent was on %s: "+
			"the cluster was rebuilt, or it is another one under the same name", shown.ClusterUID, kept.ClusterUID)
	case past && revision < shown.Revision:
		return fmt.Sprintf("the hub is at resourceVersion %d, but the spoke has seen %d of it: "+
			"the hub was restored from a backup", revision, shown.Revision)
	case kept == nil && shown.Token != "":
		return "the hub has no history with the spoke, but the spoke has one with this hub: " +
			"the Agent was restored from a backup, or deleted and created again"
	case kept != nil && shown.Token == "":
		return "the hub has a history with the spoke, but the spoke remembers none: it was rebuilt, or lost its memory"
	case kept != nil && !slices.Contains(kept.Tokens, shown.Token):
		return "what the spoke last heard of the hub is not in the hub's history: hub or spoke was restored from a backup"
	}
	return ""
}
