package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	cepb "github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// wire takes a message over the wire and back, as bytes.
func wire(t *testing.T, m stream.Message) (stream.Message, error) {
	t.Helper()
	raw, err := proto.Marshal(stream.FrameOf(m))
	if err != nil {
		t.Fatalf("Marshal() = %v", err)
	}
	return parse(t, raw)
}

func parse(t *testing.T, raw []byte) (stream.Message, error) {
	t.Helper()
	var frame streampb.Frame
	if err := proto.Unmarshal(raw, &frame); err != nil {
		t.Fatalf("Unmarshal() = %v", err)
	}
	return stream.ParseFrame(&frame)
}

var (
	longName      = strings.Repeat("a.", 126) + "a" // 253 bytes
	longNamespace = strings.Repeat("n", 63)
	longUID       = strings.Repeat("u", 128)
)

func version(uid string) stream.Version {
	return stream.Version{SourceUID: uid, Hash: stream.HashOf([]byte(uid))}
}

// event is one that applies data, which change may alter.
func event(change func(*stream.Event)) stream.Event {
	data := []byte(`{"spec":{}}`)
	e := stream.Event{
		ID:  "c1.1",
		Key: stream.EntryKey{Collection: stream.Applications, Namespace: "team", Name: "guestbook"}, Verb: stream.Apply,
		Version:  stream.Version{SourceUID: "0b5a", Hash: stream.HashOf(data)},
		Revision: 1 << 63, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Data: data,
	}
	if change != nil {
		change(&e)
	}
	return e
}

func deletion(k stream.EntryKey) stream.Event {
	return stream.Event{ID: "c1.2", Key: k, Verb: stream.Delete}
}

func key(c stream.Collection, name string) stream.EntryKey {
	return stream.EntryKey{Collection: c, Name: name}
}

