//go:build linux

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrRunning is wrapped by New when another harness that is alive uses the folder.
var ErrRunning = errors.New("in use")

const (
	pidDir    = "pids"
	ownerFile = "owner.json"
	lockFile  = "lock"
)

// processIdentity names one process for ever: a pid alone is soon another process's. The
// zero value names none.
type processIdentity struct {
	PID int `json:"pid"`
	// Start is the time of the process's start in clock ticks since boot, field 22
	// of /proc/PID/stat (proc(5)).
	Start uint64 `json:"start"`
	// Boot tells boots of the machine apart.
	Boot string `json:"boot"`
	Name string `json:"name"`
}

// identify reads the identity of a running process.
func identify(pid int, name string) (processIdentity, error) {
	stat, err := statOf(pid)
	if err != nil {
		return processIdentity{}, err
	}
	if stat.dead() {
		return processIdentity{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processIdentity{}, err
	}
	return processIdentity{PID: pid, Start: stat.start, Boot: strings.TrimSpace(string(boot)), Name: name}, nil
}

// processStat is what the kernel says of a process in /proc/PID/stat (proc(5)).
type processStat struct {
	parent int
	start  uint64 // in clock ticks since boot
	used   uint64 // processor time, in clock ticks
	state  string
}

// dead reports whether the process has ended and only waits to be collected.
func (s processStat) dead() bool { return s.state == "Z" || s.state == "X" }

// statOf reads the stat of a process. The name in there may hold spaces and
// parentheses, so fields count from the last closing one.
func statOf(pid int) (processStat, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const stateField, parentField, userField, systemField, startField = 0, 1, 11, 12, 19 // numbers 3, 4, 14, 15 and 22; the first after the name is 3
	if end < 0 || len(fields) <= startField {
		return processStat{}, fmt.Errorf("process %d: unexpected /proc/%d/stat", pid, pid)
	}
	parent, err := strconv.Atoi(fields[parentField])
	if err != nil {
		return processStat{}, fmt.Errorf("process %d: unexpected parent in /proc/%d/stat: %w", pid, pid, err)
	}
	var numbers [3]uint64
	for i, field := range []int{startField, userField, systemField} {
		if numbers[i], err = strconv.ParseUint(fields[field], 10, 64); err != nil {
			return processStat{}, fmt.Errorf("process %d: unexpected number in /proc/%d/stat: %w", pid, pid, err)
		}
	}
	return processStat{parent: parent, start: numbers[0], used: numbers[1] + numbers[2], state: fields[stateField]}, nil
}

// find returns a handle of the very process id names, or os.ErrProcessDone. The
// handle is a pidfd, opened before the identity is compared, so that it stays right
// when the process ends and its pid is given away.
func (id processIdentity) find() (*os.Process, error) {
	if id == (processIdentity{}) {
		return nil, os.ErrProcessDone
	}
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return nil, err
	}
	now, err := identify(id.PID, id.Name)
	if err != nil || now != id {
		_ = handle.Release() // not ours, nothing to lose
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			err = os.ErrProcessDone
		}
		return nil, err
	}
	return handle, nil
}

// writeIdentity replaces path in one step.
func writeIdentity(path string, id processIdentity) error {
	content, err := json.Marshal(id)
	if err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, content, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// readIdentity returns the zero value for a record that is none. Each was whole when it
// got its name, so the machine has crashed since, and the process with it.
func readIdentity(path string) (processIdentity, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return processIdentity{}, err
	}
	var id processIdentity
	if json.Unmarshal(content, &id) != nil {
		return processIdentity{}, nil //nolint:nilerr // it says so by naming no process
	}
	return id, nil
}

// claim makes this program the owner of the work folder, under a file lock so that
// of two that start at once one fails.
func claim(dir string) error {
	held, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }() // unlocks; nothing was written
	if err := checkFree(dir); err != nil {
		return err
	}
	self, err := identify(os.Getpid(), filepath.Base(os.Args[0]))
	if err != nil {
		return err
	}
	return writeIdentity(filepath.Join(dir, ownerFile), self)
}

func unclaim(dir string) error {
	err := os.Remove(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkFree returns an error that wraps ErrRunning when a program that lives uses the
// work folder.
func checkFree(dir string) error {
	owner, err := Owner(dir)
	if err != nil {
		return err
	}
	if owner != nil {
		return fmt.Errorf("work folder %s: %w by process %d", dir, ErrRunning, owner.Pid)
	}
	return nil
}

// Owner returns the running program whose harness uses the work folder, nil if there
// is none. It fails when the folder is not this user's alone.
func Owner(dir string) (*os.Process, error) {
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	id, err := readIdentity(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	owner, err := id.find()
	if errors.Is(err, os.ErrProcessDone) {
		return nil, nil
	}
	return owner, err
}

// killRecorded kills every recorded process that is still itself, and waits until
// it is gone.
func killRecorded(dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, pidDir, "*.json"))
	if err != nil {
		return err
	}
	for _, record := range records {
		id, err := readIdentity(record)
		if err != nil {
			return err
		}
		if err := killIdentity(id); err != nil {
			return fmt.Errorf("kill %s, process %d: %w", id.Name, id.PID, err)
		}
		if err := os.Remove(record); err != nil {
			return err
		}
	}
	return nil
}

func killIdentity(id processIdentity) error {
	handle, err := id.find()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }() // a handle of another's child has nothing to report
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	// It is not our child, so it cannot be waited for; the kernel ends it soon.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return Eventually(ctx, "its end", func() error {
		if now, err := identify(id.PID, id.Name); err == nil && now == id {
			return errors.New("it still runs after SIGKILL")
		}
		return nil
	})
}
