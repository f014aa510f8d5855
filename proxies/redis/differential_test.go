package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// twins are a proxy with an agent, and a single Redis that holds the same under the
// same names: anyone who asks either cannot tell which it is.
type twins struct {
	w      *hubEnv
	spoke  *server
	single *server
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	w := newHubEnv(t, nil)
	s := &twins{w: w, spoke: w.add("a", nil).redis, single: startRedis(t, "--requirepass", password)}
	spoke, hub, single := s.spoke.client(t, 3), w.redis.client(t, 3), s.single.client(t, 3)
	for name, value := range map[string]string{"shop": "a tree", "empty": "", "lines": "one\r\ntwo\x00", "long": strings.Repeat("0123456789", 1<<20/10)} {
		must(t, spoke.Set(t.Context(), tree("", name), value, 0).Err())
		must(t, single.Set(t.Context(), tree("a", name), value, 0).Err())
	}
	must(t, spoke.Set(t.Context(), tree("", "unknown"), "not on the hub", 0).Err())
	for key, value := range map[string]string{"mine": "x", tree("argocd", "shop"): "of the hub"} {
		must(t, hub.Set(t.Context(), key, value, 0).Err())
		must(t, single.Set(t.Context(), key, value, 0).Err())
	}
	return s
}

// transcript is all that a server answers to commands that are sent at once.
func transcript(t *testing.T, path string, commands ...[]string) string {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer func() { _ = conn.Close() }() // the other side ends it
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	var all []byte
	for _, command := range append(commands, []string{"QUIT"}) {
		all = append(all, encode(command...)...)
	}
	go func() { _, _ = conn.Write(all) }() // what is missing shows in the answer
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("after %.200q: %v", answer, err)
	}
	return string(answer)
}

// Byte by byte, in either protocol.
func TestAnswersAreThoseOfRedis(t *testing.T) {
	s := newTwins(t)
	login := [][]string{{"AUTH", password}}
	hello := func(version string) [][]string {
		return [][]string{{"HELLO", version, "AUTH", "default", password, "SETNAME", "x"}, {"ECHO", "ready"}}
	}
	// An Application that is not on the hub is a key that is not there.
	shop, none, unknown := tree("a", "shop"), tree("a", "none"), tree("a", "unknown")
	cases := map[string][][]string{
		"handshake":        {{"PING"}, {"PING", "text"}, {"CLIENT", "SETINFO", "LIB-NAME", "go-redis"}, {"CLIENT", "SETINFO", "LIB-VER", "9"}, {"CLIENT", "GETNAME"}, {"SELECT", "0"}},
		"reads":            {{"GET", shop}, {"GET", none}, {"EXISTS", shop}, {"EXISTS", shop, none, shop}, {"TTL", shop}, {"TTL", none}, {"MGET", shop}, {"MGET", none, shop, none, shop}},
		"unknown":          {{"GET", unknown}, {"MGET", unknown}, {"MGET", unknown, unknown}, {"MGET", unknown, shop, none, unknown, shop}, {"MGET", tree("a", "long"), unknown}, {"EXISTS", unknown}, {"EXISTS", unknown, unknown}, {"EXISTS", shop, unknown, shop, none}, {"TTL", unknown}, {"GET", shop}},
		"values":           {{"GET", tree("a", "empty")}, {"GET", tree("a", "lines")}, {"GET", tree("a", "long")}, {"MGET", tree("a", "long"), shop, tree("a", "empty")}},
		"names in any way": {{"get", shop}, {"Mget", shop}, {"eXists", shop}, {"ttl", none}},
		"mixed":            {{"GET", "mine"}, {"GET", shop}, {"GET", tree("argocd", "shop")}, {"GET", none}, {"MGET", "mine", "none"}, {"EXISTS", shop}, {"INCR", "mine"}},
		"wrong numbers":    {{"GET"}, {"TTL"}, {"MGET"}, {"EXISTS"}, {"SUBSCRIBE"}, {"GET", shop, none}, {"TTL", shop, none}},
		"subscriptions": {
			{"SUBSCRIBE", channel("a", "shop")}, {"SUBSCRIBE", channel("a", "shop"), "mine", channel("a", "other")}, {"PSUBSCRIBE", "m*"}, {"PING"},
			{"UNSUBSCRIBE", channel("a", "shop"), channel("a", "never")},
			// All that is left must be one: Redis has no order for several.
			{"UNSUBSCRIBE", "mine"}, {"UNSUBSCRIBE"}, {"UNSUBSCRIBE"}, {"PUNSUBSCRIBE"}, {"GET", shop},
		},
		"a transaction": {{"MULTI"}, {"INCR", "n"}, {"GET", "n"}, {"EXEC"}, {"GET", shop}, {"DEL", "n"}, {"MULTI"}, {"DISCARD"}, {"GET", none}},
		"reset":         {{"SUBSCRIBE", channel("a", "shop")}, {"RESET"}, {"GET", shop}, {"AUTH", password}, {"GET", shop}},
	}
	for name, commands := range cases {
		for version, first := range map[string][][]string{"RESP2": login, "RESP2 by HELLO": hello("2"), "RESP3": hello("3")} {
			t.Run(name+"/"+version, func(t *testing.T) {
				both := [2]string{}
				for i, path := range []string{s.single.path, s.w.socket} {
					both[i] = transcript(t, path, append(first[:len(first):len(first)], commands...)...)
					if len(first) > 1 { // the answer to HELLO has the number of the connection
						_, both[i], _ = strings.Cut(both[i], "$5\r\nready\r\n")
					}
				}
				if diff := cmp.Diff(both[0], both[1]); diff != "" {
					t.Errorf("(-redis +proxy)\n%.2000s", diff)
				}
			})
		}
	}
	t.Run("nobody", func(t *testing.T) {
		commands := [][]string{{"GET", shop}, {"MGET", shop}, {"SUBSCRIBE", channel("a", "shop")}, {"PING"}, {"AUTH", "wrong"}, {"TTL", shop}, {"HELLO", "9"}, {"AUTH", password}, {"GET", shop}}
		if diff := cmp.Diff(transcript(t, s.single.path, commands...), transcript(t, s.w.socket, commands...)); diff != "" {
			t.Errorf("(-redis +proxy)\n%s", diff)
		}
	})
}