func TestFramesSurviveTheWire(t *testing.T) {
	var sums [stream.BucketCount]stream.Sum
	sums[0], sums[255] = stream.Sum{1, 2, 3}, stream.Sum{15: 255}
	var buckets stream.BucketSet
	buckets.Add(0)
	buckets.Add(255)
	digests := []stream.Digest{{Collection: stream.Statuses, Root: stream.Sum{9}, Entries: 1 << 40}, {Collection: stream.Commands}}
	everyKind := stream.Batch{}
	for _, c := range stream.Collections() {
		everyKind.Events = append(everyKind.Events, event(func(e *stream.Event) { e.Key.Collection = c }), deletion(key(c, "gone")))
	}
	tests := map[string]stream.Message{
		"digests":            stream.Digests{Digests: digests},
		"no digests":         stream.Digests{},
		"heartbeat":          stream.Heartbeat{Digests: digests},
		"buckets":            stream.Buckets{Collection: stream.AppProjects, Sums: sums},
		"inventory":          stream.Inventory{Collection: stream.Applications, Buckets: buckets, Entries: []stream.Entry{{Namespace: longNamespace, Name: longName, Version: version(longUID)}, {Name: "a", Version: version("u")}}, More: true},
		"an empty inventory": stream.Inventory{Collection: stream.Commands},
		"a batch":            everyKind,
		"an empty batch":     stream.Batch{},
		"no namespace":       stream.Batch{Events: []stream.Event{event(func(e *stream.Event) { e.Key.Namespace = "" })}},
		"the longest texts": stream.Batch{Events: []stream.Event{event(func(e *stream.Event) {
			e.ID, e.Key.Namespace, e.Key.Name, e.Version.SourceUID = strings.Repeat("i", 64), longNamespace, longName, longUID
		})}},
		"no trace":            stream.Batch{Events: []stream.Event{event(func(e *stream.Event) { e.TraceParent, e.Revision = "", 0 })}},
		"a name of one label": stream.Batch{Events: []stream.Event{event(func(e *stream.Event) { e.Key.Name = strings.Repeat("l", 253) })}},
		"answers": stream.Applied{Results: []stream.Result{
			{Key: key(stream.Applications, "guestbook"), Event: "c1.1", Held: version("u")},
			{Key: key(stream.Commands, "guestbook"), Held: version("u")},
			{Key: key(stream.AppProjects, "default"), Event: "c1.2"},
			{Key: key(stream.Applications, "image"), Event: "c1.4", Held: version("u"), Undone: "spec.source.kustomize"},
			{Key: key(stream.Statuses, "a"), Event: "c1.3", Refusal: &stream.Refusal{Kind: stream.RefusalInvalid, Message: "spec.source: Required value – sorry"}},
			{Key: key(stream.Statuses, "b"), Refusal: &stream.Refusal{Kind: stream.RefusalNotOwned}},
			{Key: key(stream.Statuses, "c"), Refusal: &stream.Refusal{Kind: stream.RefusalUnavailable}},
			{Key: key(stream.Applications, "c"), Refusal: &stream.Refusal{Kind: stream.RefusalUnavailable, Awaits: longName}},
			{Key: key(stream.Statuses, "d"), Refusal: &stream.Refusal{Kind: stream.RefusalUnknown}},
			{Key: key(stream.Applications, "e"), Event: "c1.4", Held: version("u"), Dropped: []string{"spec.a", "spec.sources[].tagPrefix"}},
			{Key: key(stream.AppProjects, "f"), Retry: true},
			{Event: strings.Repeat("i", 64), Refusal: &stream.Refusal{Kind: stream.RefusalUnsupported}},
		}},
		"absences": stream.Heartbeat{Absences: []stream.Absence{{Collection: stream.Applications, Entries: 1 << 40}, {Collection: stream.Children}}},
		"a batch with absences": stream.Batch{
			Events: []stream.Event{deletion(key(stream.Applications, "gone"))}, Absences: []stream.Absence{{Collection: stream.Applications, Entries: 12}},
		},
		"a deletion that leaves the object": stream.Batch{Events: []stream.Event{func() stream.Event {
			e := deletion(key(stream.AppProjects, "default"))
			e.GiveUp = true
			return e
		}()}},
		"a deletion that was seen": stream.Batch{Events: []stream.Event{func() stream.Event {
			e := deletion(key(stream.Applications, "gone"))
			e.Deleted, e.Revision = longUID, 1<<63
			return e
		}()}},
		"a deletion of what is held": stream.Batch{Events: []stream.Event{func() stream.Event {
			e := deletion(key(stream.Applications, "gone"))
			e.Deleted = longUID
			return e
		}()}},
		"history":    stream.History{ID: "h", Token: strings.Repeat("t", 64), Revision: 1 << 63},
		"no history": stream.History{},
		"spoke info": stream.SpokeInfo{Applications: 3, APIs: 90, Resources: 4000, CacheSynced: time.Unix(1<<33, 0), SentAt: time.Unix(1<<33+1, 0)},
		"no cache":   stream.SpokeInfo{},
		"what argo cd said": stream.ApplicationEvents{Events: []stream.ApplicationEvent{
			{Name: longName, EventText: stream.EventText{Type: stream.EventNormal, Reason: "OperationCompleted", Message: "Sync operation to 1 succeeded – é"}, Count: 1},
			{
				Namespace: "team-a", Name: "a", EventText: stream.EventText{Type: stream.EventWarning, Reason: strings.Repeat("R", 128)},
				Count: stream.MaxEventCount, First: stream.MaxEventAge, Last: time.Second,
			},
		}},
		"credential": stream.Credential{Token: strings.Repeat("t", identity.MaxTokenBytes)},
		"drain":      stream.Goodbye{Reason: stream.GoodbyeDrain},
		"superseded": stream.Goodbye{Reason: stream.GoodbyeSuperseded},
		"revoked":    stream.Goodbye{Reason: stream.GoodbyeRevoked},
		"protocol":   stream.Goodbye{Reason: stream.GoodbyeProtocol},
	}
	for name, want := range tests {
		got, err := wire(t, want)
		if err != nil {
			t.Errorf("%s: ParseFrame() = %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: ParseFrame(FrameOf()) (-want +got):\n%s", name, diff)
		}
	}
}

