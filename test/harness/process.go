//go:build linux

package harness

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	defaultGrace = 2 * time.Minute
	// logTail is how much of a log an error shows, in lines.
	logTail = 25
)

// Command describes a process.
type Command struct {
	// Name is unique in a harness. It names the process in errors and its log file,
	// logs/<name>.log.
	Name string
	// Path is the program, absolute.
	Path string
	Args []string
	// Env is added to a small environment: PATH, HOME and TMPDIR, the latter two
	// folders of the process's own below the work folder.
	Env []string
	// Dir is where it runs. Empty means its HOME.
	Dir string
	// Ready returns nil once the process serves. It is called again until then. Nil
	// means that a started process is ready.
	Ready func(context.Context) error
	// ReadyTimeout bounds the wait for Ready. Zero means [Patience].
	ReadyTimeout time.Duration
	// Grace is the time from SIGTERM to SIGKILL in Stop. Zero means two minutes.
	Grace time.Duration
	// NoListen runs the program so that its listeners never open, for the one that
	// cannot be told to listen on loopback.
	NoListen bool
	// Nice is how much of the processors the program leaves to others, in the levels of
	// nice(1): -20 to 19. Zero leaves it what others have.
	Nice int
	// Idle runs the program only while no other wants the processor (SCHED_IDLE of sched(7)).
	Idle bool
	// Isolated runs the program with the attributes of Isolated, as the first process of its own namespaces.
	Isolated bool
}

// Process is a process of a Harness. It may be stopped and started again, with the
// same command and log file. Methods may be called concurrently; those that change
// whether it runs take their turn.
type Process struct {
	h   *Harness
	cmd Command

	attached *ProcessInfo // of another program, or nil

	change sync.Mutex // held by Start, Stop, Kill, Restart

	mu  sync.Mutex // guards run
	run *run       // nil before the first start
}

// run is one life of a process.
type run struct {
	cmd    *exec.Cmd
	record string
	exited chan struct{}
	err    error // what Wait returned; valid once exited is closed
}

// Start starts a process and waits until it is ready. When it does not become ready
// or ends, the error holds the end of its log, and it is stopped. The process does
// not end with ctx.
func (h *Harness) Start(ctx context.Context, cmd Command) (*Process, error) {
	p, err := h.prepare(cmd)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// prepare registers a process without starting it.
func (h *Harness) prepare(cmd Command) (*Process, error) {
	if cmd.Name == "" || !filepath.IsAbs(cmd.Path) {
		return nil, fmt.Errorf("start %q: a name and an absolute path are required, the path is %q", cmd.Name, cmd.Path)
	}
	if cmd.Grace == 0 {
		cmd.Grace = defaultGrace
	}
	if cmd.ReadyTimeout == 0 {
		cmd.ReadyTimeout = Patience
	}
	p := &Process{h: h, cmd: cmd}
	if err := h.add(p); err != nil {
		return nil, err
	}
	return p, nil
}

// Name returns the name given to Start.
func (p *Process) Name() string { return p.cmd.Name }

// LogFile holds what the process wrote to standard output and standard error in all
// its lives.
func (p *Process) LogFile() string {
	if p.attached != nil {
		return p.attached.LogFile
	}
	return p.h.Path("logs", p.cmd.Name+".log")
}

// CommandLine returns the program and its arguments.
func (p *Process) CommandLine() []string {
	return append([]string{p.cmd.Path}, p.cmd.Args...)
}

// PID returns 0 when the process does not run.
func (p *Process) PID() int {
	if p.attached != nil {
		return p.attached.PID
	}
	if r := p.current(); r != nil && r.running() {
		return r.cmd.Process.Pid
	}
	return 0
}

// clockTick is the unit of times in /proc/<pid>/stat (USER_HZ), the same on all that we run on.
const clockTick = 10 * time.Millisecond

// Worked returns the processor time that the present life of the process has used; zero
// for one that does not run.
func (p *Process) Worked() (time.Duration, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	s, err := statOf(pid)
	if hasEnded(err) {
		return 0, nil // in the meantime
	}
	return time.Duration(s.used) * clockTick, err //nolint:gosec // years
}

// Exited is closed when the present life of the process has ended. It is closed
// already if the process was never started, and never for an attached one.
func (p *Process) Exited() <-chan struct{} {
	if p.attached != nil {
		return nil
	}
	if r := p.current(); r != nil {
		return r.exited
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// ExitError tells how the last life ended: nil for exit code 0 and while it runs, an
// *exec.ExitError otherwise.
func (p *Process) ExitError() error {
	if r := p.current(); r != nil && !r.running() {
		return r.err
	}
	return nil
}

// Start starts a process that does not run, as Harness.Start does. It does nothing
// if it runs.
func (p *Process) Start(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.start(ctx)
}

// Stop asks the process to end (SIGTERM), kills it when it has not after its grace
// or when ctx is done, and waits for its end. Having to kill it is an error; a
// process that does not run is not, nor is its exit code.
func (p *Process) Stop(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.stop(ctx)
}

// Kill ends the process at once (SIGKILL) and waits for its end.
func (p *Process) Kill() error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.kill()
}

// Restart is Stop and Start.
func (p *Process) Restart(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	if err := p.stop(ctx); err != nil {
		return err
	}
	return p.start(ctx)
}

// Replace stops the process, if it runs, and starts another program with the same
// arguments in its place.
func (p *Process) Replace(ctx context.Context, path string) error {
	p.change.Lock()
	defer p.change.Unlock()
	if err := p.stop(ctx); err != nil {
		return err
	}
	p.cmd.Path = path
	return p.start(ctx)
}

// Signal sends a signal; SIGSTOP and SIGCONT freeze and thaw. It fails with
// os.ErrProcessDone when the process does not run.
func (p *Process) Signal(sig os.Signal) error {
	if p.attached != nil {
		return fmt.Errorf("signal %s: %w", p.cmd.Name, ErrAttached)
	}
	r := p.current()
	if r == nil {
		return os.ErrProcessDone
	}
	return r.cmd.Process.Signal(sig)
}

// LogTail returns the last lines of the log.
func (p *Process) LogTail(lines int) string {
	// Logs of long runs are large; a line longer than this is cut.
	const most = 64 << 10
	f, err := os.Open(p.LogFile())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // read only
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (r *run) running() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

func (p *Process) start(ctx context.Context) error {
	if p.attached != nil {
		return fmt.Errorf("start %s: %w", p.cmd.Name, ErrAttached)
	}
	if r := p.current(); r != nil && r.running() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start %s: %w", p.cmd.Name, err)
	}
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.cmd.Name, err)
	}
	if err := p.waitReady(ctx, r); err != nil {
		killErr := p.kill()
		return errors.Join(fmt.Errorf("start %s: %w; end of %s:\n%s", p.cmd.Name, err, p.LogFile(), p.LogTail(logTail)), killErr)
	}
	return nil
}

