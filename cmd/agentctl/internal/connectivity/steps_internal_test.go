package connectivity

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// What a spoke says of itself moves no cursor and hides no line of a person's terminal.
func TestWhatASpokeSaysIsText(t *testing.T) {
	t.Parallel()
	const escape = "\x1b[2K\rALL IS WELL\x1b]0;pwned\a"
	tests := &tester{ask: &options{timeout: time.Minute}}
	for name, try := range map[string]func(*tester, context.Context) (string, error){
		"a step that succeeds": func(*tester, context.Context) (string, error) { return escape, nil },
		"a step that fails":    func(*tester, context.Context) (string, error) { return "", errors.New(escape) },
		"a step that is left":  func(*tester, context.Context) (string, error) { return "", skipError{why: escape} },
	} {
		r := tests.attempt(t.Context(), step{name: "sync", try: try}, nil)
		if strings.ContainsAny(r.Says, "\x1b\r\a") || !strings.Contains(r.Says, "ALL IS WELL") {
			t.Errorf("%s: it shows %q", name, r.Says)
		}
	}
}
