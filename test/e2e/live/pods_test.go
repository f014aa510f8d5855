//go:build linux

package live

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// What one does in a container works as beside it: both ways in which kubectl speaks
// with it, over a WebSocket and over SPDY.
func TestLivePods(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	for protocol, webSockets := range map[string]bool{"websocket": true, "spdy": false} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			p := podVerbs{Caller: w.Agents[env.Managed].Caller(t), webSockets: webSockets}
			t.Run("exec", p.exec)
			t.Run("terminal", p.terminal)
			t.Run("port-forward", p.forward)
			t.Run("attach", p.attach)
			t.Run("copy", p.copy)
		})
	}
	t.Run("logs", func(t *testing.T) {
		t.Parallel()
		c := w.Agents[env.Managed].Caller(t)
		text := "logged " + rand.Text()
		if err := w.Log.Say(text); err != nil {
			t.Fatal(err)
		}
		if got := c.Run("", "logs", env.LivePod); !strings.Contains(got, "the container has started\n") || !strings.Contains(got, text+"\n") {
			t.Errorf("the log is %q", got)
		}
		if got := c.Run("", "logs", env.LivePod, "--tail=1"); strings.Count(got, "\n") != 1 {
			t.Errorf("its last line is %q", got)
		}
		cmd := c.Command("logs", "-f", env.LivePod)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		f := env.NewFollower(t, "kubectl logs -f", out, func() { _ = cmd.Process.Kill() })
		f.Until(t, text)
		for range 3 {
			next := "followed " + rand.Text()
			if err := w.Log.Say(next); err != nil {
				t.Fatal(err)
			}
			f.Until(t, next)
		}
	})
}

// podVerbs is livePod, seen through the hub.
type podVerbs struct {
	*env.Caller
	webSockets bool
}

func (p podVerbs) in(t *testing.T) podVerbs {
	through := *p.Caller
	through.T = t
	return podVerbs{&through, p.webSockets}
}

// kubectl returns kubectl with the protocol of p.
func (p podVerbs) kubectl(args ...string) *exec.Cmd {
	p.T.Helper()
	cmd := p.Command(args...)
	cmd.Env = append(cmd.Env,
		fmt.Sprint("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=", p.webSockets), fmt.Sprint("KUBECTL_PORT_FORWARD_WEBSOCKETS=", p.webSockets))
	return cmd
}

// upgraded holds that the last call of a subresource used the protocol of p.
func (p podVerbs) upgraded(subresource string) {
	p.T.Helper()
	protocol := map[bool]string{true: "websocket", false: "SPDY/3.1"}[p.webSockets]
	p.Agent.Env.Recorded(p.T, p.Agent.Name, map[string]any{
		"resource": "pods", "subresource": subresource, "name": env.LivePod, "upgrade": protocol, "stage": "open", "decision": "allow",
	})
}

func (p podVerbs) exec(t *testing.T) {
	p = p.in(t)
	var out, complaint bytes.Buffer
	// kwok does not tell a command that its input has ended, so they count.
	cmd := p.kubectl("exec", "-i", env.LivePod, "--", "sh", "-c", "head -n 1 | tr a-z A-Z; echo said in error >&2")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("quiet words\n"), &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &complaint)
	}
	if out.String() != "QUIET WORDS\n" || complaint.String() != "said in error\n" {
		t.Errorf("it said %q and %q", &out, &complaint)
	}
	p.upgraded("exec")
	// 50 MiB each way, and the sum of what came. The command ends when it has come: what
	// an API server has not passed on yet at the end of a command is lost once it cannot
	// pass on a ping of kubectl's (of six slow direct calls five ended short).
	const size = 50 << 20
	cmd = p.kubectl("exec", "-i", env.LivePod, "--", "sh", "-c", fmt.Sprintf("head -c %d; head -n 1 >/dev/null", size))
	went, came := sha256.New(), sha256.New()
	all := make(chan struct{})
	cmd.Stdin = io.MultiReader(io.TeeReader(io.LimitReader(rand.Reader, size), went), &ending{all: all})
	cmd.Stdout = io.MultiWriter(came, &countdown{left: size, done: all})
	var failed bytes.Buffer
	cmd.Stderr = &failed
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &failed)
	}
	if !bytes.Equal(went.Sum(nil), came.Sum(nil)) {
		t.Error("50 MiB came back changed")
	}
}

