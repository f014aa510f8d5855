package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/warmplan"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

// slow is a LastKnownStore that takes each value when it is let.
type slow struct {
	recordingStore
	takes chan struct{}
	kept  []string
}

func (s *slow) Set(ctx context.Context, key string, _ []byte) error {
	select {
	case <-s.takes:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.kept = append(s.kept, key)
	return nil
}

// What no one has asked for waits to be kept until what callers have asked for is, and takes none
// of its room.
func TestUnaskedValuesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newHubMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		s := &slow{takes: make(chan struct{})}
		k := newLastKnownCache(s, m, zerolog.Nop())
		ctx, end := context.WithCancel(t.Context())
		go func() { _ = k.run(ctx) }()
		name := warmAgentName(t, "edge-1")
		key := func(app string) owned {
			return owned{key: appkey.Key{Family: appkey.ResourcesTree, Instance: appkey.Instance{Name: app}, Format: "1"}, target: Target{Agent: name, UID: "u", Known: true}}
		}
		k.save(key("first"), []byte("x")) // is being kept
		synctest.Wait()
		if !k.hasRoom() {
			t.Error("there is no room at the begin")
		}
		results := make(chan error, maxUnasked)
		for n := range maxUnasked {
			go func() { results <- k.saveUnasked(ctx, key(fmt.Sprint("unasked-", n)), []byte("x")) }()
		}
		synctest.Wait()
		if k.hasRoom() {
			t.Errorf("while %d wait there is room for more", maxUnasked)
		}
		for n := range maxQueued {
			k.save(key(fmt.Sprint("asked-", n)), []byte("x"))
		}
		for range maxQueued + 1 {
			s.takes <- struct{}{}
		}
		synctest.Wait()
		if len(s.kept) != maxQueued+1 || strings.Contains(fmt.Sprint(s.kept), "unasked") {
			t.Errorf("kept are %d: %v", len(s.kept), s.kept)
		}
		for range maxUnasked {
			s.takes <- struct{}{}
		}
		for range maxUnasked {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if len(s.kept) != maxQueued+1+maxUnasked || !k.hasRoom() {
			t.Errorf("kept are %d, there is room: %t", len(s.kept), k.hasRoom())
		}
		for n := range maxQueued / 2 {
			k.save(key(fmt.Sprint("more-", n)), []byte("x"))
		}
		k.save(key("one-more"), []byte("x"))
		synctest.Wait()
		if k.hasRoom() {
			t.Error("while half of the queue waits there is room")
		}
		// What callers have seen since is not taken back.
		for range maxQueued/2 + 1 {
			s.takes <- struct{}{}
		}
		k.save(key("first"), []byte("y")) // is being kept
		synctest.Wait()
		go func() { results <- k.saveUnasked(ctx, key("changes"), []byte("older")) }()
		synctest.Wait()
		k.save(key("changes"), []byte("newer"))
		before := len(s.kept)
		s.takes <- struct{}{}
		s.takes <- struct{}{}
		if err := <-results; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(s.kept) - before; n != 2 {
			t.Errorf("of two values of a key and one more %d are kept", n)
		}
		k.save(key("last"), []byte("x")) // is being kept
		synctest.Wait()
		// What did not come to be kept is kept when it is seen again.
		go func() { results <- k.saveUnasked(ctx, key("late"), []byte("x")) }()
		synctest.Wait()
		end()
		if err := <-results; err == nil {
			t.Error("it is kept after the end")
		}
		if _, due := k.observe(key("late"), []byte("x")); !due {
			t.Error("it is taken for kept")
		}
	})
}

// A read takes place only while more than half of an agent's calls are free.
func TestUnaskedReadsLeaveHalf(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 1, 5: 3, 64: 32} {
		m, err := newHubMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		h := &Hub{cfg: HubConfig{MaxAgentCalls: most}, metrics: m, lastKnown: newLastKnownCache(&recordingStore{}, m, zerolog.Nop()), remotes: map[identity.AgentName]*remote{}}
		w, name := &Warm{cfg: WarmConfig{Hub: h}}, warmAgentName(t, "edge-1")
		calls, under := h.remote(name).calls, 0
		for ; w.free(name); under++ {
			calls <- struct{}{}
		}
		if under != want {
			t.Errorf("of %d calls %d are under way when there is no room", most, under)
		}
	}
}

