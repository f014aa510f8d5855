package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRecords(t *testing.T) {
	r := records{t.TempDir()}
	one := target{pkg: "example.org/p", name: "FuzzOne"}
	if r.has(one, "content", time.Second) {
		t.Error("what was never fuzzed has a record")
	}
	if err := r.add(one, "content", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		t       target
		content string
		d       time.Duration
		want    bool
	}{
		{one, "content", 5 * time.Second, true},
		{one, "content", time.Second, true},
		{one, "content", time.Minute, false},
		{one, "other", time.Second, false},
		{target{pkg: "example.org/p", name: "FuzzTwo"}, "content", time.Second, false},
	} {
		if got := r.has(tc.t, tc.content, tc.d); got != tc.want {
			t.Errorf("%v of %q for %s: %v, want %v", tc.t, tc.content, tc.d, got, tc.want)
		}
	}
	old := time.Now().Add(-recordAge - time.Hour)
	if err := os.Chtimes(r.path(one, "content"), old, old); err != nil {
		t.Fatal(err)
	}
	if r.has(one, "content", time.Second) {
		t.Error("a record counts for ever")
	}
}

// The content changes with the package, with what it imports, with its tests and its seeds, and
// with nothing else.
func TestContentOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/m\n\ngo 1.26\n")
	write("p/p.go", "package p\n\nimport \"example.org/m/q\"\n\nvar V = q.V\n")
	write("p/p_test.go", "package p\n\nimport \"testing\"\n\nfunc FuzzP(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }\n")
	write("q/q.go", "package q\n\nvar V = 1\n")
	write("r/r.go", "package r\n")
	t.Chdir(dir)
	p := target{pkg: "example.org/m/p", dir: filepath.Join(dir, "p"), name: "FuzzP"}
	content := func() string {
		t.Helper()
		got, err := contentOf(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	last := content()
	for _, change := range []struct {
		name, content string
		matters       bool
	}{
		{"r/r.go", "package r\n\nvar V = 2\n", false},
		{"q/q.go", "package q\n\nvar V = 2\n", true},
		{"p/p_test.go", "package p\n\nimport \"testing\"\n\nfunc FuzzP(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }\n", true},
		{"p/testdata/fuzz/FuzzP/seed", "go test fuzz v1\nstring(\"x\")\n", true},
		{"go.mod", "module example.org/m\n\ngo 1.26\n\n// nothing\n", false},
	} {
		write(change.name, change.content)
		if got := content(); (got != last) != change.matters {
			t.Errorf("a change of %s: changed is %v, want %v", change.name, got != last, change.matters)
		}
		last = content()
	}
}
