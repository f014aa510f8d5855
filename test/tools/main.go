//go:build unix

// Command tools builds the pinned servers and developer tools that are missing.
//
//	go run ./test/tools             every server the tests and the demo run
//	go run ./test/tools developer   linter and generators
//	go run ./test/tools meshes      programs of Istio and SPIRE, for the tests
//	go run ./test/tools releases    other releases of Argo CD, for the tests
//	go run ./test/tools images      what builds images
//	go run ./test/tools earlier     programs of ours from before, for tests of upgrades
//	go run ./test/tools nodes       kubelet and what else clusters of real pods have, for their test
//	go run ./test/tools ui          argocd-server with Argo CD's web interface, for the demo and tests in a browser
//	go run ./test/tools etcd ko     named tools
//	go run ./test/tools -list       where everything is; builds nothing
//	go run ./test/tools -lock       writes the lockfile of the web interface's packages, after another release of Argo CD
//
// What to build is the table of package toolset. It may be interrupted at any time
// and continues where it was; two may run at once. Only the standard library is
// used, so that it starts within a second on a fresh machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("tools", flag.ContinueOnError)
	list := flags.Bool("list", false, "print where everything is and build nothing")
	lock := flags.Bool("lock", false, "write test/tools/ui/pnpm-lock.yaml from that of Argo CD and build nothing")
	optional := flags.String("optional", "", "build this `tool` too, unless something of it cannot be had")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "usage: go run ./test/tools [-list|-lock] [-optional NAME] [servers|developer|meshes|releases|images|earlier|nodes|ui|all|NAME...]\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	set, err := toolset.Open()
	if err != nil {
		return err
	}
	tools, err := choose(set.Tools(), flags.Args())
	if err != nil {
		return err
	}
	if *optional != "" {
		also, err := choose(set.Tools(), []string{*optional})
		if err != nil {
			return err
		}
		tools = append(tools, also...)
	}
	if *list {
		printPlaces(set, tools)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	progress := &progress{start: time.Now(), out: os.Stdout}
	if *lock {
		return (&builder{set: set, tool: interfaceOf(set), progress: progress}).writeLock(ctx)
	}
	sayCosts(set, tools)
	if err := installPrerequisites(ctx, progress, tools); err != nil {
		return err
	}
	for _, tool := range tools {
		b := builder{set: set, tool: tool, progress: progress}
		if err := b.build(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted; run again to continue")
			}
			if named(tool, *optional) {
				progress.say("without %s: %v", tool.Name, err)
				continue
			}
			return err
		}
	}
	return nil
}

// firstRun says what a build costs before it begins. The time is that of all servers and
// developer tools with empty caches.
const firstRun = `These are missing and are built first: %s.
All of them together take 8 minutes on two cores, once, and 1 GB in %s; Go's own build cache grows by up to 5 GB, too.
It may be interrupted, and goes on where it was.
`

// sayCosts says what a build takes before it begins.
func sayCosts(set *toolset.Set, tools []toolset.Tool) {
	missing := missingOf(set, tools)
	if ui := interfaceOf(set).Name; slices.Contains(missing, ui) {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == ui })
		fmt.Printf(uiCosts, set.Cache())
	}
	if len(missing) > 0 {
		fmt.Printf(firstRun, strings.Join(missing, ", "), set.Cache())
	}
}

// interfaceOf is the tool that carries the web interface.
func interfaceOf(set *toolset.Set) toolset.Tool {
	tools := set.Tools()
	return tools[slices.IndexFunc(tools, toolset.Tool.Interface)]
}

// missingOf are the names of the tools that have to be built.
func missingOf(set *toolset.Set, tools []toolset.Tool) []string {
	var missing []string
	for _, tool := range tools {
		if len(set.Missing(tool)) > 0 {
			missing = append(missing, tool.Name)
		}
	}
	return missing
}

// choose returns the tools named by args, which may be groups, in build order.
// No names means the servers.
func choose(tools []toolset.Tool, args []string) ([]toolset.Tool, error) {
	if len(args) == 0 {
		args = []string{string(toolset.Servers)}
	}
	for _, arg := range args {
		if !slices.ContainsFunc(tools, func(t toolset.Tool) bool { return named(t, arg) }) {
			var names []string
			for _, t := range tools {
				names = append(names, t.Name)
			}
			return nil, fmt.Errorf("no tool or group is named %q; there are servers, developer, meshes, releases, images, earlier, nodes, ui, all, %s", arg, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(tools, func(t toolset.Tool) bool {
		return !slices.ContainsFunc(args, func(arg string) bool { return named(t, arg) })
	}), nil
}

// named reports whether arg means t: its name, its group, one of its programs, or all.
func named(t toolset.Tool, arg string) bool {
	return arg == t.Name || arg == string(t.Group) || arg == "all" || slices.Contains(t.Names(), arg)
}

func printPlaces(set *toolset.Set, tools []toolset.Tool) {
	fmt.Printf("%-34s %s\n", "PROGRAM", "PLACE")
	row := func(name string) {
		path, err := set.Path(name)
		if err != nil {
			path = err.Error()
		}
		fmt.Printf("%-34s %s\n", name, path)
	}
	for _, tool := range tools {
		for _, name := range tool.Names() {
			row(name)
		}
	}
	for name := range needs(tools) {
		if _, ok := toolset.Distribution()[name]; ok {
			row(name)
		}
	}
}
