//go:build linux

package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/argomesh/argomesh/test/harness"
)

// spec is what a process is told that is a pod.
type spec struct {
	Hostname string
	Address  string   // its own
	Hosts    string   // its /etc/hosts
	Listen   []string // what leads out of its network
	Out, In  string   // unix sockets: of what leads out, and of what comes in
	Init     []container
	// Output and Exit are files, of a pod whose one container runs once: what its program prints, and the code with
	// which that ends. Empty for another pod.
	Output, Exit string
}

// containers are what runs once the init containers have, since what these write may be in the environment; or why
// they cannot run yet.
type containers struct {
	Are []container
	Why string
}

type container struct {
	Name    string
	Program string // file of this machine
	As      string // what it is told that it is called; empty for the entrypoint
	Root    string // folder that becomes its root
	Dir     string // in there; empty for the root
	Args    []string
	Env     []string
	Mounts  []mount
}

type mount struct{ From, To string }

const (
	// argument is the first of a process that is a pod; the second is the file of its spec.
	argument = "argomesh-run-pod"
	// trial is in the place of the file, to try whether a pod can be run.
	trial = "-"
	// trialAddress is a pod's (TEST-NET-1, RFC 5737).
	trialAddress = "192.0.2.1"
	// entrypoint is the program of a container, as in our images.
	entrypoint = "/argomesh"
	// containersPlease is in the place of an address, and what answers tells containers.
	containersPlease = "containers"
	// grace is what a program has to end in order.
	grace = 20 * time.Second
	// restartAfter is how long a program that has ended waits until it is started again.
	restartAfter = time.Second
)

// Main is called first by the main function of a program that uses this package, which is started once
// more for each pod. It returns false when this is not such a start.
func Main() (is bool, err error) {
	const args = 3
	if len(os.Args) != args || os.Args[1] != argument {
		return false, nil
	}
	if os.Args[2] == trial {
		network, err := isolate(context.Background(), trialAddress, nil)
		if err != nil {
			return true, err
		}
		return true, network.close()
	}
	content, err := os.ReadFile(os.Args[2])
	if err != nil {
		return true, err
	}
	var s spec
	if err := json.Unmarshal(content, &s); err != nil {
		return true, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return true, s.run(ctx)
}

// Supported returns why no pod can be run here: the kernel lets this user have no namespaces.
func Supported(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, argument, trial)
	cmd.SysProcAttr = harness.Isolated()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the kernel gives this user no namespaces (see user_namespaces(7); on Ubuntu"+
			" sysctl kernel.apparmor_restrict_unprivileged_userns=0): %w: %.300s", err, out)
	}
	return nil
}

// isolate makes the mounts of the process its own, and links its network to one that listens on addresses.
func isolate(ctx context.Context, own string, addresses []string) (*outside, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("this is not the first process of a namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	address, err := netip.ParseAddr(own)
	if err != nil {
		return nil, err
	}
	return newOutside(ctx, address, addresses)
}

// run is the pod until ctx is done.
func (s *spec) run(ctx context.Context) error {
	network, err := isolate(ctx, s.Address, s.Listen)
	if err != nil {
		return err
	}
	return errors.Join(s.runIn(ctx, network), network.close())
}

// runIn runs what is in the pod. The ways in and out are there until its programs have ended.
func (s *spec) runIn(ctx context.Context, network *outside) error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	in, err := listen(ctx, "unix", s.In)
	if err != nil {
		return err
	}
	open, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var ways errgroup.Group
	for _, l := range network.listeners {
		ways.Go(func() error {
			return accept(open, l, func(ctx context.Context, from net.Conn) { s.leadOut(ctx, from, l.Addr().String()) })
		})
	}
	ways.Go(func() error {
		return accept(open, in, func(ctx context.Context, from net.Conn) { lead(ctx, from, dialTCP) })
	})
	err = s.runContainers(ctx)
	end()
	return errors.Join(err, ways.Wait())
}

