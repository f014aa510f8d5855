package spire

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
)

const (
	// maxHintChars is the longest hint SPIRE takes, in characters.
	maxHintChars = 1024
	// maxEntryIDBytes is the longest ID of an entry SPIRE takes, in bytes.
	maxEntryIDBytes = 255
)

// Selector is a property that SPIRE attests of a workload or a node, such as
// k8s:ns:argocd, whose type is k8s. It is comparable.
type Selector struct{ Type, Value string }

// ParseSelector reads the form type:value, split at the first colon. The error wraps
// [ErrInvalid].
func ParseSelector(s string) (Selector, error) {
	kind, value, found := strings.Cut(s, ":")
	selector := Selector{Type: kind, Value: value}
	if !found {
		return Selector{}, fmt.Errorf("selector %q has no colon, write it as type:value: %w", s, ErrInvalid)
	}
	if err := selector.Check(); err != nil {
		return Selector{}, err
	}
	return selector, nil
}

// Check reports what SPIRE would refuse of s.
func (s Selector) Check() error {
	if s.Type == "" || s.Value == "" || strings.Contains(s.Type, ":") {
		return fmt.Errorf("selector %q needs a type without colon and a value: %w", s.String(), ErrInvalid)
	}
	return nil
}

// String returns type:value.
func (s Selector) String() string { return s.Type + ":" + s.Value }

func compareSelectors(a, b Selector) int {
	return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Value, b.Value))
}

// Entry is a registration at the SPIRE server, as far as we know its fields: a
// workload with all of Selectors, on a node that is or has ParentID, gets SVIDs of
// SPIFFEID.
type Entry struct {
	// ID names the entry at the server. Those that [EntryID] makes are ours.
	ID       string
	SPIFFEID spiffeid.ID
	// ParentID is a SPIRE agent, or the alias of several.
	ParentID spiffeid.ID
	// Selectors is a set: its order means nothing.
	Selectors []Selector
	// X509TTL and JWTTTL are the lives of SVIDs, in whole seconds. Zero is the
	// server's default.
	X509TTL, JWTTTL time.Duration
	// FederatesWith is a set of trust domains, whose bundles the workload gets.
	FederatesWith []spiffeid.TrustDomain
	// DNSNames are put into certificates; the first is the common name as well.
	DNSNames []string
	// Hint tells the workload what this SVID is for, at most 1024 characters. Of
	// two entries for one workload with the same hint SPIRE serves only the older.
	Hint string
	// Admin lets the workload administer the SPIRE server.
	Admin bool
	// Downstream lets the workload be a SPIRE server below this one.
	Downstream bool
	// StoreSVID has the SPIRE agent put the SVID into a store.
	StoreSVID bool
	// ExpiresAt is when the server deletes the entry, to the second. Zero is never.
	ExpiresAt time.Time
}

// Canonical returns e with its sets in order, each member once.
func (e Entry) Canonical() Entry {
	e.Selectors = slices.Compact(slices.SortedFunc(slices.Values(e.Selectors), compareSelectors))
	e.FederatesWith = slices.Compact(slices.SortedFunc(slices.Values(e.FederatesWith), spiffeid.TrustDomain.Compare))
	return e
}

// Check returns an error that wraps ErrInvalid when the server would refuse e, or
// would accept what can never work.
func (e Entry) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("entry %s: %s: %w", e.ID, fmt.Sprintf(format, args...), ErrInvalid)
	}
	if err := identity.CheckID(e.SPIFFEID); err != nil {
		return fmt.Errorf("%w: %w", bad("spiffe_id"), err)
	}
	td := e.SPIFFEID.TrustDomain()
	switch {
	case !validEntryID(e.ID):
		return bad("its ID needs 1 to %d of A-Z a-z 0-9 . - _", maxEntryIDBytes)
	case e.ParentID.IsZero() || e.ParentID.Path() == "":
		return bad("parent_id is missing: the SPIFFE ID of a SPIRE agent, or of an alias of several")
	case e.ParentID.TrustDomain() != td:
		return bad("parent_id %s is in another trust domain than %s", e.ParentID, e.SPIFFEID)
	case len(e.Selectors) == 0:
		return bad("it has no selectors: they tell the workload from others")
	case e.Hint != "" && len([]rune(e.Hint)) > maxHintChars:
		return bad("hint has more than %d characters", maxHintChars)
	case slices.Contains(e.FederatesWith, td):
		return bad("federates_with names its own trust domain %s", td)
	case e.StoreSVID && slices.ContainsFunc(e.Selectors, func(s Selector) bool { return s.Type != e.Selectors[0].Type }):
		return bad("store_svid needs selectors of one type")
	}
	for _, s := range e.Selectors {
		if err := s.Check(); err != nil {
			return fmt.Errorf("entry %s: %w", e.ID, err)
		}
	}
	for name, ttl := range map[string]time.Duration{"x509_svid_ttl": e.X509TTL, "jwt_svid_ttl": e.JWTTTL} {
		if ttl < 0 || ttl%time.Second != 0 || ttl/time.Second > math.MaxInt32 {
			return bad("%s %s is not a number of seconds from 0 to %d", name, ttl, math.MaxInt32)
		}
	}
	for _, name := range e.DNSNames {
		if problem := dnsProblem(name); problem != "" {
			return bad("dns name %q %s", name, problem)
		}
	}
	return nil
}

