//go:build linux

// Command hostile is a peer that has an identity and keeps to no rule, for the end-to-end
// tests. It speaks the wire by itself, not with our clients, so that nothing of ours holds
// it back:
//
//	hostile agent --socket unix:///run/edge.sock --name edge --mode autonomous --principal 127.0.0.1:8443
//	hostile principal --socket unix:///run/hub.sock --listen 127.0.0.1:8443
//
// It does everything that the wire allows, as fast as the other side takes it: a list of
// attacks, some of them on the one stream that an agent may have, in turn, and the others
// beside that all the time. It writes a line to standard output when the first begins, and
// when something was sent in each. SIGTERM ends it; it then writes there what each attack
// did, one JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "hostile:", err) // nowhere else to say it
		os.Exit(1)
	}
}

// options are what both kinds of peer are told.
type options struct {
	socket, stranger string
	only             []string // attacks; none means all
	// Of an agent.
	name, mode, principal, byToken string
	// Of a principal.
	listen string
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("hostile", flag.ContinueOnError)
	f.StringVar(&o.socket, "socket", "", "Workload API that gives the identity")
	f.StringVar(&o.stranger, "stranger", "", "Workload API of an identity that is not registered; empty leaves its attacks out")
	f.StringVar(&o.name, "name", "", "name of the agent")
	f.StringVar(&o.mode, "mode", "", "mode of the agent, or of the agents that a principal attacks; empty means both there")
	f.StringVar(&o.principal, "principal", "", "address of the principal")
	f.StringVar(&o.byToken, "by-token", "", "address of the principal for JWT-SVIDs over TLS; empty leaves its attacks out")
	f.StringVar(&o.listen, "listen", "", "address of a hostile principal")
	only := f.String("only", "", "attacks, with commas between them; empty means all")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	return nil
}

func run(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("say agent or principal")
	}
	var opts options
	if err := opts.parse(args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(opts.socket)))
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	defer source.Close() //nolint:errcheck // the process ends
	done := newTally(stdout)
	switch args[0] {
	case "agent":
		a := &agent{opts: opts, source: source, done: done}
		if a.name, err = identity.ParseAgentName(opts.name); err != nil {
			return err
		}
		if a.mode, err = stream.ParseMode(opts.mode); err != nil {
			return err
		}
		err = a.run(ctx)
	case "principal":
		err = (&principal{opts: opts, source: source, done: done}).run(ctx)
	default:
		return fmt.Errorf("%q is neither agent nor principal", args[0])
	}
	if err != nil {
		return err
	}
	return done.write()
}
