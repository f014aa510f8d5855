package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := make(chan struct{})
		var apps atomic.Int64
		var cache atomic.Pointer[stream.SpokeInfo]
		cache.Store(&stream.SpokeInfo{})
		type told struct {
			info stream.SpokeInfo
			at   time.Time
		}
		var mu sync.Mutex
		var all []told // guarded by mu
		said := func() []told {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		tt := infoReporter{
			synced: synced,
			count:  func() int { return int(apps.Load()) },
			cache:  func() stream.SpokeInfo { return *cache.Load() },
			notify: func(info stream.SpokeInfo) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, told{info, time.Now()})
			},
		}
		kit.Background(t, tt.run)
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pass(time.Minute)
		if got := said(); len(got) != 0 {
			t.Errorf("the hub is told %v before the Applications are known", got)
		}
		apps.Store(3)
		close(synced)
		synctest.Wait()
		if want := (stream.SpokeInfo{Applications: 3}); len(said()) != 1 || said()[0].info != want {
			t.Fatalf("the hub is told %v, want %v at once", said(), want)
		}
		pass(time.Hour)
		if n := len(said()); n != 1 {
			t.Errorf("the hub is told %d times of nothing new", n-1)
		}
		cache.Store(&stream.SpokeInfo{Applications: 99, APIs: 1, Resources: 2, CacheSynced: time.Unix(1, 0)})
		pass(time.Second)
		last := func() stream.SpokeInfo {
			got := said()
			return got[len(got)-1].info
		}
		if got, want := last(), (stream.SpokeInfo{Applications: 3, APIs: 1, Resources: 2, CacheSynced: time.Unix(1, 0)}); got != want {
			t.Errorf("the hub is told %v, want %v", got, want)
		}
		for range 600 { // a change every 100 ms
			apps.Add(1)
			pass(100 * time.Millisecond)
		}
		pass(reportInterval)
		if got := last().Applications; got != apps.Load() {
			t.Errorf("in the end the hub is told %d Applications, want %d", got, apps.Load())
		}
		messages := said()
		for i := 1; i < len(messages); i++ {
			if gap := messages[i].at.Sub(messages[i-1].at); gap < reportInterval {
				t.Errorf("two messages within %s", gap)
			}
		}
	})
}

func TestSpokeInfoWithoutRedis(t *testing.T) {
	synced := make(chan struct{})
	close(synced)
	told := make(chan stream.SpokeInfo)
	run, err := spokeInfo(agentconfig.Default(), synced, func() int { return 2 }, func(info stream.SpokeInfo) { told <- info },
		prometheus.NewRegistry(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, run)
	if got, want := <-told, (stream.SpokeInfo{Applications: 2}); got != want {
		t.Errorf("the hub is told %v, want %v", got, want)
	}
}
