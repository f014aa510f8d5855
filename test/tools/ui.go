//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// archiveVariable names an archive of the source of argo-ui, where its address cannot be had.
const archiveVariable = "ARGO_UI_ARCHIVE"

// uiCosts says what the web interface costs before it is built.
const uiCosts = `Argo CD's web interface is built first, with Node.js and npm: 5 minutes on two cores, once, with 1.5 GB of disk meanwhile, of which 250 MB stay in %s.
It may be interrupted, and leaves nothing half-built then.
`

// argoUI is the source that Argo CD's interface needs beside packages of npm: argo-ui of
// one commit, which its lockfile takes from git.
type argoUI struct {
	Commit, Address, Sum string
}

// unpacked is where the source of argo-ui lies, below the folder of the interface.
const unpacked = "argo-ui"

// web builds the interface of an argocd-server. Its folders end with the build.
type web struct {
	*builder
	module string // a copy of Argo CD's module
	ui     string // the interface in it
	pnpm   string // the folder of the package manager
	source argoUI
}

// buildWeb makes a copy of Argo CD's module whose interface is built, and a go.mod that
// takes this copy in its place.
func (b *builder) buildWeb(ctx context.Context) error {
	module := filepath.Join(b.tree(), "module")
	source, err := b.argoUI()
	if err != nil {
		return err
	}
	w := &web{builder: b, source: source, module: module, ui: filepath.Join(module, "ui"), pnpm: filepath.Join(b.tree(), "pnpm")}
	if err := os.Mkdir(b.tree(), 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{w.npm, w.fetchSource, w.copyModule, w.packages, w.bundle, w.replace} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// argoUI reads what is pinned.
func (b *builder) argoUI() (argoUI, error) {
	var source argoUI
	pin, err := os.ReadFile(filepath.Join(b.set.Source(b.tool), "argo-ui.json"))
	if err != nil {
		return source, err
	}
	if err := json.Unmarshal(pin, &source); err != nil {
		return source, fmt.Errorf("argo-ui.json: %w", err)
	}
	return source, nil
}

// errNoNPM has its cure with it.
var errNoNPM = errors.New("Node.js with npm is missing, of release 20 or later: install both (Debian: apt-get install nodejs npm)")

// npm has npm fetch the package manager that Argo CD's lockfile is of. It is small: where
// the registry does not answer, this says so soon.
func (w *web) npm(ctx context.Context) error {
	for _, program := range []string{"node", "npm"} {
		if !inPath(program)(ctx) {
			return errNoNPM
		}
	}
	if err := os.CopyFS(w.pnpm, os.DirFS(filepath.Join(w.set.Source(w.tool), "pnpm"))); err != nil {
		return err
	}
	fetch := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
		"--fetch-retries=0", "--fetch-timeout=10000")
	fetch.Dir = w.pnpm
	err := w.progress.during("fetching pnpm", func() error { return w.run(fetch) })
	if err != nil && ctx.Err() == nil {
		code, said := "no code", regexp.MustCompile(`npm (?:error|ERR!) code (\w+)`).FindStringSubmatch(err.Error())
		if said != nil {
			code = said[1]
		}
		return fmt.Errorf("npm cannot fetch pnpm (%s): name a registry that answers (npm config set registry URL)", code)
	}
	return err
}

// fetchSource lays out the source of argo-ui where the lockfile looks for it.
func (w *web) fetchSource(ctx context.Context) error {
	from := []string{"-url", w.source.Address}
	if archive := os.Getenv(archiveVariable); archive != "" {
		full, err := filepath.Abs(archive)
		if err != nil {
			return err
		}
		from = []string{"-archive", full}
	}
	args := append([]string{"run", "./test/tools/source", "-sum", w.source.Sum, "-to", filepath.Join(w.tree(), unpacked)}, from...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = w.set.Checkout()
	err := w.progress.during("fetching argo-ui", func() error { return w.run(cmd) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	said := lines[min(1, len(lines)-1)] // the first line is go's
	return fmt.Errorf("argo-ui: %s: name an archive of its commit %s (.tar.gz) by the variable %s", said, w.source.Commit, archiveVariable)
}

func (w *web) copyModule(ctx context.Context) error {
	from, err := w.moduleDir(ctx, w.tool.Programs[0].Module)
	if err != nil {
		return err
	}
	if err := os.CopyFS(w.module, os.DirFS(from)); err != nil { // without its read-only modes
		return err
	}
	return os.Rename(filepath.Join(w.tree(), unpacked), filepath.Join(w.ui, unpacked))
}

// packages installs the packages that our lockfile names, with the sums in it, and runs no
// script of theirs.
func (w *web) packages(ctx context.Context) error {
	theirs, err := os.ReadFile(filepath.Join(w.ui, lockfile))
	if err != nil {
		return err
	}
	want, err := w.source.fromFolder(theirs)
	if err != nil {
		return err
	}
	ours, err := os.ReadFile(filepath.Join(w.set.Source(w.tool), lockfile))
	if err != nil {
		return err
	}
	if !bytes.Equal(ours, want) {
		return fmt.Errorf("test/tools/%s/%s is not that of this release of Argo CD: run go run ./test/tools -lock", w.tool.Name, lockfile)
	}
	manifest, err := os.ReadFile(filepath.Join(w.ui, "package.json"))
	if err != nil {
		return err
	}
	if manifest, err = w.source.fromFolder(manifest); err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(w.ui, lockfile), ours, 0o600),
		os.WriteFile(filepath.Join(w.ui, "package.json"), manifest, 0o600),
	); err != nil {
		return err
	}
	install := w.pnpmCommand(ctx, "install", "--frozen-lockfile", "--ignore-scripts", "--store-dir", filepath.Join(w.tree(), "store"))
	return w.progress.during("installing the packages of the interface", func() error { return w.run(install) })
}

// bundle builds the interface where argocd-server embeds it, and removes what that took.
func (w *web) bundle(ctx context.Context) error {
	build := w.pnpmCommand(ctx, "run", "build")
	build.Env = append(os.Environ(), "NODE_ENV=production", "NODE_OPTIONS=--max-old-space-size=4096")
	if err := w.progress.during("building the interface", func() error { return w.run(build) }); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(w.ui, "dist", "app", "index.html")); err != nil {
		return fmt.Errorf("pnpm built no page: %w", err)
	}
	return errors.Join(os.RemoveAll(filepath.Join(w.ui, "node_modules")), os.RemoveAll(filepath.Join(w.tree(), "store")))
}

// pnpmCommand runs pnpm on the interface. The release that Argo CD's package.json names is
// the one that is pinned here; pnpm is kept from fetching it by itself.
func (w *web) pnpmCommand(ctx context.Context, args ...string) *exec.Cmd {
	pnpm := filepath.Join(w.pnpm, "node_modules", ".bin", "pnpm")
	cmd := exec.CommandContext(ctx, pnpm, append([]string{"--config.manage-package-manager-versions=false"}, args...)...)
	cmd.Dir = w.ui
	return cmd
}

// replace makes a go.mod by which the copy is built with what the tool argocd pins.
func (w *web) replace(ctx context.Context) error {
	pinned := w.set.Module(w.tool)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(pinned, name))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(w.tree(), "main", name), bytes.NewReader(content), 0o644); err != nil {
			return err
		}
	}
	return w.run(w.goCommand(ctx, "mod", "edit", "-replace", w.tool.Programs[0].Module+"=../module"))
}