// redis-cli prints the same.
func TestRedisCLI(t *testing.T) {
	s, path := newTwins(t), program(t, "redis-cli")
	command := func(ctx context.Context, socket, protocol string, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, path, append([]string{"-s", socket, "--no-auth-warning", "-a", password, protocol}, args...)...)
	}
	for _, protocol := range []string{"-2", "-3"} {
		for _, args := range [][]string{
			{"GET", tree("a", "shop")}, {"GET", tree("a", "none")}, {"GET", tree("a", "lines")}, {"GET", tree("a", "long")}, {"--json", "MGET", tree("a", "shop"), tree("a", "none")},
			{"MGET", tree("a", "unknown"), tree("a", "shop"), tree("a", "unknown")}, {"EXISTS", tree("a", "unknown"), tree("a", "shop")},
			{"EXISTS", tree("a", "shop"), tree("a", "none")}, {"TTL", tree("a", "shop")}, {"TTL", tree("a", "none")}, {"PING"}, {"SET", "k", "v"}, {"GET", "k"}, {"--csv", "LRANGE", "none", "0", "-1"},
			{"-r", "3", "GET", tree("a", "shop")}, {"--raw", "GET", tree("a", "shop")}, {"NOSUCH"},
		} {
			var both [2]string
			for i, socket := range []string{s.single.path, s.w.socket} {
				out, err := command(t.Context(), socket, protocol, args...).CombinedOutput()
				both[i] = fmt.Sprint(string(out), err)
			}
			if diff := cmp.Diff(both[0], both[1]); diff != "" {
				t.Errorf("redis-cli %s %v (-redis +proxy)\n%.1000s", protocol, args, diff)
			}
		}
		for _, args := range [][]string{{"DEL", tree("a", "shop")}, {"SET", tree("a", "shop"), "x"}, {"RENAME", "k", tree("a", "shop")}} {
			if out, _ := command(t.Context(), s.w.socket, protocol, args...).CombinedOutput(); !strings.Contains(string(out), "AGENTCOMMAND") {
				t.Errorf("redis-cli %s %v: %s", protocol, args, out)
			}
		}
		var both [2]string
		for i, socket := range []string{s.single.path, s.w.socket} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			cmd := command(ctx, socket, protocol, "SUBSCRIBE", channel("a", "shop"), "mine")
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			lines := bufio.NewScanner(out)
			for n := 0; n < 9 && lines.Scan(); n++ {
				both[i] += lines.Text() + "\n"
				if n == 5 { // both are confirmed
					if i == 0 {
						must(t, s.single.client(t, 3).Publish(ctx, channel("a", "shop"), "new").Err())
					} else {
						must(t, s.spoke.client(t, 3).Publish(ctx, channel("", "shop"), "new").Err())
					}
				}
			}
			cancel()
			if err := cmd.Wait(); err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("redis-cli SUBSCRIBE: %v after %q", err, both[i])
			}
		}
		if diff := cmp.Diff(both[0], both[1]); diff != "" || !strings.Contains(both[0], "new") {
			t.Errorf("redis-cli %s SUBSCRIBE (-redis +proxy)\n%s", protocol, diff)
		}
	}
}
