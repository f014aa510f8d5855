package main

import (
	"slices"
	"testing"
)

// TestOperationsOfBefore: a list that an owner wrote before there was override counts as
// with it, after any number of starts, until he changes it; then for good.
func TestOperationsOfBefore(t *testing.T) {
	const none = "(none)"
	tests := map[string]struct {
		kept       string // none: no release has looked that knows it
		configured []string
		override   bool
		keep       string
	}{
		"from before":                       {none, []string{"sync", "refresh"}, true, "refresh,sync"},
		"at the next start":                 {"refresh,sync", []string{"sync", "refresh"}, true, "refresh,sync"},
		"in another order":                  {"refresh,sync", []string{"refresh", "sync", "refresh"}, true, "refresh,sync"},
		"changed":                           {"refresh,sync", []string{"sync"}, false, ""},
		"changed back":                      {"", []string{"sync", "refresh"}, false, ""},
		"of this release":                   {none, []string{"sync", "override"}, true, ""},
		"override named, and no longer":     {"", []string{"sync"}, false, ""},
		"without sync there never was any":  {none, []string{"refresh"}, false, ""},
		"nothing is allowed":                {none, nil, false, ""},
		"override is withdrawn by the name": {"refresh,sync", []string{"sync", "refresh", "override"}, true, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var k historyRecord
			if test.kept != none {
				k.operations = &test.kept
			}
			operations, keep := k.inherit(test.configured)
			if slices.Contains(operations, "override") != test.override || keep != test.keep {
				t.Errorf("inherit() = %q, %q, want override %t, %q", operations, keep, test.override, test.keep)
			}
		})
	}
}
