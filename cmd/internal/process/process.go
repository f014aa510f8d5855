// Package process is the life of a binary around its run function: signals,
// the last words and the exit code. What the binary does is left to run.
//
//	func main() { process.Main("principal", run) }
//
//	func run(ctx context.Context, args []string) error { ... }
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Func is what a binary does. It returns nil after an ordered stop, which the end
// of ctx asks for, and is given the command line without the program's name.
type Func func(ctx context.Context, args []string) error

// Answer is what a Func returns when the command line asked a question (--help,
// --version) and there is nothing to run. It travels as an error and is none.
type Answer struct{ Text string } //nolint:errname // as the comment says

// Error returns the text.
func (a *Answer) Error() string { return a.Text }

// Main calls run with a context that SIGINT or SIGTERM ends, prints what it
// returns and exits the process: 0 after nil, 0 after an [*Answer], which it prints on
// standard output, and 1 after an error. A second signal kills the process.
func Main(name string, run Func) {
	os.Exit(execute(name, run, os.Args[1:], os.Stdout, os.Stderr))
}

func execute(name string, run Func, args []string, stdout, stderr io.Writer) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect

	err := run(ctx, args)
	var answer *Answer
	switch {
	case err == nil:
		return 0
	case errors.As(err, &answer):
		if _, err := io.WriteString(stdout, answer.Text); err != nil {
			return 1 // nobody reads
		}
		return 0
	default:
		report(stderr, name, err)
		return 1
	}
}

// report prints err with the program's name, one line for each line it has.
func report(w io.Writer, name string, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			_, _ = fmt.Fprintf(w, "%s: %s\n", name, line) // there is no better place to complain
		}
	}
}
