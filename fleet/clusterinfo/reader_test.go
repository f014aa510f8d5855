package clusterinfo_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

type reading struct {
	t      *testing.T
	redis  *redis
	reader *clusterinfo.Reader
	log    lines
}

// read runs a Reader around f.
func read(t *testing.T, f func(r *reading)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &reading{t: t, redis: newRedis()}
		var err error
		r.reader, err = clusterinfo.NewReader(clusterinfo.ReaderConfig{
			Source: r.redis, Metrics: prometheus.NewRegistry(), Log: zerolog.New(&r.log),
		})
		if err != nil {
			t.Fatal(err)
		}
		kit.Background(t, r.reader.Run)
		synctest.Wait()
		f(r)
	})
}

// store lets Argo CD write an entry.
func (r *reading) store(format clusterinfo.Format, info stream.SpokeInfo) {
	value := format.Encode(agent(r.t, "x"), clusterinfo.Session{Spoke: info})
	r.redis.change(func() { r.redis.values[format.Key(clusterinfo.LocalServer)] = string(value) })
}

func (r *reading) wants(want stream.SpokeInfo) {
	r.t.Helper()
	if got, _ := r.reader.Latest(); got != want {
		r.t.Errorf("Latest() = %v, want %v", got, want)
	}
}

func (r *reading) logged(n int) {
	r.t.Helper()
	if got := strings.Count(r.log.String(), "\n"); got != n {
		r.t.Errorf("%d lines are logged, want %d:\n%s", got, n, r.log.String())
	}
}

var (
	first  = stream.SpokeInfo{Applications: 1, APIs: 2, Resources: 3, CacheSynced: time.Unix(1_700_000_000, 0).UTC()}
	second = stream.SpokeInfo{Applications: 2, APIs: 2, Resources: 3, CacheSynced: time.Unix(1_700_000_000, 0).UTC()}
)

func TestReaderFollowsTheEntry(t *testing.T) {
	read(t, func(r *reading) {
		r.wants(stream.SpokeInfo{})
		_, changed := r.reader.Latest()
		for _, info := range []stream.SpokeInfo{first, second} {
			r.store(clusterinfo.Format{}, info)
			pass(2 * time.Second)
			select {
			case <-changed:
			default:
				t.Error("a change is not told")
			}
			r.wants(info)
			_, changed = r.reader.Latest()
		}
		pass(time.Minute)
		select {
		case <-changed:
			t.Error("a change is told when there is none")
		default:
		}
		r.redis.change(func() { clear(r.redis.values) })
		pass(2 * time.Second)
		r.wants(stream.SpokeInfo{}) // Argo CD has let it expire
		r.logged(0)
	})
}

func TestReaderKeepsWhatItKnows(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, mend func(r *redis)
		logged      int
	}{
		"redis is away": {
			func(r *redis) { r.fails = errAway }, func(r *redis) { r.fails = nil }, 2,
		},
		"redis hangs": {
			func(r *redis) { r.hangs = true }, func(r *redis) { r.hangs = false }, 2,
		},
		"not a cluster info": {
			func(r *redis) { r.values[clusterinfo.Format{}.Key(clusterinfo.LocalServer)] = "?" }, func(*redis) {}, 1,
		},
		"too long": {
			func(r *redis) {
				r.values[clusterinfo.Format{}.Key(clusterinfo.LocalServer)] = strings.Repeat("x", 2*clusterinfo.MaxBytes)
			},
			func(*redis) {}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			read(t, func(r *reading) {
				r.store(clusterinfo.Format{}, first)
				pass(2 * time.Second)
				r.redis.change(func() { tt.fault(r.redis) })
				pass(10 * time.Minute)
				r.wants(first)
				r.redis.change(func() { tt.mend(r.redis) })
				r.store(clusterinfo.Format{}, second)
				pass(10 * time.Second)
				r.wants(second)
				r.logged(tt.logged)
			})
		})
	}
}

func TestReaderNamesTheKeyThatArgoCDUses(t *testing.T) {
	other := clusterinfo.Format{Version: "1.9", Plain: true}
	read(t, func(r *reading) {
		r.store(other, first)
		pass(20 * time.Second)
		r.logged(0) // Argo CD may still write the right one
		pass(4 * time.Minute)
		r.logged(1)
		r.wants(stream.SpokeInfo{})
		if !strings.Contains(r.log.String(), other.Key(clusterinfo.LocalServer)) {
			t.Errorf("the key is not named: %s", r.log.String())
		}
	})
}

func TestReaderTellsWhenItHasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newRedis()
		redis.hangs = true
		reader, err := clusterinfo.NewReader(clusterinfo.ReaderConfig{Source: redis, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-reader.Tried():
			t.Error("it has tried before it runs")
		default:
		}
		began := time.Now()
		kit.Background(t, reader.Run)
		<-reader.Tried()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it has tried after %s", took)
		}
	})
}

func TestReaderIsSilentWhereNoArgoCDRuns(t *testing.T) {
	read(t, func(r *reading) {
		pass(time.Hour)
		r.logged(0)
	})
}