// Values are read in the format in which callers ask, of two at most every ten minutes in
// another one.
func TestWarmFollowsTheFormat(t *testing.T) {
	w, now := &Warm{cfg: WarmConfig{Hub: &Hub{cfg: HubConfig{Format: "configured"}}}}, time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		asks  string
		want  string
	}{
		{want: "configured"}, {after: time.Second, want: "configured"}, {asks: "a", want: "a"}, {after: time.Second, asks: "b", want: "a"},
		{after: warmFormatFor - time.Second - 1, asks: "b", want: "a"}, {after: 1, asks: "b", want: "b"}, {after: time.Second, asks: "a", want: "b"},
		{asks: "b", want: "b"},
	} {
		now = now.Add(step.after)
		if step.asks != "" {
			w.cfg.Hub.format.Store(&step.asks)
		}
		if w.chooseFormat(now); w.format != step.want {
			t.Errorf("%+v: it is %s", step, w.format)
		}
	}
}

// Applications beyond those that are remembered are counted.
func TestWarmCountsWhatItDoesNotHold(t *testing.T) {
	w := &Warm{plan: warmplan.New(1), reads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "reads"}, []string{"result"})}
	name := warmAgentName(t, "edge-1")
	w.plan.Connect(name, "1")
	for n := range 3 {
		w.observe(name, appOf(name, n), 1)
	}
	if got := testutil.ToFloat64(w.reads.WithLabelValues("limit")); got != 2 {
		t.Errorf("%v are counted", got)
	}
}

// However often agents connect, not more of their Applications are looked at than so many in
// a second, and each agent has its turn.
func TestWarmLooksAtSoMany(t *testing.T) {
	const agents, apps, looks = 20, 200, 200
	metrics := prometheus.NewRegistry()
	m, err := newHubMetrics(metrics)
	if err != nil {
		t.Fatal(err)
	}
	looked, seen, session := 0, map[identity.AgentName]bool{}, 0
	w, err := NewWarm(WarmConfig{
		Hub: &Hub{cfg: HubConfig{Format: "1"}, metrics: m, lastKnown: newLastKnownCache(&recordingStore{}, m, zerolog.Nop())},
		Sessions: func() map[identity.AgentName]string {
			all := map[identity.AgentName]string{}
			for n := range agents {
				all[warmAgentName(t, fmt.Sprint("edge-", n))] = fmt.Sprint(session)
			}
			return all
		},
		Applications: func(name identity.AgentName) map[appkey.Instance]uint64 {
			seen[name] = true
			of := map[appkey.Instance]uint64{}
			for n := range apps {
				of[appOf(name, n)] = 1
			}
			looked += apps
			return of
		},
		Lookup:  func(appkey.Instance) (identity.AgentName, uint64, bool) { return identity.AgentName{}, 0, false },
		Stored:  func(context.Context, identity.AgentName, appkey.Instance) {},
		Metrics: metrics, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for ; session < looks; session++ {
		w.refresh(now.Add(time.Duration(session) * warmInterval))
	}
	if most := looks*maxWarmSums + apps; looked > most || looked < looks*maxWarmSums-apps {
		t.Errorf("%d Applications are looked at in %d looks, want %d at most and as many as that", looked, looks, most)
	}
	if len(seen) != agents {
		t.Errorf("%d agents had a turn, want %d", len(seen), agents)
	}
}

func warmAgentName(t testing.TB, s string) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName(s)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func appOf(name identity.AgentName, n int) appkey.Instance {
	return appkey.Instance{Namespace: name.String(), Name: fmt.Sprint("app-", n)}
}
