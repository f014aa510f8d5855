//go:build linux

package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
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

// Anyone who may write to a work folder says which processes are killed, so no record of
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

func TestCleanUpSparesForeignFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CleanUp(dir); err == nil {
		t.Error("CleanUp() removes a folder that was never a work folder")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// Who takes the folder while another removes it has it, or is told that it is in use.
func TestCleanUpWhileOthersStart(t *testing.T) {
	dir := workFolder(t)
	for range 50 {
		var took, refused int
		var mu sync.Mutex // guards took and refused
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				err := claim(dir)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					took++
				case errors.Is(err, ErrRunning):
					refused++
				default:
					t.Error(err)
				}
			})
			g.Go(func() {
				if err := CleanUp(dir); err != nil && !errors.Is(err, ErrRunning) {
					t.Error(err)
				}
			})
		}
		g.Wait()
		if took != 1 || refused != 3 {
			t.Errorf("%d took the folder and %d were refused, want 1 and 3", took, refused)
		}
		if owner, err := Owner(dir); err != nil || owner == nil || owner.Pid != os.Getpid() {
			t.Errorf("Owner() = %v, %v, want this process", owner, err)
		}
		if err := unclaim(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := CleanUp(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder after CleanUp: %v, want none", err)
	}
}
