//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

// theirLock is what Argo CD's lockfile says of argo-ui, beside another package.
const theirLock = `      argo-ui:
        specifier: git+https://github.com/argoproj/argo-ui.git#c0ffee
        version: https://codeload.github.com/argoproj/argo-ui/tar.gz/c0ffee(react@19.2.6)
packages:
  argo-ui@https://codeload.github.com/argoproj/argo-ui/tar.gz/c0ffee:
    resolution: {tarball: https://codeload.github.com/argoproj/argo-ui/tar.gz/c0ffee}
    version: 1.0.0
    peerDependencies:
  buffer@6.0.3:
    resolution: {integrity: sha512-c0ffee}
    deprecated: Ask https://example.com/support for more.
snapshots:
  argo-ui@https://codeload.github.com/argoproj/argo-ui/tar.gz/c0ffee(react@19.2.6):
`

const ourLock = `      argo-ui:
        specifier: file:argo-ui
        version: file:argo-ui(react@19.2.6)
packages:
  argo-ui@file:argo-ui:
    resolution: {directory: argo-ui, type: directory}
    peerDependencies:
  buffer@6.0.3:
    resolution: {integrity: sha512-c0ffee}
snapshots:
  argo-ui@file:argo-ui(react@19.2.6):
`

func TestFromFolder(t *testing.T) {
	got, err := argoUI{Commit: "c0ffee"}.fromFolder([]byte(theirLock))
	if err != nil || string(got) != ourLock {
		t.Errorf("fromFolder() = %v\n%s\nwant\n%s", err, got, ourLock)
	}
	if _, err := (argoUI{Commit: "beef"}).fromFolder([]byte(theirLock)); err == nil || !strings.Contains(err.Error(), "argo-ui.json") {
		t.Errorf("fromFolder() with another commit = %v", err)
	}
}

// Our lockfile takes nothing from git, which no sum would check, and argo-ui from a folder.
func TestLockfileIsOurs(t *testing.T) {
	lock, err := os.ReadFile(filepath.Join("ui", lockfile))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"tarball:": false, "codeload": false, "argo-ui@file:argo-ui:": true} {
		if bytes.Contains(lock, []byte(text)) != want {
			t.Errorf("%s contains %q: %v, want %v", lockfile, text, !want, want)
		}
	}
}

// What keeps the interface from being built is one line with its cure, and nothing of the
// build is left.
func TestBuildWebSaysTheCure(t *testing.T) {
	goProgram, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	const works, refused = "#!/bin/sh\n", "#!/bin/sh\necho npm error code ECONNREFUSED >&2\necho npm error more >&2\nexit 1\n"
	noArchive := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(noArchive, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		programs map[string]string
		want     []string
	}{
		"no npm":                 {nil, []string{"npm is missing", "install"}},
		"a registry that is off": {map[string]string{"npm": refused}, []string{"ECONNREFUSED", "npm config set registry"}},
		"not an archive":         {map[string]string{"npm": works}, []string{"argo-ui: ", archiveVariable}},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for program, script := range c.programs {
				for _, name := range []string{program, "node"} {
					if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("GOCACHE", goEnv(t, "GOCACHE"))
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Setenv("PATH", bin+string(filepath.ListSeparator)+filepath.Dir(goProgram))
			t.Setenv(archiveVariable, noArchive)
			set, err := toolset.Open()
			if err != nil {
				t.Fatal(err)
			}
			b := builder{set: set, tool: interfaceOf(set), progress: &progress{start: time.Now(), out: &bytes.Buffer{}}}
			err = b.build(t.Context())
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("build() = %v, want one line", err)
			}
			for _, text := range c.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("build() = %v, without %q", err, text)
				}
			}
			if left, err := filepath.Glob(filepath.Join(set.Dir(b.tool), temporary+"*")); err != nil || len(left) > 0 {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
}

// goEnv is a setting of the go command, whose default may follow from what a test sets.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
