package fleet

import (
	"github.com/google/uuid"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// SessionHistory is how a session stands to its Agent's status.history. The zero
// value leaves that as it is.
type SessionHistory struct {
	// Broken says why the history does not continue, as CheckHistory does; it
	// is empty when it continues. While it is broken no token is added.
	Broken string
	// Stored is the newest token that the spoke said it keeps; empty for none. The
	// next one is made once the spoke keeps the one before.
	Stored string
	// Begin says that a new history may begin: the first one ever, or one after a
	// break that a person accepted or for which nothing was held.
	Begin bool
	// Begins counts how often a new history could begin on this connection.
	Begins int
	// Replaces is the ID of the history that the new one replaces; empty when there
	// was none. A history begins only while the status has that ID, and once for
	// the same Wish, so that it begins once, however often it is asked for.
	Replaces string
}

// NextHistory is status.history of an Agent once a connected session is looked at: a new
// one, or the present one with a token more, when the session says that it may, or have
// itself. clusterUID is that of the spoke, and observed says that status.observedAt is
// renewed. A token is added then, so once a minute, and the second one as soon as the spoke
// keeps the first: it tells that the spoke does. Nothing else changes a history.
//
// The random values are lost when the status is not written now: no one else saw
// them, and the next call makes others.
func NextHistory(have *v1alpha1.AgentHistory, said SessionHistory, clusterUID string,
	observed bool) *v1alpha1.AgentHistory {
	switch {
	case said.Begin && said.Replaces == HistoryID(have) && clusterUID != "":
		return &v1alpha1.AgentHistory{ID: uuid.NewString(), Tokens: []string{uuid.NewString()}, ClusterUID: clusterUID}
	case said.Broken == "" && have != nil && said.Stored != "" && said.Stored == newestToken(have) &&
		(observed || !IsStored(have)):
		next := have.DeepCopy()
		next.Tokens = append([]string{uuid.NewString()}, have.Tokens...)
		next.Tokens = next.Tokens[:min(len(next.Tokens), v1alpha1.MaxHistoryTokens)]
		return next
	}
	return have
}

// HistoryID is empty when there is no history.
func HistoryID(h *v1alpha1.AgentHistory) string {
	if h == nil {
		return ""
	}
	return h.ID
}

// IsStored reports whether the spoke has said that it keeps a token of h, nil for no
// history.
func IsStored(h *v1alpha1.AgentHistory) bool { return h != nil && len(h.Tokens) > 1 }

// Wish is a session's wish for a new history; the zero value is none. The same wish is
// fulfilled once by one controller: when the history that it made is gone, the hub was
// restored, and another would hide that.
type Wish struct {
	wished                       bool
	connection, replaces, broken string
	begins                       int
}

// Wish is that of a session with a connection, which is named by any text that no other has.
func (s SessionHistory) Wish(connection string) Wish {
	if !s.Begin {
		return Wish{}
	}
	return Wish{wished: true, connection: connection, replaces: s.Replaces, broken: s.Broken, begins: s.Begins}
}
