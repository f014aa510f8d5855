package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1) //nolint:forbidigo // the end of a command
	}
}

// options say what is printed.
type options struct {
	root   string // the folder of the module
	trips  bool   // each trip, file by file
	arrows string // the package whose arrows back up are printed
}

func run(args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the `folder` of the module")
	flags.BoolVar(&o.trips, "trips", false, "print each trip, file by file")
	flags.StringVar(&o.arrows, "arrows", "", "print the arrows of this `package` that run back up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return printTree(context.Background(), out, o, flows)
}

// printTree measures a module and prints the table.
func printTree(ctx context.Context, out io.Writer, o options, flows []flow) error {
	t, err := load(ctx, o.root)
	if err != nil {
		return err
	}
	r, err := measure(t, flows)
	if err != nil {
		return err
	}
	p := &printer{out: out}
	p.packages(r)
	p.functions(r)
	p.structures(r)
	p.trips(r, o.trips)
	p.arrows(r, o.arrows)
	p.missed(r)
	return p.err
}