// said is a message with one event that change has changed.
func said(change func(*stream.ApplicationEvent)) stream.Message {
	e := stream.ApplicationEvent{Name: "guestbook", EventText: stream.EventText{Type: stream.EventNormal, Reason: "OperationCompleted"}, Count: 1}
	change(&e)
	return stream.ApplicationEvents{Events: []stream.ApplicationEvent{e}}
}

// What one side may write and the other reads otherwise, on purpose.
func TestFramesAreMadeGood(t *testing.T) {
	refusal := func(kind stream.RefusalKind, message string) stream.Message {
		return stream.Applied{Results: []stream.Result{{Key: key(stream.Statuses, "a"), Refusal: &stream.Refusal{Kind: kind, Message: message}}}}
	}
	dropped := func(paths ...string) stream.Message {
		return stream.Applied{Results: []stream.Result{{Key: key(stream.Applications, "a"), Held: version("u"), Dropped: paths}}}
	}
	tests := map[string]struct{ written, read stream.Message }{
		"paths with lines, in no order":     {dropped("spec.b", "spec.a\n.c", "spec.b", ""), dropped("spec.a .c", "spec.b")},
		"a path that is too long":           {dropped(strings.Repeat("x", 300)), dropped(strings.Repeat("x", 256))},
		"too many paths":                    {dropped(strings.Split("abcdefghijklmnopqrstuvwxyz", "")...), dropped(strings.Split("abcdefghijklmnop", "")...)},
		"a refusal of a newer release":      {refusal("cosmic-rays", ""), refusal(stream.RefusalUnknown, "")},
		"a message with lines and controls": {refusal("invalid", "a\nb\x00c\x1b[31md\u009b\u202ee\u2028f"), refusal("invalid", "a b c [31md  e f")},
		"a message that is no UTF-8":        {refusal("invalid", "a\xffb"), refusal("invalid", "a?b")},
		"a message that is too long":        {refusal("invalid", strings.Repeat("x", 5000)), refusal("invalid", strings.Repeat("x", 1024))},
		"a message cut within a character":  {refusal("invalid", strings.Repeat("x", 1023)+"é"), refusal("invalid", strings.Repeat("x", 1023))},
		"a project that is too long": {
			stream.Applied{Results: []stream.Result{{Key: key(stream.Applications, "a"), Refusal: &stream.Refusal{Kind: "invalid", Awaits: "a\n" + longName}}}},
			stream.Applied{Results: []stream.Result{{Key: key(stream.Applications, "a"), Refusal: &stream.Refusal{Kind: "invalid", Awaits: "a " + longName[:251]}}}},
		},
		"an event with controls, of long ago": {
			said(func(e *stream.ApplicationEvent) {
				e.Message, e.First, e.Last = "a\x1b[31m\nb"+strings.Repeat("x", 2000), time.Second, 1000*time.Hour
			}),
			said(func(e *stream.ApplicationEvent) {
				e.Message, e.First, e.Last = "a [31m b"+strings.Repeat("x", 1016), stream.MaxEventAge, stream.MaxEventAge
			}),
		},
		"an event that was said more often than counts": {
			said(func(e *stream.ApplicationEvent) { e.Count = 1 << 40 }), said(func(e *stream.ApplicationEvent) { e.Count = stream.MaxEventCount }),
		},
		"a goodbye of a newer release": {stream.Goodbye{Reason: "lunch"}, stream.Goodbye{Reason: stream.GoodbyeDrain}},
		"a trace context that is too long": {
			stream.Batch{Events: []stream.Event{event(func(e *stream.Event) { e.TraceParent += "-" })}},
			stream.Batch{Events: []stream.Event{event(func(e *stream.Event) { e.TraceParent = "" })}},
		},
	}
	for name, tt := range tests {
		got, err := wire(t, tt.written)
		if err != nil {
			t.Errorf("%s: ParseFrame() = %v", name, err)
			continue
		}
		if diff := cmp.Diff(tt.read, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: ParseFrame() (-want +got):\n%s", name, diff)
		}
	}
}

