package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/stream"
)

func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := make(chan struct{})
		var apps int // changed while all sleep, as the next two
		var cache stream.SpokeInfo
		type told struct {
			info stream.SpokeInfo
			at   time.Time
		}
		var said []told
		tt := teller{
			synced: synced,
			count:  func() int { return apps },
			cache:  func() stream.SpokeInfo { return cache },
			tell:   func(info stream.SpokeInfo) { said = append(said, told{info, time.Now()}) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tt.run(ctx) }()
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pass(time.Minute)
		if len(said) != 0 {
			t.Errorf("the hub is told %v before the Applications are known", said)
		}
		apps = 3
		close(synced)
		synctest.Wait()
		if want := (stream.SpokeInfo{Applications: 3}); len(said) != 1 || said[0].info != want {
			t.Fatalf("the hub is told %v, want %v at once", said, want)
		}
		pass(time.Hour)
		if len(said) != 1 {
			t.Errorf("the hub is told %d times of nothing new", len(said)-1)
		}
		cache = stream.SpokeInfo{Applications: 99, APIs: 1, Resources: 2, CacheSynced: time.Unix(1, 0)}
		pass(time.Second)
		if want := (stream.SpokeInfo{Applications: 3, APIs: 1, Resources: 2, CacheSynced: time.Unix(1, 0)}); said[len(said)-1].info != want {
			t.Errorf("the hub is told %v, want %v", said[len(said)-1].info, want)
		}
		for range 600 { // a change every 100 ms
			apps++
			pass(100 * time.Millisecond)
		}
		pass(tellInterval)
		if got := said[len(said)-1].info.Applications; got != int64(apps) {
			t.Errorf("in the end the hub is told %d Applications, want %d", got, apps)
		}
		for i := 1; i < len(said); i++ {
			if gap := said[i].at.Sub(said[i-1].at); gap < tellInterval {
				t.Errorf("two messages within %s", gap)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run() = %v", err)
		}
	})
}

func TestSpokeInfoWithoutRedis(t *testing.T) {
	synced := make(chan struct{})
	close(synced)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan stream.SpokeInfo)
	run, err := spokeInfo(Default(), synced, func() int { return 2 }, func(info stream.SpokeInfo) {
		told <- info
		cancel()
	}, prometheus.NewRegistry(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- run(ctx) }()
	if got, want := <-told, (stream.SpokeInfo{Applications: 2}); got != want {
		t.Errorf("the hub is told %v, want %v", got, want)
	}
	if err := <-done; err != nil {
		t.Errorf("run() = %v", err)
	}
}
