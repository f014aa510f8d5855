//go:build linux

package harness

import (
	"context"
	"fmt"
	"os"
)

// Etcd is an etcd server. Several control planes may share one, each under a prefix
// of its own; a test that restores a control plane's data gives it one of its own.
type Etcd struct {
	*Process
	// URL is the client endpoint.
	URL string
	// DataDir holds its data, which survives a restart.
	DataDir string
}

// StartEtcd starts an etcd. It does not sync to disk: a crash of the machine loses
// data, a crash of the process does not. args are added to its command line.
func (h *Harness) StartEtcd(ctx context.Context, name string, args ...string) (*Etcd, error) {
	path, err := h.tools.Path("etcd")
	if err != nil {
		return nil, err
	}
	client, err := h.Address()
	if err != nil {
		return nil, err
	}
	peer, err := h.Address()
	if err != nil {
		return nil, err
	}
	e := &Etcd{URL: "http://" + client, DataDir: h.Path(name)}
	if err := os.MkdirAll(e.DataDir, 0o700); err != nil {
		return nil, err
	}
	e.Process, err = h.Start(ctx, Command{
		Name: name,
		Path: path,
		Args: append([]string{
			"--name", name,
			"--data-dir", e.DataDir,
			"--listen-client-urls", e.URL,
			"--advertise-client-urls", e.URL,
			"--listen-peer-urls", "http://" + peer,
			"--initial-advertise-peer-urls", "http://" + peer,
			"--initial-cluster", fmt.Sprintf("%s=http://%s", name, peer),
			"--unsafe-no-fsync",
			"--auto-compaction-retention", "5m",
			"--log-level", "warn",
		}, args...),
		Ready: HTTPReady(e.URL + "/readyz"),
	})
	return e, err
}
