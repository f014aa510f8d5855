package cli

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Progress says how far one thing is that takes its time. In a pipe or a file each new state is a
// line. On a terminal it is one line, which is written over, with the seconds since the begin. It
// is for one goroutine.
type Progress struct {
	out     io.Writer
	width   func() int // of the terminal; nil for none
	started time.Time
	last    string // what was said last
	open    bool   // the cursor is behind the line
}

// NewProgress begins with now, and says nothing.
func NewProgress(std Streams) *Progress {
	return &Progress{out: std.Out, width: std.Width, started: time.Now()}
}

// clearLine has a terminal go to the begin of the line, and empty it (ECMA-48, EL).
const clearLine = "\r\x1b[K"

// Say says the state, which is one line. It may be called with the same state again and again: a
// terminal shows by it that time passes.
func (p *Progress) Say(state string) error {
	if p.width == nil {
		if state == p.last {
			return nil
		}
		p.last = state
		_, err := fmt.Fprintln(p.out, state)
		return err
	}
	p.last = state
	line := CleanText(state)
	if passed := time.Since(p.started).Truncate(time.Second); passed > 0 {
		line = fmt.Sprintf("%s (%s)", line, passed)
	}
	p.open = true
	_, err := io.WriteString(beneath(p.out), clearLine+cut(line, p.width()-1))
	return err
}

// End leaves the last state as a whole line, and is to be called before anything else is printed.
// It may be called more than once.
func (p *Progress) End() error {
	if !p.open {
		return nil
	}
	p.open = false
	_, err := fmt.Fprintf(beneath(p.out), "%s%s\n", clearLine, CleanText(p.last))
	return err
}

// cut returns what of a line fits in so many columns: a longer one would be two, of which a
// terminal empties only the last.
func cut(line string, columns int) string {
	if columns <= 1 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns-1]) + "…"
}
