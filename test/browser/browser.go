//go:build linux

// Package browser drives a headless Chromium over the pipes of its DevTools protocol: no
// port, no WebSocket and no library. It knows as much of the protocol as the tour of Argo
// CD's web interface needs:
//
//	b, err := browser.Start(ctx, browser.Config{Dir: dir})
//	...
//	defer b.Close()
//	page, err := b.NewPage(ctx)
//	...
//	err = page.Go(ctx, "http://127.0.0.1:8080/")
//	err = page.Click(ctx, browser.Text("button", "SYNC"))
//	shown, err := page.Text(ctx)
//
// It belongs to tests alone.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// ErrMissing is wrapped by the error of Start where no Chromium is installed. The message
// says what to run.
var ErrMissing = errors.New("missing")

// Programs are the names under which distributions have Chromium.
func Programs() []string {
	return []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"}
}

// Config says how a browser runs. Dir is required.
type Config struct {
	// Dir is a folder for its profile, which Start makes.
	Dir string
	// Width and Height are those of its pages, in pixels. Zero means 1600 and 900.
	Width, Height int
}

// Browser is a running Chromium. Its methods may be called concurrently.
type Browser struct {
	cfg    Config
	cmd    *exec.Cmd
	to     *os.File
	stderr *bytes.Buffer
	ended  chan struct{} // closed when it says nothing any more

	mu      sync.Mutex // guards what follows, and writes
	last    int
	waiting map[int]chan<- answer
	pages   map[string]*Page // by session
}

// message is one of the protocol, in either direction.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type answer struct {
	result json.RawMessage
	err    error
}

// Find returns the Chromium of this machine.
func Find() (string, error) {
	for _, name := range Programs() {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no Chromium is installed: install one (Debian: apt-get install chromium)", ErrMissing)
}

// Start starts a browser, which ends with Close or with this program.
func Start(_ context.Context, cfg Config) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	if cfg.Width == 0 {
		cfg.Width, cfg.Height = 1600, 900
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + filepath.Join(cfg.Dir, "profile"),
		fmt.Sprintf("--window-size=%d,%d", cfg.Width, cfg.Height), "--lang=en-US",
		// It asks no other address than those of its pages.
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--no-default-browser-check",
		"--disable-default-apps", "--disable-extensions", "--metrics-recording-only", "--disable-domain-reliability",
		"--disable-features=BackForwardCache,IntensiveWakeUpThrottling,OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,CertificateTransparencyComponentUpdater",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		// A page that another one hides is as awake as that.
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
		"--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // which it refuses to have as root
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, ours, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), to.Close())
	}
	b := &Browser{
		cfg: cfg, to: to, stderr: &bytes.Buffer{}, ended: make(chan struct{}),
		waiting: map[int]chan<- answer{}, pages: map[string]*Page{},
	}
	b.cmd = exec.Command(path, append(args, "about:blank")...) //nolint:noctx // it ends by Close
	b.cmd.Env = append(os.Environ(), "HOME="+cfg.Dir, "XDG_CONFIG_HOME="+cfg.Dir, "XDG_CACHE_HOME="+cfg.Dir)
	b.cmd.Stderr = b.stderr
	b.cmd.ExtraFiles = []*os.File{theirs, ours} // 3 and 4, as --remote-debugging-pipe has them
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = b.cmd.Start()
	err = errors.Join(err, theirs.Close(), ours.Close())
	if err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	go b.read(from)
	return b, nil
}

// Close ends the browser and all that it started.
func (b *Browser) Close() error {
	err := b.to.Close()                                   // by which it ends
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-b.ended
	_ = b.cmd.Wait() // it was killed
	return err
}

// read takes what the browser says until it ends.
func (b *Browser) read(from *os.File) {
	defer close(b.ended)
	defer func() { _ = from.Close() }() // only read from
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.fail(err)
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.fail(err)
			return
		}
		b.take(&m)
	}
}

// fail ends all that waits.
func (b *Browser) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = errors.New("the browser has ended")
	}
	for id, to := range b.waiting {
		to <- answer{err: err}
		delete(b.waiting, id)
	}
}

func (b *Browser) take(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ID == 0 {
		if page := b.pages[m.Session]; page != nil {
			page.event(m.Method, m.Params)
		}
		return
	}
	to := b.waiting[m.ID]
	delete(b.waiting, m.ID)
	if to == nil {
		return
	}
	a := answer{result: m.Result}
	if m.Error != nil {
		a.err = errors.New(m.Error.Message)
	}
	to <- a
}

// call asks the browser for something, in a session or none, and reads what it answers
// into result, unless that is nil.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	content, err := json.Marshal(params)
	if err != nil {
		return err
	}
	to := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = to
	text, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: content})
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case <-b.ended:
		return fmt.Errorf("%s: the browser has ended", method)
	case a := <-to:
		if a.err != nil {
			return fmt.Errorf("%s: %w", method, a.err)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.result, result)
	}
}