// launch starts a life of the process.
func (p *Process) launch() (*run, error) {
	own := p.h.Path("home", p.cmd.Name)
	temporary := filepath.Join(own, "tmp")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own handle

	argv := p.CommandLine()
	if p.cmd.NoListen {
		wrapper, err := p.h.tools.Path("nolisten")
		if err != nil {
			return nil, err
		}
		argv = append([]string{wrapper}, argv...)
	}
	if p.cmd.Nice != 0 {
		argv = append([]string{"nice", "-n", strconv.Itoa(p.cmd.Nice)}, argv...)
	}
	if p.cmd.Idle {
		argv = append([]string{"chrt", "--idle", "0"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it ends by Stop and Kill, not with the context of its start
	cmd.Dir = cmp.Or(p.cmd.Dir, own)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.Concat([]string{"PATH=" + p.h.searchPath(), "HOME=" + own, "TMPDIR=" + temporary}, p.cmd.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if p.cmd.Isolated {
		cmd.SysProcAttr = Isolated()
	}
	cmd.SysProcAttr.Setpgid = true // an interrupt at the terminal is for us, we stop in order
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p.h.mu.Lock()
	closed := p.h.closed
	p.h.mu.Unlock()
	if closed {
		return nil, errors.New("the harness is closed")
	}
	if err := p.h.spawner.start(cmd); err != nil {
		return nil, err
	}
	r := &run{cmd: cmd, exited: make(chan struct{}), record: p.h.Path(pidDir, p.cmd.Name+".json")}
	id, idErr := identify(cmd.Process.Pid, p.cmd.Name)
	if idErr == nil {
		idErr = writeIdentity(r.record, id)
	}
	go func() {
		r.err = cmd.Wait()
		_ = os.Remove(r.record) // a stale record is harmless: identities do not repeat
		close(r.exited)
	}()
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	if idErr != nil && !errors.Is(idErr, os.ErrProcessDone) {
		return nil, errors.Join(fmt.Errorf("record process %d: %w", cmd.Process.Pid, idErr), p.kill())
	}
	return r, nil
}

// searchPath is PATH for every process: the built servers and the system's programs.
func (h *Harness) searchPath() string {
	return strings.Join(append(h.tools.BinDirs(), os.Getenv("PATH")), string(filepath.ListSeparator))
}

// waitReady returns as soon as the process has ended.
func (p *Process) waitReady(ctx context.Context, r *run) error {
	if p.cmd.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cmd.ReadyTimeout)
	defer cancel()
	return Eventually(ctx, "readiness", func() error {
		if !r.running() {
			return Permanent(fmt.Errorf("it ended: %w", exitReason(r.err)))
		}
		return p.cmd.Ready(ctx)
	})
}

func exitReason(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

func (p *Process) stop(ctx context.Context) error {
	if p.attached != nil {
		return fmt.Errorf("stop %s: %w", p.cmd.Name, ErrAttached)
	}
	r := p.current()
	if r == nil || !r.running() {
		return nil
	}
	// A frozen process cannot act on SIGTERM.
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.cmd.Name, err)
		}
	}
	grace := time.NewTimer(p.cmd.Grace)
	defer grace.Stop()
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: killed: %w", p.cmd.Name, ctx.Err()), p.kill())
	case <-grace.C:
		return errors.Join(fmt.Errorf("stop %s: killed, since it ran on for %s after SIGTERM; end of %s:\n%s",
			p.cmd.Name, p.cmd.Grace, p.LogFile(), p.LogTail(logTail)), p.kill())
	}
}

func (p *Process) kill() error {
	if p.attached != nil {
		return fmt.Errorf("kill %s: %w", p.cmd.Name, ErrAttached)
	}
	r := p.current()
	if r == nil {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.cmd.Name, err)
	}
	<-r.exited
	return nil
}

// HTTPReady is a Ready function: url answers 200.
func HTTPReady(url string) func(context.Context) error {
	return httpReady(&http.Client{Timeout: 5 * time.Second}, url)
}

func httpsReady(config *tls.Config, url string) func(context.Context) error {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return httpReady(&http.Client{Transport: transport, Timeout: 5 * time.Second}, url)
}

func httpReady(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return Permanent(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }() // only read from
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, res.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}