// A collection of a newer peer is passed over in digests, and a frame of a newer
// peer altogether.
func TestNewerPeersArePassedOver(t *testing.T) {
	frame := stream.FrameOf(stream.Digests{Digests: []stream.Digest{{Collection: stream.Statuses, Entries: 1}, {Collection: stream.Applications, Entries: 2}}})
	frame.GetDigests().GetDigests()[0].Collection = 99
	got, err := stream.ParseFrame(frame)
	want := stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications, Entries: 2}}}
	if diff := cmp.Diff(stream.Message(want), got); err != nil || diff != "" {
		t.Errorf("ParseFrame() = %v (-want +got):\n%s", err, diff)
	}
	buckets, inventory := stream.FrameOf(stream.Buckets{Collection: stream.Statuses}), stream.FrameOf(stream.Inventory{Collection: stream.Statuses})
	buckets.GetBuckets().Collection, inventory.GetInventory().Collection = 99, 99
	for name, f := range map[string]*streampb.Frame{"buckets": buckets, "an inventory": inventory} {
		if m, err := stream.ParseFrame(f); m != nil || err != nil {
			t.Errorf("ParseFrame() of %s about an unknown collection = %v, %v, want neither", name, m, err)
		}
	}
	// It tells of what its sinks hold, those we do not know included.
	known := stream.Result{Key: key(stream.Applications, "a"), Held: version("u")}
	frame = stream.FrameOf(stream.Applied{Results: []stream.Result{known, known}})
	frame.GetApplied().GetResults()[0].Collection = 99
	got, err = stream.ParseFrame(frame)
	if diff := cmp.Diff(stream.Message(stream.Applied{Results: []stream.Result{known}}), got); err != nil || diff != "" {
		t.Errorf("ParseFrame() = %v (-want +got):\n%s", err, diff)
	}
	// Field 100, which this release does not know.
	if m, err := parse(t, []byte{0xa2, 0x06, 0x02, 'h', 'i'}); m != nil || err != nil {
		t.Errorf("ParseFrame() of an unknown body = %v, %v, want neither", m, err)
	}
}

// Events of an unknown kind or verb are known by their ids, and the others of their
// batch come through.
func TestUnsupportedEvents(t *testing.T) {
	types := []string{
		"io.argomesh.secret.apply", "io.argomesh.application.explode", "io.argomesh.application", "io.argomesh..apply",
		"io.argomesh.application.", "io.argomesh.application.apply.twice", "com.example.application.apply", "x", strings.Repeat("t", 255),
	}
	f := stream.FrameOf(stream.Batch{Events: []stream.Event{event(nil)}})
	want := stream.Batch{Events: []stream.Event{event(nil)}}
	for i, typ := range types {
		u := stream.Unsupported{ID: fmt.Sprint("c1.", i), Type: typ}
		want.Unsupported = append(want.Unsupported, u)
		// Whatever else it carries.
		f.GetBatch().Events = append(f.GetBatch().Events, &cepb.CloudEvent{
			Id: u.ID, Type: typ, SpecVersion: "1.0", Data: &cepb.CloudEvent_TextData{TextData: "text"},
		})
	}
	got, err := stream.ParseFrame(f)
	if diff := cmp.Diff(stream.Message(want), got); err != nil || diff != "" {
		t.Errorf("ParseFrame() = %v (-want +got):\n%s", err, diff)
	}
	if again, err := wire(t, got); err != nil || !cmp.Equal(got, again) {
		t.Errorf("ParseFrame(FrameOf()) = %v, %v, want %v", again, err, got)
	}
}

