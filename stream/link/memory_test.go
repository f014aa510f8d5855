package link

import (
	"reflect"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/argomesh/argomesh/stream"
)

// TestOneSourceUIDForEachName gives both collections of a copy, and what the peer
// says it holds, UIDs in memory of their own.
func TestOneSourceUIDForEachName(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(Config{Side: stream.Spoke, Mode: stream.Managed})
	version := func(content string) stream.Version {
		return stream.Version{SourceUID: string([]byte("hub-app")), Hash: stream.HashOf([]byte(content))}
	}
	copied := stream.EntryKey{Collection: stream.Applications, Name: "shop"}
	status := stream.EntryKey{Collection: stream.Statuses, Name: "shop"}
	l.Step(now, Stored{Key: copied, Version: version("spec")})
	l.Step(now, Desired{Key: status, Version: version("status")})
	l.Step(now, Desired{Key: status, Version: version("newer status")})
	l.Step(now, Stored{Key: copied, Version: version("newer spec")})

	held, desired := l.ends.sink(stream.Applications).stored.get(copied), l.Desired(status)
	if held != version("newer spec") || desired != version("newer status") {
		t.Fatalf("held %v, desired %v", held, desired)
	}
	if unsafe.StringData(held.SourceUID) != unsafe.StringData(desired.SourceUID) {
		t.Error("the entries of one name keep a source UID each")
	}
}

// TestEntryAtRest lets the sink hold this and that.
func TestEntryAtRest(t *testing.T) {
	version := func(content string) stream.Version {
		return stream.Version{SourceUID: "uid", Hash: stream.HashOf([]byte(content))}
	}
	var nothing stream.Version
	var e entry
	for _, step := range []struct {
		change  func(stream.Version)
		version stream.Version
		desired stream.Version
		held    stream.Version
		rests   bool
	}{
		{e.setStored, nothing, nothing, nothing, true},
		{e.desire, version("1"), version("1"), nothing, true},
		{e.setStored, version("1"), version("1"), version("1"), true},
		{e.desire, version("2"), version("2"), version("1"), false},
		{e.desire, version("1"), version("1"), version("1"), true},
		{e.setStored, version("3"), version("1"), version("3"), false},
		{e.desire, nothing, nothing, version("3"), false},
		{e.setStored, nothing, nothing, nothing, true},
	} {
		step.change(step.version)
		e.dropPending()
		if e.desired != step.desired || e.stored() != step.held || (e.pending == nil) != step.rests {
			t.Errorf("after %v: desired %v, held %v, at rest %t; want %v", step.version, e.desired, e.stored(), e.pending == nil, step)
		}
	}
}

// TestBurstIsForgotten lets there be few and many events without an answer.
func TestBurstIsForgotten(t *testing.T) {
	for name, test := range map[string]struct {
		events int
		want   bool // the memory of it is given back
	}{
		"few":  {maxSpare, false},
		"many": {maxSpare + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l := New(Config{Side: stream.Spoke, Mode: stream.Managed})
			l.Step(now, Connected{ID: "c"})
			key := func(i int) stream.EntryKey {
				return stream.EntryKey{Collection: stream.Applications, Name: strconv.Itoa(i)}
			}
			var batch stream.Batch
			for i := range test.events {
				batch.Events = append(batch.Events, stream.Event{ID: strconv.Itoa(i), Key: key(i), Verb: stream.Delete})
			}
			before := reflect.ValueOf(l.inbound.open).Pointer()
			l.Step(now, Received{Message: batch})
			for i := range test.events {
				if len(l.inbound.open) != test.events-i || reflect.ValueOf(l.inbound.open).Pointer() != before {
					t.Fatalf("after %d answers %d events are open", i, len(l.inbound.open))
				}
				l.Step(now, Stored{Key: key(i), Event: strconv.Itoa(i)})
			}
			if got := reflect.ValueOf(l.inbound.open).Pointer() != before; got != test.want {
				t.Errorf("memory given back: %t, want %t", got, test.want)
			}
		})
	}
}
