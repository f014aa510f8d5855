package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// What a hub may ask of a spoke is a short list.
func TestSpokeAllows(t *testing.T) {
	w := newHubEnv(t, nil)
	e := w.add("a", nil)
	must(t, e.redis.client(t, 3).Set(t.Context(), tree("", "shop"), "x", 0).Err())
	conn, err := w.dialSpoke(t.Context(), kit.Agent(t, "a"))
	must(t, err)
	defer func() { _ = conn.Close() }() // the test is over
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	key := tree("", "shop")
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"PING"}, "+PONG"}, {[]string{"EXISTS", key}, ":1"}, {[]string{"TTL", key}, ":-1"},
		{[]string{"SET", key, "y"}, "-DENIED"}, {[]string{"DEL", key}, "-DENIED"}, {[]string{"KEYS", "*"}, "-DENIED"}, {[]string{"CONFIG", "GET", "requirepass"}, "-DENIED"},
		{[]string{"GET"}, "-DENIED"}, {[]string{"GET", key, key}, "-DENIED"}, {[]string{"GET", "secret"}, "-DENIED"}, {[]string{"EXISTS", key, "secret"}, "-DENIED"},
		{[]string{"MGET", "mfst|x"}, "-DENIED"}, {[]string{"GET", "cluster|info|https://kubernetes.default.svc|1.8.3.gz"}, "-DENIED"}, {[]string{"GET", tree("other", "shop")}, "-DENIED"},
		{[]string{"AUTH", password}, "-DENIED"}, {[]string{"EVAL", "return 1", "0"}, "-DENIED"}, {[]string{"PSUBSCRIBE", "*"}, "-DENIED"}, {[]string{"get", key}, "-DENIED"},
		{[]string{"GET", strings.TrimSuffix(key, ".gz")}, "-FORMAT 1.8.3.gz"}, {append([]string{"EXISTS"}, repeat(key, 257)...), "-DENIED"}, {append([]string{"EXISTS"}, repeat(key, 256)...), ":256"},
		{[]string{"SUBSCRIBE", channel("other", "shop")}, "-DENIED " + channel("other", "shop")}, {[]string{"SUBSCRIBE", key}, "-FORMAT 1.8.3 " + key},
	} {
		_, err := conn.Write(encode(tt.command...))
		must(t, err)
		if got := readLine(t, conn); got != tt.want {
			t.Errorf("%.60v: %s, want %s", tt.command, got, tt.want)
		}
	}
	_, err = conn.Write(encode("GET", key)) // no reads among subscriptions
	must(t, err)
	if n, err := conn.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes of a read after a subscription", n)
	}
}

// However many values a hub asks for at once, and however slowly it reads them, the spoke's
// Redis has one of them waiting.
func TestSpokeReadsOneValueAtATime(t *testing.T) {
	const values, length = 64, 4 << 20
	w := newHubEnv(t, nil)
	e := w.add("a", nil)
	client := e.redis.client(t, 3)
	must(t, client.Set(t.Context(), tree("", "shop"), strings.Repeat("a", length), 0).Err())
	conn, err := w.dialSpoke(t.Context(), kit.Agent(t, "a"))
	must(t, err)
	defer func() { _ = conn.Close() }() // the test is over
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write(encode(append([]string{"MGET"}, repeat(tree("", "shop"), values)...)...))
	must(t, err)
	if got := readLine(t, conn); got != fmt.Sprint("*", values) {
		t.Fatalf("the answer begins with %q", got)
	}
	waiting := 0
	clients, err := client.ClientList(t.Context()).Result()
	must(t, err)
	for _, found := range regexp.MustCompile(`omem=(\d+)`).FindAllStringSubmatch(clients, -1) {
		n, err := strconv.Atoi(found[1])
		must(t, err)
		waiting += n
	}
	if waiting > 2*length {
		t.Errorf("%d bytes wait in the spoke's Redis, want those of one value of %d", waiting, length)
	}
	for range values {
		if got := readLine(t, conn); got != fmt.Sprint("$", length) {
			t.Fatalf("a value begins with %q", got)
		}
		n, err := io.CopyN(io.Discard, conn, length+2)
		if err != nil {
			t.Fatalf("a value ends after %d bytes: %v", n, err)
		}
	}
}

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestSpokeIsUnavailable(t *testing.T) {
	server := startRedis(t, "--requirepass", password)
	cfg := spoke.Config{
		Dial: server.dial, Credentials: func(context.Context) (string, string, error) { return "", password, nil },
		Version: version, Allow: func(appkey.Instance) bool { return true }, Log: zerolog.New(zerolog.NewTestWriter(t)), MaxConnections: 1,
	}
	serve := func(change func(*spoke.Config)) error {
		cfg := cfg
		cfg.Metrics = prometheus.NewRegistry()
		change(&cfg)
		s, err := spoke.New(cfg)
		must(t, err)
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }() // nothing was said
		return s.Serve(t.Context(), far)
	}
	wrong := func(context.Context) (string, string, error) { return "", "s3cre", nil }
	if err := serve(func(c *spoke.Config) { c.Credentials = wrong }); err == nil || strings.Contains(err.Error(), "s3cre") {
		t.Errorf("with a wrong password: %v", err)
	}
	silent := func(context.Context) (net.Conn, error) {
		near, _ := net.Pipe()
		return near, nil
	}
	if err := serve(func(c *spoke.Config) { c.Dial, c.AnswerTimeout = silent, 50*time.Millisecond }); err == nil {
		t.Error("a Redis that says nothing is used")
	}
	// One connection more than there may be.
	cfg.Metrics = prometheus.NewRegistry()
	s, err := spoke.New(cfg)
	must(t, err)
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), far) }()
	_, err = near.Write(encode("PING"))
	must(t, err)
	readLine(t, near)
	if err := s.Serve(t.Context(), far); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("one connection more: %v", err)
	}
	must(t, near.Close())
	if err := <-ended; err != nil {
		t.Error("Serve:", err)
	}
}