func (s *spec) runContainers(ctx context.Context) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	for i := range s.Init {
		if err := s.Init[i].prepare(s.Hosts); err != nil {
			return err
		}
		for err := s.Init[i].start(ctx, os.Stderr); err != nil && again(ctx); {
			err = s.Init[i].start(ctx, os.Stderr)
		}
	}
	all := s.containers(ctx)
	for i := range all {
		if err := all[i].prepare(s.Hosts); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range all {
		c := &all[i]
		g.Go(func() error {
			if s.Exit != "" {
				defer done()
				return c.startOnce(ctx, s.Output, s.Exit)
			}
			_ = c.start(ctx, os.Stderr) // it is told
			for again(ctx) {
				_ = c.start(ctx, os.Stderr)
			}
			return nil
		})
	}
	return g.Wait()
}

// containers asks for them until they can run; there are none when ctx is done.
func (s *spec) containers(ctx context.Context) []container {
	for {
		var told containers
		out, err := s.dialOut(ctx, containersPlease)
		if err == nil {
			err = errors.Join(json.NewDecoder(out).Decode(&told), out.Close())
		}
		if err == nil && told.Why == "" {
			return told.Are
		}
		_, _ = fmt.Fprintf(os.Stderr, "pod: its containers cannot run yet: %v %s\n", err, told.Why) // the log
		if !again(ctx) {
			return nil
		}
	}
}

// dialOut connects to an address outside of the pod.
func (s *spec) dialOut(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	to, err := dialer.DialContext(ctx, "unix", s.Out)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(to, "%s\n", address); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}

// leadOut joins a connection to an address with what that is outside of the pod.
func (s *spec) leadOut(ctx context.Context, from net.Conn, address string) {
	if to, err := s.dialOut(ctx, address); err == nil {
		join(ctx, from, from, to)
	}
	_ = from.Close() // the other end sees that
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// again waits until a program may be started again, and reports whether it may.
func again(ctx context.Context) bool {
	wait := time.NewTimer(restartAfter)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}

// prepare makes the root of a container: what it mounts, the program, and of this machine what programs that are
// linked dynamically need.
func (c *container) prepare(hosts string) error {
	for name, content := range map[string]string{"etc/hosts": hosts, "etc/resolv.conf": "", entrypoint: ""} {
		file := filepath.Join(c.Root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(c.Root, "tmp"), 0o700); err != nil {
		return err
	}
	mounts := append([]mount{{From: c.Program, To: entrypoint}}, c.Mounts...)
	for _, dir := range []string{"/usr", "/lib", "/lib64"} {
		target, err := os.Readlink(dir)
		switch {
		case err == nil:
			if err := os.Symlink(target, filepath.Join(c.Root, dir)); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrNotExist):
			mounts = append(mounts, mount{From: dir, To: dir})
		}
	}
	for _, device := range []string{"/dev/null", "/dev/urandom"} {
		mounts = append(mounts, mount{From: device, To: device})
	}
	for _, m := range mounts {
		if err := bind(m.From, filepath.Join(c.Root, m.To)); err != nil {
			return fmt.Errorf("container %s: mount %s: %w", c.Name, m.To, err)
		}
	}
	return nil
}

// bind has a file or folder be somewhere else, too.
func bind(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o700)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
		var file *os.File
		if file, err = os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// start runs the program of a container until it ends, which it is asked to when ctx is done. How it ended is in the log.
func (c *container) start(ctx context.Context, output io.Writer) error {
	cmd := exec.CommandContext(ctx, entrypoint, c.Args...)
	if c.As != "" {
		cmd.Args[0] = c.As
	}
	cmd.Env, cmd.Dir = c.Env, path.Join("/", c.Dir)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Root}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	_, _ = fmt.Fprintf(os.Stderr, "pod: container %s runs %s %s\n", c.Name, filepath.Base(c.Program), strings.Join(c.Args, " ")) // the log
	err := cmd.Run()
	if ctx.Err() == nil {
		_, _ = fmt.Fprintf(os.Stderr, "pod: container %s has ended: %v\n", c.Name, err)
	}
	return err
}

// startOnce is start with output in a file, and the code of its end in another one, which is whole once it is there.
func (c *container) startOnce(ctx context.Context, output, exit string) error {
	file, err := os.Create(output)
	if err != nil {
		return err
	}
	code := 0
	var failed *exec.ExitError
	if err := c.start(ctx, file); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else if err != nil {
		return errors.Join(err, file.Close())
	}
	if err := errors.Join(file.Close(), os.WriteFile(exit+".unfinished", []byte(strconv.Itoa(code)), 0o600)); err != nil {
		return err
	}
	return os.Rename(exit+".unfinished", exit)
}
