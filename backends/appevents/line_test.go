package appevents_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/argomesh/argomesh/backends/appevents"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func application(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: name}
}

func event(name, reason, message string, at time.Time) appevents.Event {
	return appevents.Event{
		Application: application(name), EventText: stream.EventText{Type: stream.EventNormal, Reason: reason, Message: message},
		Count: 1, First: at, Last: at,
	}
}

// drain takes what may pass until a time, always when it is due, and returns when each passed.
func drain(line *appevents.Line, from, until time.Time) (passed []time.Time, events []appevents.Event) {
	for now := from; line.Len() > 0 && !now.After(until); now = line.Due(now) {
		for {
			e, ok := line.Next(now)
			if !ok {
				break
			}
			passed, events = append(passed, now), append(events, e)
		}
		if due := line.Due(now); line.Len() > 0 && !due.After(now) {
			panic("something is due and does not pass")
		}
	}
	return passed, events
}

func TestRateOfAnApplication(t *testing.T) {
	line := appevents.NewLine(1000)
	var passed []time.Time
	for second := range 300 {
		now := noon.Add(time.Duration(second) * time.Second)
		line.Add(event("a", "ResourceUpdated", fmt.Sprint(second), now))
		at, _ := drain(line, now, now)
		passed = append(passed, at...)
	}
	if most := kit.MostWithin(passed, time.Minute); most != appevents.PerMinute {
		t.Errorf("%d within a minute, want %d", most, appevents.PerMinute)
	}
	if len(passed) != 5*appevents.PerMinute {
		t.Errorf("%d in five minutes", len(passed))
	}
}

func TestRateOfAnAgent(t *testing.T) {
	line := appevents.NewLine(1000)
	for i := range 100 {
		line.Add(event(fmt.Sprint("a", i), "ResourceUpdated", "", noon))
	}
	passed, events := drain(line, noon, noon.Add(time.Hour))
	if most := kit.MostWithin(passed, time.Second); most != appevents.PerSecond || len(passed) != 100 {
		t.Errorf("%d, and %d within a second", len(passed), most)
	}
	if took := passed[99].Sub(noon); took != 19*time.Second {
		t.Errorf("it took %s", took)
	}
	for i, e := range events {
		if e.Application.Name != fmt.Sprint("a", i) {
			t.Fatalf("%s is number %d", e.Application.Name, i)
		}
	}
}

// An Application whose rate is used up holds up no other.
func TestNobodyWaitsForAnothersRate(t *testing.T) {
	line := appevents.NewLine(1000)
	for i := range 2 * appevents.MaxOfOne { // the rest is merged
		line.Add(event("loud", "ResourceUpdated", fmt.Sprint(i), noon))
	}
	drain(line, noon, noon.Add(10*time.Second))
	if line.Len() == 0 {
		t.Fatal("it is not held back")
	}
	now := noon.Add(10 * time.Second)
	line.Add(event("quiet", "OperationCompleted", "", now))
	if e, ok := line.Next(now); !ok || e.Application.Name != "quiet" {
		t.Errorf("Next() = %v, %v", e, ok)
	}
}

// However much is said: what passes has counts that are those of all.
func TestCountsAreKept(t *testing.T) {
	line := appevents.NewLine(64)
	const said = 5000
	for i := range said {
		at := noon.Add(time.Duration(i) * time.Millisecond)
		if got := line.Add(event(fmt.Sprint("a", i%4), "ResourceUpdated", fmt.Sprint(i%1000), at)); got == appevents.Crowded {
			t.Fatalf("event %d was dropped", i)
		}
	}
	if line.Len() != 64 {
		t.Errorf("%d wait", line.Len())
	}
	passed, events := drain(line, noon.Add(5*time.Second), noon.Add(time.Hour))
	sum := 0
	first, last := events[0].First, events[0].Last
	for _, e := range events {
		sum += e.Count
		if e.First.Before(first) {
			first = e.First
		}
		if e.Last.After(last) {
			last = e.Last
		}
	}
	if sum != said || len(passed) != 64 {
		t.Errorf("%d in %d, want %d", sum, len(passed), said)
	}
	if !first.Equal(noon) || !last.Equal(noon.Add((said-1)*time.Millisecond)) {
		t.Errorf("they were said from %s to %s", first, last)
	}
}

