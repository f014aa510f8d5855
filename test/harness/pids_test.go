//go:build linux

package harness

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// startStray starts a process that no harness owns any more, as after a crash.
func startStray(t *testing.T) (*exec.Cmd, processIdentity) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // the test may have done it
	id, err := identify(cmd.Process.Pid, "stray")
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

// workFolder is one as New leaves it.
func workFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	held, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeRecord(t *testing.T, dir string, id processIdentity) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, pidDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeIdentity(filepath.Join(dir, pidDir, id.Name+".json"), id); err != nil {
		t.Fatal(err)
	}
}

func TestCleanUpKillsWhatIsLeft(t *testing.T) {
	dir := workFolder(t)
	stray, id := startStray(t)
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }() // init would reap it
	writeRecord(t, dir, id)
	if err := CleanUp(dir); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) {
		t.Errorf("the stray process ended with %v, want that it was killed", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder after CleanUp: %v, want none", err)
	}
	if err := CleanUp(dir); err != nil {
		t.Errorf("CleanUp() of nothing = %v", err)
	}
}

func TestCleanUpSparesReusedPids(t *testing.T) {
	for name, change := range map[string]func(*processIdentity){
		"another start time": func(id *processIdentity) { id.Start-- },
		"another boot":       func(id *processIdentity) { id.Boot = "an earlier one" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := workFolder(t)
			_, id := startStray(t)
			recorded := id
			change(&recorded)
			writeRecord(t, dir, recorded)
			if err := CleanUp(dir); err != nil {
				t.Fatal(err)
			}
			if now, err := identify(id.PID, id.Name); err != nil || now != id {
				t.Errorf("the process that got the pid later: %v, %v", now, err)
			}
		})
	}
}

func TestNewCleansUp(t *testing.T) {
	t.Parallel()
	dir := workFolder(t)
	stray, id := startStray(t)
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	writeRecord(t, dir, id)
	if err := claim(dir); err != nil {
		t.Fatal(err)
	}
	if err := claim(dir); !errors.Is(err, ErrRunning) {
		t.Errorf("second claim = %v, want ErrRunning", err)
	}
	if err := unclaim(dir); err != nil {
		t.Fatal(err)
	}
	if err := killRecorded(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the stray process ended by itself")
	}
}

// After a crash of the machine a file may have its name and not its content.
func TestBrokenRecordsAreNobodys(t *testing.T) {
	for name, content := range map[string]string{
		"empty":         "",
		"cut":           `{"pid": 1, "sta`,
		"zeros":         "\x00\x00\x00",
		"another type":  `{"pid": 1, "start": "long ago"}`,
		"another value": `[]`,
		"no process":    `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := workFolder(t)
			writeRecord(t, dir, processIdentity{PID: 1, Name: "etcd"})
			for _, record := range []string{filepath.Join(dir, ownerFile), filepath.Join(dir, pidDir, "etcd.json")} {
				if err := os.WriteFile(record, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if owner, err := Owner(dir); owner != nil || err != nil {
				t.Errorf("Owner() = %v, %v, want nobody", owner, err)
			}
			if err := claim(dir); err != nil {
				t.Fatal(err)
			}
			if err := killRecorded(dir); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, pidDir, "*")); err != nil || len(left) > 0 {
				t.Errorf("records left: %v %v", left, err)
			}
		})
	}
}

func TestIdentifyOddNames(t *testing.T) {
	// A program may be named like the fields that follow its name.
	program := filepath.Join(t.TempDir(), "a) S 1 (b")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	id, err := identify(cmd.Process.Pid, "odd")
	if err != nil || id.Start == 0 {
		t.Errorf("identify() = %+v, %v", id, err)
	}
}
