package stream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/heap"
)

func TestParseService(t *testing.T) {
	for text, want := range map[string]stream.Service{"kubernetes": stream.Kubernetes, "redis": stream.Redis} {
		got, err := stream.ParseService(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseService(%q) = %v, %v", text, got, err)
		}
		written, err := got.MarshalText()
		if err != nil || string(written) != text {
			t.Errorf("MarshalText() = %q, %v, want %q", written, err, text)
		}
		var read stream.Service
		if err := read.UnmarshalText(written); err != nil || read != want {
			t.Errorf("UnmarshalText(%q) = %v, %v", written, read, err)
		}
	}
	for _, text := range []string{"", "Kubernetes", "redis ", "ssh"} {
		if got, err := stream.ParseService(text); !errors.Is(err, identity.ErrInvalid) || got != 0 {
			t.Errorf("ParseService(%q) = %v, %v, want an error of kind %q", text, got, err, identity.ErrInvalid)
		}
		kept := stream.Redis
		if err := kept.UnmarshalText([]byte(text)); !errors.Is(err, identity.ErrInvalid) || kept != stream.Redis {
			t.Errorf("UnmarshalText(%q) = %v and leaves %v", text, err, kept)
		}
	}
	if got := stream.Service(0).String() + stream.Service(9).String(); got != "" {
		t.Errorf("services that there are not are written %q", got)
	}
}

func FuzzParseService(f *testing.F) {
	f.Add("kubernetes")
	f.Add("redis")
	f.Add("")
	f.Add(strings.Repeat("\x00", 1<<14))
	f.Fuzz(func(t *testing.T, text string) {
		var s stream.Service
		var err error
		heap.Bound(t, len(text), func() { s, err = stream.ParseService(text) })
		if (err == nil) != (s != 0) {
			t.Fatalf("ParseService(%q) = %v, %v", text, s, err)
		}
		if err == nil {
			if again, err := stream.ParseService(s.String()); err != nil || again != s || s.String() != text {
				t.Errorf("ParseService(%q) = %v, written %q and read as %v, %v", text, s, s.String(), again, err)
			}
		}
	})
}
