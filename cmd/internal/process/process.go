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

// ErrRestart is wrapped by what a Func returns that has come to an ordered stop and is to
// begin again, as after a restart.
var ErrRestart = errors.New("the process begins again")

// codeRestart is what execute returns for ErrRestart; no exit code.
const codeRestart = -1

// CodeError is an error by which a program ends with another code than 1.
type CodeError struct {
	Err error
	// Code is from 1 to 125, the codes that a program may choose.
	Code int
}

// Error is that of Err.
func (e *CodeError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *CodeError) Unwrap() error { return e.Err }

// Main calls run with a context that SIGINT or SIGTERM ends, prints what it
// returns and exits the process: 0 after nil, 0 after an [*Answer], which it prints on
// standard output, and 1 after an error, unless it is a [*CodeError]. After ErrRestart it
// replaces the process by the same program, which keeps its number, arguments and environment.
// A second signal ends the process at once,
// with 128 and the signal's number, as a shell says of a killed one.
func Main(name string, run Func) {
	code := execute(name, run, os.Args[1:], os.Stdout, os.Stderr)
	if code == codeRestart {
		report(os.Stderr, name, restart())
		code = 1
	}
	os.Exit(code)
}

// restart returns why the process could not be replaced.
func restart() error {
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, os.Environ()) //nolint:gosec // what runs already
	}
	return fmt.Errorf("begin again: %w", err)
}

func execute(name string, run Func, args []string, stdout, stderr io.Writer) (code int) {
	// Our handler stays to the end. Giving a signal its usual effect back while it
	// arrives is a race inside the runtime.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for _, act := range []func(os.Signal){
			func(s os.Signal) { cancel(fmt.Errorf("signal: %s", s)) },
			func(s os.Signal) { os.Exit(killed(s)) },
		} {
			select {
			case s := <-signals:
				act(s)
			case <-ended:
				return
			}
		}
	}()

	err := run(ctx, args)
	var answer *Answer
	switch {
	case err == nil:
		return 0
	case errors.As(err, &answer):
		if _, err := io.WriteString(stdout, answer.Text); err != nil {
			return 1 // no one reads
		}
		return 0
	case errors.Is(err, ErrRestart):
		report(stderr, name, err)
		if ctx.Err() != nil {
			return 0 // someone wants it to end
		}
		return codeRestart
	default:
		report(stderr, name, err)
		var coded *CodeError
		if errors.As(err, &coded) {
			return coded.Code
		}
		return 1
	}
}

// killed is the exit code of a process that a signal ended.
func killed(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}

// report prints err with the program's name, one line for each line it has.
func report(w io.Writer, name string, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			_, _ = fmt.Fprintf(w, "%s: %s\n", name, line) // there is no better place to complain
		}
	}
}
