//go:build unix

package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat is how often a step that takes long says that it still runs.
const heartbeat = 15 * time.Second

// progress prints one line per event, with the time since the start, so that the
// output reads well in a terminal and in the log of a CI run.
type progress struct {
	start time.Time
	out   io.Writer

	mu sync.Mutex // guards writes to out
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.start).Round(time.Second)
	_, _ = fmt.Fprintf(p.out, "%6s  %s\n", elapsed, fmt.Sprintf(format, args...)) // no one is left to tell
}

// during runs do and says from time to time that it still does.
func (p *progress) during(what string, do func() error) error {
	p.say("%s", what)
	begin := time.Now()
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				p.say("%s: still at it after %s", what, time.Since(begin).Round(time.Second))
			}
		}
	})
	err := do()
	close(done)
	beats.Wait()
	if err == nil {
		p.say("%s: done in %s", what, time.Since(begin).Round(100*time.Millisecond))
	}
	return err
}
