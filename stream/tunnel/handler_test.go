package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/test/kit"
)

// website runs an HTTP server behind a tunnel, and returns its Handler.
func website(t testing.TB, mux http.Handler) tunnel.Handler {
	t.Helper()
	l := tunnel.NewListener()
	s := &http.Server{Handler: mux, ReadHeaderTimeout: kit.Patience}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve() = %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept() of a closed listener = %v", err)
		}
	})
	return l.Handle
}

// browser is an HTTP client whose connections go to an agent.
func (h *hub) browser(agent string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.dialer.Dial(ctx, kit.Agent(h.t, agent), stream.Kubernetes)
	}}
	h.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: kit.Patience}
}

// An HTTP server in the agent's process serves the hub: ordinary requests over
// connections that are kept, large bodies both ways, a stream of lines as they
// come, and an upgrade whose directions end one after the other.
func TestHTTP(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		hash := sha256.New()
		n, err := io.Copy(hash, r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		_, _ = fmt.Fprintf(w, "%d %x", n, hash.Sum(nil))
	})
	const large = 50 << 20
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, large)
	})
	lines, gone := make(chan string), make(chan struct{})
	mux.HandleFunc("/watch", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case line := <-lines:
				_, _ = io.WriteString(w, line+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(gone) // the server knows that the caller has
				return
			}
		}
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack() = %v", err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		said, err := io.ReadAll(rw)
		if err != nil {
			t.Errorf("read upgraded: %v", err)
		}
		_, _ = c.Write(bytes.ToUpper(said))
	})
	h.spoke("edge-1", only(stream.Kubernetes, website(t, mux)), nil)
	client := h.browser("edge-1")
	get := func(t *testing.T, path string, body io.Reader) *http.Response {
		t.Helper()
		method := http.MethodGet
		if body != nil {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(kit.Context(t), method, "http://spoke"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return resp
	}

	for range 20 {
		resp := get(t, "/sum", strings.NewReader("abc"))
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := fmt.Sprintf("3 %x", sha256.Sum256([]byte("abc"))); err != nil || string(got) != want {
			t.Fatalf("POST = %q, %v, want %q", got, err, want)
		}
	}
	if got := metric(t, h.metrics, "argomesh_tunnel_dials_total"); got != 1 {
		t.Errorf("%v dials for requests one after the other, want one connection", got)
	}

	var g sync.WaitGroup
	g.Go(func() {
		resp := get(t, "/sum", io.LimitReader(zeros{}, large))
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(string(got), fmt.Sprint(large, " ")) {
			t.Errorf("POST of %d bytes = %q, %v", large, got, err)
		}
	})
	g.Go(func() {
		resp := get(t, "/large", nil)
		defer func() { _ = resp.Body.Close() }()
		if n, err := io.Copy(io.Discard, resp.Body); n != large || err != nil {
			t.Errorf("GET of %d bytes = %d, %v", large, n, err)
		}
	})
	g.Wait()

	resp := get(t, "/watch", nil)
	watch := bufio.NewScanner(resp.Body)
	for i := range 10 {
		want := fmt.Sprintf("event %d", i)
		lines <- want
		if !watch.Scan() || watch.Text() != want {
			t.Fatalf("watch = %q, %v, want %q", watch.Text(), watch.Err(), want)
		}
	}
	_ = resp.Body.Close()
	<-gone

	c := h.dial("edge-1", stream.Kubernetes)
	if _, err := io.WriteString(c, "GET /upgrade HTTP/1.1\r\nHost: spoke\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhow are you?"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 101") || !strings.HasSuffix(string(answer), "HOW ARE YOU?") {
		t.Errorf("upgrade = %q, %v", answer, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// tcpServer answers each connection with serve.
func tcpServer(t testing.TB, serve func(*net.TCPConn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	return l.Addr()
}

func forwardTo(a net.Addr) tunnel.Handler {
	return tunnel.Forward(func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", a.String())
	})
}

// Forward keeps the two directions apart, as TCP does, and passes on who ends what.
func TestForward(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	gone := make(chan error, 1)
	upper := tcpServer(t, func(c *net.TCPConn) { // answers once it was asked all
		said, err := io.ReadAll(c)
		if err == nil {
			_, err = c.Write(bytes.ToUpper(said))
		}
		gone <- err
	})
	talker := tcpServer(t, func(c *net.TCPConn) { // never ends by itself
		for {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				gone <- err
				return
			}
		}
	})
	breaker := tcpServer(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "half")
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0) // a reset
	})
	var to net.Addr
	h.spoke("edge-1", only(stream.Redis, func(ctx context.Context, conn net.Conn) error { return forwardTo(to)(ctx, conn) }), nil)

	t.Run("a question and its answer", func(t *testing.T) {
		to = upper
		c := h.dial("edge-1", stream.Redis)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if string(got) != "PING" || err != nil {
			t.Errorf("ReadAll() = %q, %v", got, err)
		}
		if err := <-gone; err != nil {
			t.Error(err)
		}
	})
	t.Run("a caller that leaves", func(t *testing.T) {
		to = talker
		c := h.dial("edge-1", stream.Redis)
		if _, err := io.ReadFull(c, make([]byte, 10000)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if err := <-gone; err == nil {
			t.Error("the service is not told")
		}
	})
	t.Run("a service that breaks", func(t *testing.T) {
		to = breaker
		c := h.dial("edge-1", stream.Redis)
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadAll(c)
		if e, ok := errors.AsType[*tunnel.ServiceError](err); !ok || e.Reason != tunnel.ReasonFailed {
			t.Errorf("ReadAll() = %v, want %q", err, tunnel.ReasonFailed)
		}
	})
}

// What a listener was given while no one accepts is refused in time, or when the
// listener closes.
func TestListenerWithoutServer(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	l := tunnel.NewListener()
	h.spoke("edge-1", only(stream.Kubernetes, l.Handle), func(cfg *acceptor.Config) { cfg.AcceptTimeout = 100 * time.Millisecond })
	refused := func(want tunnel.Reason) {
		t.Helper()
		_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Kubernetes)
		if e, ok := errors.AsType[*tunnel.ServiceError](err); !ok || e.Reason != want {
			t.Errorf("Dial() = %v, want %q", err, want)
		}
	}
	refused(tunnel.ReasonTimeout)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refused(tunnel.ReasonUnreachable)
}
