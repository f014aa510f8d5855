// Command agentctl registers agents on a hub, and their identities with SPIRE, and makes
// what the Envoy and the mesh around the principal need. It owns the command line: flags,
// what is printed, and errors a person can act on. What an Agent means is left to
// api/v1alpha1 and the principal, what a registration means to mesh/spire, what a mesh
// has to know to mesh; agentctl talks to Kubernetes APIs with a kubeconfig, as kubectl
// does, to a SPIRE server, to the Workload API of its machine, and to a principal.
//
//	agentctl agent create edge-1 --mode managed --trust-domain example.org --wait
//	agentctl agent list
//	agentctl identity doctor --hub
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/process"
)

func main() {
	klog.SetLogger(logr.Discard()) // what client-go has to say reaches us as errors
	process.Main("agentctl", func(ctx context.Context, args []string) error {
		return run(ctx, args, cli.Streams{
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Interactive: cli.IsTerminal(os.Stdin),
			Width: cli.WidthOf(os.Stdout),
		})
	})
}

// run executes one command line. The error is one line that says what to do.
func run(ctx context.Context, args []string, std cli.Streams) error {
	std.Out, std.Err = cli.NewPlain(std.Out), cli.NewPlain(std.Err)
	root := newRootCommand(std)
	root.SetArgs(args)
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	if err := root.ExecuteContext(ctx); err != nil {
		return cli.PlainError(err)
	}
	return nil
}
