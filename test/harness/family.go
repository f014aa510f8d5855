//go:build linux

package harness

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// children are the running processes of the machine by their parent.
type children map[int][]int

// listChildren reads the processes that run now.
func listChildren() (children, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	c := make(children)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // no process
		}
		stat, err := statOf(pid)
		if hasEnded(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !stat.dead() {
			c[stat.parent] = append(c[stat.parent], pid)
		}
	}
	return c, nil
}

// family returns a process, what it started, what that started, and so on. What was
// left by its parent belongs to none.
func (c children) family(pid int) []int {
	members := []int{pid}
	for i := 0; i < len(members); i++ {
		members = append(members, c[members[i]]...)
	}
	return members
}

// hasEnded reports whether err, of reading below /proc, says that there is no such process.
func hasEnded(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
