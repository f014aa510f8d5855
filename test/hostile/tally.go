//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// deed is what came of one attack.
type deed struct {
	Begun    int               `json:"begun"`    // how often it began: each connection, stream or round is one
	Sent     int64             `json:"sent"`     // messages that the other side's transport took
	Bytes    int64             `json:"bytes"`    // of these as they were on the wire, TLS and HTTP/2 aside
	Answered int64             `json:"answered"` // messages that came back
	Ends     map[string]int    `json:"ends"`     // how the other side ended it, by status
	Results  map[string]int    `json:"results"`  // of events: taken, or the kind of refusal
	Why      map[string]string `json:"why"`      // the first words of each kind
	Took     time.Duration     `json:"took"`
}

// Lines for anyone who waits for the attacks. The tests have them, too.
const (
	attacking = "the first attack has begun"
	allMade   = "every attack was made"
)

// tally counts deeds by the name of the attack, and tells when the first begins, and when
// something was sent in each that is expected. It may be used concurrently.
type tally struct {
	out io.Writer

	mu     sync.Mutex // guards what follows, and writes to out
	deeds  map[string]*deed
	known  bool // there are all that are expected
	begins sync.Once
	made   sync.Once
	err    error // of out
}

func newTally(out io.Writer) *tally { return &tally{out: out, deeds: map[string]*deed{}} }

// expect tells of an attack that is to begin.
func (t *tally) expect(attack string) { t.change(attack, func(*deed) {}) }

// complete says that all attacks that are to begin are expected.
func (t *tally) complete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = true
	t.tellLocked()
}

// tellLocked says once that something was sent in each.
func (t *tally) tellLocked() {
	if !t.known {
		return
	}
	for _, d := range t.deeds {
		if d.Sent == 0 {
			return
		}
	}
	t.made.Do(func() { t.sayLocked(allMade) })
}

func (t *tally) sayLocked(line string) {
	_, err := fmt.Fprintln(t.out, line)
	t.err = errors.Join(t.err, err)
}

// begun adds a beginning, and returns what its end adds.
func (t *tally) begun(attack string) (ended func(err error)) {
	start := time.Now()
	t.change(attack, func(d *deed) {
		d.Begun++
		t.begins.Do(func() { t.sayLocked(attacking) })
	})
	return func(err error) {
		t.change(attack, func(d *deed) {
			d.Took += time.Since(start)
			if err != nil {
				d.Ends[endOf(err)]++
			}
		})
	}
}

func (t *tally) sent(attack string, bytes int) {
	t.change(attack, func(d *deed) {
		if d.Sent++; d.Sent == 1 {
			t.tellLocked()
		}
		d.Bytes += int64(bytes)
	})
}

func (t *tally) answered(attack string) { t.change(attack, func(d *deed) { d.Answered++ }) }

// result adds the result of an event.
func (t *tally) result(attack, kind, why string) {
	t.change(attack, func(d *deed) {
		if d.Results[kind]++; d.Results[kind] == 1 && why != "" {
			d.Why[kind] = fmt.Sprintf("%.160s", why)
		}
	})
}

func (t *tally) change(attack string, f func(*deed)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.deeds[attack]
	if d == nil {
		d = &deed{Ends: map[string]int{}, Results: map[string]int{}, Why: map[string]string{}}
		t.deeds[attack] = d
	}
	f(d)
}

// write writes all deeds as one JSON object.
func (t *tally) write() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.err, json.NewEncoder(t.out).Encode(t.deeds))
}
