package kit_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/kit"
)

// What runs in the background is stopped in the reverse order, and once.
func TestBackground(t *testing.T) {
	var ended []string
	t.Run("inner", func(t *testing.T) {
		for _, name := range []string{"first", "second"} {
			stop := kit.Background(t, func(ctx context.Context) error {
				<-ctx.Done()
				ended = append(ended, name)
				return nil
			})
			if name == "second" {
				stop()
				stop()
			}
		}
	})
	if len(ended) != 2 || ended[0] != "second" || ended[1] != "first" {
		t.Errorf("ended: %v", ended)
	}
}

// What is started is stopped once, and says how it ended each time.
func TestStart(t *testing.T) {
	broken := errors.New("it broke")
	stop := kit.Start(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return broken
	})
	for range 2 {
		if err := stop(); !errors.Is(err, broken) {
			t.Errorf("stop() = %v", err)
		}
	}
}

// echo is a server that keeps each connection open until it is stopped.
type echo struct {
	stopped chan struct{}
	stop    sync.Once
}

func (e *echo) Serve(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	<-e.stopped
	return errors.Join(conn.Close(), l.Close())
}

func (e *echo) Stop() { e.stop.Do(func() { close(e.stopped) }) }

// A server serves as long as its test runs.
func TestServe(t *testing.T) {
	var conn net.Conn
	t.Run("inner", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		kit.Serve(t, &echo{stopped: make(chan struct{})}, l)
		if conn, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
	})
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("after the test the connection is open: %v", err)
	}
}

func TestMostWithin(t *testing.T) {
	var times []time.Time
	for _, at := range []int{0, 4, 5, 9, 10, 11, 30} {
		times = append(times, time.Unix(int64(at), 0))
	}
	for span, want := range map[time.Duration]int{time.Second: 1, 2 * time.Second: 2, 3 * time.Second: 3, 10 * time.Second: 5, time.Minute: 7} {
		if got := kit.MostWithin(times, span); got != want {
			t.Errorf("%d within %s, want %d", got, span, want)
		}
	}
	if got := kit.MostWithin(nil, time.Minute); got != 0 {
		t.Errorf("%d of none", got)
	}
}

func TestEventually(t *testing.T) {
	n := 0
	kit.Eventually(t, "the third look", func() bool { n++; return n == 3 })
	kit.EventuallyNil(t, "the fifth", func() error {
		if n++; n < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	if n != 5 {
		t.Errorf("it was looked at %d times", n)
	}
}

func TestLog(t *testing.T) {
	l := kit.NewLog()
	log := l.Logger()
	log.Info().Str("agent", "edge-1").Msg("connected")
	log.Info().Str("agent", "edge-2").Int("n", 1).Msg("connected")
	if got := l.Find("message", "connect"); len(got) != 2 {
		t.Errorf("Find() = %v", got)
	}
	if got := l.Find("message", "connect", "agent", "edge-2"); len(got) != 1 {
		t.Errorf("Find() of one agent = %v", got)
	}
	if got, want := l.String(), `{"level":"info","agent":"edge-1","message":"connected"}`+"\n"; !strings.HasPrefix(got, want) {
		t.Errorf("String() = %s", got)
	}
	if got := l.Find("n", "1"); len(got) != 0 {
		t.Errorf("Find() of a number = %v", got)
	}
	go log.Warn().Str("error", "it broke").Msg("gone")
	if got := l.WaitAfter(t, 2, "error", "broke"); got["message"] != "gone" {
		t.Errorf("WaitAfter() = %v", got)
	}
}