// ending reads as a line, once all is closed.
type ending struct {
	all  <-chan struct{}
	said bool
}

func (e *ending) Read(p []byte) (int, error) {
	if e.said {
		return 0, io.EOF
	}
	<-e.all
	e.said = true
	return copy(p, "\n"), nil
}

// countdown closes done when all that is left was written.
type countdown struct {
	left int
	done chan struct{}
}

func (c *countdown) Write(p []byte) (int, error) {
	if before := c.left; before > 0 {
		if c.left -= len(p); c.left <= 0 {
			close(c.done)
		}
	}
	return len(p), nil
}

// terminal works in a pod at a terminal, whose size changes.
func (p podVerbs) terminal(t *testing.T) {
	p = p.in(t)
	person, program := harnesstest.Terminal(t)
	size := func(rows, columns uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	size(33, 101)
	cmd := p.kubectl("exec", "-it", env.LivePod, "--", "sh")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := env.NewFollower(t, "kubectl exec -it", person, func() { _ = cmd.Process.Kill() })
	say := func(text string) {
		t.Helper()
		if _, err := person.WriteString(text + "\r"); err != nil {
			t.Fatal(err)
		}
	}
	say("tty && echo at-$((40+2))")
	f.Until(t, "at-42") // its echo has other characters
	sized := func(want string) {
		t.Helper()
		// The size comes on a way of its own.
		say("until [ \"$(stty size)\" = '" + want + "' ]; do :; done; echo sized-$((40+2))")
		f.Until(t, "sized-42")
	}
	sized("33 101")
	size(44, 99)
	sized("44 99")
	say("exit")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	p.upgraded("exec")
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) `)

func (p podVerbs) forward(t *testing.T) {
	p = p.in(t)
	cmd := p.kubectl("port-forward", "--address=127.0.0.1", "pod/"+env.LivePod, fmt.Sprint(":", env.EchoPort))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := env.NewFollower(t, "kubectl port-forward", out, func() { _ = cmd.Process.Kill() })
	at := forwarding.FindStringSubmatch(f.Until(t, "Forwarding from"))
	if at == nil {
		t.Fatal("it does not say where it listens")
	}
	go func() {
		for range f.Lines { // "Handling connection for", which no one needs
		}
	}()
	for i := range 3 { // connections of one session, one after the other
		conn, err := net.DialTimeout("tcp", at[1], 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(env.Patience)); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("connection %d %s\n", i, rand.Text())
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || got != text {
			t.Errorf("it says %q back: %v", got, err)
		}
		_ = conn.Close() // all came
	}
	p.upgraded("portforward")
}

// attach shows what the container says from now on. kwok's takes no input.
func (p podVerbs) attach(t *testing.T) {
	p = p.in(t)
	cmd := p.kubectl("attach", env.LivePod)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := env.NewFollower(t, "kubectl attach", out, func() { _ = cmd.Process.Kill() })
	p.upgraded("attach")
	text := "attached " + rand.Text()
	// Only what is said once it listens is shown, and it does not say when that is.
	env.Eventually(t, "a line of the container", func() error {
		if err := p.Agent.Env.Log.Say(text); err != nil {
			return err
		}
		select {
		case line := <-f.Lines:
			if !strings.Contains(line, text) {
				return fmt.Errorf("it shows %q", line)
			}
			return nil
		default:
			return fmt.Errorf("it shows nothing")
		}
	})
	go func() {
		for range f.Lines { // what other tests say
		}
	}()
}

// copy copies a folder out of the container. (Into it kubectl feeds a tar, which waits
// for the end of its input, of which kwok does not tell it: see TestLiveInputEnds.)
func (p podVerbs) copy(t *testing.T) {
	p = p.in(t)
	// The container's files are those of this machine.
	inside, outside := t.TempDir(), t.TempDir()
	content := make([]byte, 1<<20) // little, so that it has come when tar ends: see exec
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(inside, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"large": content, "below/small": []byte("small")}
	for name, c := range files {
		if err := os.WriteFile(filepath.Join(inside, name), c, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.kubectl("cp", env.LivePod+":"+inside, outside, "--retries=0").CombinedOutput(); err != nil {
		t.Fatalf("kubectl cp: %v: %s", err, out)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(outside, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s came with %d bytes of %d, or changed", name, len(got), len(want))
		}
	}
}
