package main

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/reasons"
)

func TestExplain(t *testing.T) {
	for _, e := range reasons.All() {
		out, _, err := agentctl(t, "explain", e.Word)
		if err != nil || !strings.Contains(out, e.Meaning) || !strings.Contains(out, "\n"+e.See()+"\n") || e.Cure != "" && !strings.Contains(out, "\ncure: "+e.Cure+"\n") {
			t.Errorf("explain %s prints %q, %v", e.Word, out, err)
		}
	}
	// In whatever case of letters, and by its anchor.
	for _, word := range []string{"agentaway", "rule-exec", "SPIFFEIDCONFLICT"} {
		if out, _, err := agentctl(t, "explain", word); err != nil || !strings.Contains(out, "see docs/reference/errors.md#") {
			t.Errorf("explain %s prints %q, %v", word, out, err)
		}
	}
	for args, want := range map[string]string{"explain": "a word is missing", "explain Nonsense": `this release knows no reason, rule or error code "Nonsense"`} {
		if _, _, err := agentctl(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// What agent get shows names the place that explains each reason.
func TestGetSaysWhereReasonsAreExplained(t *testing.T) {
	at := "2026-11-23T06:00:00Z"
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
	}
	hub, url := newFakeHub(t, nil, nil, map[string]any{
		"connected": false, "counts": map[string]any{"parked": 3},
		"conditions": []any{
			condition("Ready", "False", "SPIFFEIDConflict", "SPIFFE ID a belongs to b"), condition("Connected", "False", "NotConnected", ""),
			condition("ClusterSecretReady", "True", "AsExpected", ""), condition("OverBudget", "True", "OfALaterRelease", "slow down"),
		},
		"parked": []any{
			map[string]any{"kind": "Application", "namespace": "edge-1", "name": "a", "reason": "NotOwned", "since": at},
			map[string]any{"kind": "Application", "namespace": "edge-1", "name": "b", "reason": "NotOwned", "message": "why", "since": at},
		},
		"deletionsHeld": map[string]any{"id": "hold-1", "since": at, "reason": "TooMany", "total": 12},
	})
	hub.table = true
	out, _, err := agentctl(t, "agent", "get", "edge-1", "-o", "wide", "--server", url)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"\nOf agent edge-1:\nReady is False since 2026-11-23T06:00:00Z: SPIFFEIDConflict: SPIFFE ID a belongs to b; see docs/reference/errors.md#spiffeidconflict\n" +
			"Connected is False since 2026-11-23T06:00:00Z: NotConnected; see docs/reference/errors.md#notconnected\n" +
			"OverBudget is True since 2026-11-23T06:00:00Z: OfALaterRelease: slow down\n",
		"  Application edge-1/a: NotOwned\n  Application edge-1/b: NotOwned: why\n  and 1 more\nNotOwned: see docs/reference/errors.md#notowned\n",
		"\nTooMany: see docs/reference/errors.md#toomany\nLet them happen with: ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("it prints\n%s\nwant something with\n%s", out, part)
		}
	}
}
