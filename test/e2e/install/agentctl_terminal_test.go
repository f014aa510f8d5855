//go:build linux

package install

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/test/harness"
)

// onTerminal runs agentctl on a terminal of so many columns, and returns what it writes to it.
func onTerminal(t *testing.T, kubeconfig string, columns uint16, args ...string) string {
	t.Helper()
	return typing(t, "", kubeconfig, columns, args...)
}

// typing is onTerminal, where someone types something.
func typing(t *testing.T, typed, kubeconfig string, columns uint16, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }() // a second time, where it was read to its end
	if _, err := terminal.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// A read fails with EIO once no one has the other side (pty(7)).
	if _, err := io.Copy(&out, terminal); err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("agentctl %q: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// clearLine empties a line, from its begin.
const clearLine = "\r\x1b[K"

// On a terminal what is waited for is one line, which changes and fits; in a pipe it is a line for each step. What is
// left at the end is the same but for those steps.
func showsProgress(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	const columns = 40
	piped := must(t, c.Kubeconfig, hubArgs...)
	written := onTerminal(t, c.Kubeconfig, columns, append(hubArgs, "--set", "podLabels.on=terminal")...)
	piped += must(t, c.Kubeconfig, append(hubArgs, "--set", "podLabels.on=pipe")...)
	if strings.Contains(piped, "\x1b") || strings.Contains(piped, "\r") {
		t.Errorf("a pipe gets codes of a terminal: %q", piped)
	}
	if strings.Count(written, clearLine) < 2 {
		t.Errorf("no line changes: %q", written)
	}
	var left []string
	for line := range strings.SplitSeq(strings.ReplaceAll(written, "\r\n", "\n"), "\n") {
		states := strings.Split(line, clearLine)
		for _, state := range states[:len(states)-1] {
			if n := utf8.RuneCountInString(state); n >= columns {
				t.Errorf("a state has %d columns of %d, so that it would be two lines: %q", n, columns, state)
			}
		}
		left = append(left, states[len(states)-1])
	}
	const ready = "argomesh-principal: 1 of 1 pods are ready"
	steps := 0
	for _, line := range left {
		if strings.HasPrefix(line, "argomesh-principal: ") {
			steps++
		}
	}
	if text := strings.Join(left, "\n"); steps != 1 || !strings.Contains(text, ready) || !strings.Contains(text, "next: agentctl spoke install NAME") {
		t.Errorf("%d steps are left of the wait, want the last:\n%s", steps, text)
	}
	if strings.Count(piped, "argomesh-principal: ") < 2 || !strings.Contains(piped, ready) {
		t.Errorf("a pipe gets no line for each step:\n%s", piped)
	}

	// An uninstall asks, and removes nothing without a yes.
	const wide, question = 200, "Remove argomesh-principal from namespace argocd? (y/N): "
	before := revisions(t, c)
	if said := typing(t, "n\n", c.Kubeconfig, wide, "hub", "uninstall"); !strings.Contains(said, question) || !strings.Contains(said, "nothing was removed") {
		t.Errorf("of who says no it says\n%s", said)
	}
	if diff := cmp.Diff(before, revisions(t, c)); diff != "" {
		t.Errorf("without a yes something is removed (-before +after):\n%s", diff)
	}
	said := typing(t, "y\n", c.Kubeconfig, wide, "hub", "uninstall")
	if told := strings.Index(said, "  Deployment argomesh-principal\r\n"); told < 0 || told > strings.Index(said, question) ||
		!strings.Contains(said, "argomesh-principal is removed from namespace argocd") {
		t.Errorf("of who says yes it says\n%s", said)
	}
}
