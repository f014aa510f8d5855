package reasons_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/reasons"
	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^TestPageGolden$" -update .

func TestPageGolden(t *testing.T) {
	titles := map[reasons.Kind]string{
		reasons.Condition: "Reasons of conditions of an Agent, and of Events", reasons.Parked: "Why an object is not applied",
		reasons.Application: "Conditions of Applications", reasons.Rule: "Rules of live access", reasons.Redis: "Errors of the Redis proxy",
		reasons.Request: "Why a person gets no token", reasons.Check: "What agentctl check finds",
	}
	var out strings.Builder
	out.WriteString("# Reasons, rules and errors\n\nMade from the code by `make generate`. `agentctl explain WORD` prints an entry.\n")
	var last reasons.Kind
	for _, e := range reasons.All() {
		if e.Kind != last {
			fmt.Fprintf(&out, "\n## %s\n", titles[e.Kind])
			last = e.Kind
		}
		title := e.Word
		if e.Kind == reasons.Rule {
			title = "rule " + e.Word // whose anchor is rule-...
		}
		fmt.Fprintf(&out, "\n### %s\n\n%s Found in: %s.\n\nCause: %s\n", title, e.Meaning, e.Where, e.Cause)
		if e.Cure != "" {
			fmt.Fprintf(&out, "\nCure: %s\n", e.Cure)
		}
	}
	golden.Compare(t, "../../../"+reasons.Page, []byte(out.String()))
}

// Each entry is whole, and has an anchor of its own that Markdown makes of its heading.
func TestEntriesAreWhole(t *testing.T) {
	anchor := regexp.MustCompile(`^[a-z][a-z-]*$`)
	seen := map[string]string{}
	for _, e := range reasons.All() {
		for what, text := range map[string]string{"meaning": e.Meaning, "cause": e.Cause, "cure": e.Cure} {
			if text != "" && !strings.HasSuffix(text, ".") || text == "" && what != "cure" {
				t.Errorf("%s: its %s is no sentence: %q", e.Word, what, text)
			}
		}
		if e.Cure == "" && e.Cause != "None." {
			t.Errorf("%s has a cause and no cure", e.Word)
		}
		if e.Where == "" || !anchor.MatchString(e.Anchor()) {
			t.Errorf("%s: where %q, anchor %q", e.Word, e.Where, e.Anchor())
		}
		if other := seen[e.Anchor()]; other != "" {
			t.Errorf("%s and %s have the same anchor", e.Word, other)
		}
		seen[e.Anchor()] = e.Word
		if found := reasons.Find(strings.ToLower(e.Word)); len(found) == 0 {
			t.Errorf("%s is not found", e.Word)
		}
	}
	if got, want := reasons.See("NotOwned"), "see docs/reference/errors.md#notowned"; got != want {
		t.Errorf("See() = %q, want %q", got, want)
	}
	if got := reasons.See("OfALaterRelease"); got != "" {
		t.Errorf("See() of what nobody knows = %q", got)
	}
}
