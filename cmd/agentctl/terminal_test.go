package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// nasty is a text of a spoke that hides what stands before it, sets the title of the
// window, and has a line of its own.
const nasty = "\x1b[2K\rALL IS WELL \x1b]0;pwned\a\u009b2J\x9b2J\x7f\u202edesrever\n\u2028y"

// visible reports the first thing in text that a terminal obeys.
func visible(text string) error {
	for i, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
			return fmt.Errorf("%q at byte %d of %q", r, i, text)
		}
	}
	return nil
}

// hubWith is a hub's API with one Agent, whose status is the spoke's words.
func hubWith(t *testing.T) *httptest.Server {
	t.Helper()
	agent := map[string]any{
		"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent",
		"metadata": map[string]any{"name": "edge-1", "namespace": "argocd", "uid": "u", "resourceVersion": "1"},
		"spec":     map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{"spiffe://a/b"}}},
		"status": map[string]any{
			"counts": map[string]any{"parked": 3},
			"parked": []any{
				map[string]any{"kind": "Application", "namespace": "edge-1", "name": "guestbook", "reason": "Invalid", "message": nasty},
				map[string]any{"kind": "AppProject", "name": "web", "reason": "NotOwned"},
			},
			"history": map[string]any{"id": nasty, "clusterUID": nasty, "tokens": []any{nasty}},
			"deletionsHeld": map[string]any{
				"id": "abc", "total": 1, "since": "2026-11-21T11:00:00Z", "reason": "HistoryBroken", "message": "the spoke is Kubernetes cluster " + nasty,
				"objects": []any{map[string]any{"kind": "Application", "name": nasty}},
			},
		},
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply := any(agent)
		switch {
		case strings.HasSuffix(r.URL.Path, "/bad"):
			w.WriteHeader(http.StatusForbidden)
			reply = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: nasty}
		case strings.Contains(r.Header.Get("Accept"), "as=Table"):
			reply = map[string]any{
				"kind": "Table", "apiVersion": "meta.k8s.io/v1",
				"columnDefinitions": []any{map[string]any{"name": "Name", "type": "string"}, map[string]any{"name": "Version", "type": "string"}},
				"rows":              []any{map[string]any{"cells": []any{"edge-1", nasty}}},
			}
		}
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	return api
}

// Whatever a spoke or a hub says is shown as text, where a person must check by it.
func TestTerminalsObeyNobodyElse(t *testing.T) {
	api := hubWith(t)
	for _, args := range []string{
		"agent get edge-1", "agent get edge-1 -o wide", "agent get edge-1 -o json", "agent get edge-1 -o name", "agent list",
		"agent accept-deletions edge-1", "agent get bad", "agent get edge-1 --server " + strings.ReplaceAll(api.URL, "http:", "\x1b[2Khttp:"),
	} {
		out, complaint, err := agentctl(t, append(strings.Fields(args), "-n", "argocd", "--server", api.URL)...)
		if out+complaint == "" && err == nil {
			t.Errorf("%q prints nothing", args)
		}
		for _, text := range []string{out, complaint, fmt.Sprint(err)} {
			if bad := visible(text); bad != nil {
				t.Errorf("%q prints %v", args, bad)
			}
			if strings.Contains(text, "\ny") && !strings.Contains(args, "json") {
				t.Errorf("%q lets a spoke begin a line:\n%s", args, text)
			}
		}
	}
}

// The wide form names what is parked, and why.
func TestGetNamesWhatIsParked(t *testing.T) {
	api := hubWith(t)
	out, _, err := agentctl(t, "agent", "get", "edge-1", "-o", "wide", "-n", "argocd", "--server", api.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"  Application edge-1/guestbook: Invalid: ", "\n  AppProject web: NotOwned\n", "\n  and 1 more\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in:\n%s", line, out)
		}
	}
	if out, _, err = agentctl(t, "agent", "get", "edge-1", "-n", "argocd", "--server", api.URL); err != nil || strings.Contains(out, "guestbook") {
		t.Errorf("the narrow form names it, %v:\n%s", err, out)
	}
}

// Encoded as JSON or YAML it is harmless too, and means what it did.
func TestEncodingsKeepTheirMeaning(t *testing.T) {
	api := hubWith(t)
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, to any) error { return yaml.Unmarshal(b, to) },
	} {
		out, _, err := agentctl(t, "agent", "get", "edge-1", "-n", "argocd", "--server", api.URL, "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		if bad := visible(out); bad != nil {
			t.Errorf("%s has %v", format, bad)
		}
		var got struct {
			Status struct {
				History struct{ ID string } `json:"history"`
			} `json:"status"`
		}
		if err := decode([]byte(out), &got); err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out)
		}
		if diff := cmp.Diff(strings.ToValidUTF8(nasty, "\ufffd"), got.Status.History.ID); diff != "" {
			t.Errorf("%s (-want +got)\n%s", format, diff)
		}
	}
}
