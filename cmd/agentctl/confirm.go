package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

var errNoAnswer = errors.New("no answer on standard input")

// isTerminal reports whether a person may sit at f.
func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) //nolint:gosec // a file descriptor fits an int
}

// confirm asks a question and returns whether the answer is yes. Whatever else is
// said means no; the end of the input without an answer is an error that names flag,
// with which nothing is asked.
func confirm(std streams, question, flag string) (bool, error) {
	if _, err := fmt.Fprint(std.err, question+" (y/N): "); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(std.in).ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		_, _ = fmt.Fprintln(std.err) // the error is on a line of its own
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
