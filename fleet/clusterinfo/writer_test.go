package clusterinfo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/kit"
)

var errAway = errors.New("connection refused")

// redis is a Redis in memory, with the faults of one.
type redis struct {
	mu      sync.Mutex
	values  map[string]string
	expires map[string]time.Time
	calls   map[string][]time.Time // by key
	fails   error
	hangs   bool
}

func newRedis() *redis {
	return &redis{values: map[string]string{}, expires: map[string]time.Time{}, calls: map[string][]time.Time{}}
}

func (r *redis) call(ctx context.Context, key string, f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[key] = append(r.calls[key], time.Now())
	if r.hangs {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return ctx.Err()
	}
	if r.fails != nil {
		return r.fails
	}
	f()
	return nil
}

func (r *redis) Set(ctx context.Context, key string, value []byte, expiry time.Duration) error {
	return r.call(ctx, key, func() { r.values[key], r.expires[key] = string(value), time.Now().Add(expiry) })
}

func (r *redis) Delete(ctx context.Context, key string) error {
	return r.call(ctx, key, func() { delete(r.values, key) })
}

func (r *redis) Get(ctx context.Context, key string, limit int) (value []byte, err error) {
	err = r.call(ctx, key, func() { value = []byte(r.values[key])[:min(limit, len(r.values[key]))] })
	return value, err
}

func (r *redis) Find(ctx context.Context, prefix string) (found []string, err error) {
	err = r.call(ctx, "find", func() {
		for key := range r.values {
			if strings.HasPrefix(key, prefix) {
				found = append(found, key)
			}
		}
	})
	return found, err
}

// value is what a reader gets now.
func (r *redis) value(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.expires[key]) {
		return ""
	}
	return r.values[key]
}

func (r *redis) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// table is a Sessions.
type table struct {
	mu       sync.Mutex
	sessions map[identity.AgentName]clusterinfo.Session
	changed  chan struct{}
}

func newTable() *table {
	return &table{sessions: map[identity.AgentName]clusterinfo.Session{}, changed: make(chan struct{})}
}

func (s *table) Snapshot() map[identity.AgentName]clusterinfo.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sessions)
}

func (s *table) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *table) set(name identity.AgentName, session clusterinfo.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[name] = session
	close(s.changed)
	s.changed = make(chan struct{})
}

// remove tells no one, as a registry does.
func (s *table) remove(name identity.AgentName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, name)
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// writing is a Writer that runs in a bubble.
type writing struct {
	t     *testing.T
	redis *redis
	table *table
	log   lines
	edge  identity.AgentName
	reg   *prometheus.Registry
}

func server(name identity.AgentName) string { return "https://p:9090/agents/" + name.String() }

func key(name identity.AgentName) string { return plain.Key(server(name)) }