// Each violation is of the kind that the peer and the metric are told.
func TestViolations(t *testing.T) {
	lie := stream.FrameOf(stream.Batch{Events: []stream.Event{event(nil)}})
	lie.GetBatch().GetEvents()[0].Data = &cepb.CloudEvent_BinaryData{BinaryData: []byte("{}")}
	for want, f := range map[stream.Violation]*streampb.Frame{
		stream.ViolationMalformed: stream.FrameOf(stream.SpokeInfo{Resources: -1}),
		stream.ViolationHash:      lie,
		stream.ViolationOrder:     stream.HelloFrame(stream.Hello{}),
		stream.ViolationLimit:     stream.FrameOf(stream.Digests{Digests: make([]stream.Digest, 65)}),
	} {
		if _, err := stream.ParseFrame(f); stream.ViolationOf(err) != want || !errors.Is(err, stream.ErrProtocol) {
			t.Errorf("ParseFrame() = %v, want kind %q", err, want)
		}
	}
	if _, err := stream.ParseHello(stream.FrameOf(stream.Heartbeat{})); stream.ViolationOf(err) != stream.ViolationOrder {
		t.Errorf("ParseHello() of a heartbeat = %v, want kind %q", err, stream.ViolationOrder)
	}
	for _, err := range []error{nil, stream.ErrProtocol, stream.ErrRevoked} {
		if v := stream.ViolationOf(err); v != "" {
			t.Errorf("ViolationOf(%v) = %q", err, v)
		}
	}
}

