package spire

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
)

// Refusals returns an error that wraps [ErrRefused] and has one line for each change
// of the plan that must not be carried out; nil when there is none.
func Refusals[T any](plan []diff.Change[T]) error {
	var reasons []string
	for _, c := range plan {
		if c.Action == diff.Refuse {
			reasons = append(reasons, c.Name+": "+c.Reason)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(reasons, "\n"))
}

func nameOfEntry(e Entry) string { return "entry/" + e.ID }

// PlanEntries returns what makes the server's entries of the registration name those
// of desired, which [Registration.Entries] made. Observed holds at least all entries of
// that registration, and all with a SPIFFE ID of desired; more does no harm. With no
// desired ones it takes the registration back. An entry that is not of the
// registration is never changed: where it says the same it is kept, where it
// says something else about the same workload the change is refused.
func PlanEntries(name identity.AgentName, desired, observed []Entry) []diff.Change[Entry] {
	have := make(map[string]Entry, len(observed))
	for _, e := range observed {
		have[e.ID] = e.Canonical()
	}
	change := func(there, want Entry, _ bool) diff.Change[Entry] {
		return PlanEntry(want, there, inTheWay(want, have))
	}
	return diff.Changes(canonical(desired), slices.Collect(maps.Values(have)), nameOfEntry, change, func(e Entry) bool {
		owner, ours := Owner(e.ID)
		return ours && owner == name
	})
}

func canonical(entries []Entry) []Entry {
	out := make([]Entry, len(entries))
	for i, e := range entries {
		out[i] = e.Canonical()
	}
	return out
}

// inTheWay returns the entry with another ID that the server would call similar to
// want; the zero Entry when there is none.
func inTheWay(want Entry, have map[string]Entry) Entry {
	var found Entry
	for id, e := range have {
		if id != want.ID && similar(e, want) && (found.ID == "" || id < found.ID) {
			found = e
		}
	}
	return found
}

// PlanEntry compares want with have, the entry of its ID if there is one, and other,
// one in its way.
func PlanEntry(want, have, other Entry) diff.Change[Entry] {
	change := diff.Change[Entry]{Name: nameOfEntry(want), Have: have, Want: want}
	switch {
	case have.ID != "":
		change.Fields = diffEntries(have, want)
	case other.ID != "":
		change.Name, change.Have = nameOfEntry(other), other
		change.Fields = diffEntries(other, want)
	default:
		change.Fields = diffEntries(Entry{}, want)
	}
	switch {
	case have.ID != "" && len(change.Fields) == 0:
		change.Action = diff.Keep
	case other.ID != "" && have.ID == "" && len(change.Fields) == 0:
		change.Action, change.Reason = diff.Keep, "this entry, which is not of this registration, says the same"
	case other.ID != "":
		change.Action, change.Reason = diff.Refuse, refusal(other)
	case have.ID != "":
		change.Action = diff.Update
	default:
		change.Action = diff.Create
	}
	return change
}

// refusal says why other, an entry in the way, is left alone.
func refusal(other Entry) string {
	const same = "has the same SPIFFE ID, parent and selectors as the one wanted, of which SPIRE takes only one: "
	if owner, ours := Owner(other.ID); ours {
		return fmt.Sprintf("it is of registration %s, and %srevoke that one, or choose other selectors", owner, same)
	}
	return fmt.Sprintf("it was made by another writer, so it is never changed, and %sdelete it with \"spire-server entry delete -entryID %s\", or choose other selectors", same, other.ID)
}
