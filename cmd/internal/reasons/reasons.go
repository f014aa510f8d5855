// Package reasons explains each word by which Argomesh says what is wrong: reasons of
// conditions, of Events and of parked objects, rules that refuse live access, error codes of
// the Redis proxy, what agentctl check finds, and the conditions of Applications. docs/reference/errors.md is made from
// it, and a rule of the tree holds it against the code, both ways.
package reasons

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is where a word is found.
type Kind string

// Kinds of words.
const (
	// Condition is a reason of a condition of an Agent, or of an Event.
	Condition Kind = "condition"
	// Parked is a reason in status.parked of an Agent.
	Parked Kind = "parked"
	// Application is the type of a condition of an Application.
	Application Kind = "application"
	// Rule is a rule that refuses, or lets through, a call of live access.
	Rule Kind = "rule"
	// Redis is the first word of an error of the Redis proxy.
	Redis Kind = "redis"
	// Request is the reason of an AccessRequest that is refused.
	Request Kind = "request"
	// Check is what `agentctl check` finds that no other word says.
	Check Kind = "check"
)

// Entry explains one word.
type Entry struct {
	Word  string
	Kind  Kind
	Where string // what has it, for people
	// Meaning, Cause and Cure are sentences. Cure is empty for a word that is no problem.
	Meaning, Cause, Cure string
}

// Page is where the entries are explained.
const Page = "docs/reference/errors.md"

// Anchor is the entry's place on Page.
func (e Entry) Anchor() string {
	if e.Kind == Rule {
		return "rule-" + e.Word
	}
	return strings.ToLower(e.Word)
}

// See says where a person reads about the entry.
func (e Entry) See() string { return fmt.Sprintf("see %s#%s", Page, e.Anchor()) }

// All returns every entry, by kind and word.
func All() []Entry {
	all := slices.Concat(conditions(), parked(), applications(), rules(), redisErrors(), requests(), checks())
	slices.SortStableFunc(all, func(a, b Entry) int {
		if a.Kind != b.Kind {
			return 0 // the order of the tables
		}
		return strings.Compare(a.Word, b.Word)
	})
	return all
}

// Find returns what explains a word, in any case of letters.
func Find(word string) []Entry {
	var found []Entry
	for _, e := range All() {
		if strings.EqualFold(e.Word, word) || strings.EqualFold(e.Anchor(), word) {
			found = append(found, e)
		}
	}
	return found
}

// See says where a person reads about a reason of a condition or of a parked object; empty
// for one of another release.
func See(reason string) string {
	for _, e := range All() {
		if e.Word == reason && (e.Kind == Condition || e.Kind == Parked) {
			return e.See()
		}
	}
	return ""
}
