package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/proxies/redis/resp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

func TestCommandHead(t *testing.T) {
	args := func(n int, each string) resp.Command {
		t.Helper()
		all := make([]string, n)
		for i := range all {
			all[i] = each
		}
		c, err := resp.NewWire(strings.NewReader(string(resp.EncodeCommand(all...)))).Command()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := args(resp.MaxHeadArgs, "x"); len(c.Args) != resp.MaxHeadArgs || c.Left != 0 {
		t.Errorf("of as many arguments as are held, %d are, and %d are left", len(c.Args), c.Left)
	}
	if c := args(resp.MaxHeadArgs+1, "x"); len(c.Args) != resp.MaxHeadArgs || c.Left != 1 || c.Next != 1 {
		t.Errorf("of one argument more, %d are held, and %d are left", len(c.Args), c.Left)
	}
	if c := args(2, strings.Repeat("x", resp.MaxHead/2)); len(c.Args) != 2 || c.Left != 0 {
		t.Errorf("of as many bytes as are held, %d arguments are", len(c.Args))
	}
	if c := args(2, strings.Repeat("x", resp.MaxHead/2+1)); len(c.Args) != 1 || c.Left != 1 || c.Next != resp.MaxHead/2+1 {
		t.Errorf("of more bytes, %d arguments are held, and %d are left", len(c.Args), c.Left)
	}
}

// A caller that does not read has room for so many messages; equal ones are one.
func TestMailboxHoldsSoMuch(t *testing.T) {
	fill := func(n int, payload func(int) string) (waiting int, sound bool) {
		b := newOutbox()
		for i := range n {
			b.deliver(message{channel: "c", payload: payload(i)})
		}
		m, ok := b.drain()
		return len(m), ok
	}
	different := func(i int) string { return fmt.Sprint(i) }
	if n, ok := fill(maxMessages, different); n != maxMessages || !ok {
		t.Errorf("at the limit %d wait, %t", n, ok)
	}
	if _, ok := fill(maxMessages+1, different); ok {
		t.Error("one message more is sound")
	}
	if n, ok := fill(10*maxMessages, func(int) string { return "" }); n != 1 || !ok {
		t.Errorf("of equal messages %d wait, %t", n, ok)
	}
	eighth := func(i int) string { return strings.Repeat(fmt.Sprint(i), maxMessageBytes/8) }
	if n, ok := fill(8, eighth); n != 8 || !ok {
		t.Errorf("with as many bytes as there may be, %d wait, %t", n, ok)
	}
	if _, ok := fill(9, eighth); ok {
		t.Error("more bytes are sound")
	}
}

// Of changes no more is noted than callers are subscribed to.
func TestFollowersAreBounded(t *testing.T) {
	f, l, shop := newSubscriptionIndex(), &listener{}, appkey.Instance{Name: "shop"}
	f.changed(shop)
	if due := f.due(); len(due) != 0 || len(f.pending) != 0 {
		t.Errorf("what nobody is subscribed to is due: %v", due)
	}
	f.add(shop, l)
	f.add(shop, l)
	for range 3 {
		f.changed(shop)
	}
	if due := f.due(); len(due) != 1 || len(due[l]) != 1 || due[l][0] != shop {
		t.Errorf("after three changes %v is due", due)
	}
	f.changed(shop)
	f.changed(appkey.Instance{})
	if due := f.due(); len(due) != 1 || len(due[l]) != 1 || due[l][0] != (appkey.Instance{}) {
		t.Errorf("after a change of all %v is due", due)
	}
	f.changed(shop)
	f.remove(shop, l)
	if due := f.due(); len(due) != 1 {
		t.Errorf("with one channel left %v is due", due)
	}
	f.changed(shop)
	f.remove(shop, l)
	if due := f.due(); len(due) != 0 || len(f.of) != 0 || len(f.changes) != 0 {
		t.Errorf("with none left %v is due, and %d and %d are held", due, len(f.of), len(f.changes))
	}
}

// noStore keeps nothing.
type noStore struct{}

func (noStore) Set(context.Context, string, []byte) error { return nil }
func (noStore) Forget(context.Context, string) error      { return nil }
func (noStore) Touch(context.Context, map[string]time.Duration) ([]string, error) {
	return nil, nil
}
func (noStore) Last(context.Context, string) ([]byte, time.Duration, error) {
	return nil, 0, nil
}

// What waits to be kept is bounded; the rest is dropped, counted, and tried again when
// it is read again. So is what is remembered of what was kept.
func TestKeepingIsBounded(t *testing.T) {
	m, err := newHubMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	k := newLastKnownCache(noStore{}, m, zerolog.Nop())
	key := func(i int) owned {
		return owned{key: appkey.Key{Family: appkey.ResourcesTree, Instance: appkey.Instance{Name: fmt.Sprint("a", i)}, Format: "1"}, target: Target{UID: "u"}}
	}
	for i := range maxQueued {
		k.save(key(i), []byte("x"))
	}
	if dropped := testutil.ToFloat64(m.kept.WithLabelValues("dropped")); dropped != 0 || len(k.queue) != maxQueued {
		t.Errorf("%v are dropped and %d wait at the limit", dropped, len(k.queue))
	}
	k.save(key(maxQueued), []byte("x"))
	if dropped := testutil.ToFloat64(m.kept.WithLabelValues("dropped")); dropped != 1 {
		t.Errorf("%v are dropped beyond the limit", dropped)
	}
	<-k.queue
	k.save(key(maxQueued), []byte("x"))
	if len(k.queue) != maxQueued {
		t.Error("what was dropped is not tried again")
	}
	k.save(key(maxQueued), []byte("x"))
	if dropped := testutil.ToFloat64(m.kept.WithLabelValues("dropped")); dropped != 1 {
		t.Error("what is the same is kept again")
	}
	for i := k.count; i < maxKnown; i++ {
		k.setKnown(identity.AgentName{}, fmt.Sprint(i), fingerprint{})
	}
	if n := len(k.known[identity.AgentName{}]); n != maxKnown || k.count != maxKnown {
		t.Errorf("%d are remembered, and counted as %d", n, k.count)
	}
	<-k.queue
	k.save(key(maxQueued+1), []byte("x"))
	if n := len(k.known[identity.AgentName{}]); n != 1 || k.count != 1 {
		t.Errorf("%d are remembered, and counted as %d", n, k.count)
	}
}

// As many connections to an agent are kept as there may be calls to it at a time, and
// of all agents so many, beside the first few of each.
func TestIdleConnectionsAreBounded(t *testing.T) {
	m, err := newHubMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	const calls = idleReserved + 3
	h := &Hub{cfg: HubConfig{MaxAgentCalls: calls}, metrics: m}
	kept := func(want int) {
		t.Helper()
		if n, shown := h.idle.Load(), testutil.ToFloat64(m.idle); n != int64(want) || shown != float64(want) {
			t.Errorf("%d connections are counted as kept, and %v shown, want %d", n, shown, want)
		}
	}
	give := func(r *remote, n int) {
		t.Helper()
		for range n {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() }) // there is no one
			p := &resp.DeadlineConn{Conn: near}
			r.putIdle(&link{conn: p, in: resp.NewWire(p)})
		}
	}
	r, other := newRemote(h, identity.AgentName{}), newRemote(h, identity.AgentName{})
	give(r, calls)
	kept(calls)
	give(r, 1)
	kept(calls)
	if l := r.takeIdle(); l == nil {
		t.Error("none is kept")
	} else {
		_ = l.conn.Close() // as a call does for which it is of no use
	}
	kept(calls - 1)
	h.idle.Add(idleCalls - calls) // those of others
	give(other, 1)
	if len(other.idle) != 1 {
		t.Error("the last one of all is not kept")
	}
	give(other, idleReserved+1)
	if len(other.idle) != idleReserved {
		t.Errorf("beyond the limit of all %d of an agent are kept, want %d", len(other.idle), idleReserved)
	}
	h.idle.Add(calls - idleCalls)
	r.closeIdle()
	other.closeIdle()
	kept(0)
}
