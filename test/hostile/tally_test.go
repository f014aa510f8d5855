//go:build linux

package main

import (
	"strings"
	"testing"
)

// Anyone who waits for the attacks is told once when the first begins, and once when something
// was sent in each, not before it is known which there are.
func TestTallyTellsHowFarItIs(t *testing.T) {
	var out strings.Builder
	said := func(after string, want ...string) {
		t.Helper()
		if got := strings.TrimSpace(strings.ReplaceAll(out.String(), "\n", " ")); got != strings.Join(want, " ") {
			t.Errorf("after %s it has said %q, want %q", after, out.String(), want)
		}
	}
	done := newTally(&out)
	done.expect("one")
	said("the first is expected")
	done.begun("one")(nil)
	said("the first has begun", attacking)
	done.sent("one", 10)
	said("the first was made", attacking)
	done.expect("other")
	done.complete()
	said("the other is expected", attacking)
	done.begun("other")(nil)
	done.answered("other")
	done.sent("one", 10)
	said("the other has begun", attacking)
	done.sent("other", 10)
	done.sent("other", 10)
	done.begun("other")(nil)
	said("each was made", attacking, allMade)
}
