// Package admin serves what kubelet and Prometheus ask of a process: /livez,
// /readyz and /metrics; and /identity, which agentctl check asks. It owns the HTTP
// side; what ready means is left to the checks it is given.
//
//	server, err := admin.New(admin.Config{
//		Checks:   []admin.Check{{Name: "identity", Ready: source.Ready}},
//		Identity: func() any { return inspect.DiagnoseHeld(…) },
//		Metrics:  registry,
//		Log:      log,
//	})
//	...
//	err = server.Run(ctx, listener)
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

const (
	// maxConnections bounds the connections open at once; more wait.
	maxConnections = 64
	// maxHeader bounds the request's header, in bytes.
	maxHeader = 16 << 10
	// maxScrapes bounds the scrapes served at once; more get 503.
	maxScrapes = 4

	readTimeout   = 5 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	scrapeTimeout = 20 * time.Second
	drainTimeout  = 2 * time.Second
)

// Check is one condition of readiness.
type Check struct {
	// Name is unique in a Config and not empty, "identity".
	Name string
	// Ready returns nil, or why the process cannot do its work now. It is called
	// for every request, from several goroutines, and must not block.
	Ready func() error
	// Degraded returns nil, or what is wrong although the process is ready, for the
	// body of /readyz. It is called as Ready is. Nil means that there is no such thing.
	Degraded func() error
}

// Config holds what a Server needs. All fields but Checks are required.
type Config struct {
	// Checks must all pass for /readyz to answer 200. None means always ready.
	Checks []Check
	// Identity returns what there is to say of our SVID and of the bundles that we need, for
	// JSON. It is called for every request, from several goroutines, and must not block.
	Identity func() any
	Metrics  prometheus.Gatherer
	Log      zerolog.Logger
}

// Server answers /livez with 200 as long as the process answers at all, whatever
// its peers do; /readyz with 200 when all checks pass and 503 otherwise, each
// check with its state in the body, as text or, with ?format=json, as JSON, and what
// is wrong with one that passes; /identity with how SVID and bundles are, as JSON;
// /metrics in Prometheus' formats.
type Server struct {
	checks []Check
	log    zerolog.Logger
	http   *http.Server
}

// New checks cfg and returns a server that does not run yet.
func New(cfg Config) (*Server, error) {
	if cfg.Metrics == nil || cfg.Identity == nil {
		return nil, errors.New("admin server: Metrics or Identity is nil")
	}
	seen := make(map[string]bool)
	for _, c := range cfg.Checks {
		if c.Name == "" || c.Ready == nil || seen[c.Name] {
			return nil, fmt.Errorf("admin server: check %q has no name of its own or no function", c.Name)
		}
		seen[c.Name] = true
	}
	s := &Server{checks: cfg.Checks, log: cfg.Log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /identity", func(w http.ResponseWriter, _ *http.Request) {
		asJSON(w, http.StatusOK, cfg.Identity())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{cfg.Log},
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector hides no other
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
	}))
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          zerologStdlib(cfg.Log),
	}
	return s, nil
}

// Run serves on l until ctx is done, then lets running requests finish for a
// moment. It closes l in every case and is called once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	s.log.Info().Stringer("listener", l.Addr()).Msg("admin server listening")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.http.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve health and metrics: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if err := s.http.Shutdown(drain); err != nil {
			return s.http.Close() // a slow reader does not hold up the stop
		}
		return nil
	})
	return g.Wait()
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok\n")
}

// state is what /readyz says in JSON.
type state struct {
	Ready  bool         `json:"ready"`
	Checks []checkState `json:"checks"`
}

type checkState struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why not, or what is wrong all the same
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	now := s.state()
	status := http.StatusOK
	if !now.Ready {
		status = http.StatusServiceUnavailable
	}
	if r.URL.Query().Get("format") != "json" {
		plain(w, status, now.String())
		return
	}
	asJSON(w, status, now)
}

func asJSON(w http.ResponseWriter, status int, what any) {
	body, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		plain(w, http.StatusInternalServerError, "state cannot be encoded\n")
		return
	}
	write(w, status, "application/json", string(body)+"\n")
}

func (s *Server) state() state {
	now := state{Ready: true, Checks: make([]checkState, 0, len(s.checks))}
	for _, c := range s.checks {
		one := checkState{Name: c.Name, Ready: true}
		if err := c.Ready(); err != nil {
			one.Ready, one.Reason = false, err.Error()
			now.Ready = false
		} else if c.Degraded != nil {
			if err := c.Degraded(); err != nil {
				one.Reason = err.Error()
			}
		}
		now.Checks = append(now.Checks, one)
	}
	return now
}

// String returns one line for each check and one for the whole.
func (s state) String() string {
	var b strings.Builder
	for _, c := range s.Checks {
		switch {
		case c.Ready && c.Reason == "":
			fmt.Fprintf(&b, "[+] %s: ok\n", c.Name)
		case c.Ready:
			fmt.Fprintf(&b, "[+] %s: ok, but %s\n", c.Name, c.Reason)
		default:
			fmt.Fprintf(&b, "[-] %s: %s\n", c.Name, c.Reason)
		}
	}
	if s.Ready {
		b.WriteString("ready\n")
	} else {
		b.WriteString("not ready\n")
	}
	return b.String()
}

func plain(w http.ResponseWriter, status int, text string) {
	write(w, status, "text/plain; charset=utf-8", text)
}

func write(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the caller went away: nothing to do
}
