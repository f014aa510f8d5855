package client_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// scripted is a principal of another release: it answers a hello with these
// frames, and then with each frame it gets.
type scripted struct {
	streampb.UnimplementedStreamServer
	frames []*streampb.Frame
}

func (s scripted) Connect(call grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	if _, err := call.Recv(); err != nil {
		return err
	}
	for _, f := range s.frames {
		if err := call.Send(f); err != nil {
			return err
		}
	}
	for {
		f, err := call.Recv()
		if err != nil {
			return err
		}
		if err := call.Send(f); err != nil {
			return err
		}
	}
}

// listening serves in the background; nil serves nothing that we know.
func listening(t *testing.T, service streampb.StreamServer) (address string) {
	t.Helper()
	server := grpc.NewServer()
	if service != nil {
		streampb.RegisterStreamServer(server, service)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kit.Serve(t, server, l)
	return l.Addr().String()
}

func plain(t *testing.T, address string) client.Config {
	t.Helper()
	return client.Config{
		Target: address, Credentials: insecure.NewCredentials(),
		Hello: stream.Hello{
			Protocol: stream.Protocol, Agent: edge1Name(t), Mode: stream.Managed,
			Capabilities: stream.NewCapabilities("history", "gone-since"),
		},
		BackOff: call.BackOff{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond, Upgrade: time.Hour},
	}
}

// A principal of a newer or an older release of the protocol is worked with, by
// the capabilities that both have.
func TestSkewWithinTheProtocol(t *testing.T) {
	welcome := func(change func(*streampb.Welcome)) *streampb.Frame {
		f := stream.WelcomeFrame(stream.Welcome{Protocol: stream.Protocol, Agent: edge1Name(t), HubUID: "hub", Connection: "c"})
		change(f.GetWelcome())
		return f
	}
	newField := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a newer release")
	newFrame := &streampb.Frame{}
	newFrame.ProtoReflect().SetUnknown(newField)
	newCollection := &streampb.Frame{Body: &streampb.Frame_Digests{Digests: &streampb.Digests{
		Digests: []*streampb.Digest{{Collection: 99, Root: make([]byte, 16)}},
	}}}
	for name, tt := range map[string]struct {
		frames []*streampb.Frame
		common stream.Capabilities
	}{
		"newer": {
			[]*streampb.Frame{welcome(func(w *streampb.Welcome) {
				w.Capabilities = []string{"history", "teleport"}
				w.ProtoReflect().SetUnknown(newField)
			}), newFrame, newCollection},
			stream.NewCapabilities("history"),
		},
		"older": {[]*streampb.Frame{welcome(func(*streampb.Welcome) {})}, stream.Capabilities{}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plain(t, listening(t, scripted{frames: tt.frames}))
			type seen struct {
				welcome stream.Welcome
				err     error
			}
			served := make(chan seen, 1)
			cfg.Metrics, cfg.Log = prometheus.NewRegistry(), zerolog.Nop()
			cfg.Serve = func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
				err := conn.Send(stream.Goodbye{Reason: stream.GoodbyeSuperseded}) // a mark behind their frames
				for err == nil {
					var m stream.Message
					if m, err = conn.Recv(); m == (stream.Goodbye{Reason: stream.GoodbyeSuperseded}) {
						break
					}
				}
				served <- seen{w, err}
				<-ctx.Done()
				return nil
			}
			c, err := client.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			kit.Background(t, c.Run)
			select {
			case got := <-served:
				if got.err != nil || !got.welcome.Capabilities.Equal(tt.common) {
					t.Errorf("served with %v, %v, want %v", got.welcome.Capabilities, got.err, tt.common)
				}
			case <-time.After(kit.Patience):
				t.Fatal("the connection is not served")
			}
		})
	}
}

// A principal of another protocol, however it shows, is named as that and left
// alone for long.
func TestSkewOfProtocols(t *testing.T) {
	newer := stream.WelcomeFrame(stream.Welcome{Protocol: 2, Agent: edge1Name(t)})
	for name, tt := range map[string]struct {
		service streampb.StreamServer
		error   string
	}{
		"its welcome says so":           {scripted{frames: []*streampb.Frame{newer}}, "the principal speaks protocol 2, the agent 1"},
		"its service has another name":  {nil, "unknown service argomesh.stream.v1.Stream"},
		"it has the service, no method": {streampb.UnimplementedStreamServer{}, "not implemented"},
	} {
		t.Run(name, func(t *testing.T) {
			a := run(t, plain(t, listening(t, tt.service)))
			line := a.log.Wait(t, "message", "the principal speaks another protocol", "error", tt.error)
			in, _ := line["retry_in"].(string)
			if retry, err := time.ParseDuration(in); err != nil || retry < 20*time.Minute {
				t.Errorf("log line %v: want a third of the longest pause at least", line)
			}
		})
	}
	// A principal of this release says it of an agent of another.
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	cfg := config(t, p, edge1)
	cfg.Hello.Protocol, cfg.BackOff.Upgrade = 2, time.Hour
	run(t, cfg).log.Wait(t, "message", "the principal speaks another protocol", "error", "the agent speaks protocol 2, the principal 1: upgrade the older one")
}
