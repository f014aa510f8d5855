package resource_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/proxies/audit"
)

// switching answers an upgrade with 101 and hands the connection to serve. Like an
// API server it passes a half close on.
func switching(t *testing.T, serve func(r *http.Request, conn net.Conn, reader *bufio.Reader)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
			r.Header.Get("Upgrade")); err != nil {
			t.Error(err)
		}
		serve(r, conn, buffered.Reader)
	}
}

// upgrade asks for a protocol and returns the connection behind the answer.
func (w *proxyEnv) upgrade(method, path, protocol string) (answer, *net.UnixConn, *bufio.Reader) {
	w.t.Helper()
	res, conn, reader := w.send(fmt.Sprintf("%s /agents/edge-1%s HTTP/1.1\nHost: h\nAuthorization: Bearer %s\nConnection: Upgrade\nUpgrade: %s\n\n",
		method, path, token("edge-1"), protocol))
	return res, conn.(*net.UnixConn), reader
}

const execPath = "/api/v1/namespaces/web/pods/shop/exec?command=sh&stdin=true"

// After its upgrade a call is bytes both ways, and each way ends by itself.
func TestUpgrade(t *testing.T) {
	for _, c := range []struct{ method, protocol string }{{"POST", "SPDY/3.1"}, {"GET", "websocket"}, {"GET", "SPDY/3.1"}} {
		t.Run(c.method+" "+c.protocol, func(t *testing.T) {
			w := start(t, switching(t, func(r *http.Request, conn net.Conn, reader *bufio.Reader) {
				all, err := io.ReadAll(reader) // to the caller's half close
				if err != nil {
					t.Error(err)
				}
				if _, err := fmt.Fprintf(conn, "%s %s %d", r.Method, r.RequestURI, len(all)); err != nil {
					t.Error(err)
				}
			}), settings{})
			res, conn, reader := w.upgrade(c.method, execPath, c.protocol)
			if res.Code != 101 || res.Header.Get("Upgrade") != c.protocol || res.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
				t.Fatalf("answer %d %v", res.Code, res.Header)
			}
			if open := w.records.wait(t, audit.Open, 1)[0]; open.Upgrade != c.protocol || open.Subresource != "exec" {
				t.Errorf("record = %+v", open)
			}
			const size = 3 << 20
			if _, err := io.Copy(conn, io.LimitReader(zeros{}, size)); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(reader)
			want := fmt.Sprintf("%s %s %d", c.method, execPath, size)
			if err != nil || string(got) != want {
				t.Errorf("answer %q, %v, want %q", got, err, want)
			}
			end := w.records.wait(t, audit.End, 1)[0]
			if end.Status != 101 || end.Result != audit.Complete || end.RequestBytes != size || end.ResponseBytes != int64(len(want)) {
				t.Errorf("record = %+v", end)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// The other direction may end first.
func TestUpgradeThatTheServerEndsFirst(t *testing.T) {
	got := make(chan string, 1)
	w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		_, _ = io.WriteString(conn, "bye")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		rest, err := io.ReadAll(reader)
		if err != nil {
			t.Error(err)
		}
		got <- string(rest)
	}), settings{})
	_, conn, reader := w.upgrade("POST", execPath, "SPDY/3.1")
	if all, err := io.ReadAll(reader); string(all) != "bye" || err != nil {
		t.Fatalf("read %q, %v", all, err)
	}
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest := <-got; rest != "still here" {
		t.Errorf("the server read %q", rest)
	}
}

// What a caller sends behind its upgrade is for whom the upgrade went to: never a
// call of its own, whatever the answer.
func TestWhatFollowsAnUpgrade(t *testing.T) {
	const second = "GET /agents/edge-1/api/v1/secrets HTTP/1.1\r\nHost: h\r\n\r\n"
	t.Run("granted", func(t *testing.T) {
		w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
			_, _ = io.CopyN(conn, reader, int64(len(second)))
		}), settings{})
		res, _, reader := w.send("GET /agents/edge-1" + execPath + " HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") +
			"\nConnection: Upgrade\nUpgrade: websocket\n\n" + strings.ReplaceAll(second, "\r\n", "\n"))
		if res.Code != 101 {
			t.Fatalf("answer %d", res.Code)
		}
		if echo, err := io.ReadAll(reader); string(echo) != second || err != nil {
			t.Errorf("echo %q, %v", echo, err)
		}
		if n := len(w.calls()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("not granted", func(t *testing.T) {
		w := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, settings{})
		res, _, reader := w.send("GET /agents/edge-1" + execPath + " HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") +
			"\nConnection: Upgrade\nUpgrade: websocket\n\n" + strings.ReplaceAll(second, "\r\n", "\n"))
		if _, err := io.Copy(io.Discard, res.Body); res.Code != 403 || err != nil {
			t.Fatalf("answer %d, %v", res.Code, err)
		}
		next, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = next.Body.Close() }()
		// It is checked as any other call: it has no token.
		if next.StatusCode != http.StatusUnauthorized || len(w.calls()) != 1 {
			t.Errorf("answer %d after %d calls", next.StatusCode, len(w.calls()))
		}
	})
	t.Run("granted for another protocol", func(t *testing.T) {
		w := start(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "h2c")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, settings{})
		res, _, _ := w.upgrade("GET", execPath, "websocket")
		if res.Code != http.StatusBadGateway {
			t.Errorf("answer %d", res.Code)
		}
	})
}

