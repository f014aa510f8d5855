// Command fuzz runs every fuzz target of the module for a while, two at a time for each
// core: starting, minimizing and waiting for its worker leave a target's core idle. It
// owns finding them; a target's findings stay in the testdata/fuzz of its package, as go
// test leaves them.
//
//	go run ./test/fuzz -time 10s             every target
//	go run ./test/fuzz -time 5m ./stream/...  those of some packages
//	go run ./test/fuzz -once                 those alone of which something has changed
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
	"strconv"
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
	once := flags.Bool("once", false, "leave out what was fuzzed for that long in the last week, as it is now, on this machine")
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
	if *list {
		for _, target := range targets {
			_, _ = fmt.Fprintln(os.Stdout, target)
		}
		return nil
	}
	return fuzz(ctx, targets, *duration, *once)
}

// fuzz runs the targets. Test binaries are built one after the other, each when there
// is room to run a target of it: several builds at a time would each compile what all
// of them depend on, instrumented. With once it leaves out what has a record, and says so.
func fuzz(ctx context.Context, targets []target, d time.Duration, once bool) error {
	known, err := newRecords()
	if err != nil {
		return err
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	folder, err := os.MkdirTemp("", "argomesh-fuzz-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	built, contents := map[string]string{}, map[string]string{} // by package: binary and content
	for _, target := range targets {
		if running.Err() != nil {
			break // one has failed, or we are told to stop
		}
		content := contents[target.pkg]
		if content == "" {
			if content, err = contentOf(running, target); err != nil {
				return errors.Join(err, g.Wait())
			}
			contents[target.pkg] = content
		}
		if once && known.has(target, content, d) {
			_, _ = fmt.Fprintf(os.Stdout, "%-60s was fuzzed as it is\n", target)
			continue
		}
		binary := built[target.pkg]
		if binary == "" {
			binary = filepath.Join(folder, fmt.Sprintf("%d.test", len(built)))
			if out, err := exec.CommandContext(running, "go", "test", "-c", "-fuzz", ".", "-o", binary, target.pkg).CombinedOutput(); err != nil {
				return errors.Join(fmt.Errorf("build %s: %w: %s", target.pkg, err, out), g.Wait())
			}
			built[target.pkg] = binary
		}
		g.Go(func() error {
			inputs := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", target.pkg)
			if err := target.run(running, binary, inputs, d, os.Stdout); err != nil {
				return err
			}
			return known.add(target, content, d)
		})
	}
	return errors.Join(g.Wait(), ctx.Err())
}

// target is one fuzz test.
type target struct {
	pkg  string // import path
	dir  string // of the package
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
			targets = append(targets, target{pkg: fields[0], dir: fields[1], name: string(match[1])})
		}
	}
	return targets, lines.Err()
}

// baselineTime bounds the time that go test takes for the inputs it begins with. The
// cache may have thousands of them.
const baselineTime = 5 * time.Minute

// run fuzzes the target on one core, by the test binary of its package, for d after the
// inputs that are known, and prints one line, or all that the binary said when it fails,
// in one write each. Inputs of interest stay in the folder cache. They are made shorter
// by a hundred tries, for which go test takes up to a minute: all the time that there is.
func (t target) run(ctx context.Context, binary, cache string, d time.Duration, w io.Writer) error {
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+t.name+"$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime", (baselineTime + d).String(),
		"-test.fuzzcachedir", cache, "-test.parallel", "1", "-test.fuzzminimizetime", "100x")
	interrupt := func() error { return cmd.Process.Signal(os.Interrupt) } // it keeps what it found
	cmd.Dir = t.dir                                                       // with its testdata
	cmd.Cancel = interrupt
	cmd.WaitDelay = 10 * time.Second
	out := &output{begun: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-out.begun:
		case <-ended:
			return
		}
		select {
		case <-time.After(d):
			_ = interrupt() // it may have ended by itself
		case <-ended:
		}
	}()
	err := cmd.Wait()
	close(ended)
	var did done
	if err == nil {
		did, err = read(out.text.Bytes())
	}
	if err != nil {
		_, _ = w.Write(out.text.Bytes())
		return fmt.Errorf("%s: %w", t, err)
	}
	_, err = fmt.Fprintf(w, "%-60s ok, %d inputs beside %d known, %d new interesting\n", t, did.inputs-did.known, did.known, did.interesting)
	return err
}

// output is what go test says. One goroutine writes to it.
type output struct {
	text  bytes.Buffer
	begun chan struct{} // closed when it begins with inputs of its own
	open  bool          // begun is closed
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	if !o.open && bytes.Contains(o.text.Bytes(), []byte("now fuzzing with")) {
		o.open = true
		close(o.begun)
	}
	return n, err
}

var (
	// baseline matches go test's report on the inputs that it begins with.
	baseline = regexp.MustCompile(`gathering baseline coverage: \d+/(\d+) completed`)
	// progress matches its report on the work done.
	progress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+)`)
)

// done is what a target did.
type done struct {
	known, inputs, interesting int
}

// read reads go test's output. Who tried nothing but what it began with has tested
// nothing.
func read(out []byte) (d done, err error) {
	begun, reports := baseline.FindSubmatch(out), progress.FindAllSubmatch(out, -1)
	if begun == nil || len(reports) == 0 {
		return d, errors.New("it does not say what it did")
	}
	last := reports[len(reports)-1]
	for text, n := range map[*[]byte]*int{&begun[1]: &d.known, &last[1]: &d.inputs, &last[2]: &d.interesting} {
		if *n, err = strconv.Atoi(string(*text)); err != nil {
			return d, err
		}
	}
	if d.inputs <= d.known {
		return d, fmt.Errorf("it tried no input but the %d that it began with", d.known)
	}
	return d, nil
}
