//go:build linux

package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Memory returns the process's proportional set size in bytes (proc(5)), in which pages
// that several processes share count once in all; 0 when it does not run.
func (p *Process) Memory() (int64, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	return proportional(pid, p.Name())
}

// FamilyMemory is Memory of the process and of what it started, and that started.
func (p *Process) FamilyMemory() (int64, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	children, err := listChildren()
	if err != nil {
		return 0, err
	}
	var total int64
	for _, member := range children.family(pid) {
		bytes, err := proportional(member, p.Name())
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

// proportional is the proportional set size of a process in bytes, 0 when it has ended.
func proportional(pid int, name string) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if hasEnded(err) {
		return 0, nil // in the meantime
	}
	if err != nil {
		return 0, err
	}
	return kibibytes(content, "Pss:", name)
}

// Anonymous returns the resident memory that no file is behind, in bytes: what the
// process has of its own, whatever of its program it has run so far. Zero for one that
// does not run.
func (p *Process) Anonymous() (int64, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // ended in the meantime
	}
	if err != nil {
		return 0, err
	}
	return kibibytes(content, "RssAnon:", p.Name())
}

// PeakResident returns the most resident memory that the process had in its present life,
// in bytes, no matter who shared it. Zero for one that does not run.
func (p *Process) PeakResident() (int64, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if hasEnded(err) {
		return 0, nil // in the meantime
	}
	if err != nil {
		return 0, err
	}
	return kibibytes(content, "VmHWM:", p.Name())
}

// kibibytes returns the bytes of a line "key  123 kB" that the kernel writes of a
// process.
func kibibytes(content []byte, key, process string) (int64, error) {
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("memory of %s: the kernel writes no %s", process, key)
}
