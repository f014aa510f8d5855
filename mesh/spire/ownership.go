package spire

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

const (
	// idPrefix begins the ID of every entry and the name of every object of ours.
	idPrefix = "argomesh."
	// digestBytes of a SHA-256 are enough to tell the few registrations of one name
	// apart; in the ID they are twice as many hexadecimal digits.
	digestBytes = 8
)

// EntryID returns the ID of our entry for the registration name, a SPIFFE ID and a
// parent: argomesh.<name>.<16 hexadecimal digits>. The parent is zero for an object
// that has none. The same arguments give the same ID, so that doing a registration
// again finds what it made before; the ID is also a name for an object of Kubernetes.
func EntryID(name identity.AgentName, id, parent spiffeid.ID) string {
	sum := sha256.Sum256([]byte(id.String() + "\n" + parent.String()))
	return idPrefix + name.String() + "." + hex.EncodeToString(sum[:digestBytes])
}

// Owner returns the registration that the entry with this ID belongs to, and false
// when the entry is not ours.
func Owner(entryID string) (identity.AgentName, bool) {
	rest, found := strings.CutPrefix(entryID, idPrefix)
	if !found {
		return identity.AgentName{}, false
	}
	label, digest, _ := strings.Cut(rest, ".")
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != digestBytes || strings.ToLower(digest) != digest {
		return identity.AgentName{}, false
	}
	name, err := identity.ParseAgentName(label)
	return name, err == nil
}

// Managers knows which spire-controller-managers manage a server, by the entries
// they made: those for pods. One that has made none yet, and one that makes no
// entries for pods, does not show. The zero value knows none.
type Managers struct {
	// everything says that one of them makes entries without a prefix, so that it
	// deletes every entry that no object declares.
	everything bool
	// prefixes are those of the others, with their dot; each deletes only below its own.
	prefixes map[string]struct{}
}

// Add takes account of one entry of the server.
func (m *Managers) Add(e Entry) {
	if _, ours := Owner(e.ID); ours || !slices.ContainsFunc(e.Selectors, isPodUID) {
		return
	}
	dot := strings.LastIndexByte(e.ID, '.')
	if dot < 0 {
		m.everything = true
		return
	}
	if m.prefixes == nil {
		m.prefixes = make(map[string]struct{})
	}
	m.prefixes[e.ID[:dot+1]] = struct{}{}
}

// isPodUID reports whether s is a selector that only spire-controller-manager writes, since
// it names one pod of one moment.
func isPodUID(s Selector) bool { return s.Type == "k8s" && strings.HasPrefix(s.Value, "pod-uid:") }

// Present reports whether there is one at all. Whatever its prefix, it deletes
// federation relationships that no object declares, unless it is configured not to.
func (m *Managers) Present() bool { return m.everything || len(m.prefixes) > 0 }

// Deletes reports whether one of them deletes an entry of ours with this ID.
func (m *Managers) Deletes(entryID string) bool {
	return m.everything || slices.ContainsFunc(slices.Collect(maps.Keys(m.prefixes)), func(prefix string) bool {
		return strings.HasPrefix(entryID, prefix)
	})
}
