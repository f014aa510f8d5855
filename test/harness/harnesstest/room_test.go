//go:build linux

package harnesstest

import "testing"

func TestNextBusy(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		now, waiting int
		room         room
		want         int
	}{
		"another has room":           {6, 3, room{0.5, 10 * gib}, 7},
		"none waits":                 {6, 0, room{0.5, 10 * gib}, 6},
		"the processors are used":    {6, 3, room{0.2, 10 * gib}, 6},
		"the processors are short":   {6, 3, room{0.01, 10 * gib}, 5},
		"memory is used":             {6, 3, room{0.5, 5 * gib}, 6},
		"memory is short":            {6, 3, room{0.5, 2 * gib}, 5},
		"no more than a bound":       {mostBusy, 3, room{0.9, 10 * gib}, mostBusy},
		"no fewer than a bound":      {leastBusy, 3, room{0, gib}, leastBusy},
		"short, and none that waits": {6, 0, room{0.01, 10 * gib}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextBusy(c.now, c.waiting, c.room); got != c.want {
				t.Errorf("%d tests, want %d", got, c.want)
			}
		})
	}
}

func TestParseProcessorTime(t *testing.T) {
	before, err := parseProcessorTime("cpu  10 10 10 100 20 5 5 40 7 7\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (processorTime{idle: 120, all: 200}); before != want {
		t.Errorf("it is %v, want %v", before, want)
	}
	now, err := parseProcessorTime("cpu  110 10 10 150 20 5 5 90 7 7\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := now.idleSince(before); got != 0.25 {
		t.Errorf("idle for %v of the time, want a quarter: what other machines had is none of it", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu a 2 3 4 5 6 7 8\n"} {
		if p, err := parseProcessorTime(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

// What this machine says can be read.
func TestReadRoom(t *testing.T) {
	if p, err := readProcessorTime(); err != nil || p.all <= 0 || p.idle > p.all {
		t.Errorf("%v, %v", p, err)
	}
	if n, err := readAvailable(); err != nil || n <= 0 {
		t.Errorf("%d, %v", n, err)
	}
}
