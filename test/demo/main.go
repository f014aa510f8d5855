//go:build linux

// Command demo runs Argomesh on this machine: a hub and two spokes, each a real
// Kubernetes API server with a stock Argo CD, a principal beside the hub's and an
// agent beside each spoke's, and one agent more that the hub refuses.
//
//	go run ./test/demo                starts it and stays until Ctrl-C
//	go run ./test/demo -ui            likewise, with Argo CD's web interface where `make ui` has built it
//	go run ./test/demo try cut        does something to it that is seen, such as cutting a network
//	go run ./test/demo try cut undo   takes that back
//	go run ./test/demo down           stops it from another terminal
//
// It needs what `make tools` and `make build` leave. Starting it twice is harmless:
// the second start prints again what runs where. Everything listens on loopback.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	dir     string
	timeout time.Duration
	ui      bool
}

func run(args []string) error {
	command := "up"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	var opts options
	flags.StringVar(&opts.dir, "dir", defaultDir(), "`folder` for data, logs and kubeconfigs; keep its path short")
	flags.DurationVar(&opts.timeout, "timeout", 5*time.Minute, "for how long the start may take")
	flags.BoolVar(&opts.ui, "ui", false, "with Argo CD's web interface, if make ui has built it")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "usage: go run ./test/demo [up|down|try] [-dir FOLDER] [-timeout DURATION] [-ui] [TRIAL [undo]]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if command != "try" && flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	switch command {
	case "up":
		return up(ctx, opts)
	case "down":
		return down(ctx, opts)
	case "try":
		return try(ctx, opts, flags.Args())
	default:
		return fmt.Errorf("no command is named %q: use up, down or try", command)
	}
}

// defaultDir is that of the checkout, so that `make demo-down` finds its demo and no
// other's, and short, since the path of a unix socket may have 107 bytes.
func defaultDir() string {
	checkout, err := os.Getwd()
	if err != nil {
		checkout = "" // then all such share one
	}
	sum := sha256.Sum256([]byte(checkout))
	return filepath.Join(os.TempDir(), fmt.Sprintf("argomesh-demo-%d-%x", os.Getuid(), sum[:3]))
}
