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
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("memory of %s: no proportional set size in /proc/%d/smaps_rollup", p.Name(), pid)
}