// lockfile is the name of pnpm's lockfile.
const lockfile = "pnpm-lock.yaml"

// fromFolder is the lockfile or package.json of Argo CD's interface with argo-ui from a
// folder beside it, and without what a registry advised of old packages when it was written.
func (a argoUI) fromFolder(theirs []byte) ([]byte, error) {
	if !bytes.Contains(theirs, []byte(a.Commit)) {
		return nil, fmt.Errorf("Argo CD's interface does not ask for commit %s of argo-ui: pin the one that it asks for in argo-ui.json", a.Commit)
	}
	resolution := regexp.MustCompile(`(resolution: )\{tarball: [^}]*` + a.Commit + `\}\n +version: \S+`)
	ours := resolution.ReplaceAll(theirs, []byte("${1}{directory: "+unpacked+", type: directory}"))
	address := regexp.MustCompile(`(?:git\+)?https://[\w./-]+argo-ui[\w./-]*[#/]` + a.Commit)
	ours = address.ReplaceAll(ours, []byte("file:"+unpacked))
	advice := regexp.MustCompile(`(?m)^ {4}deprecated: .*\n`)
	return advice.ReplaceAll(ours, nil), nil
}

// writeLock writes our lockfile from that of the pinned Argo CD.
func (b *builder) writeLock(ctx context.Context) error {
	source, err := b.argoUI()
	if err != nil {
		return err
	}
	module, err := b.moduleDir(ctx, b.tool.Programs[0].Module)
	if err != nil {
		return err
	}
	theirs, err := os.ReadFile(filepath.Join(module, "ui", lockfile))
	if err != nil {
		return err
	}
	ours, err := source.fromFolder(theirs)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.set.Source(b.tool), lockfile), ours, 0o644)
}
