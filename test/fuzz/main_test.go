package main

import (
	"path/filepath"
	"slices"
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

func TestLast(t *testing.T) {
	out := []byte("fuzz: elapsed: 3s, execs: 3015 (1005/sec), new interesting: 2 (total: 7)\n" +
		"fuzz: elapsed: 6s, execs: 6131 (1039/sec), new interesting: 6 (total: 11)\nPASS\n")
	if got, want := last(out), "ok, 6131 inputs, 6 new interesting"; got != want {
		t.Errorf("last() = %q, want %q", got, want)
	}
	if got := last([]byte("PASS\n")); got != "ok" {
		t.Errorf("last() = %q, want ok", got)
	}
}
