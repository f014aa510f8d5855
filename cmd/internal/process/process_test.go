package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestExecute(t *testing.T) {
	for name, c := range map[string]struct {
		err            error
		code           int
		stdout, stderr string
	}{
		"an ordered stop is silent":     {nil, 0, "", ""},
		"an error is one line":          {errors.New("admin.listen: in use"), 1, "", "principal: admin.listen: in use\n"},
		"several errors, several lines": {errors.Join(errors.New("a: 1"), errors.New("b: 2")), 1, "", "principal: a: 1\nprincipal: b: 2\n"},
		"what begins again says why":    {fmt.Errorf("another mapping: %w", ErrRestart), codeRestart, "", "principal: another mapping: the process begins again\n"},
		"an answer goes to stdout":      {fmt.Errorf("load: %w", &Answer{Text: "usage\n"}), 0, "usage\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			run := func(_ context.Context, args []string) error {
				if len(args) != 1 || args[0] != "--x" {
					t.Errorf("args = %q", args)
				}
				return c.err
			}
			code := execute("principal", run, []string{"--x"}, &stdout, &stderr)
			if code != c.code || stdout.String() != c.stdout || stderr.String() != c.stderr {
				t.Errorf("execute() = %d, %q, %q, want %d, %q, %q", code, stdout.String(), stderr.String(), c.code, c.stdout, c.stderr)
			}
		})
	}
}

// childMode makes TestMain run as a binary under test.
const childMode = "ARGOMESH_PROCESS_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "":
		os.Exit(m.Run())
	case "orderly":
		Main("child", func(ctx context.Context, _ []string) error {
			fmt.Println("up")
			<-ctx.Done()
			return nil
		})
	case "again":
		Main("child", func(context.Context, []string) error {
			fmt.Println("up", os.Getpid())
			if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 { // nothing is left to read
				return nil
			}
			return ErrRestart
		})
	case "stuck":
		Main("child", func(ctx context.Context, _ []string) error {
			fmt.Println("up")
			<-ctx.Done()
			fmt.Println("stopping")
			select {}
		})
	}
}

// TestMainBeginsAgain: the same process runs the same program once more.
func TestMainBeginsAgain(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childMode+"=again")
	child.Stdin = strings.NewReader("x") // for one more life
	out, err := child.Output()
	if err != nil {
		t.Fatal(err)
	}
	lives := strings.Fields(string(out))
	if len(lives) != 4 || lives[1] != lives[3] {
		t.Errorf("it said %q, want two lives of one process", out)
	}
}

func TestMainSignals(t *testing.T) {
	t.Run("the first signal asks for a stop", func(t *testing.T) {
		child, _ := start(t, "orderly")
		signalChild(t, child)
		if err := child.Wait(); err != nil {
			t.Errorf("the process ended with %v, want exit code 0", err)
		}
	})
	t.Run("the second signal kills", func(t *testing.T) {
		child, out := start(t, "stuck")
		signalChild(t, child)
		expect(t, out, "stopping")
		signalChild(t, child)
		err := child.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
			t.Errorf("the process ended with %v, want exit code %d", err, 128+int(syscall.SIGTERM))
		}
	})
}

func start(t *testing.T, mode string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childMode+"="+mode)
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	expect(t, out, "up")
	return child, out
}

func expect(t *testing.T, out *bufio.Scanner, line string) {
	t.Helper()
	if !out.Scan() || out.Text() != line {
		t.Fatalf("the process said %q, want %q", out.Text(), line)
	}
}

func signalChild(t *testing.T, child *exec.Cmd) {
	t.Helper()
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
