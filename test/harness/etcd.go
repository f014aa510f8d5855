//go:build linux

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Etcd is an etcd server. Several control planes may share one, each under a prefix
// of its own; a test that restores a control plane's data gives it one of its own.
type Etcd struct {
	*Process
	// URL is the client endpoint.
	URL string
	// DataDir holds its data, which survives a restart.
	DataDir string

	h    *Harness
	peer string // URL for other members, of which there are none
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
	e := &Etcd{URL: "http://" + client, DataDir: h.Path(name), h: h, peer: "http://" + peer}
	if err := os.MkdirAll(e.DataDir, 0o700); err != nil {
		return nil, err
	}
	e.Process, err = h.Start(ctx, Command{
		Name: name,
		Path: path,
		Env:  h.serverEnv(),
		Args: append([]string{
			"--name", name,
			"--data-dir", e.DataDir,
			"--listen-client-urls", e.URL,
			"--advertise-client-urls", e.URL,
			"--listen-peer-urls", e.peer,
			"--initial-advertise-peer-urls", e.peer,
			"--initial-cluster", name + "=" + e.peer,
			"--unsafe-no-fsync",
			"--auto-compaction-retention", "5m",
			"--log-level", "warn",
		}, args...),
		Ready: HTTPReady(e.URL + "/readyz"),
	})
	return e, err
}

// Snapshot writes all that etcd holds at this moment into a file, which must not
// exist.
func (e *Etcd) Snapshot(ctx context.Context, file string) error {
	return e.run(ctx, "etcdctl", "--endpoints", e.URL, "snapshot", "save", file)
}

// Restore stops etcd, if it runs, gives it the data of a snapshot, and starts it
// again under the same addresses. bump is added to the revision of the snapshot,
// and what was before is marked as compacted, so that clients see that revisions
// go on and that their watches must start over. With 0 the revision goes back to the
// snapshot's, and watches of clients that saw more wait for what was before.
//
// The API servers of the control planes keep what they have seen: restart them, or
// use ControlPlane.Restore.
func (e *Etcd) Restore(ctx context.Context, file string, bump uint64) error {
	if err := e.Stop(ctx); err != nil {
		return err
	}
	restored := e.DataDir + ".restored"
	args := []string{
		"snapshot", "restore", file,
		"--data-dir", restored, "--name", e.Name(),
		"--initial-cluster", e.Name() + "=" + e.peer, "--initial-advertise-peer-urls", e.peer,
	}
	if bump > 0 {
		args = append(args, "--bump-revision", strconv.FormatUint(bump, 10), "--mark-compacted")
	}
	if err := errors.Join(os.RemoveAll(restored), e.run(ctx, "etcdutl", args...)); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(e.DataDir), os.Rename(restored, e.DataDir)); err != nil {
		return err
	}
	return e.Start(ctx)
}

// run runs one of etcd's own tools to its end.
func (e *Etcd) run(ctx context.Context, program string, args ...string) error {
	path, err := e.h.tools.Path(program)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
