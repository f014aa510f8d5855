package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/proxies/redis/spoke"
	"github.com/argomesh/argomesh/test/kit"
)

// A hub that asks on all its connections at once, and reads none, has the spoke's Redis hold
// no more than the limit; the others are answered when those before were read.
func TestSpokeHoldsNoMoreThanItsLimit(t *testing.T) {
	const length, fit, connections = 256 << 10, 4, 16
	server := startRedis(t, "--requirepass", password)
	client := server.client(t, 3)
	must(t, client.Set(t.Context(), tree("", "shop"), strings.Repeat("a", length), 0).Err())
	metrics := prometheus.NewRegistry()
	s, err := spoke.New(spoke.Config{
		Dial: server.dial, Credentials: func(context.Context) (string, string, error) { return "", password, nil },
		Version: version, Allow: func(appkey.Instance) bool { return true }, Log: zerolog.New(zerolog.NewTestWriter(t)),
		Metrics: metrics, MaxBytes: fit * length, AnswerTimeout: patience,
	})
	must(t, err)
	begun := make(chan net.Conn, connections)
	for range connections {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // the test is over
		go func() { _ = s.Serve(t.Context(), far) }()
		go func() {
			if _, err := near.Write(encode("MGET", tree("", "shop"), tree("", "shop"))); err != nil {
				t.Error(err)
			}
			if got := readLine(t, near); got != "*2" {
				t.Errorf("an answer begins with %q", got)
			}
			begun <- near
		}()
	}
	kit.EventuallyNil(t, "the connections hold what there is room for, or nothing", func() error {
		if held, waiting := gauge(t, metrics, "argomesh_redis_spoke_bytes"), gauge(t, metrics, "argomesh_redis_spoke_waiting"); held != fit*length || waiting != connections-fit {
			return fmt.Errorf("%v bytes are held and %v reads wait", held, waiting)
		}
		return nil
	})
	// Each is read to its end: one value, and the other when there is room again.
	ended := make(chan error, connections)
	for range connections {
		conn := <-begun
		go func() {
			in := bufio.NewReader(conn)
			for range 2 {
				if _, err := in.ReadString('\n'); err != nil {
					ended <- err
					return
				}
				if _, err := io.CopyN(io.Discard, in, length+2); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range connections {
		must(t, <-ended)
	}
	kit.EventuallyNil(t, "the connections hold what there is room for, or nothing", func() error {
		if held := gauge(t, metrics, "argomesh_redis_spoke_bytes"); held != 0 {
			return fmt.Errorf("%v bytes are still held", held)
		}
		return nil
	})
}

// A user of Redis with the rights that docs/redis.md names reads and subscribes. One that may
// not ask how long a value is reads all the same: each has the room of the longest.
func TestSpokeWithTheRightsOfAUser(t *testing.T) {
	for name, tc := range map[string]struct {
		rights        []any
		held, waiting float64 // of three values that are being read
	}{
		"all that it needs": {[]any{"+strlen"}, 3 * (65 << 10), 0},
		"no STRLEN":         {nil, 128 << 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server, metrics := startRedis(t, "--requirepass", password), prometheus.NewRegistry()
			client := server.client(t, 3)
			must(t, client.Set(t.Context(), tree("", "shop"), strings.Repeat("a", 65<<10), 0).Err())
			user := []any{"ACL", "SETUSER", "reader", "on", ">" + password, "~app|*", "resetchannels", "&app|*", "+ping", "+select", "+get", "+exists", "+ttl", "+scan", "+subscribe", "+unsubscribe"}
			must(t, client.Do(t.Context(), append(user, tc.rights...)...).Err())
			s, err := spoke.New(spoke.Config{
				Dial: server.dial, Credentials: func(context.Context) (string, string, error) { return "reader", password, nil },
				Version: version, Allow: func(appkey.Instance) bool { return true }, Log: zerolog.New(zerolog.NewTestWriter(t)),
				Metrics: metrics, AnswerTimeout: patience,
			})
			must(t, err)
			ask := func(args ...string) net.Conn {
				near, far := net.Pipe()
				t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // the test is over
				go func() { _ = s.Serve(t.Context(), far) }()
				_, err := near.Write(encode(args...))
				must(t, err)
				return near
			}
			readers := []net.Conn{ask("GET", tree("", "shop")), ask("GET", tree("", "shop")), ask("GET", tree("", "shop"))}
			kit.EventuallyNil(t, "values are held", func() error {
				if held, waiting := gauge(t, metrics, "argomesh_redis_spoke_bytes"), gauge(t, metrics, "argomesh_redis_spoke_waiting"); held != tc.held || waiting != tc.waiting {
					return fmt.Errorf("%v bytes are held and %v reads wait", held, waiting)
				}
				return nil
			})
			read := make(chan error, len(readers))
			for _, conn := range readers {
				go func() {
					_, err := io.CopyN(io.Discard, conn, int64(len("$66560\r\n")+65<<10+len("\r\n")))
					read <- err
				}()
			}
			for range readers {
				must(t, <-read)
			}
			for want, args := range map[string][]string{
				":1": {"EXISTS", tree("", "shop")}, ":-1": {"TTL", tree("", "shop")}, "$-1": {"GET", tree("", "none")}, "*3": {"SUBSCRIBE", channel("", "shop")},
			} {
				if got := readLine(t, ask(args...)); got != want {
					t.Errorf("%v: %s, want %s", args, got, want)
				}
			}
		})
	}
}

// What was begun ends when there is no room for its next value, and what it held is free
// again: a hub that asks for more than it reads must not end the agent.
func TestNextValueFindsNoRoom(t *testing.T) {
	const length = 256 << 10
	server := startRedis(t, "--requirepass", password)
	client := server.client(t, 3)
	must(t, client.Set(t.Context(), tree("", "long"), strings.Repeat("a", length), 0).Err())
	must(t, client.Set(t.Context(), tree("", "short"), "a", 0).Err())
	metrics := prometheus.NewRegistry()
	s, err := spoke.New(spoke.Config{
		Dial: server.dial, Credentials: func(context.Context) (string, string, error) { return "", password, nil },
		Version: version, Allow: func(appkey.Instance) bool { return true }, Log: zerolog.New(zerolog.NewTestWriter(t)),
		Metrics: metrics, MaxBytes: length, AnswerTimeout: patience,
	})
	must(t, err)
	ask := func(keys ...string) (end context.CancelFunc, ended <-chan error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // the test is over
		ctx, cancel := context.WithCancel(t.Context())
		serving := make(chan error, 1)
		go func() { serving <- s.Serve(ctx, far) }()
		_, err := near.Write(encode(append([]string{"MGET"}, keys...)...))
		must(t, err)
		return cancel, serving
	}
	state := func(held, waiting float64) func() error {
		return func() error {
			if h, w := gauge(t, metrics, "argomesh_redis_spoke_bytes"), gauge(t, metrics, "argomesh_redis_spoke_waiting"); h != held || w != waiting {
				return fmt.Errorf("%v bytes are held and %v reads wait", h, w)
			}
			return nil
		}
	}
	endFirst, first := ask(tree("", "long"))
	kit.EventuallyNil(t, "one value takes all the room", state(length, 0))
	endSecond, second := ask(tree("", "short"), tree("", "long"))
	kit.EventuallyNil(t, "the second value of the other waits for room", state(length, 1))
	endSecond()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the read that found no room ended with %v", err)
	}
	endFirst()
	if err := <-first; err == nil {
		t.Error("the read whose hub takes nothing ended without an error")
	}
	kit.EventuallyNil(t, "nothing is held", state(0, 0))
}

func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
