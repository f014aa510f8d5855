//go:build linux

package main

import (
	"encoding/json"
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

// tally counts deeds by the name of the attack. It may be used concurrently.
type tally struct {
	mu    sync.Mutex // guards deeds
	deeds map[string]*deed
}

func newTally() *tally { return &tally{deeds: map[string]*deed{}} }

// expect tells of an attack that is to begin.
func (t *tally) expect(attack string) { t.change(attack, func(*deed) {}) }

// begun adds a beginning, and returns what its end adds.
func (t *tally) begun(attack string) (ended func(err error)) {
	start := time.Now()
	t.change(attack, func(d *deed) { d.Begun++ })
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
	t.change(attack, func(d *deed) { d.Sent++; d.Bytes += int64(bytes) })
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
func (t *tally) write(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return json.NewEncoder(w).Encode(t.deeds)
}