func TestParseFrameRefuses(t *testing.T) {
	batch := func(change func(*cepb.CloudEvent)) func() *streampb.Frame {
		return func() *streampb.Frame {
			f := stream.FrameOf(stream.Batch{Events: []stream.Event{event(nil)}})
			change(f.GetBatch().GetEvents()[0])
			return f
		}
	}
	text := func(s string) *cepb.CloudEventAttributeValue {
		return &cepb.CloudEventAttributeValue{Attr: &cepb.CloudEventAttributeValue_CeString{CeString: s}}
	}
	attribute := func(name string, v *cepb.CloudEventAttributeValue) func() *streampb.Frame {
		return batch(func(ce *cepb.CloudEvent) { ce.Attributes[name] = v })
	}
	deleted := func(uid, revision string) func() *streampb.Frame {
		return batch(func(ce *cepb.CloudEvent) {
			ce.Type = "io.argomesh.application.delete"
			ce.Attributes["sourceuid"], ce.Attributes["revision"] = text(uid), text(revision)
		})
	}
	held := func(uid *cepb.CloudEventAttributeValue) func() *streampb.Frame {
		return batch(func(ce *cepb.CloudEvent) {
			ce.Type = "io.argomesh.application.delete"
			delete(ce.Attributes, "sourceuid")
			ce.Attributes["helduid"] = uid
		})
	}
	subject := func(s string) func() *streampb.Frame { return attribute("subject", text(s)) }
	hash := func(b []byte) *cepb.CloudEventAttributeValue {
		return &cepb.CloudEventAttributeValue{Attr: &cepb.CloudEventAttributeValue_CeBytes{CeBytes: b}}
	}
	inventory := func(change func(*streampb.Inventory)) func() *streampb.Frame {
		return func() *streampb.Frame {
			f := stream.FrameOf(stream.Inventory{
				Collection: stream.Applications, Entries: []stream.Entry{{Name: "guestbook", Version: version("u")}},
			})
			change(f.GetInventory())
			return f
		}
	}
	applied := func(change func(*streampb.Result)) func() *streampb.Frame {
		return func() *streampb.Frame {
			f := stream.FrameOf(stream.Applied{Results: []stream.Result{
				{Key: key(stream.Applications, "guestbook"), Event: "c1.1", Held: version("u")},
			}})
			change(f.GetApplied().GetResults()[0])
			return f
		}
	}
	keyless := func(change func(*streampb.Result)) func() *streampb.Frame {
		return func() *streampb.Frame {
			f := stream.FrameOf(stream.Applied{Results: []stream.Result{{Event: "c1.1", Refusal: &stream.Refusal{}}}})
			change(f.GetApplied().GetResults()[0])
			return f
		}
	}
	event := func(change func(*streampb.ApplicationEvent)) func() *streampb.Frame {
		return func() *streampb.Frame {
			f := stream.FrameOf(said(func(*stream.ApplicationEvent) {}))
			change(f.GetApplicationEvents().GetEvents()[0])
			return f
		}
	}
	tests := map[string]func() *streampb.Frame{
		"an event of a type of a newer Kubernetes": event(func(e *streampb.ApplicationEvent) { e.Type = "Fatal" }),
		"an event without a type":                  event(func(e *streampb.ApplicationEvent) { e.Type = "" }),
		"an event without a reason":                event(func(e *streampb.ApplicationEvent) { e.Reason = "" }),
		"an event with a reason of words":          event(func(e *streampb.ApplicationEvent) { e.Reason = "Sync failed" }),
		"an event with a reason that is too long":  event(func(e *streampb.ApplicationEvent) { e.Reason = strings.Repeat("R", 129) }),
		"an event with a line in its reason":       event(func(e *streampb.ApplicationEvent) { e.Reason = "Failed\n" }),
		"an event that was never said":             event(func(e *streampb.ApplicationEvent) { e.Count = 0 }),
		"an event that was said too often":         event(func(e *streampb.ApplicationEvent) { e.Count = stream.MaxEventCount + 1 }),
		"an event of nothing":                      event(func(e *streampb.ApplicationEvent) { e.Name = "" }),
		"an event of another's name":               event(func(e *streampb.ApplicationEvent) { e.Name = "../a" }),
		"an event of a namespace with a path":      event(func(e *streampb.ApplicationEvent) { e.Namespace = "a/b" }),
		"too many events": func() *streampb.Frame {
			return stream.FrameOf(stream.ApplicationEvents{Events: make([]stream.ApplicationEvent, stream.MaxApplicationEvents+1)})
		},
		"a result with too many paths": applied(func(r *streampb.Result) { r.Dropped = make([]string, 17) }),

		"hello":   func() *streampb.Frame { return stream.HelloFrame(stream.Hello{}) },
		"welcome": func() *streampb.Frame { return stream.WelcomeFrame(stream.Welcome{}) },

		"a digest too short": func() *streampb.Frame {
			f := stream.FrameOf(stream.Digests{Digests: []stream.Digest{{Collection: stream.Statuses}}})
			f.GetDigests().GetDigests()[0].Root = make([]byte, 15)
			return f
		},
		"a heartbeat's digest too long": func() *streampb.Frame {
			f := stream.FrameOf(stream.Heartbeat{Digests: []stream.Digest{{Collection: stream.Statuses}}})
			f.GetHeartbeat().GetDigests()[0].Root = make([]byte, 17)
			return f
		},
		"too many digests": func() *streampb.Frame {
			return stream.FrameOf(stream.Digests{Digests: make([]stream.Digest, 65)})
		},
		"too many digests in a heartbeat": func() *streampb.Frame {
			return stream.FrameOf(stream.Heartbeat{Digests: make([]stream.Digest, 65)})
		},
		"too many absences": func() *streampb.Frame {
			return stream.FrameOf(stream.Heartbeat{Absences: make([]stream.Absence, 65)})
		},
		"too many absences in a batch": func() *streampb.Frame {
			return stream.FrameOf(stream.Batch{Absences: make([]stream.Absence, 65)})
		},
		"a history with a long token": func() *streampb.Frame { return stream.FrameOf(stream.History{Token: strings.Repeat("t", 65)}) },
		"a credential of nothing":     func() *streampb.Frame { return stream.FrameOf(stream.Credential{}) },
		"a long credential": func() *streampb.Frame {
			return stream.FrameOf(stream.Credential{Token: strings.Repeat("t", identity.MaxTokenBytes+1)})
		},
		"a history with a long id": func() *streampb.Frame { return stream.FrameOf(stream.History{ID: strings.Repeat("i", 65)}) },
		"spoke info told before 1970": func() *streampb.Frame {
			return &streampb.Frame{Body: &streampb.Frame_SpokeInfo{SpokeInfo: &streampb.SpokeInfo{ToldUnix: -1}}}
		},
		"spoke info below zero":    func() *streampb.Frame { return stream.FrameOf(stream.SpokeInfo{Resources: -1}) },
		"buckets of no collection": func() *streampb.Frame { return stream.FrameOf(stream.Buckets{}) },
		"buckets too few": func() *streampb.Frame {
			f := stream.FrameOf(stream.Buckets{Collection: stream.Applications})
			f.GetBuckets().Sums = f.GetBuckets().Sums[16:]
			return f
		},

		"an inventory of no collection":       inventory(func(i *streampb.Inventory) { i.Collection = 0 }),
		"an inventory whose set is too short": inventory(func(i *streampb.Inventory) { i.Buckets = i.Buckets[1:] }),
		"an entry without a name":             inventory(func(i *streampb.Inventory) { i.Entries[0].Name = "" }),
		"an entry with a long name":           inventory(func(i *streampb.Inventory) { i.Entries[0].Name = longName + "a" }),
		"an entry without a version":          inventory(func(i *streampb.Inventory) { i.Entries[0].Version = nil }),
		"an entry whose version is absence": inventory(func(i *streampb.Inventory) {
			i.Entries[0].Version = &streampb.Version{Hash: make([]byte, 16)}
		}),
		"an entry without source": inventory(func(i *streampb.Inventory) { i.Entries[0].Version.SourceUid = "" }),

		"an answer of no collection":       applied(func(r *streampb.Result) { r.Collection = 0 }),
		"an answer about nothing":          applied(func(r *streampb.Result) { r.Reset() }),
		"an answer by id, that holds":      keyless(func(r *streampb.Result) { r.Held = &streampb.Version{SourceUid: "u", Hash: make([]byte, 16)} }),
		"an answer by id, with a name":     keyless(func(r *streampb.Result) { r.Name = "a" }),
		"an answer by id, in a namespace":  keyless(func(r *streampb.Result) { r.Namespace = "a" }),
		"an answer by id, without refusal": keyless(func(r *streampb.Result) { r.Refusal = nil }),
		"an answer by id, without id":      keyless(func(r *streampb.Result) { r.Event = "" }),
		"an answer without a name":         applied(func(r *streampb.Result) { r.Name = "" }),
		"an answer with a bad namespace":   applied(func(r *streampb.Result) { r.Namespace = "Team" }),
		"an answer with a long event id":   applied(func(r *streampb.Result) { r.Event = strings.Repeat("i", 65) }),
		"an answer with a short hash":      applied(func(r *streampb.Result) { r.Held.Hash = r.Held.Hash[1:] }),
		"an answer with a long uid":        applied(func(r *streampb.Result) { r.Held.SourceUid = longUID + "u" }),
		"an answer that holds absence":     applied(func(r *streampb.Result) { r.Held = &streampb.Version{} }),
		"an answer whose uid has a zero":   applied(func(r *streampb.Result) { r.Held.SourceUid = "a\x00b" }),
		"an answer from nowhere":           applied(func(r *streampb.Result) { r.Held.SourceUid = "" }),
		"an event of another version":      batch(func(ce *cepb.CloudEvent) { ce.SpecVersion = "2.0" }),
		"an event without id":              batch(func(ce *cepb.CloudEvent) { ce.Id = "" }),
		"an event with a long id":          batch(func(ce *cepb.CloudEvent) { ce.Id = strings.Repeat("i", 65) }),
		"an event without type":            batch(func(ce *cepb.CloudEvent) { ce.Type = "" }),
		"an event type of 256 bytes":       batch(func(ce *cepb.CloudEvent) { ce.Type = strings.Repeat("t", 256) }),
		"an unknown event without id":      batch(func(ce *cepb.CloudEvent) { ce.Type, ce.Id = "io.argomesh.secret.apply", "" }),
		"an unknown event's version":       batch(func(ce *cepb.CloudEvent) { ce.Type, ce.SpecVersion = "io.argomesh.secret.apply", "" }),
		"an event without attributes":      batch(func(ce *cepb.CloudEvent) { ce.Attributes = nil }),
		"an event whose subject is bytes":  attribute("subject", hash([]byte("a/b"))),
		"a subject without slash":          subject("guestbook"),
		"a subject without name":           subject("team/"),
		"a subject with two slashes":       subject("team/a/b"),
		"a name with capitals":             subject("/Guestbook"),
		"a name that begins with a dash":   subject("/-a"),
		"a name that ends with a dash":     subject("/a-"),
		"a name with an empty label":       subject("/a..b"),
		"a name of dots":                   subject("/.."),
		"a name that leaves its folder":    subject("/../../etc"),
		"a name with a zero byte":          subject("/a\x00b"),
		"a name of 254 bytes":              subject("/" + longName + "a"),
		"a namespace of 64 bytes":          subject(longNamespace + "n/a"),
		"a namespace with a dot":           subject("a.b/c"),
		"an event without hash":            batch(func(ce *cepb.CloudEvent) { delete(ce.Attributes, "contenthash") }),
		"a hash of 15 bytes":               attribute("contenthash", hash(make([]byte, 15))),
		"a hash of 32 bytes":               attribute("contenthash", hash(make([]byte, 32))),
		"a hash as text":                   attribute("contenthash", text("0123456789abcdef")),
		"a hash that lies":                 attribute("contenthash", hash(make([]byte, 16))),
		"an event without source":          attribute("sourceuid", text("")),
		"an event with a long uid":         attribute("sourceuid", text(longUID+"u")),
		"an event whose uid has a zero":    attribute("sourceuid", text("a\x00b")),
		"an event without revision":        batch(func(ce *cepb.CloudEvent) { delete(ce.Attributes, "revision") }),
		"a revision that is no number":     attribute("revision", text("-1")),
		"a revision that is too large":     attribute("revision", text("18446744073709551616")),
		"a deletion of nothing":            deleted("", "7"),
		"a deletion with a long uid":       deleted(longUID+"u", "7"),
		"a deletion at no revision":        deleted("u", ""),
		"a deletion at revision zero":      deleted("u", "0"),
		"a deletion while nothing is held": held(text("")),
		"a deletion while a long uid is":   held(text(longUID + "u")),
		"a deletion while a hash is held":  held(hash([]byte("u"))),
		"an event without data":            batch(func(ce *cepb.CloudEvent) { ce.Data = nil }),
		"an event with data as text":       batch(func(ce *cepb.CloudEvent) { ce.Data = &cepb.CloudEvent_TextData{TextData: `{"spec":{}}`} }),
		"data that is empty, with its own hash": batch(func(ce *cepb.CloudEvent) {
			empty := stream.HashOf(nil)
			ce.Data = &cepb.CloudEvent_BinaryData{}
			ce.Attributes["contenthash"] = hash(empty[:])
		}),
	}
	for name, frame := range tests {
		if m, err := stream.ParseFrame(frame()); !errors.Is(err, stream.ErrProtocol) || m != nil {
			t.Errorf("%s: ParseFrame() = %v, %v, want no message and an error of kind %q", name, m, err, stream.ErrProtocol)
		}
	}
}

