// Command fuzz runs every fuzz target of the module for a while, two at a time for each
// core: starting, minimizing and waiting for its worker leave a target's core idle. It
// owns finding them; a target's findings stay in the testdata/fuzz of its package, as go
// test leaves them.
//
//	go run ./test/fuzz -time 10s             every target
//	go run ./test/fuzz -time 5m ./stream/...  those of some packages
//	go run ./test/fuzz -list                 their names
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	duration := flags.Duration("time", 10*time.Second, "how long each target runs")
	list := flags.Bool("list", false, "print the targets and run nothing")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	targets, err := find(ctx, patterns)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target in %s", strings.Join(patterns, " "))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for _, target := range targets {
		if *list {
			_, _ = fmt.Fprintln(os.Stdout, target)
			continue
		}
		g.Go(func() error { return target.run(ctx, *duration, os.Stdout) })
	}
	return g.Wait()
}

// target is one fuzz test.
type target struct {
	pkg  string // import path
	name string // "FuzzParseID"
}

// String returns "import/path FuzzName".
func (t target) String() string { return t.pkg + " " + t.name }

// declaration matches a fuzz test at the start of a line.
var declaration = regexp.MustCompile(`(?m)^func (Fuzz[A-Z_]\w*)\(\w+ \*testing\.F\)`)

// find returns the targets of the packages, in their order. It reads the test
// files instead of compiling every package to ask its test binary.
func find(ctx context.Context, patterns []string) ([]target, error) {
	const format = `{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}}	{{$p.Dir}}	{{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}}	{{$p.Dir}}	{{.}}
{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var targets []target
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			continue
		}
		source, err := os.ReadFile(filepath.Join(fields[1], fields[2]))
		if err != nil {
			return nil, fmt.Errorf("look for fuzz targets: %w", err)
		}
		for _, match := range declaration.FindAllSubmatch(source, -1) {
			targets = append(targets, target{pkg: fields[0], name: string(match[1])})
		}
	}
	return targets, lines.Err()
}

// run fuzzes the target for d on one core and prints one line, or all that go test
// said when it fails, in one write each.
func (t target) run(ctx context.Context, d time.Duration, w io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^"+t.name+"$", "-fuzz", "^"+t.name+"$", "-fuzztime", d.String(),
		"-parallel", "1", t.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test keeps what it found
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		_, _ = w.Write(out)
		return fmt.Errorf("%s: %w", t, err)
	}
	_, err = fmt.Fprintf(w, "%-60s %s\n", t, last(out))
	return err
}

// progress matches go test's report on the work done.
var progress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+)`)

// last sums up go test's output.
func last(out []byte) string {
	reports := progress.FindAllSubmatch(out, -1)
	if len(reports) == 0 {
		return "ok"
	}
	report := reports[len(reports)-1]
	return fmt.Sprintf("ok, %s inputs, %s new interesting", report[1], report[2])
}
