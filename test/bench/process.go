//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/argomesh/argomesh/test/bench/report"
)

// clockTick is the unit of the times in /proc/<pid>/stat: USER_HZ is 100 on every
// architecture Go runs on (proc(5)).
const clockTick = 10 * time.Millisecond

// peakInterval is how often the size of a process is looked at for its peak.
const peakInterval = 250 * time.Millisecond

// subject is a process to be measured. pid returns 0 while it does not run.
type subject struct {
	name string
	pid  func() int
}

// self is this process: the load, and whatever a scenario runs in it.
func self(name string) subject { return subject{name: name, pid: os.Getpid} }

// meter measures processes during one phase.
type meter struct {
	phase    string
	subjects []subject
	begun    time.Time
	before   []sample
	peak     []int64 // bytes, owned by the goroutine until done
	stop     context.CancelFunc
	done     sync.WaitGroup
}

type sample struct {
	pid int
	cpu time.Duration
}

// startMeter begins to measure.
func startMeter(ctx context.Context, phase string, subjects ...subject) *meter {
	ctx, stop := context.WithCancel(ctx)
	m := &meter{phase: phase, subjects: subjects, begun: time.Now(), peak: make([]int64, len(subjects)), stop: stop}
	for _, s := range subjects {
		pid := s.pid()
		cpu, _ := cpuTime(pid) // a process that does not run has used none
		m.before = append(m.before, sample{pid: pid, cpu: cpu})
	}
	m.done.Go(func() {
		look := time.NewTicker(peakInterval)
		defer look.Stop()
		for {
			for i, s := range subjects {
				if size, err := residentSize(s.pid()); err == nil {
					m.peak[i] = max(m.peak[i], size)
				}
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return m
}

// end returns what each process took since the start. It is called once.
func (m *meter) end() []report.Usage {
	m.stop()
	m.done.Wait()
	took := time.Since(m.begun)
	usages := make([]report.Usage, 0, len(m.subjects))
	for i, s := range m.subjects {
		pid := s.pid()
		cpu, err := cpuTime(pid)
		if err != nil {
			continue // it does not run any more
		}
		if pid == m.before[i].pid {
			cpu -= m.before[i].cpu
		}
		u := report.Usage{
			Process: s.name, Phase: m.phase, CPUSeconds: cpu.Seconds(), CPUPercent: 100 * cpu.Seconds() / took.Seconds(),
		}
		if size, err := residentSize(pid); err == nil {
			u.ResidentMiB, u.PeakMiB = mebibytes(size), mebibytes(max(size, m.peak[i]))
		}
		if size, err := proportionalSize(pid); err == nil {
			u.ProportionalMiB = mebibytes(size)
		}
		usages = append(usages, u)
	}
	return usages
}

// measurePhase runs f as one phase of a scenario.
func measurePhase(ctx context.Context, s *report.Scenario, phase string, subjects []subject, f func() error) error {
	m := startMeter(ctx, phase, subjects...)
	err := f()
	s.Processes = append(s.Processes, m.end()...)
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	return nil
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func cpuTime(pid int) (time.Duration, error) {
	content, err := procFile(pid, "stat")
	if err != nil {
		return 0, err
	}
	return parseCPUTime(content)
}

// parseCPUTime returns user and system time of /proc/<pid>/stat. The second field is
// the program's name in parentheses and may hold anything.
func parseCPUTime(stat []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const user, system = 14 - 3, 15 - 3 // fields of proc(5), counted from the third
	if end < 0 || len(fields) <= system {
		return 0, errors.New("not the format of /proc/<pid>/stat")
	}
	var ticks int64
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/<pid>/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

func residentSize(pid int) (int64, error) {
	content, err := procFile(pid, "statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0, errors.New("not the format of /proc/<pid>/statm")
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

func proportionalSize(pid int) (int64, error) {
	content, err := procFile(pid, "smaps_rollup")
	if err != nil {
		return 0, err
	}
	return kibibyteLine(content, "Pss:")
}

// kibibyteLine returns the bytes that a line "key  123 kB" tells.
func kibibyteLine(content []byte, key string) (int64, error) {
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no line %q", key)
}

func procFile(pid int, name string) ([]byte, error) {
	if pid == 0 {
		return nil, os.ErrProcessDone
	}
	return os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
}

func thisMachine() (report.Machine, error) {
	m := report.Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	total, err := kibibyteLine(memory, "MemTotal:")
	if err != nil {
		return m, fmt.Errorf("/proc/meminfo: %w", err)
	}
	m.MemoryGiB = float64(total) / (1 << 30)
	var uname syscall.Utsname
	if err := syscall.Uname(&uname); err != nil {
		return m, err
	}
	for _, c := range uname.Release {
		if c == 0 {
			break
		}
		m.Kernel += string(rune(c))
	}
	return m, nil
}

// loadAverage is that of one minute.
func loadAverage() (float64, error) {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(content), " ")
	return strconv.ParseFloat(first, 64)
}

// commitOf names the commit of a checkout, and says whether files differ from it.
func commitOf(ctx context.Context, checkout string) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", checkout}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	// The document with the results is what a run changes.
	changes, err := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/benchmarks.md")
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if changes != "" {
		commit += "+changes"
	}
	return commit, nil
}
