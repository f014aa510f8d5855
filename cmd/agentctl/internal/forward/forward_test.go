package forward

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Ports of the pod: one says what it hears, and one resets each connection.
const echo, broken = 8080, 9090

// kubelet forwards ports of a pod that it plays. Each way to it is told.
type kubelet struct {
	ways chan httpstream.Connection

	mu       sync.Mutex
	problems map[string]httpstream.Stream // of connections, by their number
}

// ServeHTTP implements http.Handler.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // the other end was told
	}
	if way := spdy.NewResponseUpgrader().UpgradeResponse(w, r, k.take); way != nil {
		k.ways <- way
		<-way.CloseChan()
	}
}

func (k *kubelet) take(s httpstream.Stream, replied <-chan struct{}) error {
	number := s.Headers().Get(corev1.PortForwardRequestIDHeader)
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		k.problems[number] = s
		return nil
	}
	problems := k.problems[number]
	go func() {
		<-replied
		if s.Headers().Get(corev1.PortHeader) == "9090" {
			_, _ = problems.Write([]byte("connection reset by peer"))
		} else {
			_, _ = io.Copy(s, s) // ends with the stream
		}
		_, _ = s.Close(), problems.Close()
	}()
	return nil
}

func start(t *testing.T) (*kubelet, *Ports) {
	t.Helper()
	k := &kubelet{ways: make(chan httpstream.Connection, 8), problems: map[string]httpstream.Stream{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	p, err := Open(t.Context(), &rest.Config{Host: server.URL}, "argocd", "principal", echo, broken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return k, p
}

func dial(t *testing.T, p *Ports, port int32) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Address(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func answers(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	heard := make([]byte, len(word))
	if _, err := conn.Write([]byte(word)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != word {
		t.Fatalf("the answer to %q is %q, %v", word, heard, err)
	}
}

// ends waits until the other end has closed conn.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, net.ErrClosed) {
		t.Fatalf("%d bytes are read, %v", n, err)
	}
}

// A connection that the pod resets ends alone.
func TestOneEndsAlone(t *testing.T) {
	k, p := start(t)
	lives := dial(t, p, echo)
	answers(t, lives, "before")
	ends(t, dial(t, p, broken))
	answers(t, lives, "after")
	answers(t, dial(t, p, echo), "another")
	if n := len(k.ways); n != 1 {
		t.Errorf("the pod was reached %d times", n)
	}
}

// Where the way to the pod is lost its connections end, and the next one opens it again.
func TestLostWay(t *testing.T) {
	k, p := start(t)
	was := dial(t, p, echo)
	answers(t, was, "before")
	if err := (<-k.ways).Close(); err != nil {
		t.Fatal(err)
	}
	ends(t, was)
	answers(t, dial(t, p, echo), "after")
	if n := len(k.ways); n != 1 {
		t.Errorf("the pod was reached %d times again", n)
	}
}

// Close ends connections that are open.
func TestClose(t *testing.T) {
	_, p := start(t)
	lives := dial(t, p, echo)
	answers(t, lives, "before")
	p.Close()
	ends(t, lives)
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Address(echo)); err == nil {
		_ = conn.Close()
		t.Error("the port is still open")
	}
}
