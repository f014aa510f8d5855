//go:build linux

package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/link"
)

// newThin makes an agent that is a real stream client and a real link, but keeps
// nothing: it says that it holds whatever it is sent, so that next to nothing is
// measured but the principal. applied is told of each entry.
func newThin(name, target string, creds credentials.TransportCredentials, connected func(), applied func(stream.Event)) (*client.Client, error) {
	agent, err := identity.ParseAgentName(name)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{
		Target: target, Credentials: creds,
		Hello: stream.Hello{
			Protocol: stream.Protocol, Version: "bench", Agent: agent, Mode: stream.Managed, ClusterUID: name, Kubernetes: "none",
		},
		Serve: func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
			connected()
			return sink(ctx, w.Connection, conn, applied)
		},
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
}

// sink answers on one connection until it ends.
func sink(ctx context.Context, connection string, conn *client.Conn, applied func(stream.Event)) error {
	l := link.New(link.Config{Side: stream.Spoke, Mode: stream.Managed})
	l.Step(time.Now(), link.Connected{ID: connection})
	received, failed := make(chan stream.Message), make(chan error, 1)
	go func() {
		for {
			m, err := conn.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case received <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	nothing := func(stream.EntryKey) (link.Content, bool) { return link.Content{}, false }
	for {
		for _, m := range l.Flush(time.Now(), nothing) {
			if err := conn.Send(m); err != nil {
				return err
			}
		}
		var actions []link.Action
		select {
		case m := <-received:
			if m != nil {
				actions = l.Step(time.Now(), link.Received{Message: m})
			}
		case <-beat.C:
			actions = l.Step(time.Now(), link.Tick{})
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, action := range actions {
			if a, ok := action.(link.Apply); ok {
				applied(a.Event)
				l.Step(time.Now(), link.Stored{Key: a.Event.Key, Version: a.Event.Version, Event: a.Event.ID})
			}
		}
	}
}
