package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		var heard []stream.SpokeInfo // by the loop of hub; read while all sleep
		agent, err := identity.ParseAgentName("edge-1")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := linkmetrics.New(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		hub, err := mirror.New(mirror.Config{
			Rules: ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Agent: agent, Namespace: "argocd"}}},
			Store: memory.New(memory.Config{}),
			OnSpokeInfo: func(info stream.SpokeInfo) {
				if !info.SentAt.Equal(time.Now()) {
					t.Errorf("it is said to be told at %s, it is %s", info.SentAt, time.Now())
				}
				info.SentAt = time.Time{}
				heard = append(heard, info)
			},
			Metrics: metrics, Tracer: sdktrace.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.wait.Go(func() {
			if err := hub.Run(r.ctx); err != nil {
				t.Errorf("Run() = %v", err)
			}
		})
		wants := func(when string, want ...stream.SpokeInfo) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(heard, want) {
				t.Errorf("%s the hub heard %v, want %v", when, heard, want)
			}
			heard = nil
		}
		connect := func(n int) (cut context.CancelFunc) {
			ctx, cut := context.WithCancel(r.ctx)
			a, b := pipe(ctx)
			for m, c := range map[*mirror.Mirror]conn{hub: a, r.spoke.Mirror: b} {
				r.wait.Go(func() { _ = m.Serve(r.ctx, mirror.Peer{Connection: fmt.Sprint("t", n), HubUID: "hub-1"}, c) }) // it is cut
			}
			return cut
		}
		one, two, three := stream.SpokeInfo{Applications: 1}, stream.SpokeInfo{Applications: 2}, stream.SpokeInfo{Applications: 3}

		cut := connect(1)
		wants("told nothing,")
		r.spoke.SetSpokeInfo(one)
		wants("on an open connection", one)
		pass(time.Minute)
		wants("without a change")
		cut()
		synctest.Wait()
		r.spoke.SetSpokeInfo(two)
		r.spoke.SetSpokeInfo(three)
		wants("without a connection")
		connect(2)
		wants("on the next connection, of what changed meanwhile,", three)
		connect(3) // makes before the other breaks
		wants("on a connection that takes over", three)
	})
}