func TestTheSameIsOne(t *testing.T) {
	line := appevents.NewLine(64)
	for i := range 3 {
		e := event("a", "OperationCompleted", "failed", noon.Add(time.Duration(i)*time.Second))
		e.Count = stream.MaxEventCount / 2
		line.Add(e)
	}
	warning := event("a", "OperationCompleted", "failed", noon)
	warning.Type = stream.EventWarning
	if got := line.Add(warning); got != appevents.Waits {
		t.Errorf("another type is %v", got)
	}
	e, _ := line.Next(noon)
	if e.Count != stream.MaxEventCount || !e.First.Equal(noon) || !e.Last.Equal(noon.Add(2*time.Second)) {
		t.Errorf("Next() = %+v", e)
	}
}

// Where there is no room the message that is shown is the newest, and of other reasons the
// oldest goes.
func TestCrowded(t *testing.T) {
	line := appevents.NewLine(20)
	for i := range appevents.MaxOfOne {
		line.Add(event("a", fmt.Sprint("R", i), "", noon))
	}
	if got := line.Add(event("a", "R3", "newer", noon)); got != appevents.Merged {
		t.Errorf("one with a reason that waits is %v", got)
	}
	if got := line.Add(event("a", "Other", "", noon)); got != appevents.Crowded || line.Len() != appevents.MaxOfOne {
		t.Errorf("one with another reason is %v, and %d wait", got, line.Len())
	}
	for i := range 100 {
		line.Add(event(fmt.Sprint("b", i), "R", "", noon))
	}
	if line.Len() != 20 {
		t.Errorf("%d wait, want 20", line.Len())
	}
	if got := line.Add(event("b0", "R", "newer", noon)); got != appevents.Merged {
		t.Errorf("one with a reason that waits is %v when all is full", got)
	}
	_, events := drain(line, noon, noon.Add(time.Hour))
	if e := events[0]; e.Reason != "R1" {
		t.Errorf("the oldest is %s", e.Reason)
	}
	if e := events[2]; e.Reason != "R3" || e.Message != "newer" || e.Count != 2 {
		t.Errorf("the merged one is %+v", e)
	}
	for range 3 {
		line.Add(event("c", "R", fmt.Sprint(line.Len()), noon))
	}
	if n := line.Drop(); n != 3 || line.Len() != 0 || !line.Due(noon).IsZero() {
		t.Errorf("Drop() = %d", n)
	}
}

// What has passed is not remembered longer than a rate needs it.
func TestLineForgets(t *testing.T) {
	line := appevents.NewLine(64)
	now := noon
	for i := range 5000 {
		line.Add(event(fmt.Sprint("a", i), "R", "", now))
		now = line.Due(now)
		if _, ok := line.Next(now); !ok {
			t.Fatal("nothing passes when it is due")
		}
	}
	if n, most := line.Remembered(), 2*60*appevents.PerSecond+1; n > most {
		t.Errorf("%d Applications are remembered, want %d at most", n, most)
	}
}

func TestCommon(t *testing.T) {
	common := appevents.NewCommon()
	var slots []time.Time
	now := noon
	for i := range 1000 {
		if i%7 == 0 {
			now = now.Add(3 * time.Millisecond)
		}
		at := common.Reserve(now)
		if at.Before(now) {
			t.Fatalf("Reserve(%s) = %s", now, at)
		}
		slots = append(slots, at)
	}
	if most := kit.MostWithin(slots, time.Second); most != appevents.CommonRate {
		t.Errorf("%d within a second, want %d", most, appevents.CommonRate)
	}
	if took := slots[999].Sub(noon); took > 20*time.Second {
		t.Errorf("the last waits for %s", took)
	}
	if at := common.Reserve(noon.Add(time.Hour)); !at.Equal(noon.Add(time.Hour)) {
		t.Errorf("after an hour one waits until %s", at)
	}
}
