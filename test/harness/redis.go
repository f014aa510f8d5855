//go:build linux

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Redis is a Redis server without persistence.
type Redis struct {
	*Process
	// Address is host and port.
	Address string
}

// StartRedis starts a Redis server.
func (h *Harness) StartRedis(ctx context.Context, name string) (*Redis, error) {
	path, err := h.tools.Path("redis-server")
	if err != nil {
		return nil, err
	}
	port, err := h.Port()
	if err != nil {
		return nil, err
	}
	dir := h.Path(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r := &Redis{Address: fmt.Sprintf("127.0.0.1:%d", port)}
	r.Process, err = h.Start(ctx, Command{
		Name: name,
		Path: path,
		Args: []string{
			"--bind", "127.0.0.1",
			"--port", fmt.Sprint(port),
			"--dir", dir,
			"--save", "",
			"--appendonly", "no",
		},
		Ready: func(ctx context.Context) error { return redisPing(ctx, r.Address) },
	})
	return r, err
}

// redisPing sends an inline command, so that no client library is needed.
func redisPing(ctx context.Context, address string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing more to learn
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if reply = strings.TrimSpace(reply); reply != "+PONG" {
		return errors.New("redis answers " + reply)
	}
	return nil
}
