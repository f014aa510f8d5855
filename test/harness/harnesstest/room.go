//go:build linux

package harnesstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// leastBusy and mostBusy bound how many tests keep servers busy at a time.
	leastBusy, mostBusy = 4, 24
	// lookEvery is how often the machine is looked at: a test that began has begun to work then.
	lookEvery = 3 * time.Second
	// There is room for another test while that much of the processors has nothing to do, and too
	// little when it is less than the second.
	roomyIdle, scarceIdle = 0.3, 0.05
	// The same of memory that can be had without swapping, in bytes. A test that starts control
	// planes takes up to two GiB.
	roomyMemory, scarceMemory = 6 << 30, 3 << 30
)

// room is what a machine has left.
type room struct {
	idle   float64 // part of the processors' time with nothing to do: 0 to 1
	memory int64   // bytes that can be had without swapping
}

// nextBusy is how many tests may keep servers busy from now on, from how many may so far and how
// many wait. Tests mostly wait for one another, so that how many a machine takes is seen only
// while they run: six leave an idle machine half idle, and are many where others have a share of it.
func nextBusy(now, waiting int, r room) int {
	switch {
	case r.idle < scarceIdle || r.memory < scarceMemory:
		return max(now-1, leastBusy)
	case waiting > 0 && r.idle > roomyIdle && r.memory > roomyMemory:
		return min(now+1, mostBusy)
	default:
		return now
	}
}

// Run fits how many tests keep servers busy to what the machine has left, until ctx is done.
func (l *Limits) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	busy := firstBusy
	before, err := readProcessorTime()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var now processorTime
		var memory int64
		if now, err = readProcessorTime(); err != nil {
			break
		}
		if memory, err = readAvailable(); err != nil {
			break
		}
		busy = nextBusy(busy, l.busy.Waiting(), room{idle: now.idleSince(before), memory: memory})
		l.busy.SetLimit(busy)
		before = now
	}
	return err
}

// processorTime is what the processors did since the start of the machine, in ticks.
type processorTime struct{ idle, all int64 }

// idleSince is the part of the time since before in which they had nothing to do. What was given
// to other machines is not idle.
func (p processorTime) idleSince(before processorTime) float64 {
	if p.all <= before.all {
		return 0
	}
	return float64(p.idle-before.idle) / float64(p.all-before.all)
}

func readProcessorTime() (processorTime, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processorTime{}, err
	}
	return parseProcessorTime(string(raw))
}

// parseProcessorTime reads the first line of /proc/stat (proc_stat(5)): user, nice, system, idle,
// iowait, irq, softirq, steal, and what is counted in user and nice already.
func parseProcessorTime(stat string) (p processorTime, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return p, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		p.all += n
		if i == 3 || i == 4 {
			p.idle += n
		}
	}
	return p, nil
}

// readAvailable is MemAvailable of /proc/meminfo (proc_meminfo(5)), in bytes.
func readAvailable() (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, "MemAvailable:"); is {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}
