package stream_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

func TestCapabilities(t *testing.T) {
	long := stream.Capability(strings.Repeat("a", 63))
	for name, tt := range map[string]struct {
		names []stream.Capability
		want  []string
	}{
		"none":                      {nil, nil},
		"in any order, more often":  {[]stream.Capability{"tunnel", "history", "tunnel", "a-1"}, []string{"a-1", "history", "tunnel"}},
		"what is none by its form":  {[]stream.Capability{"", "-a", "1a", "A", "a b", "ä", "a\n", long + "a"}, nil},
		"the longest, and a broken": {[]stream.Capability{long, "a_b"}, []string{string(long)}},
	} {
		got := stream.NewCapabilities(tt.names...)
		if diff := cmp.Diff(tt.want, got.Names()); diff != "" {
			t.Errorf("%s: Names() (-want +got):\n%s", name, diff)
		}
		for _, c := range tt.names {
			if got.Has(c) != (cmp.Diff(tt.want, got.Names()) == "" && contains(tt.want, c)) {
				t.Errorf("%s: Has(%q) = %t", name, c, got.Has(c))
			}
		}
		if !got.Common(got).Equal(got) || !got.Common(stream.Capabilities{}).Equal(stream.Capabilities{}) {
			t.Errorf("%s: Common() with itself = %v, with nothing = %v", name, got.Common(got), got.Common(stream.Capabilities{}))
		}
	}
	older, newer := stream.NewCapabilities("history", "gone-since"), stream.NewCapabilities("tunnel", "history")
	if got := older.Common(newer); !got.Equal(newer.Common(older)) || !got.Equal(stream.NewCapabilities("history")) {
		t.Errorf("Common() = %v, want history", got)
	}
}

func contains(names []string, c stream.Capability) bool {
	for _, name := range names {
		if name == string(c) {
			return true
		}
	}
	return false
}
