//go:build linux

package env

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// Event is one that Argo CD shows of an object.
type Event struct{ Reason, Message string }

// TerminalCommand is what a person types there, of which a terminal may repeat every
// letter and no one but the shell the outcome.
const TerminalCommand = "echo said-$((40+2))"

// TypeInto types TerminalCommand into a terminal of an argocd-server, and returns what that
// shows until the command has said something.
func TypeInto(t *testing.T, server, token string, of url.Values) (said string) {
	t.Helper()
	config, err := websocket.NewConfig("ws://"+server+"/terminal?"+of.Encode(), "http://"+server)
	if err != nil {
		t.Fatal(err)
	}
	config.Header.Set("Cookie", "argocd.token="+token)
	conn, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	message, err := json.Marshal(map[string]any{"operation": "stdin", "data": TerminalCommand + "\r", "rows": 24, "cols": 80})
	if err != nil {
		t.Fatal(err)
	}
	if err := websocket.Message.Send(conn, string(message)); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(said, "said-42") {
		var answer struct{ Operation, Data string }
		if err := websocket.JSON.Receive(conn, &answer); err != nil {
			t.Fatalf("after %q: %v", said, err)
		}
		said += answer.Data
	}
	return said
}

// MaskedPassword is the value that no one is told while Secrets are masked.
const MaskedPassword = "correct-horse-battery"

// RevealsPassword fails the test when text has the password in a form that kubectl or Argo CD may
// show.
func RevealsPassword(t *testing.T, what, text string) {
	t.Helper()
	for _, form := range []string{MaskedPassword, base64.StdEncoding.EncodeToString([]byte(MaskedPassword))} {
		if strings.Contains(text, form) {
			t.Errorf("%s tells the password: %s", what, text)
		}
	}
}
