//go:build linux

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// EnvoyConfig says how to run an Envoy. Name, File and AdminAddress are required.
type EnvoyConfig struct {
	Name string
	// File is the bootstrap configuration, in any form Envoy takes. Its admin address
	// must be AdminAddress, and all of its listeners on loopback or unix sockets.
	File string
	// AdminAddress is asked whether Envoy is ready.
	AdminAddress string
	// Args are added to the command line.
	Args []string
}

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
		"--concurrency", "1",
		"--log-level", "info",
		"--drain-time-s", "1",
	}
	return h.Start(ctx, Command{
		Name:  cfg.Name,
		Path:  path,
		Args:  append(args, cfg.Args...),
		Ready: HTTPReady("http://" + cfg.AdminAddress + "/ready"),
	})
}
