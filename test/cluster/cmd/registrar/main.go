// Command registrar registers a CSI driver with kubelet for the cluster tests. It has the flags of the driver
// registrar of Kubernetes CSI that the chart argomesh-spire sets, and runs in its place beside the driver:
//
//	registrar -csi-address /spiffe-csi/csi.sock -kubelet-registration-path /var/lib/kubelet/plugins/csi.spiffe.io/csi.sock \
//		-health-port 9809
//
// It runs until SIGTERM or SIGINT, which withdraw the registration, and fails when kubelet refuses the driver.
// A second signal kills it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/test/cluster/registrar"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "registrar:", err) // nowhere else to say it
		os.Exit(1)
	}
}

func run() error {
	cfg := registrar.Config{Log: zerolog.New(os.Stderr).With().Timestamp().Logger()}
	flag.StringVar(&cfg.Driver, "csi-address", "", "`path` of the driver's socket (required)")
	flag.StringVar(&cfg.Endpoint, "kubelet-registration-path", "",
		"`path` of the driver's socket on the node (default that of -csi-address)")
	flag.StringVar(&cfg.Registry, "plugin-registration-path", "/registration",
		"`folder` in which kubelet looks for sockets")
	health := flag.Int("health-port", 0, "`port` of /healthz, which answers while the registrar runs (default none)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal kills

	r, err := registrar.New(cfg)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	ctx, done := context.WithCancel(ctx)
	g.Go(func() error {
		defer done()
		return r.Run(ctx)
	})
	if *health != 0 {
		g.Go(func() error { return serveHealth(ctx, *health) })
	}
	return g.Wait()
}

// serveHealth answers /healthz until ctx is done.
func serveHealth(ctx context.Context, port int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	server := http.Server{Addr: net.JoinHostPort("", strconv.Itoa(port)), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing is under way that matters
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
