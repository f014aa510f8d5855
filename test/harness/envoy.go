//go:build linux

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// EnvoyConfig says how to run an Envoy. Name, File and AdminAddress are required.
type EnvoyConfig struct {
	Name string
	// File is the bootstrap configuration, in any form Envoy takes. Its admin address
	// must be AdminAddress, and all of its listeners on loopback or unix sockets.
	File string
	// AdminAddress is asked whether Envoy is ready: host:port, or unix:///path.
	AdminAddress string
	// Concurrency is the number of worker threads. Zero means 1.
	Concurrency int
	// Args are added to the command line.
	Args []string
}

// envoyDrainTime is how long an Envoy of the harness keeps the connections of a
// listener that changed, in seconds.
const envoyDrainTime = 1

// StartEnvoy starts an Envoy and waits until it is live, which it is once its first
// listeners and clusters are configured.
func (h *Harness) StartEnvoy(ctx context.Context, cfg EnvoyConfig) (*Process, error) {
	if cfg.Name == "" || cfg.File == "" || cfg.AdminAddress == "" {
		return nil, errors.New("start envoy: name, file and admin address are required")
	}
	path, err := h.tools.Path("envoy")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.File); err != nil {
		return nil, fmt.Errorf("start envoy: %w", err)
	}
	args := []string{
		"--config-path", cfg.File,
		// Several Envoys run here, and none is ever restarted hot.
		"--disable-hot-restart",
		"--concurrency", strconv.Itoa(max(cfg.Concurrency, 1)),
		"--log-level", "info",
		"--drain-time-s", strconv.Itoa(envoyDrainTime),
	}
	return h.Start(ctx, Command{
		Name: cfg.Name,
		Path: path,
		Args: append(args, cfg.Args...),
		Ready: func(ctx context.Context) error {
			_, err := EnvoyAdmin(ctx, cfg.AdminAddress, "/ready")
			return err
		},
	})
}

// SidecarConfig says how to run an Envoy beside a principal. Name, XDS and WorkloadAPI
// are required.
type SidecarConfig struct {
	Name string
	// XDS is where the principal serves it: its envoy.listen.
	XDS string
	// WorkloadAPI is the address of the Workload API that gives Envoy its certificate.
	WorkloadAPI string
	// Bootstrap are more arguments of `agentctl envoy bootstrap`.
	Bootstrap []string
}

// Sidecar is a running Envoy beside a principal.
type Sidecar struct {
	*Process
	// AdminAddress is a unix socket, for [EnvoyAdmin].
	AdminAddress string
	// StatsAddress serves /ready and /stats/prometheus.
	StatsAddress string
}

// StartSidecar starts an Envoy with what agentctl prints for it, and waits until the
// principal has told it what to serve and all that is ready.
func (h *Harness) StartSidecar(ctx context.Context, cfg SidecarConfig) (*Sidecar, error) {
	agentctl, err := h.Binary("agentctl")
	if err != nil {
		return nil, err
	}
	s := &Sidecar{AdminAddress: "unix://" + h.Path(cfg.Name+"-admin.sock")}
	if s.StatsAddress, err = h.Address(); err != nil {
		return nil, err
	}
	args := append([]string{
		"envoy", "bootstrap", "--xds", cfg.XDS, "--workload-api", cfg.WorkloadAPI,
		"--admin", s.AdminAddress, "--stats", s.StatsAddress, "--memory", "512Mi",
	}, cfg.Bootstrap...)
	cmd := exec.CommandContext(ctx, agentctl, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	bootstrap, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("agentctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	file := h.Path(cfg.Name + ".yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return nil, err
	}
	s.Process, err = h.StartEnvoy(ctx, EnvoyConfig{Name: cfg.Name, File: file, AdminAddress: s.AdminAddress, Concurrency: 2})
	return s, err
}

// EnvoyAdmin gets a path of an Envoy's admin interface at host:port or unix:///path,
// and fails unless it answers 200.
func EnvoyAdmin(ctx context.Context, address, path string) (body []byte, err error) {
	network, host := "tcp", address
	if socket, ok := strings.CutPrefix(address, "unix://"); ok {
		network, host = "unix", socket
	}
	var dialer net.Dialer
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, host)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // only read from
	if body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("envoy: GET %s: %s: %.200s", path, res.Status, body)
	}
	return body, nil
}
