package sim

import (
	"slices"
	"time"
)

// Shrink returns a shorter trace that still fails, as far as it gets by the
// deadline: agents and commands that it can do without are left out (delta
// debugging over the list). fails runs a trace; a failure that does not show
// every time makes the result longer than need be, never wrong.
func Shrink(t Trace, deadline time.Time, fails func(Trace) bool) Trace {
	for _, a := range slices.Clone(t.Agents) {
		if len(t.Agents) == 1 || !time.Now().Before(deadline) {
			break
		}
		if slices.ContainsFunc(t.Agents, func(other Agent) bool { return other.Beside == a.Name }) {
			continue // its cluster is another's, too
		}
		if smaller := t.without(a.Name); fails(smaller) {
			t = smaller
		}
	}
	for chunk := (len(t.Commands) + 1) / 2; chunk > 0; {
		removed := false
		for at := 0; at < len(t.Commands); {
			if !time.Now().Before(deadline) {
				return t
			}
			smaller := t
			smaller.Commands = slices.Delete(slices.Clone(t.Commands), at, min(at+chunk, len(t.Commands)))
			if fails(smaller) {
				t, removed = smaller, true
			} else {
				at += chunk
			}
		}
		if chunk > 1 {
			chunk /= 2
		} else if !removed {
			break
		}
	}
	return t
}

// without leaves an agent out, and what happens to it.
func (t Trace) without(name string) Trace {
	t.Agents = slices.DeleteFunc(slices.Clone(t.Agents), func(a Agent) bool { return a.Name == name })
	t.Commands = slices.DeleteFunc(slices.Clone(t.Commands), func(c Command) bool { return c.Place == name })
	return t
}
