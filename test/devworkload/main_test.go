package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// asProgram makes this test binary behave as devworkload.
const asProgram = "ARGOMESH_TEST_AS_DEVWORKLOAD"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestBadFlags(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"--socket", filepath.Join(dir, "s"), "--trust-domain", "td.test", "--entry", "spiffe://td.test/a"}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no flags":               {nil, "--socket is missing"},
		"no trust domain":        {good[:2], "--trust-domain is missing"},
		"no entry":               {good[:4], "--entry is missing"},
		"an unknown flag":        {append(good, "--colour", "red"), "-colour"},
		"an argument":            {append(good, "red"), `unexpected argument "red"`},
		"a bad trust domain":     {[]string{"--trust-domain", "TD"}, "-trust-domain"},
		"a bad entry":            {[]string{"--entry", "spiffe://td.test"}, "-entry"},
		"a foreign entry":        {append(good, "--entry", "spiffe://other/a"), "not in trust domain td.test"},
		"several bad entries":    {append(good, "--entry", "spiffe://other/a", "--entry", "spiffe://other/b"), "other/b"},
		"a bad mode":             {append(good, "--socket-mode", "rw"), "octal"},
		"a bad ttl":              {append(good, "--x509-ttl", "soon"), "-x509-ttl"},
		"a ttl too short":        {append(good, "--x509-ttl", "1s"), "at least 2s"},
		"a socket path too long": {append(good, "--socket", filepath.Join(dir, strings.Repeat("x", 107))), "107"},
		"no folder for a socket": {append(good, "--socket", filepath.Join(dir, "no", "s")), "--socket"},
		"a file as socket":       {append(good, "--socket", file), "not a socket"},
		"a file as ca directory": {append(good, "--ca-dir", file), "ca directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := program(t, tc.args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("exit: %v, want code 1", err)
			}
			text := string(out)
			if !strings.HasPrefix(text, "devworkload: ") || strings.Count(text, "\n") != 1 || !strings.Contains(text, tc.want) {
				t.Errorf("printed %q, want one line that says %q", text, tc.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--help"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-socket ", "-entry ", "-ca-dir ", "-trust-domain ", "SIGUSR1"} {
		if !strings.Contains(out.String(), flag) {
			t.Errorf("help does not name %s", flag)
		}
	}
}

// roots reports how many roots of the trust domain each update holds.
type roots struct{ counts chan int }

func (r roots) OnX509ContextUpdate(c *workloadapi.X509Context) {
	td := spiffeid.RequireTrustDomainFromString("td.test")
	b, err := c.Bundles.GetX509BundleForTrustDomain(td)
	if err != nil {
		return
	}
	r.counts <- len(b.X509Authorities())
}

func (roots) OnX509ContextWatchError(error) {}

// TestProgram runs two processes on one authority and rotates it by a signal to
// the first, as seen by a client of the second.
func TestProgram(t *testing.T) {
	dir := shortDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := func(name string) (*exec.Cmd, *workloadapi.Client) {
		socket := filepath.Join(dir, name)
		cmd := program(t, "--socket", socket, "--trust-domain", "td.test", "--ca-dir", filepath.Join(dir, "ca"),
			"--entry", "spiffe://td.test/"+name+",ttl=1h", "--ca-prepare", "1s")
		cmd.Stderr = io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have stopped already
			_ = cmd.Wait()
		})
		client, err := workloadapi.New(ctx, workloadapi.WithAddr("unix://"+socket), workloadapi.WithBackoffStrategy(quick{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return cmd, client
	}
	one, clientOne := start("one")
	_, clientTwo := start("two")

	watched := roots{make(chan int, 100)}
	go func() { _ = clientTwo.WatchX509Context(ctx, watched) }() // ends with ctx
	waitFor := func(want int) {
		t.Helper()
		for {
			select {
			case got := <-watched.counts:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("never saw %d roots", want)
			}
		}
	}
	waitFor(1)
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClient(clientOne))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()

	if err := one.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	waitFor(2)

	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := clientTwo.FetchX509Bundles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var trusted x509bundle.Source = bundles
	if _, _, err := x509svid.Verify(svid.Certificates, trusted); err != nil {
		t.Errorf("an svid of one process does not verify at the other: %v", err)
	}

	if err := one.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := one.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want exit code 0", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "one")); err == nil {
		t.Error("the socket is left behind")
	}
}

// quick tries again every 20 ms.
type quick struct{}

func (quick) NewBackoff() workloadapi.Backoff { return quick{} }
func (quick) Next() time.Duration             { return 20 * time.Millisecond }
func (quick) Reset()                          {}
