package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/heap"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]stream.Mode{"managed": stream.Managed, "autonomous": stream.Autonomous} {
		got, err := stream.ParseMode(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseMode(%q) = %v, %v", text, got, err)
		}
		written, err := got.MarshalText()
		if err != nil || string(written) != text {
			t.Errorf("MarshalText() = %q, %v, want %q", written, err, text)
		}
		var read stream.Mode
		if err := read.UnmarshalText(written); err != nil || read != want {
			t.Errorf("UnmarshalText(%q) = %v, %v", written, read, err)
		}
	}
	for _, text := range []string{"", "Managed", "managed ", "both"} {
		if got, err := stream.ParseMode(text); !errors.Is(err, identity.ErrInvalid) || got != 0 {
			t.Errorf("ParseMode(%q) = %v, %v, want an error of kind %q", text, got, err, identity.ErrInvalid)
		}
		kept := stream.Autonomous
		if err := kept.UnmarshalText([]byte(text)); !errors.Is(err, identity.ErrInvalid) || kept != stream.Autonomous {
			t.Errorf("UnmarshalText(%q) = %v and leaves %v", text, err, kept)
		}
	}
	long := strings.Repeat("\x00", 1<<14)
	heap.Bound(t, len(long), func() { _, _ = stream.ParseMode(long) })
	var zero stream.Mode
	if got := zero.String(); got != "" {
		t.Errorf("the zero mode is written %q", got)
	}
}

func TestCollectionSource(t *testing.T) {
	want := map[string]stream.Side{
		"managed appproject": stream.Hub, "managed application": stream.Hub, "managed command": stream.Hub, "managed status": stream.Spoke,
		"managed child": stream.Spoke, "autonomous child": 0,
		"managed repository": stream.Hub, "autonomous repository": 0, "managed trust": stream.Hub, "autonomous trust": 0,
		"autonomous appproject": stream.Spoke, "autonomous application": stream.Spoke, "autonomous command": stream.Hub, "autonomous status": stream.Spoke,
	}
	got := map[string]stream.Side{}
	for _, m := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for _, c := range stream.Collections() {
			got[m.String()+" "+c.String()] = c.Source(m)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Source() (-want +got):\n%s", diff)
	}
	for _, c := range stream.Collections() {
		if got := c.Source(0); got != 0 {
			t.Errorf("%s.Source() without a mode = %s", c, got)
		}
	}
	for _, c := range []stream.Collection{0, 99} {
		if got := c.Source(stream.Managed); got != 0 || c.String() != "" {
			t.Errorf("collection %d %q has source %s", c, c, got)
		}
	}
}

func TestHash(t *testing.T) {
	h := stream.HashOf([]byte("abc"))
	if got, want := h.String(), "ba7816bf8f01cfea414140de5dae2223"; got != want { // SHA-256 of "abc" (FIPS 180-2, B.1), its half
		t.Errorf("HashOf(abc) = %s, want %s", got, want)
	}
	if got, err := stream.ParseHash(h.String()); err != nil || got != h {
		t.Errorf("ParseHash(%s) = %s, %v", h, got, err)
	}
	for _, text := range []string{"", "ba", h.String() + "00", h.String()[:31], "zz" + h.String()[2:]} {
		if got, err := stream.ParseHash(text); !errors.Is(err, identity.ErrInvalid) || got != (stream.Hash{}) {
			t.Errorf("ParseHash(%q) = %s, %v, want an error of kind %q", text, got, err, identity.ErrInvalid)
		}
	}
}

func TestRefusalKind(t *testing.T) {
	for _, kind := range []stream.RefusalKind{stream.RefusalInvalid, stream.RefusalNotOwned, stream.RefusalUnavailable, stream.RefusalHeld, stream.RefusalOutdated, stream.RefusalUnsupported, stream.RefusalDenied, stream.RefusalOverLimit, stream.RefusalUnknown} {
		if got := stream.ParseRefusalKind(string(kind)); got != kind {
			t.Errorf("ParseRefusalKind(%q) = %q", kind, got)
		}
	}
	if got := stream.ParseRefusalKind("else"); got != stream.RefusalUnknown {
		t.Errorf("ParseRefusalKind(else) = %q", got)
	}
	for err, want := range map[error]stream.RefusalKind{
		fmt.Errorf("apply: %w", stream.ErrRefused): stream.RefusalInvalid,
		stream.ErrUnavailable:                      stream.RefusalUnavailable,
		stream.ErrConflict:                         stream.RefusalUnavailable,
		errors.New("anything"):                     stream.RefusalUnavailable,
	} {
		if got := stream.RefusalKindOf(err); got != want {
			t.Errorf("RefusalKindOf(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestBucketSet(t *testing.T) {
	var s stream.BucketSet
	if !s.Empty() {
		t.Error("the zero set is not empty")
	}
	for b := range 256 {
		if s.Has(uint8(b)) {
			t.Errorf("%d is in the set before it was added", b)
		}
		s.Add(uint8(b))
		if !s.Has(uint8(b)) || s.Empty() {
			t.Errorf("%d is not in the set after it was added", b)
		}
	}
}

func TestNamesInLogs(t *testing.T) {
	for got, want := range map[string]string{
		stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "a"}.String():              "Application argocd/a",
		stream.EntryKey{Collection: stream.Statuses, Namespace: "team", Name: "a"}.String():                "status team/a",
		stream.EntryKey{Collection: stream.AppProjects, Name: "a"}.String():                                "appproject a",
		stream.Hub.String() + stream.Spoke.String() + stream.Side(0).String():                              "hubspoke",
		stream.Apply.String() + stream.Delete.String() + stream.Verb(0).String() + stream.Mode(9).String(): "applydelete",
	} {
		if got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
	if (stream.Version{}).Absent() != true || (stream.Version{SourceUID: "u"}).Absent() || (stream.Version{Hash: stream.Hash{1}}).Absent() {
		t.Error("Absent() is not that of the zero version alone")
	}
}
