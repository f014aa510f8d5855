//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

func TestChoose(t *testing.T) {
	all := len(toolset.Tools())
	for name, c := range map[string]struct {
		args  []string
		has   []string
		hasNo []string
		count int // zero: not checked
	}{
		"nothing means the servers": {nil, []string{"etcd", "argocd", "envoy"}, []string{"ko", "golangci-lint", "istioctl", "ui"}, 0},
		"a group":                   {[]string{"developer"}, []string{"helm", "generators"}, []string{"etcd", "ko"}, 0},
		"the meshes":                {[]string{"meshes"}, []string{"istio", "spire"}, []string{"etcd"}, 2},
		"what make tools builds":    {[]string{"servers", "developer", "earlier"}, []string{"etcd", "helm"}, []string{"ui", "istio", "ko"}, 0},
		"a tool":                    {[]string{"kwok"}, []string{"kwok"}, nil, 1},
		"a program":                 {[]string{"kubectl"}, []string{"kubernetes"}, nil, 1},
		"a link":                    {[]string{"argocd-server"}, []string{"argocd"}, nil, 1},
		"several, in build order":   {[]string{"helm", "etcd"}, []string{"etcd", "helm"}, nil, 2},
		"all":                       {[]string{"all"}, nil, nil, all},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(toolset.Tools(), c.args)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range chosen {
				names = append(names, tool.Name)
			}
			for _, want := range c.has {
				if !slices.Contains(names, want) {
					t.Errorf("choose(%v) = %v, without %s", c.args, names, want)
				}
			}
			for _, unwanted := range c.hasNo {
				if slices.Contains(names, unwanted) {
					t.Errorf("choose(%v) = %v, with %s", c.args, names, unwanted)
				}
			}
			if c.count != 0 && len(names) != c.count {
				t.Errorf("choose(%v) = %v, want %d", c.args, names, c.count)
			}
		})
	}
	if _, err := choose(toolset.Tools(), []string{"etcdd"}); err == nil || !strings.Contains(err.Error(), "etcdd") {
		t.Errorf("choose() of an unknown name = %v", err)
	}
}

func testBuilder(out io.Writer) *builder {
	return &builder{tool: toolset.Tool{Name: "tool"}, progress: &progress{start: time.Now(), out: out}}
}

func TestLockWaitsForTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var said bytes.Buffer
	b := testBuilder(&said)
	unlock, err := b.lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock = %v, want the deadline", err)
	}
	if !strings.Contains(said.String(), "waiting for another build of tool") {
		t.Errorf("it waited without a word: %q", said.String())
	}
	unlock()
	again, err := b.lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// An interrupt ends what a command started too.
func TestRunEndsTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 600 & echo $!; wait")
	cmd.Stdout = w
	ended := make(chan error, 1)
	go func() {
		ended <- testBuilder(io.Discard).run(cmd)
		_ = w.Close() // never fails
	}()
	var line [32]byte
	n, err := r.Read(line[:])
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // the writer must not block
	cancel()
	if err := <-ended; err == nil {
		t.Error("an interrupted command reports success")
	}
	pid := strings.TrimSpace(string(line[:n]))
	deadline := time.After(10 * time.Second)
	for alive(pid) {
		select {
		case <-deadline:
			t.Fatalf("process %s, started by the command, is alive", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// alive treats a dead child that no one has waited for as dead.
func alive(pid string) bool {
	state, err := exec.CommandContext(context.Background(), "ps", "-o", "stat=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func TestRunShowsTheEndOfTheOutput(t *testing.T) {
	err := testBuilder(io.Discard).run(exec.CommandContext(t.Context(), "sh", "-c", "echo go: downloading x; echo no such package >&2; exit 7"))
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("run() = %v, want the exit code and the output", err)
	}
	if err != nil && strings.Contains(err.Error(), "downloading x\n") {
		t.Errorf("run() = %v, want no download messages", err)
	}
}

func TestUnfinishedFilesAreNotTools(t *testing.T) {
	dir := t.TempDir()
	broken := io.MultiReader(strings.NewReader("half"), &failingReader{})
	final := filepath.Join(dir, "bin", "etcd")
	if err := writeFile(final, broken, 0o755); !errors.Is(err, syscall.EIO) {
		t.Fatalf("writeFile() = %v, want EIO", err)
	}
	if _, err := os.Stat(final); err == nil {
		t.Error("a half written file has its final name")
	}
	if err := removeTemporary(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "bin")); err != nil || len(left) > 0 {
		t.Errorf("left in bin: %v, %v", left, err)
	}
	if err := writeFile(final, strings.NewReader("whole"), 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(final); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("finished file: %v, %v, want an executable", info, err)
	}
}

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, syscall.EIO }
