package appevents

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

const (
	// MaxOfOne is how many events of one Application wait at most.
	MaxOfOne = 16
	// PerMinute is how many events of one Application pass in any minute.
	PerMinute = 10
	// PerSecond is how many of an agent pass in any second.
	PerSecond = 5
)

// Event is one thing that was said of an Application.
type Event struct {
	Application stream.ResourceKey
	stream.EventText
	// Count is how often it was said, First and Last when, by the clock of this side.
	Count       int
	First, Last time.Time
}

// Line holds the events of one agent that wait, and lets pass what the rates allow. What
// waits and is said again is one event, whose count is the sum. What there is no room for
// becomes one with another of its Application, type and reason, with the newest message. Only
// what has none such is dropped. It is not safe for concurrent use.
type Line struct {
	most      int
	wait      []*Event // oldest first
	agent     window
	of        map[stream.ResourceKey]*window
	cleanedAt time.Time
}

// NewLine returns an empty one, with room for so many events.
func NewLine(most int) *Line {
	return &Line{most: most, agent: window{most: PerSecond, span: time.Second}, of: map[stream.ResourceKey]*window{}}
}

// Len is how many events wait.
func (l *Line) Len() int { return len(l.wait) }

// Outcome is what became of an event that was added.
type Outcome uint8

const (
	// Waits is that it waits by itself.
	Waits Outcome = iota
	// Merged is that its count was added to one that waits.
	Merged
	// Crowded is that for lack of room an event was dropped, this one or an older one of
	// its Application.
	Crowded
)

// Add has an event wait.
func (l *Line) Add(e Event) Outcome {
	var alike, oldest *Event
	number := 0
	for _, other := range l.wait {
		if other.Application != e.Application {
			continue
		}
		if other.EventText == e.EventText {
			other.merge(e)
			return Merged
		}
		if other.Type == e.Type && other.Reason == e.Reason {
			alike = other // the newest of them
		}
		if oldest == nil {
			oldest = other
		}
		number++
	}
	switch {
	case number < MaxOfOne && len(l.wait) < l.most:
		l.wait = append(l.wait, &e)
		return Waits
	case alike != nil:
		alike.merge(e)
		alike.Message = e.Message
		return Merged
	case oldest != nil:
		l.remove(oldest)
		l.wait = append(l.wait, &e)
	}
	return Crowded
}

// merge adds what was said later.
func (e *Event) merge(later Event) {
	e.Count = min(e.Count+later.Count, stream.MaxEventCount)
	if later.First.Before(e.First) {
		e.First = later.First
	}
	if later.Last.After(e.Last) {
		e.Last = later.Last
	}
}

func (l *Line) remove(e *Event) {
	l.wait = slices.DeleteFunc(l.wait, func(other *Event) bool { return other == e })
}

// Due is when Next has something; zero when nothing waits.
func (l *Line) Due(now time.Time) time.Time {
	var due time.Time
	for i, e := range l.wait {
		if at := l.free(e.Application); i == 0 || at.Before(due) {
			due = at
		}
		if !due.After(now) {
			break
		}
	}
	if free := l.agent.free(); len(l.wait) > 0 && free.After(due) {
		due = free
	}
	if len(l.wait) > 0 && due.Before(now) {
		due = now
	}
	return due
}

// Next takes out the oldest event that may pass now, and counts it; false for none.
func (l *Line) Next(now time.Time) (e Event, ok bool) {
	if l.agent.free().After(now) {
		return Event{}, false
	}
	for _, e := range l.wait {
		if l.free(e.Application).After(now) {
			continue
		}
		l.remove(e)
		l.pass(e.Application, now)
		return *e, true
	}
	return Event{}, false
}

// free is when an event of an Application may pass.
func (l *Line) free(key stream.ResourceKey) time.Time {
	if w := l.of[key]; w != nil {
		return w.free()
	}
	return time.Time{}
}

func (l *Line) pass(key stream.ResourceKey, now time.Time) {
	if now.Sub(l.cleanedAt) >= time.Minute { // of a minute there are not more than of the agent's rate
		for other, w := range l.of {
			if w.idle(now) {
				delete(l.of, other)
			}
		}
		l.cleanedAt = now
	}
	w := l.of[key]
	if w == nil {
		w = &window{most: PerMinute, span: time.Minute}
		l.of[key] = w
	}
	w.pass(now)
	l.agent.pass(now)
}

// Drop drops all that waits, and returns how many events that were.
func (l *Line) Drop() int {
	n := len(l.wait)
	l.wait = nil
	return n
}
