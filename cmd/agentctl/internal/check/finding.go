package check

import (
	"cmp"
	"fmt"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/reasons"
)

// Side is hub or spoke.
type Side string

// Sides.
const (
	Hub   Side = "hub"
	Spoke Side = "spoke"
)

// SideOf is the side on which a chart is installed.
func SideOf(chart string) Side {
	if chart == charts.Principal {
		return Hub
	}
	return Spoke
}

// chart is that of the side.
func (s Side) chart() string {
	if s == Hub {
		return charts.Principal
	}
	return charts.Agent
}

// program is what runs there.
func (s Side) program() string {
	if s == Hub {
		return "principal"
	}
	return "agent"
}

// Level says how a finding is.
type Level string

// Levels, the worst first.
const (
	// Problem keeps something from working.
	Problem Level = "problem"
	// Unknown could not be asked.
	Unknown Level = "unknown"
	// Warning will be a problem, or is one in some cases.
	Warning Level = "warning"
	// Fine is as it should be.
	Fine Level = "ok"
)

// rank orders levels, the worst first.
func (l Level) rank() int {
	for i, other := range []Level{Problem, Unknown, Warning} {
		if l == other {
			return i
		}
	}
	return 3
}

// Finding is one thing that was looked at.
type Finding struct {
	Level Level `json:"level"`
	// Word names what is wrong, and is explained in docs/reference/errors.md; it is that of the check
	// where nothing is wrong.
	Word string `json:"word"`
	// Side is hub or spoke.
	Side Side `json:"side"`
	// About names the object.
	About string `json:"about"`
	// Says is what was found, in one line, and Cure what helps. Cure is empty where nothing is wrong.
	Says string `json:"says"`
	Cure string `json:"cure,omitempty"`
	// See is where the word is explained.
	See string `json:"see,omitempty"`
}

// String is what was found in one line, with the word and the cure of what is wrong.
func (f Finding) String() string {
	line := f.About + " " + f.Says
	if f.Level != Fine {
		line += fmt.Sprintf(" (%s)", f.Word)
	}
	if f.Cure != "" {
		line += "; cure: " + f.Cure
	}
	return cli.CleanText(line)
}

// found is what one check finds of one thing. Where cure is empty it is that of the word.
func found(level Level, word, about, says, cure string) Finding {
	f := Finding{Level: level, Word: word, About: about, Says: says, Cure: cure}
	if level == Fine {
		return f
	}
	for _, e := range reasons.Find(word) {
		f.Cure, f.See = cmp.Or(f.Cure, e.Cure), e.See()
		break
	}
	return f
}

// well says that a thing is as it should be.
func well(word, about, says string) []Finding { return []Finding{found(Fine, word, about, says, "")} }

// unread says that a thing could not be asked.
func unread(word, about string, err error) []Finding {
	return []Finding{found(Unknown, word, about, fmt.Sprintf("cannot be read: %s", cli.OneLine(err)),
		"see that this user may read it, or ask one who may")}
}