// A lost agent ends the connection without a byte of ours.
func TestAgentLostInUpgrade(t *testing.T) {
	w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		_, _ = io.WriteString(conn, "hello")
		_, _ = io.Copy(io.Discard, reader)
	}), settings{})
	_, _, reader := w.upgrade("GET", execPath, "websocket")
	hello := make([]byte, 5)
	if _, err := io.ReadFull(reader, hello); err != nil {
		t.Fatal(err)
	}
	w.cut()
	if rest, _ := io.ReadAll(reader); len(rest) > 0 {
		t.Errorf("after the loss came %q", rest)
	}
	if end := w.records.wait(t, audit.End, 1)[0]; end.Result != audit.AgentGone {
		t.Errorf("record = %+v", end)
	}
}

// So does an API server that is lost behind the agent.
func TestServerLostInUpgrade(t *testing.T) {
	w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		_, _ = io.WriteString(conn, "hello")
		if _, err := reader.ReadByte(); err != nil {
			t.Error(err)
		}
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			t.Error(err)
		}
	}), settings{})
	_, conn, reader := w.upgrade("GET", execPath, "websocket")
	hello := make([]byte, 5)
	if _, err := io.ReadFull(reader, hello); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(reader); len(rest) > 0 {
		t.Errorf("after the loss came %q", rest)
	}
	if end := w.records.wait(t, audit.End, 1)[0]; end.Result != audit.AgentGone {
		t.Errorf("record = %+v", end)
	}
}

// A caller that vanishes takes its exec along.
func TestCallerLostInUpgrade(t *testing.T) {
	ended := make(chan struct{})
	w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		defer close(ended)
		_, _ = io.WriteString(conn, "hello")
		_, _ = io.Copy(io.Discard, reader)
	}), settings{})
	_, conn, reader := w.upgrade("POST", execPath, "SPDY/3.1")
	if _, err := reader.Peek(5); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	w.records.wait(t, audit.End, 1)
}

func TestStopEndsUpgrades(t *testing.T) {
	w := start(t, switching(t, func(_ *http.Request, _ net.Conn, reader *bufio.Reader) {
		_, _ = io.Copy(io.Discard, reader)
	}), settings{})
	_, _, reader := w.upgrade("POST", execPath, "SPDY/3.1")
	w.stopHub()
	if rest, _ := io.ReadAll(reader); len(rest) > 0 {
		t.Errorf("at the stop came %q", rest)
	}
	if end := w.records.wait(t, audit.End, 1)[0]; end.Result != audit.Stopped {
		t.Errorf("record = %+v", end)
	}
}
