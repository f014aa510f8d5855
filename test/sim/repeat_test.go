package sim

import (
	"fmt"
	"testing"
)

// outline is a log less what is random: the ids of commands and what follows from
// them.
func outline(log Log) []string {
	var lines []string
	for _, e := range log.Entries {
		lines = append(lines, fmt.Sprint(e.At, e.Place, e.Note, e.Writer, e.Op, e.Key, e.UID, e.ResourceVersion, e.Gone))
	}
	return lines
}

// TestRepeats counts how far two runs of one history are the same, which is what
// makes a printed trace worth replaying.
func TestRepeats(t *testing.T) {
	histories, same, lines, common := 8, 0, 0, 0
	for seed := range uint64(histories) {
		a, b := outline(logOf(t, Generate(seed))), outline(logOf(t, Generate(seed)))
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		lines += max(len(a), len(b))
		common += n
		if len(a) == len(b) && n == len(a) {
			same++
		}
	}
	if 4*common < lines {
		t.Errorf("only %d of %d lines come before the first difference of two runs", common, lines)
	}
	t.Logf("%d of %d histories came out the same twice; %d of %d lines come before the first difference", same, histories, common, lines)
}
