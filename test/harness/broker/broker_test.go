//go:build linux

package broker_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness/broker"
	"github.com/argomesh/argomesh/test/kit"
)

// serve runs a broker for one test.
func serve(t *testing.T, handle broker.Handler) (address string, stop func()) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "b")
	l, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	return address, kit.Background(t, func(ctx context.Context) error { return broker.Serve(ctx, l, handle) })
}

func TestLease(t *testing.T) {
	released := make(chan bool, 1)
	address, _ := serve(t, func(_ context.Context, r broker.Request) (any, func(bool), error) {
		if r.Kind != "environment" {
			return nil, nil, errors.New("no such kind")
		}
		return map[string]string{"hub": r.Name}, func(failed bool) { released <- failed }, nil
	})
	for _, failed := range []bool{false, true} {
		lease, err := broker.Take(t.Context(), address, broker.Request{Kind: "environment", Name: "bare"})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(lease.Answer); got != `{"hub":"bare"}` {
			t.Errorf("the answer is %s", got)
		}
		lease.Release(failed)
		lease.Release(!failed)
		if got := <-released; got != failed {
			t.Errorf("released with failed %t, want %t", got, failed)
		}
	}
	if _, err := broker.Take(t.Context(), address, broker.Request{Kind: "other"}); err == nil || !strings.Contains(err.Error(), "no such kind") {
		t.Errorf("another kind: %v", err)
	}
}

// A client that waits and goes gives its turn to the next.
func TestClientThatGoes(t *testing.T) {
	slots := broker.NewSlots(1)
	address, _ := serve(t, func(ctx context.Context, r broker.Request) (any, func(bool), error) {
		release, err := slots.Take(ctx, r.Name, r.Shares)
		if err != nil {
			return nil, nil, err
		}
		return nil, func(bool) { release() }, nil
	})
	first, err := broker.Take(t.Context(), address, broker.Request{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := broker.Take(ctx, address, broker.Request{Name: "second"})
		second <- err
	}()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	third := make(chan error, 1)
	go func() {
		lease, err := broker.Take(t.Context(), address, broker.Request{Name: "third"})
		if err == nil {
			lease.Release(false)
		}
		third <- err
	}()
	first.Release(false)
	if err := <-third; err != nil {
		t.Error(err)
	}
}

// Requests end with the broker, granted and not.
func TestBrokerThatEnds(t *testing.T) {
	released := make(chan bool, 1)
	address, stop := serve(t, func(ctx context.Context, r broker.Request) (any, func(bool), error) {
		if r.Name == "waits" {
			<-ctx.Done()
			return nil, nil, context.Cause(ctx)
		}
		return nil, func(failed bool) { released <- failed }, nil
	})
	lease, err := broker.Take(t.Context(), address, broker.Request{Name: "granted"})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := broker.Take(t.Context(), address, broker.Request{Name: "waits"})
		waits <- err
	}()
	stop()
	if err := <-waits; err == nil {
		t.Error("it was granted")
	}
	<-released
	lease.Release(false)
	if _, err := broker.Take(t.Context(), address, broker.Request{Name: "late"}); err == nil {
		t.Error("one that comes late is granted it")
	}
}

// Tests that share what was begun first come first; a subtest shares the slot of its test.
func TestSlots(t *testing.T) {
	ctx := t.Context()
	p := broker.NewSlots(1)
	take := func(test, shares string) <-chan func() {
		got := make(chan func(), 1)
		begun := make(chan struct{})
		go func() {
			close(begun)
			release, err := p.Take(ctx, test, shares)
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
		<-begun
		return got
	}
	first := <-take("a", "argo")
	subtest := <-take("a", "argo")
	own := take("own", "")
	kit.Eventually(t, "own waits", func() bool { return p.Waiting() == 1 })
	shared := take("b", "argo")
	kit.Eventually(t, "both wait", func() bool { return p.Waiting() == 2 })
	first()
	select {
	case <-shared:
		t.Fatal("a slot whose subtest goes on is given away")
	case <-own:
		t.Fatal("a slot whose subtest goes on is given away")
	default:
	}
	subtest()
	release := <-shared // came later, and shares what was begun
	select {
	case <-own:
		t.Fatal("two have the one slot")
	default:
	}
	release()
	(<-own)()
}
