//go:build linux

// Command bench measures Argomesh against the targets of its design: throughput and
// memory of one agent and one principal (T1), latency and bursts on real API servers
// (T2), memory of idle agents at the principal (T3), an unchanged reconnect (T4), an
// idle agent (T5), restarts and cuts (T6), live access (T7), trees of spokes by way of
// the Redis proxy (T8), how long a person waits for agentctl, how latency, reconnect,
// memory and CPU grow with the number of Applications, and how the first sync of a fleet
// grows with the number of agents.
//
//	go run ./test/bench                                  everything
//	go run ./test/bench -run T2,T6 -json result.json     some of it, as JSON too
//	go run ./test/bench -docs docs/benchmarks.md         into the document: first syncs of
//	                                                     fleets into a section of their own
//
// It needs what `make tools` and `make build` leave. A target that is missed is a
// result and no failure; it fails when something was lost or did not work. Whatever
// it starts listens on loopback and ends with it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenarioTimeout bounds one scenario, and fleetTimeout one that says how far it is, and
// fails when it comes no further.
const (
	scenarioTimeout = 30 * time.Minute
	fleetTimeout    = 3 * time.Hour
)

// bench is what all scenarios share.
type bench struct {
	progress io.Writer
	scenario string
	// fleet are the numbers of agents of a growing fleet, in order.
	fleet []int
	// serverMemory is the harness' ServerMemory of each kube-apiserver. Empty means 2GiB.
	serverMemory string
	// mapping is that of the hubs that startBenchEnv starts.
	mapping mappedBy
}

// say tells a person what is going on.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), b.scenario, fmt.Sprintf(format, args...))
}

// entry is a scenario to choose.
type entry struct {
	id, title string
	run       func(context.Context, *bench, *report.Scenario) error
	// timeout bounds it. Zero means scenarioTimeout.
	timeout time.Duration
}

func entries() []entry {
	return []entry{
		{id: "T1", title: "Throughput and memory with stores in memory", run: runT1},
		{id: "T2", title: "Latency and bursts with 1,000 Applications", run: inBoth(runT2), timeout: 2 * scenarioTimeout},
		{id: "T3", title: "Memory of 1,000 idle agents", run: runT3},
		{id: "T4", title: "Unchanged reconnect with 10,000 Applications", run: unchangedReconnect().run},
		{id: "T5", title: "Idle agent with 1,000 Applications", run: idleAgent().run},
		{id: "T6", title: "Restart of the principal, cut of the network", run: runT6},
		{id: "T7", title: "Live access beside direct access", run: inBoth(runT7), timeout: 2 * scenarioTimeout},
		{id: "T8", title: "Trees through the Redis proxy, beside the Redis in which they are", run: inBoth(runT8), timeout: 2 * scenarioTimeout},
		{id: "agentctl", title: "How long a person waits for agentctl", run: runAgentctl},
		{id: "growth", title: "100, 1,000 and 10,000 Applications", run: growth().run},
		{id: "fleet", title: "First sync of a growing fleet, by namespace", run: fleetBy(byNamespace), timeout: fleetTimeout},
		{id: "destinations", title: "First sync of a growing fleet, by destination", run: fleetBy(byDestination), timeout: fleetTimeout},
	}
}

// choose returns the scenarios that a comma-separated list names; all when it is
// empty.
func choose(list string) ([]entry, error) {
	all := entries()
	if list == "" {
		return all, nil
	}
	var chosen []entry
	for id := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(e entry) bool { return strings.EqualFold(e.id, strings.TrimSpace(id)) })
		if i < 0 {
			known := make([]string, len(all))
			for n, e := range all {
				known[n] = e.id
			}
			return nil, fmt.Errorf("there is no scenario %q: choose from %s", id, strings.Join(known, ","))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// options are what the command line says.
type options struct {
	run, json, docs, profiles string
	agents                    string // the numbers of agents of a growing fleet
	awake                     bool
}

func parseFlags(args []string, complaints io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.StringVar(&o.run, "run", "", "`scenarios` to run, such as T2,T6; empty means all")
	flags.StringVar(&o.json, "json", "", "`file` for the results as JSON")
	flags.StringVar(&o.docs, "docs", "", "`document` whose results are replaced")
	flags.StringVar(&o.agents, "agents", fleetDefault, "`numbers` of agents to which fleet and destinations grow, fewest first")
	flags.BoolVar(&o.awake, "awake", false, "keep the cores from sleeping, so that what a host takes to wake one is not measured")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for a CPU profile of this process for each scenario")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func run(args []string, out, progress io.Writer) error {
	opts, err := parseFlags(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	chosen, err := choose(opts.run)
	if err != nil {
		return err
	}
	fleet, err := fleetSizes(opts.agents)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	tools, err := toolset.Open()
	if err != nil {
		return err
	}
	r := &report.Report{Started: time.Now(), Command: "make bench", Scenarios: []*report.Scenario{}}
	if opts.run != "" {
		r.Command += " BENCH=" + opts.run
	}
	var changed []string
	if opts.agents != fleetDefault {
		changed = append(changed, "-agents "+opts.agents)
	}
	if opts.awake {
		changed = append(changed, "-awake")
		rest, err := keepAwake()
		if err != nil {
			return err
		}
		defer rest()
	}
	if len(changed) > 0 {
		r.Command += " BENCH_FLAGS='" + strings.Join(changed, " ") + "'"
	}
	if r.Machine, err = thisMachine(); err != nil {
		return err
	}
	if r.Commit, err = commitOf(ctx, tools.Checkout()); err != nil {
		return err
	}
	var failures []error
	for _, e := range chosen {
		s, err := measure(ctx, e, opts, &bench{progress: progress, scenario: e.id, fleet: fleet})
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", e.id, err))
		}
		r.Scenarios = append(r.Scenarios, s)
		if err := s.Table(out); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return errors.Join(append(failures, save(r, opts))...)
}

// measure runs one scenario.
func measure(ctx context.Context, e entry, opts options, b *bench) (_ *report.Scenario, err error) {
	s := &report.Scenario{ID: e.id, Title: e.title, Results: []report.Result{}}
	begun := time.Now()
	defer func() {
		s.Seconds = time.Since(begun).Seconds()
		if err != nil {
			s.Failure = err.Error()
		}
	}()
	if s.Load, err = loadAverage(); err != nil {
		return s, err
	}
	if opts.profiles != "" {
		end, failure := profile(filepath.Join(opts.profiles, e.id+".prof"))
		if failure != nil {
			return s, failure
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.timeout, scenarioTimeout))
	defer cancel()
	return s, e.run(ctx, b, s)
}

// profile records where this process spends its time until end is called.
func profile(file string) (end func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// save writes the files that were asked for.
func save(r *report.Report, opts options) error {
	if opts.json != "" {
		content, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(opts.json, append(content, '\n'), 0o644); err != nil { //nolint:gosec // for everybody
			return err
		}
	}
	if opts.docs == "" {
		return nil
	}
	document, err := os.ReadFile(opts.docs)
	if err != nil {
		return err
	}
	replaced, err := r.Into(string(document))
	if err != nil {
		return fmt.Errorf("%s: %w", opts.docs, err)
	}
	return os.WriteFile(opts.docs, []byte(replaced), 0o644) //nolint:gosec // for everybody
}
