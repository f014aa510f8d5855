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

// Memory returns the bytes of memory that all running processes use together. Pages
// that several share count once (proportional set size, proc(5)).
func (h *Harness) Memory() (int64, error) {
	var total int64
	for _, p := range h.Processes() {
		bytes, err := p.Memory()
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

// Memory returns the process's proportional set size in bytes, 0 when it does not
// run.
func (p *Process) Memory() (int64, error) {
	pid := p.PID()
	if pid == 0 {
		return 0, nil
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // ended in the meantime
	}
	if err != nil {
		return 0, err
	}
	return kibibytes(content, "Pss:", p.Name())
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
