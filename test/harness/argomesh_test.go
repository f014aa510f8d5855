//go:build linux

package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsNest(t *testing.T) {
	got := Settings{
		"namespace":            "argocd",
		"stream.listen":        "127.0.0.1:1",
		"stream.drain_timeout": "1s",
		"a.b.c":                true,
	}.nested()
	want := map[string]any{
		"namespace": "argocd",
		"stream":    map[string]any{"listen": "127.0.0.1:1", "drain_timeout": "1s"},
		"a":         map[string]any{"b": map[string]any{"c": true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nested() (-want +got):\n%s", diff)
	}
}

func TestErrorsHidePasswords(t *testing.T) {
	args := []string{"login", "host", "--username", "admin", "--password", "secret"}
	want := []string{"login", "host", "--username", "admin", "--password", "***"}
	if diff := cmp.Diff(want, redacted(args)); diff != "" {
		t.Errorf("redacted() (-want +got):\n%s", diff)
	}
	if args[5] != "secret" {
		t.Error("redacted() changed its argument")
	}
}
