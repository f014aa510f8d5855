package kit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// Log collects lines of a zerolog.Logger. Its methods may be called concurrently.
type Log struct {
	mu      sync.Mutex // guards what follows
	text    strings.Builder
	lines   []map[string]any // what text says
	changed chan struct{}    // closed by the next line
}

// NewLog returns one without lines.
func NewLog() *Log { return &Log{changed: make(chan struct{})} }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for raw := range bytes.Lines(p) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			return 0, err
		}
		l.lines = append(l.lines, line)
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(p)
}

// Logger writes to l.
func (l *Log) Logger() zerolog.Logger { return zerolog.New(l) }

// String returns the lines so far as they were written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Show prints the lines at the end of a test that has failed.
func (l *Log) Show(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", l)
		}
	})
}

// Lines returns the lines so far, and a channel that is closed by the next one.
func (l *Log) Lines() (lines []map[string]any, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.lines), l.changed
}

// Count is the number of lines so far.
func (l *Log) Count() int {
	lines, _ := l.Lines()
	return len(lines)
}

// Find returns the lines in which each field, the first of a pair, contains a text, the
// second. Every line contains an empty text.
func (l *Log) Find(pairs ...string) []map[string]any {
	lines, _ := l.Lines()
	return find(lines, pairs)
}

func find(lines []map[string]any, pairs []string) (found []map[string]any) {
	for _, line := range lines {
		if matches(line, pairs) {
			found = append(found, line)
		}
	}
	return found
}

func matches(line map[string]any, pairs []string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if value, _ := line[pairs[i]].(string); !strings.Contains(value, pairs[i+1]) {
			return false
		}
	}
	return true
}

// Wait returns the first line that Find would, as soon as there is one.
func (l *Log) Wait(t testing.TB, pairs ...string) map[string]any {
	t.Helper()
	return l.WaitAfter(t, 0, pairs...)
}

// WaitAfter is Wait without the first n lines.
func (l *Log) WaitAfter(t testing.TB, n int, pairs ...string) map[string]any {
	t.Helper()
	for ctx := Context(t); ; {
		lines, changed := l.Lines()
		if found := find(lines[n:], pairs); len(found) > 0 {
			return found[0]
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no log line with %q, there are %v", pairs, lines[n:])
		}
	}
}
