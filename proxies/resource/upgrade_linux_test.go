package resource_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/argomesh/argomesh/proxies/audit"
)

// A command may end while its caller still speaks. All that it said arrives, and then
// an end, not an abort.
func TestUpgradeWhoseServerListensNoMore(t *testing.T) {
	const size = 256 << 10
	closed := make(chan struct{})
	w := start(t, switching(t, func(_ *http.Request, conn net.Conn, reader *bufio.Reader) {
		defer close(closed)
		if _, err := io.CopyN(io.Discard, reader, 1<<10); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(conn, io.LimitReader(zeros{}, size)); err != nil {
			t.Error(err)
		}
		tcp := conn.(*net.TCPConn)
		if err := tcp.CloseWrite(); err != nil {
			t.Error(err)
		}
		delivered(t, tcp)
		_ = conn.Close() // what the caller says is unread, so this is a reset
	}), settings{})
	_, conn, reader := w.upgrade("POST", execPath, "SPDY/3.1")
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, io.LimitReader(zeros{}, 4<<20))
		ended <- errors.Join(err, conn.CloseWrite())
	}()
	<-closed
	if n, err := io.Copy(io.Discard, reader); n != size || err != nil {
		t.Errorf("read %d bytes, %v, want %d", n, err, size)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if end := w.records.wait(t, audit.End, 1)[0]; end.Result != audit.Complete || end.ResponseBytes != size {
		t.Errorf("record = %+v", end)
	}
}

// delivered waits until the kernel of the other end has all that was written.
func delivered(t *testing.T, conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for left := 1; left > 0; runtime.Gosched() {
		if err := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || t.Context().Err() != nil {
			t.Error(err)
			return
		}
	}
}