// dnsProblem says why SPIRE would not take name, or no one could use it.
func dnsProblem(name string) string {
	for i, label := range strings.Split(name, ".") {
		switch {
		case label == "":
			return "has an empty label"
		case label == "*" && i == 0:
		case strings.Contains(label, "*"):
			return "may have a wildcard as its first label only"
		case strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' }):
			return "may hold visible ASCII only"
		}
	}
	return ""
}

func validEntryID(id string) bool {
	return id != "" && len(id) <= maxEntryIDBytes && !strings.ContainsFunc(id, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return false
		}
		return true
	})
}

// similar reports whether the server holds a and b to be the same registration, of
// which it takes only one. Both are canonical.
func similar(a, b Entry) bool {
	return a.SPIFFEID == b.SPIFFEID && a.ParentID == b.ParentID && slices.Equal(a.Selectors, b.Selectors)
}

// entryField is a field of Entry, but for its ID.
type entryField struct {
	name string
	text func(Entry) string
}

// EntryFields returns the names that SPIRE has for the fields of an [Entry].
func EntryFields() []string {
	names := make([]string, 0, len(entryFields))
	for _, f := range entryFields {
		names = append(names, f.name)
	}
	return names
}

// entryFields are the fields that we know, by the names that SPIRE has for them.
var entryFields = []entryField{
	{"spiffe_id", func(e Entry) string { return e.SPIFFEID.String() }},
	{"parent_id", func(e Entry) string { return e.ParentID.String() }},
	{"selectors", func(e Entry) string { return join(e.Selectors) }},
	{"x509_svid_ttl", func(e Entry) string { return seconds(e.X509TTL) }},
	{"jwt_svid_ttl", func(e Entry) string { return seconds(e.JWTTTL) }},
	{"federates_with", func(e Entry) string { return join(e.FederatesWith) }},
	{"dns_names", func(e Entry) string { return strings.Join(e.DNSNames, ", ") }},
	{"hint", func(e Entry) string { return quoted(e.Hint) }},
	{"admin", func(e Entry) string { return onlyTrue(e.Admin) }},
	{"downstream", func(e Entry) string { return onlyTrue(e.Downstream) }},
	{"store_svid", func(e Entry) string { return onlyTrue(e.StoreSVID) }},
	{"expires_at", func(e Entry) string {
		if e.ExpiresAt.IsZero() {
			return ""
		}
		return e.ExpiresAt.UTC().Format(time.RFC3339)
	}},
}

// Fields returns the fields of e that are set, in a fixed order, as differences from
// nothing: what a new entry will have.
func (e Entry) Fields() []diff.Field { return diffEntries(Entry{}, e.Canonical()) }

// diffEntries returns the fields in which want differs from have, but for the ID.
// Both are canonical.
func diffEntries(have, want Entry) []diff.Field {
	var out []diff.Field
	for _, f := range entryFields {
		if a, b := f.text(have), f.text(want); a != b {
			out = append(out, diff.Field{Path: f.name, Have: a, Want: b})
		}
	}
	return out
}

func join[T fmt.Stringer](items []T) string {
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = item.String()
	}
	return strings.Join(parts, ", ")
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

func onlyTrue(b bool) string {
	if b {
		return "true"
	}
	return ""
}
