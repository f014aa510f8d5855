package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

var (
	errNoAnswer   = errors.New("no answer on standard input")
	errNoTerminal = errors.New("there is no terminal to ask on")
)

// IsTerminal reports whether a person may sit at f.
func IsTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) //nolint:gosec // a file descriptor fits an int
}

// WidthOf returns what is [Streams.Width] when f is Out.
func WidthOf(f *os.File) func() int {
	if !IsTerminal(f) {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(f.Fd())) //nolint:gosec // a file descriptor fits an int
		if err != nil {
			return 0
		}
		return width
	}
}

// Consent returns whether a person agrees to what a command is about to do and cannot take
// back. With yes no one is asked. Off a terminal it is an error that names --yes, whatever
// standard input says: a script that deletes has to say so.
func Consent(std Streams, yes bool, question string) (bool, error) {
	switch {
	case yes:
		return true, nil
	case !std.Interactive:
		return false, fmt.Errorf("%w: say --yes", errNoTerminal)
	}
	return Confirm(std, question, "--yes")
}

// Confirm asks a question and returns whether the answer is yes. Whatever else is
// said means no; the end of the input without an answer is an error that names flag,
// with which nothing is asked.
func Confirm(std Streams, question, flag string) (bool, error) {
	if _, err := fmt.Fprint(std.Err, question+" (y/N): "); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(std.In).ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		_, _ = fmt.Fprintln(std.Err) // the error is on a line of its own
		return false, fmt.Errorf("%w: say %s", errNoAnswer, flag)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
