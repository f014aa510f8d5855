package spire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
)

// Action is what a change does.
type Action uint8

// The actions, in the order in which a plan has them: nothing is taken away before
// what replaces it is there.
const (
	// Refuse means that this must not be done; Reason says why and what helps. A plan
	// that has one is not carried out at all.
	Refuse Action = iota + 1
	Create
	Update
	Delete
	// Keep means that all is as it is wanted.
	Keep
)

// String returns the action as a participle, as kubectl says it.
func (a Action) String() string {
	switch a {
	case Refuse:
		return "refused"
	case Create:
		return "created"
	case Update:
		return "updated"
	case Delete:
		return "deleted"
	case Keep:
		return "unchanged"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Change is one step of a plan.
type Change[T any] struct {
	Action Action
	// Name tells the thing from others of its kind, such as entry/argomesh.edge-1.0011223344556677.
	Name string
	// Have is what is there; zero for Create. Want is what should be; zero for Delete.
	Have, Want T
	// Differences are the fields in which Want differs from Have.
	Differences []Difference
	// Reason says why something is refused, or kept although it is not ours.
	Reason string
}

// Refusals returns an error that wraps [ErrRefused] and has one line for each change
// of the plan that must not be carried out; nil when there is none.
func Refusals[T any](plan []Change[T]) error {
	var reasons []string
	for _, c := range plan {
		if c.Action == Refuse {
			reasons = append(reasons, c.Name+": "+c.Reason)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(reasons, "\n"))
}

// Settled reports whether plan changes nothing.
func Settled[T any](plan []Change[T]) bool {
	return !slices.ContainsFunc(plan, func(c Change[T]) bool { return c.Action != Keep })
}

func sortPlan[T any](plan []Change[T]) {
	slices.SortStableFunc(plan, func(a, b Change[T]) int {
		if a.Action != b.Action {
			return int(a.Action) - int(b.Action)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func nameOfEntry(e Entry) string { return "entry/" + e.ID }

// PlanEntries returns what makes the server's entries of the registration name those
// of desired, which [Registration.Entries] made. Observed holds at least all entries of
// that registration, and all with a SPIFFE ID of desired; more does no harm. With no
// desired ones it takes the registration back. An entry that is not of the
// registration is never changed: where it says the same it is kept, where it
// says something else about the same workload the change is refused.
func PlanEntries(name identity.AgentName, desired, observed []Entry) []Change[Entry] {
	wanted := make(map[string]Entry, len(desired))
	for _, e := range desired {
		wanted[e.ID] = e.canonical()
	}
	have := make(map[string]Entry, len(observed))
	for _, e := range observed {
		have[e.ID] = e.canonical()
	}
	var plan []Change[Entry]
	for id, want := range wanted {
		plan = append(plan, planEntry(want, have[id], inTheWay(want, have)))
	}
	for id, e := range have {
		owner, ours := Owner(id)
		if _, stays := wanted[id]; !stays && ours && owner == name {
			plan = append(plan, Change[Entry]{Action: Delete, Name: nameOfEntry(e), Have: e})
		}
	}
	sortPlan(plan)
	return plan
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

// planEntry compares want with have, the entry of its ID if there is one, and other,
// one in its way.
func planEntry(want, have, other Entry) Change[Entry] {
	change := Change[Entry]{Name: nameOfEntry(want), Have: have, Want: want}
	switch {
	case have.ID != "":
		change.Differences = diffEntries(have, want)
	case other.ID != "":
		change.Name, change.Have = nameOfEntry(other), other
		change.Differences = diffEntries(other, want)
	default:
		change.Differences = diffEntries(Entry{}, want)
	}
	switch {
	case have.ID != "" && len(change.Differences) == 0:
		change.Action = Keep
	case other.ID != "" && have.ID == "" && len(change.Differences) == 0:
		change.Action, change.Reason = Keep, "this entry, which is not of this registration, says the same"
	case other.ID != "":
		change.Action, change.Reason = Refuse, refusal(other)
	case have.ID != "":
		change.Action = Update
	default:
		change.Action = Create
	}
	return change
}

// refusal says why other, an entry in the way, is left alone.
func refusal(other Entry) string {
	const same = "has the same SPIFFE ID, parent and selectors as the one wanted, of which SPIRE takes only one: "
	if owner, ours := Owner(other.ID); ours {
		return fmt.Sprintf("it is of registration %s, and %srevoke that one, or choose other selectors", owner, same)
	}
	return fmt.Sprintf("it was made by somebody else, so it is never touched, and %sdelete it with \"spire-server entry delete -entryID %s\", or choose other selectors", same, other.ID)
}
