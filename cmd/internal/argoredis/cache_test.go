package argoredis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

func TestKept(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	kept := client.Cache("argomesh|last|", 100, time.Hour)
	has := func(key, want string) {
		t.Helper()
		value, age, err := kept.Last(ctx, key)
		if err != nil || string(value) != want || age < 0 || age > time.Minute {
			t.Errorf("Last(%s) = %q, %s, %v, want %q", key, value, age, err, want)
		}
	}
	keep := func(key, value string) {
		t.Helper()
		if err := kept.Set(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	has("a", "")
	a, b := strings.Repeat("a", 60), strings.Repeat("b", 40)
	keep("a", a)
	keep("b", b)
	has("a", a)
	has("b", b)
	keep("b", "b") // shorter than before, so there is room again
	keep("c", strings.Repeat("c", 39))
	has("a", a)
	keep("d", "d") // one byte too many: the oldest goes
	has("a", "")
	has("b", "b")
	has("d", "d")
	keep("e", strings.Repeat("e", 101))
	has("e", "")
	if err := kept.Forget(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	if err := kept.Forget(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	has("d", "")
	keep("f", a)
	has("b", "b")
	has("f", a)
	// What expires makes room.
	short := client.Cache("short|", 10, 20*time.Millisecond)
	for range 3 {
		if err := short.Set(ctx, "x", []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		<-time.After(30 * time.Millisecond)
		if value, _, err := short.Last(ctx, "x"); err != nil || value != nil {
			t.Errorf("after its expiry: Last() = %q, %v", value, err)
		}
	}
}

// A value that was seen again is as old as that, never older than it was, and of one that
// is not kept that is said.
func TestKeptTouch(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	server := redis.NewClient(&redis.Options{Network: "unix", Addr: path})
	defer func() { _ = server.Close() }() // the server ends with the test
	const limit = 100
	kept := client.Cache("p|", limit, time.Hour)
	age := func(key string, least time.Duration) {
		t.Helper()
		value, age, err := kept.Last(ctx, key)
		if err != nil || string(value) != key || age < least || age > least+time.Minute {
			t.Errorf("Last(%s) = %q, %s, %v, want %s", key, value, age, err, least)
		}
	}
	for _, key := range []string{"a", "b"} {
		if err := kept.Set(ctx, key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	// Both are half an hour old.
	past := time.Now().Add(-30 * time.Minute).UnixMilli()
	for _, key := range []string{"a", "b"} {
		if err := errors.Join(server.ZAdd(ctx, "p|times", redis.Z{Score: float64(past), Member: key}).Err(),
			server.ZAdd(ctx, "p|times|", redis.Z{Score: float64(past), Member: key}).Err(),
			server.PExpire(ctx, "p|value|"+key, 30*time.Minute).Err()); err != nil {
			t.Fatal(err)
		}
	}
	missing, err := kept.Touch(ctx, map[string]time.Duration{"a": 10 * time.Minute, "b": 40 * time.Minute, "none": 0})
	if err != nil || len(missing) != 1 || missing[0] != "none" {
		t.Errorf("Touch() = %v, %v", missing, err)
	}
	age("a", 10*time.Minute)
	age("b", 30*time.Minute)
	// The oldest goes first: not the one that was seen again.
	if err := kept.Set(ctx, "c", []byte(strings.Repeat("c", limit-1))); err != nil {
		t.Fatal(err)
	}
	age("a", 10*time.Minute)
	if missing, err := kept.Touch(ctx, map[string]time.Duration{"b": 0, "a": 0}); err != nil || len(missing) != 1 || missing[0] != "b" {
		t.Errorf("Touch() = %v, %v", missing, err)
	}
	age("a", 0)
}

// What was kept by a clock that was ahead holds no room until then, and is not younger
// than nothing.
func TestKeptByAClockThatWasAhead(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	kept := client.Cache("argomesh|last|", 100, time.Hour)
	keep := func(key string, n int) {
		t.Helper()
		if err := kept.Set(ctx, key, []byte(strings.Repeat("x", n))); err != nil {
			t.Fatal(err)
		}
	}
	server := redis.NewClient(&redis.Options{Network: "unix", Addr: path})
	defer func() { _ = server.Close() }() // the server ends with the test
	keep("a", 60)
	years := 10 * 365 * 24 * time.Hour
	if err := errors.Join(
		server.ZAdd(ctx, "argomesh|last|times", redis.Z{Score: float64(time.Now().Add(years).UnixMilli()), Member: "a"}).Err(),
		server.PExpire(ctx, "argomesh|last|value|a", years).Err(),
	); err != nil {
		t.Fatal(err)
	}
	if value, age, err := kept.Last(ctx, "a"); err != nil || len(value) != 60 || age != 0 {
		t.Errorf("Last() = %d bytes, %v, %v, want 60, of now", len(value), age, err)
	}
	keep("b", 40)
	if left, err := server.PTTL(ctx, "argomesh|last|value|a").Result(); err != nil || left > time.Hour {
		t.Errorf("it goes in %v, %v, want an hour at most", left, err)
	}
	keep("c", 40) // the oldest goes
	for key, want := range map[string]int{"a": 0, "b": 40, "c": 40} {
		if value, _, err := kept.Last(ctx, key); err != nil || len(value) != want {
			t.Errorf("Last(%s) = %d bytes, %v, want %d", key, len(value), err, want)
		}
	}
}

// Who has most gives way, by its oldest, and takes no room of those who have less: also
// where a release that knew no owners kept something before, or does meanwhile.
func TestKeptOfWhoHasMost(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	server := redis.NewClient(&redis.Options{Network: "unix", Addr: path})
	defer func() { _ = server.Close() }() // the server ends with the test
	kept := client.Cache("p|", 100, time.Hour)
	keep := func(key string, n int) {
		t.Helper()
		if err := kept.Set(ctx, key, []byte(strings.Repeat("x", n))); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want map[string]int) {
		t.Helper()
		for key, n := range want {
			if value, _, err := kept.Last(ctx, key); err != nil || len(value) != n {
				t.Errorf("Last(%s) = %d bytes, %v, want %d", key, len(value), err, n)
			}
		}
	}
	keep("honest|a", 10)
	keep("other|a", 20)
	for i := range 100 {
		keep(fmt.Sprint("thief|", i), 10)
	}
	has(map[string]int{"honest|a": 10, "other|a": 20, "thief|92": 0, "thief|93": 10, "thief|99": 10})
	keep("honest|b", 30) // now there is someone else who needs it
	has(map[string]int{"honest|a": 10, "honest|b": 30, "other|a": 20, "thief|95": 0, "thief|96": 10})
	keep("new|a", 100) // with which it has most, and nothing else to give
	has(map[string]int{"honest|a": 0, "honest|b": 0, "other|a": 0, "thief|99": 0, "new|a": 100})

	// As an earlier release left it.
	for i := range 5 {
		keep(fmt.Sprint("thief|", i), 10)
		keep(fmt.Sprint("honest|", i), 10)
	}
	if err := server.Del(ctx, "p|owners", "p|times|thief", "p|times|honest").Err(); err != nil {
		t.Fatal(err)
	}
	keep("thief|5", 10)
	has(map[string]int{"honest|0": 10, "thief|0": 0, "thief|1": 10})
	// What one keeps and drops meanwhile that knows no owners.
	if err := errors.Join(
		server.Del(ctx, "p|value|thief|1").Err(), server.ZRem(ctx, "p|times", "thief|1").Err(), server.HDel(ctx, "p|sizes", "thief|1").Err(),
		server.Set(ctx, "p|value|older|1", strings.Repeat("x", 10), time.Hour).Err(), server.HSet(ctx, "p|sizes", "older|1", 10).Err(),
		server.ZAdd(ctx, "p|times", redis.Z{Score: 1, Member: "older|1"}).Err(),
	); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		keep(fmt.Sprint("thief|", i+10), 10)
	}
	has(map[string]int{"honest|0": 10, "honest|4": 10, "thief|29": 10})
	for _, n := range []int{100, 1} { // one for which all is dropped, and its own end
		keep("thief|last", n)
	}
	has(map[string]int{"thief|last": 1})
	if err := kept.Forget(ctx, "thief|last"); err != nil {
		t.Fatal(err)
	}
	if left, err := server.Get(ctx, "p|total").Int(); err != nil || left != 0 {
		t.Errorf("%d bytes count, %v", left, err)
	}
	keep("thief|last", 1)
	if err := kept.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	if left, err := client.Find(ctx, "p|"); err != nil || len(left) > 0 {
		t.Errorf("after all was removed there are %v, %v", left, err)
	}
}

// Each owner has its own room, and can be forgotten at once.
func TestOwnerCaches(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	kept := client.OwnerCaches("argomesh|reply|", 100, time.Hour)
	set := func(owner, key, value string) {
		t.Helper()
		if err := kept.Set(ctx, owner, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	has := func(owner, key, want string) {
		t.Helper()
		if value, err := kept.Get(ctx, owner, key, 60); err != nil || string(value) != want {
			t.Errorf("Get(%s, %s) = %q, %v, want %q", owner, key, value, err, want)
		}
	}
	a := strings.Repeat("a", 60)
	set("edge-1|x", "a", a)
	set("edge-1|x", "b", "b")
	set("edge-2|x", "a", a)
	set("edge-1|x", "c", a) // one byte too many of its owner: the oldest goes
	has("edge-1|x", "a", "")
	has("edge-1|x", "b", "b")
	has("edge-1|x", "c", a)
	has("edge-2|x", "a", a)
	set("edge-1|x", "b", "")
	has("edge-1|x", "b", "")
	for range 2 {
		if err := kept.Clear(ctx, "edge-1|x"); err != nil {
			t.Fatal(err)
		}
	}
	has("edge-1|x", "c", "")
	has("edge-2|x", "a", a)
	if err := kept.Clear(ctx, "edge-2|x"); err != nil {
		t.Fatal(err)
	}
	if left, err := client.Find(ctx, "argomesh|reply|"); err != nil || len(left) > 0 {
		t.Errorf("after all was forgotten there are %v, %v", left, err)
	}
}
