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

// CheckHistory says whether hub and spoke still have the past in common in which
// they last met, so that what is missing on one side was deleted there. It
// returns nothing when they have, else one sentence for people that says what
// does not continue.
//
// The hub is known by its identity hub and is at resourceVersion revision; kept
// is status.history of the Agent, nil when there is none. Both must come from
// quorum reads after the spoke said what it shows: an older read could lack a
// token or be behind a revision that the spoke already saw.
//
// An agent's first contact continues: there is no past to break. A spoke that saw
// this hub, but keeps no token, continues as well as long as the hub does not know that
// it kept one. All else that does not fit is a break, and it is named by the
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
//   - the spoke shows no token, but said that it keeps one, after which the hub keeps
//     a second: it was rebuilt or lost its memory. A spoke that was cut off before it
//     could store its first one has no past, as at its first contact;
//   - the spoke's token is not among those kept: one of the two was restored to a
//     state before the other's last token, whatever its resourceVersion says now.
//
// A restore to a state after the newest token is not seen here; see Connection.Behind.
func CheckHistory(hub string, kept *v1alpha1.AgentHistory, shown Shown, revision uint64) string {
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
	case kept != nil && len(kept.Tokens) == 1 && shown.Token == "":
		return ""
	case kept != nil && shown.Token == "":
		return "the hub has a history with the spoke, but the spoke remembers none: it was rebuilt, or lost its memory"
	case kept != nil && !slices.Contains(kept.Tokens, shown.Token):
		return "what the spoke last heard of the hub is not in the hub's history: hub or spoke was restored from a backup"
	}
	return ""
}

// Reading is what consistent reads of the hub's API server say, that of the revision last.
type Reading struct {
	Hub      string                 // identity of the hub
	Stored   *v1alpha1.AgentHistory // status.history of the Agent; nil when there is none
	Revision uint64                 // the hub's resourceVersion
	// Restores is how often the hub was seen to go back, no matter who saw it, since its past with
	// the agent began to be checked.
	Restores int
}

// Connection is what a principal knows of one connection when it reads.
type Connection struct {
	ID    string
	Shown Shown // in the hello
	// Sent is the highest resourceVersion of an object that was sent; zero for none.
	Sent uint64
	// Behind names an object that this connection has shown to be later on the spoke than
	// a consistent read shows it on the hub; empty for none.
	Behind string
	// Begins counts how often a new history could begin, as a break was accepted or
	// nothing was held back on its account.
	Begins int
}

// HistoryVerifier checks whether the history of one agent continues, again and again:
// the hub can be restored while an agent is connected. The zero value has checked
// nothing yet. It is not safe for concurrent use.
type HistoryVerifier struct {
	restores     int    // of those that are not to break it any more; for all connections
	lastRestores int    // of the last read
	connection   string // the one that the rest is about
	begins       int
	broken       string // for good, unless a new history can begin
	id           string // of the history; empty before there is one
	ending       bool   // a new one may take its place
	// token is the newest that was read, so that the spoke may keep it, whether it has
	// said so or not.
	token    string
	revision uint64 // the highest that was read
	// lastID and lastRevision are of the last read, whatever came of it.
	lastID       string
	lastRevision uint64
}

// Verify returns nothing when the history continues, else what CheckHistory would:
// one sentence for people. now was read after all that c says was known.
func (t *HistoryVerifier) Verify(now Reading, c Connection) string {
	id := ""
	if now.Stored != nil {
		id = now.Stored.ID
	}
	defer func() { t.lastID, t.lastRevision, t.lastRestores = id, now.Revision, now.Restores }()
	if c.ID != t.connection {
		*t = HistoryVerifier{
			restores: t.restores, connection: c.ID, begins: c.Begins, id: id, token: newestToken(now.Stored),
			revision: now.Revision,
			broken:   CheckHistory(now.Hub, now.Stored, c.Shown, now.Revision),
		}
		switch {
		case t.broken != "" || now.Restores == t.restores:
		case now.Stored == nil && c.Shown.Hub == "":
			t.restores = now.Restores // there is no past to break
		default:
			t.broken = wentBack
		}
		return t.broken
	}
	if c.Begins != t.begins {
		// From where the break was checked on, not from this read: it may be of one more.
		t.begins, t.broken, t.id, t.token, t.revision, t.ending = c.Begins, "", t.lastID, "", t.lastRevision, true
		t.restores = t.lastRestores
	}
	if t.ending && id != t.id {
		t.id, t.token, t.ending = id, "", false
	}
	seen := max(t.revision, c.Sent)
	switch {
	case t.broken != "":
		return t.broken
	case now.Revision < seen:
		t.broken = fmt.Sprintf("the hub is at resourceVersion %d, but was at %d: it was restored from a backup", now.Revision,
			seen)
	case t.id != "" && id != t.id:
		t.broken = "the hub has forgotten its history with the spoke, or has another one: it was restored from a backup"
	case t.token != "" && (now.Stored == nil || !slices.Contains(now.Stored.Tokens, t.token)):
		t.broken = "the hub has forgotten a token that it gave the spoke: it was restored from a backup"
	case now.Restores > t.restores:
		t.broken = wentBack
	case c.Behind != "":
		t.broken = fmt.Sprintf("the hub has %s as it was before what the spoke has of it: it was restored from a backup",
			c.Behind)
	default:
		t.id, t.token, t.revision = id, newestToken(now.Stored), now.Revision
	}
	return t.broken
}

// wentBack is said of a restore that showed in what else there is on the hub.
const wentBack = "the hub's API server shows what it had replaced or deleted before: it was restored from a backup"

// newestToken is empty when there is none.
func newestToken(h *v1alpha1.AgentHistory) string {
	if h == nil || len(h.Tokens) == 0 {
		return ""
	}
	return h.Tokens[0]
}
