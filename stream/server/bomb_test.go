package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// A frame that is small on the wire and large once it is unpacked ends its own
// stream, whether it is the first or a later one, and both sides are told which limit it
// exceeded. (The memory it takes is tested in package wire.)
func TestBombsAreRefused(t *testing.T) {
	h := newHub(t, nil)
	witness := h.as(edge2ID).connect("edge-2")
	const size = stream.MaxFrameBytes + 1<<20
	bomb := helloFrame(t, "edge-1")
	bomb.GetHello().Version = strings.Repeat("v", size)
	edge1 := h.as(edge1ID)
	for _, coding := range []string{"zstd", "gzip"} {
		for name, first := range map[string]*streampb.Frame{"at first": bomb, "later": helloFrame(t, "edge-1")} {
			t.Run(coding+" "+name, func(t *testing.T) {
				s, err := streampb.NewStreamClient(edge1.cc).Connect(kit.Context(t), grpc.UseCompressor(coding), grpc.MaxCallSendMsgSize(2*size))
				if err != nil {
					t.Fatal(err)
				}
				call := frames{s}
				if first != bomb {
					if err := call.Send(first); err != nil {
						t.Fatal(err)
					}
					if _, err := call.Recv(); err != nil {
						t.Fatal(err)
					}
					call.alive(t)
				}
				before, counted := h.log.Count(), h.metric("argomesh_stream_limits_total", "argomesh.stream.v1.Frame bytes")
				if err := call.Send(bomb); err != nil {
					t.Fatal(err)
				}
				err = call.end()
				limit := "argomesh.stream.v1.Frame bytes"
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), limit) {
					t.Errorf("the stream ends with %v, want %s for %q", err, codes.InvalidArgument, limit)
				}
				if first == bomb {
					h.log.WaitAfter(t, before, "message", "connection refused", "error", limit)
				} else {
					h.log.WaitAfter(t, before, "message", "agent disconnected", "reason", limit)
				}
				if got := h.metric("argomesh_stream_limits_total", limit); got != counted+1 {
					t.Errorf("argomesh_stream_limits_total{limit=%q} = %v, want %v", limit, got, counted+1)
				}
				witness.alive(t)
			})
		}
	}
}

// What is no frame ends its own stream, in every coding.
func TestUnreadableFrameIsAProtocolViolation(t *testing.T) {
	h := newHub(t, nil)
	witness := h.as(edge2ID).connect("edge-2")
	for _, coding := range []string{"zstd", "gzip", "identity"} {
		before := h.log.Count()
		s, err := streampb.NewStreamClient(h.as(edge1ID).cc).Connect(kit.Context(t), grpc.UseCompressor(coding))
		if err != nil {
			t.Fatal(err)
		}
		call := frames{s}
		if err := call.Send(helloFrame(t, "edge-1")); err != nil {
			t.Fatal(err)
		}
		if _, err := call.Recv(); err != nil {
			t.Fatal(err)
		}
		// A field of length five that has two bytes.
		broken := &streampb.Frame{}
		broken.ProtoReflect().SetUnknown([]byte{0x0a, 0x05, 'n', 'o'})
		if err := call.Send(broken); err != nil {
			t.Fatal(err)
		}
		if err := call.end(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: the stream ends with %v, want %s", coding, err, codes.InvalidArgument)
		}
		h.log.WaitAfter(t, before, "message", "agent disconnected", "agent", "edge-1")
		witness.alive(t)
	}
}