// write runs a Writer around f.
func write(t *testing.T, f func(w *writing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &writing{t: t, redis: newRedis(), table: newTable(), edge: agent(t, "edge-1"), reg: prometheus.NewRegistry()}
		writer, err := clusterinfo.NewWriter(clusterinfo.WriterConfig{
			Store: w.redis, Sessions: w.table, Server: server, Format: plain, Metrics: w.reg, Log: zerolog.New(&w.log),
		})
		if err != nil {
			t.Fatal(err)
		}
		kit.Background(t, writer.Run)
		f(w)
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// shows checks what Redis has of an agent.
func (w *writing) shows(name identity.AgentName, want clusterinfo.Session) {
	w.t.Helper()
	if got, want := w.redis.value(key(name)), string(plain.Encode(name, want)); got != want {
		w.t.Errorf("agent %s at %s:\n got %s\nwant %s", name, time.Now().Format(time.TimeOnly), got, want)
	}
}

func (w *writing) writes(name identity.AgentName) []time.Time {
	w.redis.mu.Lock()
	defer w.redis.mu.Unlock()
	return w.redis.calls[key(name)]
}

func up() clusterinfo.Session { return clusterinfo.Session{Connected: true, Since: time.Now()} }

func down() clusterinfo.Session { return clusterinfo.Session{Since: time.Now(), LastSeen: time.Now()} }

func TestWriterFollowsSessions(t *testing.T) {
	write(t, func(w *writing) {
		pass(time.Minute)
		for range 3 {
			for _, session := range []func() clusterinfo.Session{up, down} {
				s := session()
				w.table.set(w.edge, s)
				pass(1200 * time.Millisecond) // it may have been written a moment ago
				w.shows(w.edge, s)
				pass(time.Minute)
				w.shows(w.edge, s)
			}
		}
		if got := testutil.ToFloat64(counter(t, w.reg, "argomesh_clusterinfo_writes_total")); got < 6*60/5 {
			t.Errorf("%v writes are counted", got)
		}
	})
}

// counter returns the one series of a counter.
func counter(t *testing.T, reg *prometheus.Registry, name string) prometheus.Counter {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := prometheus.NewCounter(prometheus.CounterOpts{Name: "sum"})
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum.Add(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}

func TestWriterPutsRightWhatOthersDid(t *testing.T) {
	write(t, func(w *writing) {
		s := down()
		w.table.set(w.edge, s)
		pass(time.Second)
		w.redis.change(func() { clear(w.redis.values) }) // a Redis that came back empty
		pass(10 * time.Second)
		w.shows(w.edge, s)
		w.redis.change(func() { w.redis.values[key(w.edge)] = "Successful" }) // argocd-server, after an edit
		pass(10 * time.Second)
		w.shows(w.edge, s)
	})
}

func TestWriterEntriesExpire(t *testing.T) {
	var w *writing
	synctest.Test(t, func(t *testing.T) {
		w = &writing{t: t, redis: newRedis(), table: newTable(), edge: agent(t, "edge-1")}
		writer, err := clusterinfo.NewWriter(clusterinfo.WriterConfig{
			Store: w.redis, Sessions: w.table, Server: server, Format: plain, Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := up()
		w.table.set(w.edge, s)
		for range 2 { // a Writer runs again when its process holds the lease again
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := writer.Run(ctx); err != nil {
				t.Errorf("Run() = %v", err)
			}
			cancel()
			pass(30 * time.Second)
			w.shows(w.edge, s) // time for another principal to take over
			pass(clusterinfo.Expiry)
			if got := w.redis.value(key(w.edge)); got != "" {
				t.Errorf("nobody keeps it true, and it shows %s", got)
			}
		}
	})
}

func TestWriterFlap(t *testing.T) {
	write(t, func(w *writing) {
		other := agent(t, "edge-2")
		steady := up()
		w.table.set(other, steady)
		pass(time.Second)
		begin, quiet := time.Now(), len(w.writes(other))
		var last clusterinfo.Session
		for i := range 1001 {
			last = up()
			if i%2 == 0 {
				last = down()
			}
			last.Spoke.Applications = int64(i)
			w.table.set(w.edge, last)
			pass(20 * time.Millisecond)
		}
		pass(1200 * time.Millisecond)
		w.shows(w.edge, last)
		writes := w.writes(w.edge)
		if most := int(time.Since(begin)/time.Second) + 1; len(writes) > most || len(writes) < 10 {
			t.Errorf("%d writes in %s, want at most %d", len(writes), time.Since(begin), most)
		}
		for i := 1; i < len(writes); i++ {
			if gap := writes[i].Sub(writes[i-1]); gap < time.Second {
				t.Errorf("two writes within %s", gap)
			}
		}
		w.shows(other, steady)
		if n := len(w.writes(other)) - quiet; n > int(time.Since(begin)/(5*time.Second))+1 {
			t.Errorf("%d writes for an agent that did not flap", n)
		}
	})
}

func TestWriterWithoutRedis(t *testing.T) {
	for name, fault := range map[string]func(r *redis, away bool){
		"refused": func(r *redis, away bool) {
			if r.fails = nil; away {
				r.fails = errAway
			}
		},
		"hangs": func(r *redis, away bool) { r.hangs = away },
	} {
		for _, agents := range []int{1, 200} {
			t.Run(fmt.Sprint(name, ", ", agents, " agents"), func(t *testing.T) {
				write(t, func(w *writing) {
					sessions := map[identity.AgentName]clusterinfo.Session{}
					for i := range agents {
						name := agent(t, fmt.Sprint("a-", i))
						sessions[name] = up()
						w.table.set(name, sessions[name])
					}
					pass(time.Second)
					w.redis.change(func() { fault(w.redis, true); clear(w.redis.calls) })
					pass(10 * time.Minute)
					calls := 0
					w.redis.change(func() {
						for _, c := range w.redis.calls {
							calls += len(c)
						}
					})
					if calls == 0 || calls > 10*60/2*8 {
						t.Errorf("%d calls of a Redis that was away for 10 minutes", calls)
					}
					for name := range sessions {
						sessions[name] = down()
						w.table.set(name, sessions[name])
					}
					w.redis.change(func() { fault(w.redis, false) })
					pass(10 * time.Second)
					for name, s := range sessions {
						w.shows(name, s)
					}
					if n := strings.Count(w.log.String(), "\n"); n != 2 {
						t.Errorf("%d lines are logged, want one for the loss and one for the return:\n%s", n, w.log.String())
					}
				})
			})
		}
	}
}

func TestWriterStopsWhileRedisHangs(t *testing.T) {
	write(t, func(w *writing) {
		w.redis.change(func() { w.redis.hangs = true })
		w.table.set(w.edge, up())
		pass(time.Second) // the call goes on
	})
}

func TestWriterRemovesAgents(t *testing.T) {
	write(t, func(w *writing) {
		other := agent(t, "edge-2")
		s := up()
		w.table.set(w.edge, s)
		w.table.set(other, s)
		pass(time.Second)
		w.table.remove(w.edge)
		pass(10 * time.Second)
		if got := w.redis.value(key(w.edge)); got != "" {
			t.Errorf("an agent that is not registered has an entry: %s", got)
		}
		w.shows(other, s)
		before := len(w.writes(w.edge))
		pass(time.Minute)
		if n := len(w.writes(w.edge)); n != before {
			t.Errorf("%d more writes for an agent that is not registered", n-before)
		}
		w.table.set(w.edge, s)
		pass(2 * time.Second)
		w.shows(w.edge, s)
	})
}

func TestWriterGivesTimeToComeBack(t *testing.T) {
	write(t, func(w *writing) {
		other := agent(t, "edge-2")
		away := clusterinfo.Session{Unseen: true, LastSeen: time.Now()}
		w.redis.change(func() {
			for _, name := range []identity.AgentName{w.edge, other} { // of the principal before
				w.redis.values[key(name)], w.redis.expires[key(name)] = "before", time.Now().Add(clusterinfo.Expiry)
			}
		})
		w.table.set(w.edge, away)
		w.table.set(other, away)
		pass(3 * time.Second)
		if got := w.redis.value(key(w.edge)); got != "before" {
			t.Errorf("an agent is said to be away before it could come back: %s", got)
		}
		back := up()
		w.table.set(w.edge, back)
		pass(200 * time.Millisecond)
		w.shows(w.edge, back)
		pass(7 * time.Second) // 10 s after the start
		w.shows(w.edge, back)
		w.shows(other, away)
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	reg := prometheus.NewRegistry()
	valid := clusterinfo.WriterConfig{Store: newRedis(), Sessions: newTable(), Server: server, Metrics: reg}
	if _, err := clusterinfo.NewWriter(valid); err != nil {
		t.Errorf("NewWriter() = %v", err)
	}
	if _, err := clusterinfo.NewWriter(valid); err == nil {
		t.Error("NewWriter() takes a registry that is in use")
	}
	if _, err := clusterinfo.NewWriter(clusterinfo.WriterConfig{}); err == nil {
		t.Error("NewWriter() takes nothing")
	}
	if _, err := clusterinfo.NewReader(clusterinfo.ReaderConfig{}); err == nil {
		t.Error("NewReader() takes nothing")
	}
}
