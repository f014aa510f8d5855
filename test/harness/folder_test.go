//go:build linux

package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/argomesh/argomesh/test/tools/toolset"
)

func TestJudgeFolder(t *testing.T) {
	const self, other = 1000, 1001
	for name, c := range map[string]struct {
		mode  fs.FileMode
		owner int
		good  bool
	}{
		"ours alone":                  {fs.ModeDir | 0o700, self, true},
		"ours, others may read":       {fs.ModeDir | 0o755, self, true},
		"ours, the group may write":   {fs.ModeDir | 0o770, self, false},
		"ours, everybody may write":   {fs.ModeDir | fs.ModeSticky | 0o777, self, false},
		"another user's":              {fs.ModeDir | 0o700, other, false},
		"root's":                      {fs.ModeDir | 0o755, 0, false},
		"a link of ours":              {fs.ModeSymlink | 0o777, self, false},
		"a link of ours, if it could": {fs.ModeSymlink | 0o700, self, false},
		"a file":                      {0o600, self, false},
	} {
		if err := judgeFolder(c.mode, c.owner, self); (err == nil) != c.good {
			t.Errorf("%s: judgeFolder(%s, %d) = %v", name, c.mode, c.owner, err)
		}
	}
}

// Whoever may write to a work folder says which processes are killed, so no record of
// one that is not ours is read.
func TestForeignFoldersAreRefused(t *testing.T) {
	tools, err := toolset.Open()
	if err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(t *testing.T, dir string) string{
		"others may write": func(t *testing.T, dir string) string {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"a link": func(t *testing.T, dir string) string {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return link
		},
		"a link with a slash": func(t *testing.T, dir string) string {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return link + "/"
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := workFolder(t)
			_, victim := startStray(t)
			writeRecord(t, folder, victim)
			if err := writeIdentity(filepath.Join(folder, ownerFile), victim); err != nil {
				t.Fatal(err)
			}
			dir := prepare(t, folder)
			if owner, err := Owner(dir); owner != nil || err == nil {
				t.Errorf("Owner() = %v, %v, want an error", owner, err)
			}
			if err := CleanUp(dir); err == nil || errors.Is(err, ErrRunning) {
				t.Errorf("CleanUp() = %v, want that the folder is refused", err)
			}
			if _, err := New(Config{Dir: dir, Tools: tools, Fresh: true}); err == nil || errors.Is(err, ErrRunning) {
				t.Errorf("New() = %v, want that the folder is refused", err)
			}
			if now, err := identify(victim.PID, victim.Name); err != nil || now != victim {
				t.Errorf("the process that a record named: %v, %v", now, err)
			}
		})
	}
}
