package redis

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/identity"
)

// recordingStore keeps values and when they were seen, and notes its calls.
type recordingStore struct {
	values map[string][]byte
	at     map[string]time.Time
	calls  []string
	err    error
}

func (s *recordingStore) Set(_ context.Context, key string, value []byte) error {
	s.calls = append(s.calls, "keep")
	if s.err == nil {
		s.values[key], s.at[key] = value, time.Now()
	}
	return s.err
}

func (s *recordingStore) Last(_ context.Context, key string) ([]byte, time.Duration, error) {
	return s.values[key], time.Since(s.at[key]), s.err
}

func (s *recordingStore) Forget(_ context.Context, key string) error {
	delete(s.values, key)
	return s.err
}

func (s *recordingStore) Touch(_ context.Context, ages map[string]time.Duration) (missing []string, err error) {
	s.calls = append(s.calls, fmt.Sprint("touch ", len(ages)))
	for key, age := range ages {
		if s.values[key] == nil {
			missing = append(missing, key)
		}
		s.at[key] = time.Now().Add(-age)
	}
	return missing, s.err
}

// said returns the calls since the last time.
func (s *recordingStore) said() string {
	calls := s.calls
	s.calls = nil
	return fmt.Sprint(calls)
}

// That a value was seen again is written down every few minutes, and when its agent goes;
// until then this process knows it.
func TestSeenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newHubMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		s := &recordingStore{values: map[string][]byte{}, at: map[string]time.Time{}}
		k := newLastKnownCache(s, m, zerolog.Nop())
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go func() { _ = k.run(ctx) }()
		name, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		key := func(app string) owned {
			return owned{key: appkey.Key{Family: appkey.ResourcesTree, Instance: appkey.Instance{Name: app}, Format: "1"}, target: Target{Agent: name, UID: "u", Known: true}}
		}
		sees := func(app, value string) {
			k.save(key(app), []byte(value))
			synctest.Wait()
		}
		is := func(when, calls string, age time.Duration) {
			t.Helper()
			if got := s.said(); got != calls {
				t.Errorf("%s: %s, want %s", when, got, calls)
			}
			if value, got := k.last(ctx, key("shop")); value == nil || got != age {
				t.Errorf("%s: it is %s, %s old, want %s", when, value, got, age)
			}
		}
		sees("shop", "a")
		is("new", "[keep]", 0)
		<-time.After(touchEvery - 1)
		sees("shop", "a")
		is("before it is due", "[]", 0)
		<-time.After(1)
		is("not seen since", "[]", 1)
		sees("shop", "a")
		is("when it is due", "[touch 1]", 0)
		<-time.After(time.Minute)
		sees("shop", "b")
		is("another value", "[keep]", 0)
		sees("other", "x")
		_ = s.said()
		<-time.After(time.Minute)
		sees("shop", "b")
		<-time.After(time.Second)
		k.flushSeen(name)
		k.flushSeen(name)
		synctest.Wait()
		is("its agent goes", "[touch 1]", time.Second)
		if at := s.at[storeKey(key("shop"))]; time.Since(at) != time.Second {
			t.Errorf("written down is %s", at)
		}
		// What another process kept meanwhile is no older than that says.
		values := maps.Clone(s.values)
		s.values[storeKey(key("shop"))] = []byte("of another")
		<-time.After(time.Second)
		is("of another process", "[]", 2*time.Second)
		s.values = values
		// What is not there any more is kept again.
		delete(s.values, storeKey(key("shop")))
		<-time.After(touchEvery)
		sees("shop", "b")
		sees("shop", "b")
		is("it went", "[touch 1 keep]", 0)
		// What could not be written is tried again.
		<-time.After(touchEvery)
		s.err = context.DeadlineExceeded
		sees("shop", "b")
		s.err = nil
		sees("shop", "b")
		is("an error", "[touch 1 touch 1]", 0)
	})
}
