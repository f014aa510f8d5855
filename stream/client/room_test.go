package client_test

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/wire"
	"github.com/argomesh/argomesh/test/heap"
	"github.com/argomesh/argomesh/test/kit"
)

// speaker is a principal that greets, and then sends what it is told to. It packs it
// first, and is ready when that is done.
type speaker struct {
	streampb.UnimplementedStreamServer
	say   chan []byte
	ready chan struct{}
	send  chan struct{}
}

func (s *speaker) Connect(call grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	frame, err := call.Recv()
	if err != nil {
		return err
	}
	hello, err := stream.ParseHello(frame)
	if err != nil {
		return err
	}
	if err := call.Send(stream.WelcomeFrame(stream.Welcome{Protocol: stream.Protocol, Agent: hello.Agent, HubUID: "hub", Connection: "c"})); err != nil {
		return err
	}
	for {
		select {
		case b := <-s.say:
			packed := &grpc.PreparedMsg{}
			if err := packed.Encode(call, raw(b)); err != nil {
				return err
			}
			s.ready <- struct{}{}
			<-s.send
			if err := call.SendMsg(packed); err != nil {
				return err
			}
		case <-call.Context().Done():
			return call.Context().Err()
		}
	}
}

// raw is a message as it is on the wire.
type raw []byte

// rawCodec sends a raw message as it is.
type rawCodec struct{ wire.Codec }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.Codec.Marshal(v)
}

// listener is an agent, and what it has received.
type listener struct {
	quota *quota.Quota
	rooms *prometheus.Registry // metrics of quota
	*speaker
	heard chan error // nil for each message, and then why there are no more
}

// newListener connects an agent to a speaker.
func newListener(t *testing.T) *listener {
	t.Helper()
	rooms := prometheus.NewRegistry()
	q, err := quota.New(rooms)
	if err != nil {
		t.Fatal(err)
	}
	a := &listener{quota: q, rooms: rooms, speaker: &speaker{say: make(chan []byte), ready: make(chan struct{}), send: make(chan struct{})}, heard: make(chan error, 16)}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxSendMsgSize(2*stream.MaxFrameBytes))
	streampb.RegisterStreamServer(server, a.speaker)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, server.Stop)
		defer stop()
		return server.Serve(l)
	})
	up := make(chan struct{}, 1)
	c, err := client.New(client.Config{
		Target: l.Addr().String(), Credentials: insecure.NewCredentials(), Quota: q,
		Hello: stream.Hello{Protocol: stream.Protocol, Agent: edge1Name(t), Mode: stream.Managed},
		Serve: func(ctx context.Context, _ stream.Welcome, conn *client.Conn) error {
			select {
			case up <- struct{}{}:
			default:
			}
			go func() {
				for {
					_, err := conn.Recv()
					a.heard <- err
					if err != nil {
						return
					}
				}
			}()
			<-ctx.Done()
			return ctx.Err()
		},
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, c.Run)
	select {
	case <-up:
	case <-time.After(kit.Patience):
		t.Fatal("no connection")
	}
	return a
}

// prepare returns when b is packed. It is sent with the next of send.
func (s *speaker) prepare(b []byte) {
	s.say <- b
	<-s.ready
}

// waiting is how many messages wait for room.
func (a *listener) waiting(t *testing.T) (n float64) {
	t.Helper()
	families, err := a.rooms.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "argomesh_memory_waiting" {
			continue
		}
		for _, m := range family.GetMetric() {
			n += m.GetGauge().GetValue()
		}
	}
	return n
}

// hears returns the result of the next message.
func (a *listener) hears(t *testing.T) error {
	t.Helper()
	select {
	case err := <-a.heard:
		return err
	case <-time.After(kit.Patience):
		t.Fatal("nothing is received")
		return nil
	}
}

func frameBytes(t *testing.T, f *streampb.Frame) []byte {
	t.Helper()
	b, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// longest is a frame of one event with the longest content, of noise or of zeros.
func longest(t *testing.T, noise bool) []byte {
	t.Helper()
	data := make([]byte, stream.MaxDataBytes)
	if noise {
		_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	}
	return frameBytes(t, stream.FrameOf(stream.Batch{Events: []stream.Event{{
		ID: "1", Verb: stream.Apply, Data: data, Revision: 1,
		Key:     stream.EntryKey{Collection: stream.Applications, Name: "app"},
		Version: stream.Version{SourceUID: "uid", Hash: stream.HashOf(data)},
	}}}))
}

// What is long is not decoded before there is room for it, and what the agent's principal
// sends meanwhile does not go before it.
func TestReceiveWaitsForRoom(t *testing.T) {
	a := newListener(t)
	release, err := a.quota.Acquire(t.Context(), edge1Name(t), quota.Decoding, quota.PeerDecoding)
	if err != nil {
		t.Fatal(err)
	}
	a.prepare(frameBytes(t, &streampb.Frame{})) // a small one waits for no one
	a.send <- struct{}{}
	if err := a.hears(t); err != nil {
		t.Fatal(err)
	}
	a.prepare(longest(t, true))
	a.send <- struct{}{}
	kit.Eventually(t, "it to wait", func() bool { return a.waiting(t) == 1 })
	select {
	case err := <-a.heard:
		t.Fatalf("without room it is received: %v", err)
	default:
	}
	release()
	if err := a.hears(t); err != nil {
		t.Fatal(err)
	}
	again, ok := a.quota.TryAcquire(edge1Name(t), quota.Decoding, quota.PeerDecoding)
	if !ok {
		t.Fatal("the room is not given back")
	}
	again()
}

const (
	// roomOfAgent is how much a hub may have under way at an agent, in bytes (SECURITY.md).
	roomOfAgent = 64 << 20
	// waiting is what the other of a client's two connections may hold, which waits to
	// decode: a message as it came, unpacked, and the window of what unpacks it.
	waiting = 2*stream.MaxFrameBytes + 1<<20
)

// Whatever a principal sends, to receive it takes so little that with a message on the
// other connection, and what is open and worked on, the agent stays within its room.
func TestHeapOfMessages(t *testing.T) {
	const most = roomOfAgent - quota.PeerOpen - quota.PeerWorking - waiting
	// empty are fields without content, of which each would take a hundred times its bytes.
	empty := []byte(strings.Repeat("\x32\x02\x0a\x00", stream.MaxFrameBytes/4))
	for name, tt := range map[string]struct {
		message []byte
		limit   bool
	}{
		"the longest content": {longest(t, true), false},
		"the longest, dense":  {longest(t, false), false},
		"fields without end":  {empty, true},
	} {
		a := newListener(t)
		a.prepare(tt.message)
		var err error
		took := heap.Of(func() {
			a.send <- struct{}{}
			err = a.hears(t)
		})
		t.Logf("%s: %d bytes take %d", name, len(tt.message), took)
		if took > most {
			t.Errorf("%s: %d bytes take %d of heap, want %d at most", name, len(tt.message), took, most)
		}
		if tt.limit != (stream.ViolationOf(err) != "") || !tt.limit && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
