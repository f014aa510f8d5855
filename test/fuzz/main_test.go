package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	targets, err := find(t.Context(), []string{"github.com/argomesh/argomesh/cmd/internal/config"})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("../../cmd/internal/config")
	if err != nil {
		t.Fatal(err)
	}
	want := target{pkg: "github.com/argomesh/argomesh/cmd/internal/config", dir: dir, name: "FuzzLoad"}
	if !slices.Contains(targets, want) {
		t.Errorf("find() = %v, want %v among them", targets, want)
	}
}

func TestRead(t *testing.T) {
	const begin = "fuzz: elapsed: 0s, gathering baseline coverage: 0/71 completed\nfuzz: elapsed: 0s, gathering baseline coverage: 71/71 completed, now fuzzing with 1 workers\n"
	for name, test := range map[string]struct {
		out  string
		want done
		err  string
	}{
		"two reports": {begin + "fuzz: elapsed: 3s, execs: 3015 (1005/sec), new interesting: 2 (total: 7)\n" +
			"fuzz: elapsed: 6s, execs: 6131 (1039/sec), new interesting: 6 (total: 11)\nPASS\n", done{known: 71, inputs: 6131, interesting: 6}, ""},
		"only what was known": {begin + "fuzz: elapsed: 3s, execs: 71 (23/sec), new interesting: 0 (total: 5)\nPASS\n", done{}, "no input but the 71"},
		"nothing":             {"PASS\n", done{}, "does not say"},
	} {
		got, err := read([]byte(test.out))
		if test.err == "" && (err != nil || got != test.want) {
			t.Errorf("%s: read() = %+v, %v, want %+v", name, got, err, test.want)
		}
		if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: read() = %v, want an error with %q", name, err, test.err)
		}
	}
}
