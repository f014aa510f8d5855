package identity_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

func TestParseAgentName(t *testing.T) {
	tests := map[string]struct {
		in    string
		valid bool
	}{
		"a letter":                 {"a", true},
		"a digit":                  {"7", true},
		"a common name":            {"edge-1", true},
		"digits first":             {"1-edge", true},
		"two hyphens inside":       {"a--b", true},
		"63 bytes":                 {strings.Repeat("a", 63), true},
		"empty":                    {"", false},
		"64 bytes":                 {strings.Repeat("a", 64), false},
		"a hyphen first":           {"-a", false},
		"a hyphen last":            {"a-", false},
		"only a hyphen":            {"-", false},
		"upper case":               {"Edge", false},
		"a dot":                    {"a.b", false},
		"an underscore":            {"a_b", false},
		"a slash":                  {"a/b", false},
		"a space":                  {"a b", false},
		"a line break at the end":  {"a\n", false},
		"a zero byte":              {"a\x00", false},
		"a letter outside ascii":   {"\u00e9", false},
		"a full width letter":      {"\uff41", false},
		"a byte that is no utf-8":  {"a\xff", false},
		"a very long text":         {strings.Repeat("x", 1<<16), false},
		"a percent-encoded letter": {"%61", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := identity.ParseAgentName(tc.in)
			if !tc.valid {
				if !errors.Is(err, identity.ErrInvalid) {
					t.Fatalf("ParseAgentName(%q) error = %v, want one that wraps ErrInvalid", tc.in, err)
				}
				if !got.IsZero() {
					t.Errorf("ParseAgentName(%q) = %q beside an error", tc.in, got)
				}
				if len(err.Error()) > 1000 {
					t.Errorf("error repeats %d bytes of bad input", len(err.Error()))
				}
				return
			}
			if err != nil {
				t.Fatalf("ParseAgentName(%q): %v", tc.in, err)
			}
			if got.String() != tc.in || got.IsZero() {
				t.Errorf("ParseAgentName(%q) = %q", tc.in, got)
			}
		})
	}
}

func TestAgentNameText(t *testing.T) {
	type config struct {
		Name  identity.AgentName            `json:"name"`
		Count map[identity.AgentName]uint32 `json:"count"`
	}
	edge, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]config{
		"a name":         {Name: edge, Count: map[identity.AgentName]uint32{edge: 3}},
		"the zero value": {},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			var out config
			if err := json.Unmarshal(text, &out); err != nil {
				t.Fatal(err)
			}
			if out.Name != in.Name || out.Count[edge] != in.Count[edge] {
				t.Errorf("%s came back as %+v", text, out)
			}
		})
	}
	t.Run("bad text changes nothing", func(t *testing.T) {
		got := edge
		if err := got.UnmarshalText([]byte("Edge")); !errors.Is(err, identity.ErrInvalid) {
			t.Errorf("UnmarshalText() error = %v, want one that wraps ErrInvalid", err)
		}
		if got != edge {
			t.Errorf("UnmarshalText() of bad text left %q", got)
		}
	})
}

func FuzzParseAgentName(f *testing.F) {
	for _, s := range []string{"edge-1", "a", "", "-a", "a-", "A", "a.b", "é", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var name identity.AgentName
		var err error
		heap.Bound(t, len(s), func() { name, err = identity.ParseAgentName(s) })
		if err != nil {
			if !errors.Is(err, identity.ErrInvalid) {
				t.Fatalf("ParseAgentName(%q) error %v does not wrap ErrInvalid", s, err)
			}
			return
		}
		text, err := name.MarshalText()
		if err != nil || string(text) != s {
			t.Fatalf("%q prints as %q, %v", s, text, err)
		}
		var again identity.AgentName
		if err := again.UnmarshalText(text); err != nil || again != name {
			t.Fatalf("%q parses again as %q, %v", text, again, err)
		}
		if len(s) == 0 || len(s) > 63 || strings.ToLower(s) != s || strings.Trim(s, "-") != s {
			t.Fatalf("%q was accepted", s)
		}
	})
}
