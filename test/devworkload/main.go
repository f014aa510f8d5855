// Command devworkload serves the SPIFFE Workload API and Envoy's secret
// discovery service on a unix socket, with its own certificate authority, for
// `make demo` and the end-to-end tests. One process serves one workload:
//
//	devworkload --socket /run/hub.sock --trust-domain hub.test --ca-dir /var/tmp/hub-ca \
//		--entry spiffe://hub.test/principal,ttl=30s,dns=principal.hub.test
//
// Processes with the same --ca-dir sign with the same authority. SIGUSR1 to any
// of them rotates it, with overlap, for all of them. SIGTERM or SIGINT stops, a
// second one kills.
//
// Callers are not attested: anyone who can open the socket gets every entry. The
// socket therefore has mode 0600 unless --socket-mode says otherwise; 0777 lets
// every user of the machine in, as SPIRE's agent does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		line := strings.ReplaceAll(err.Error(), "\n", "; ")
		_, _ = fmt.Fprintln(os.Stderr, "devworkload:", strings.TrimPrefix(line, "devworkload: ")) // nowhere else to say it
		os.Exit(1)
	}
}

// run does what args say and logs to stderr.
func run(args []string, stderr io.Writer) error {
	opts, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return opts.usage(stderr)
	}
	if err != nil {
		return err
	}
	log := zerolog.New(stderr).Level(zerolog.InfoLevel).With().Timestamp().Str("socket", opts.socket).Logger()
	opts.config.Log = log

	// Signals first: from here on, none of ours kills by surprise.
	rotate := make(chan os.Signal, 1)
	signal.Notify(rotate, syscall.SIGUSR1)
	defer signal.Stop(rotate)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal kills

	server, err := devworkload.New(opts.config)
	if err != nil {
		return err
	}
	l, err := devworkload.Listen(ctx, opts.socket, opts.mode)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Run(ctx, l) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-rotate:
				if err := server.RotateCA(); err != nil {
					log.Error().Err(err).Msg("root not rotated")
				}
			}
		}
	})
	return g.Wait()
}

// options are what the flags say.
type options struct {
	socket string
	mode   fs.FileMode
	config devworkload.Config
	flags  *flag.FlagSet
}

// parseFlags reads args; the error names the flag and what it wants.
func parseFlags(args []string) (*options, error) {
	o := &options{mode: 0o600, flags: flag.NewFlagSet("devworkload", flag.ContinueOnError)}
	o.flags.SetOutput(io.Discard) // errors are printed once, by main
	o.flags.Usage = func() {}
	o.flags.StringVar(&o.socket, "socket", "", "`path` of the unix socket, at most 107 bytes (required)")
	o.flags.Func("socket-mode", "`mode` of the socket: 0600 for the owner, 0777 for everybody on this machine (default 0600)", func(s string) error {
		mode, err := strconv.ParseUint(s, 8, 32)
		if err != nil || mode > 0o777 {
			return errors.New("want an octal number such as 0600")
		}
		o.mode = fs.FileMode(mode)
		return nil
	})
	o.flags.Func("trust-domain", "trust domain `name` to sign for (required)", func(s string) (err error) {
		o.config.TrustDomain, err = spiffeid.TrustDomainFromString(s)
		return err
	})
	o.flags.Func("entry", "`identity` to hand out: spiffe id[,hint=text][,ttl=duration][,dns=name]; may be repeated, the first is the default", func(s string) error {
		entry, err := devworkload.ParseEntry(s)
		if err != nil {
			return err
		}
		o.config.Entries = append(o.config.Entries, entry)
		return nil
	})
	o.flags.StringVar(&o.config.CADir, "ca-dir", "", "`directory` of the authority's keys, made when absent, shared by processes (default in memory)")
	o.flags.DurationVar(&o.config.X509TTL, "x509-ttl", time.Hour, "life of X.509-SVIDs of entries without ttl, at least 2s")
	o.flags.DurationVar(&o.config.JWTTTL, "jwt-ttl", 0, "life of JWT-SVIDs, at least 2s (default 5m, or --x509-ttl when that is shorter)")
	o.flags.Func("federate", "`domain=directory` of the authority of another trust domain whose bundle is handed out too; may be repeated", func(s string) error {
		federation, err := devworkload.ParseFederation(s)
		if err != nil {
			return err
		}
		o.config.Federate = append(o.config.Federate, federation)
		return nil
	})
	o.flags.StringVar(&o.config.AllBundlesName, "sds-all-bundles", "", "`name` by which Envoy gets the bundles of all trust domains, such as ROOTCA for Istio's (default ALL)")
	o.flags.DurationVar(&o.config.Prepare, "ca-prepare", 5*time.Second, "for how long a new root is trusted before it signs")
	if err := o.flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: everything is given by flags, see --help", o.flags.Arg(0))
	case o.socket == "":
		return o, errors.New("--socket is missing: give the path of the unix socket to serve")
	case o.config.TrustDomain.IsZero():
		return o, errors.New("--trust-domain is missing: give the name to sign for, such as hub.test")
	case len(o.config.Entries) == 0:
		return o, errors.New("--entry is missing: give at least one spiffe id to hand out")
	}
	return o, nil
}

// usage prints the flags.
func (o *options) usage(w io.Writer) error {
	o.flags.SetOutput(w)
	if _, err := fmt.Fprintln(w, "devworkload serves the SPIFFE Workload API on a unix socket. SIGUSR1 rotates its authority."); err != nil {
		return err
	}
	o.flags.PrintDefaults()
	return nil
}
