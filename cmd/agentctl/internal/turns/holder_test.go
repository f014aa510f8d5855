package turns

import (
	"os"
	"testing"
	"time"
)

func TestEnded(t *testing.T) {
	const here = "boot/1"
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	gone := func(int) bool { return false }
	for name, c := range map[string]struct {
		holder, machine string
		runs            func(int) bool
		want            bool
	}{
		"one of ours that is gone":      {newHolder(here, 7, now), here, gone, true},
		"one of ours that runs":         {newHolder(here, 7, now), here, func(pid int) bool { return pid == 7 }, false},
		"one of another machine":        {newHolder("boot/2", 7, now), here, gone, false},
		"one of an earlier start":       {newHolder("earlier/1", 7, now), here, gone, false},
		"a machine that cannot be told": {newHolder("", 7, now), "", gone, false},
		"another program":               {"host_7", here, gone, false},
		"no one":                        {"", here, gone, false},
		"no process":                    {"agentctl/" + here + "/x/1", here, gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ended(c.holder, c.machine, c.runs); got != c.want {
				t.Errorf("ended(%q) = %t, want %t", c.holder, got, c.want)
			}
		})
	}
	if !runs(os.Getpid()) {
		t.Error("this process does not run")
	}
}