// The second event of a batch is checked as the first.
func TestParseFrameChecksEveryItem(t *testing.T) {
	f := stream.FrameOf(stream.Batch{Events: []stream.Event{event(nil), event(nil)}})
	f.GetBatch().GetEvents()[1].Id = ""
	if _, err := stream.ParseFrame(f); !errors.Is(err, stream.ErrProtocol) {
		t.Errorf("ParseFrame() = %v, want an error of kind %q", err, stream.ErrProtocol)
	}
}

// FrameOf keeps nothing of what it is given, so that the caller may go on with it.
func TestFrameOfCopies(t *testing.T) {
	buckets := stream.Buckets{Collection: stream.Applications}
	inventory := stream.Inventory{Collection: stream.Applications, Entries: []stream.Entry{{Name: "a", Version: version("u")}}}
	for _, m := range []stream.Message{buckets, inventory, stream.Digests{Digests: []stream.Digest{{Collection: stream.Statuses}}}} {
		f := stream.FrameOf(m)
		before := proto.Clone(f)
		buckets.Sums[0] = stream.Sum{1}
		inventory.Buckets.Add(7)
		inventory.Entries[0].Version.Hash[0]++
		if !proto.Equal(before, f) {
			t.Errorf("FrameOf(%T) shares memory with the message", m)
		}
	}
}
