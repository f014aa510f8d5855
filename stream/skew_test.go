package stream_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// newField is a field that no message of this release has.
var newField = protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a newer release")

// What a newer or an older release of the same protocol sends in a handshake is
// understood as far as we know it.
func TestSkewOfHandshakes(t *testing.T) {
	agent := hello(t).Agent
	for name, tt := range map[string]struct {
		change func(*streampb.Hello)
		want   func(*stream.Hello)
	}{
		"a newer agent with fields and capabilities that we do not know": {
			func(h *streampb.Hello) {
				h.ProtoReflect().SetUnknown(newField)
				h.Capabilities = append(h.Capabilities, "teleport")
			},
			func(h *stream.Hello) { h.Capabilities = stream.NewCapabilities("history", "a-new-one", "teleport") },
		},
		"a newer agent whose capabilities have another form": {
			func(h *streampb.Hello) { h.Capabilities = []string{"history", "v2/teleport"} },
			func(h *stream.Hello) { h.Capabilities = stream.NewCapabilities("history") },
		},
		"an older agent that says only who it is": {
			func(h *streampb.Hello) {
				h.Version, h.Capabilities, h.KubernetesClusterUid, h.KubernetesVersion = "", nil, "", ""
				h.HubUid, h.History, h.Nonce, h.Process, h.Turn = "", nil, nil, "", 0
			},
			func(h *stream.Hello) {
				*h = stream.Hello{Protocol: stream.Protocol, Agent: agent, Mode: stream.Autonomous}
			},
		},
	} {
		f := stream.HelloFrame(hello(t))
		tt.change(f.GetHello())
		want := hello(t)
		tt.want(&want)
		if got, err := stream.ParseHello(f); err != nil || !cmp.Equal(want, got, equalNames) {
			t.Errorf("%s: ParseHello() = %v (-want +got):\n%s", name, err, cmp.Diff(want, got, equalNames))
		}
	}
	for name, tt := range map[string]struct {
		change func(*streampb.Welcome)
		want   stream.Welcome
	}{
		"a newer principal": {
			func(w *streampb.Welcome) {
				w.ProtoReflect().SetUnknown(newField)
				w.Version, w.Capabilities = "v9", []string{"teleport", "history"}
			},
			stream.Welcome{
				Protocol: stream.Protocol, Version: "v9", Capabilities: stream.NewCapabilities("teleport", "history"),
				Agent: agent, HubUID: "hub", Connection: "c1", Children: true,
				Proof: welcome(t).Proof, Nonce: welcome(t).Nonce, ProveAgain: stream.MaxProveAgain,
			},
		},
		"an older principal": {
			func(w *streampb.Welcome) {
				w.Version, w.Capabilities, w.ChildApplications = "", nil, false
				w.Credential, w.Nonce, w.ProveAgainSeconds = "", nil, 0
			},
			stream.Welcome{Protocol: stream.Protocol, Agent: agent, HubUID: "hub", Connection: "c1"},
		},
	} {
		f := stream.WelcomeFrame(welcome(t))
		tt.change(f.GetWelcome())
		if got, err := stream.ParseWelcome(f); err != nil || !cmp.Equal(tt.want, got, equalNames) {
			t.Errorf("%s: ParseWelcome() = %v (-want +got):\n%s", name, err, cmp.Diff(tt.want, got, equalNames))
		}
	}
}

// Another protocol is told from nonsense, whatever else its hello says.
func TestSkewOfProtocols(t *testing.T) {
	for _, protocol := range []uint32{0, stream.Protocol + 1, 1 << 31} {
		f := stream.HelloFrame(hello(t))
		f.GetHello().Protocol, f.GetHello().Mode, f.GetHello().Agent = protocol, "hybrid", "Agents/Have/Paths"
		if _, err := stream.ParseHello(f); !errors.Is(err, stream.ErrIncompatible) || errors.Is(err, stream.ErrProtocol) {
			t.Errorf("ParseHello() of protocol %d = %v, want an error of kind %q", protocol, err, stream.ErrIncompatible)
		}
		f = stream.WelcomeFrame(welcome(t))
		f.GetWelcome().Protocol, f.GetWelcome().HubUid = protocol, ""
		if _, err := stream.ParseWelcome(f); !errors.Is(err, stream.ErrIncompatible) || errors.Is(err, stream.ErrProtocol) {
			t.Errorf("ParseWelcome() of protocol %d = %v, want an error of kind %q", protocol, err, stream.ErrIncompatible)
		}
	}
}

// Frames of a newer release: what is only more is passed over; what we would have
// to carry out and cannot is refused, since a peer sends it only to who said that
// it can.
func TestSkewOfFrames(t *testing.T) {
	const newCollection = streampb.Collection(99)
	extended := func(f *streampb.Frame) *streampb.Frame {
		f.ProtoReflect().SetUnknown(newField)
		return f
	}
	inner := stream.FrameOf(stream.Heartbeat{})
	inner.GetHeartbeat().ProtoReflect().SetUnknown(newField)
	event := stream.FrameOf(said(func(*stream.ApplicationEvent) {}))
	event.GetApplicationEvents().GetEvents()[0].ProtoReflect().SetUnknown(newField)
	root := make([]byte, 16)
	for name, tt := range map[string]struct {
		frame *streampb.Frame
		want  stream.Message
		err   error
	}{
		"buckets that are too short": {
			&streampb.Frame{Body: &streampb.Frame_Buckets{Buckets: &streampb.Buckets{Collection: streampb.Collection_COLLECTION_STATUS, Sums: make([]byte, 4095)}}},
			nil, stream.ErrProtocol,
		},
		"a frame that we do not know":      {extended(&streampb.Frame{}), nil, nil},
		"a frame with more than we know":   {extended(stream.FrameOf(stream.Heartbeat{})), stream.Heartbeat{Digests: []stream.Digest{}}, nil},
		"an event with more than we know":  {event, said(func(*stream.ApplicationEvent) {}), nil},
		"a message with more than we know": {inner, stream.Heartbeat{Digests: []stream.Digest{}}, nil},
		"a goodbye for a reason we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{Reason: "eclipse"}}},
			stream.Goodbye{Reason: stream.GoodbyeDrain}, nil,
		},
		"a goodbye without a reason": {
			&streampb.Frame{Body: &streampb.Frame_Goodbye{}}, stream.Goodbye{Reason: stream.GoodbyeDrain}, nil,
		},
		"digests of collections that we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Digests{Digests: &streampb.Digests{Digests: []*streampb.Digest{
				{Collection: newCollection, Root: root, Entries: 3},
				{Collection: streampb.Collection_COLLECTION_STATUS, Root: root},
			}}}},
			stream.Digests{Digests: []stream.Digest{{Collection: stream.Statuses}}}, nil,
		},
		"an answer of a kind that we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Applied{Applied: &streampb.Applied{Results: []*streampb.Result{{
				Collection: streampb.Collection_COLLECTION_STATUS, Name: "a", Refusal: &streampb.Refusal{Kind: "too-tired"},
			}}}}},
			stream.Applied{Results: []stream.Result{{
				Key: key(stream.Statuses, "a"), Refusal: &stream.Refusal{Kind: stream.RefusalUnknown},
			}}}, nil,
		},
		"buckets of a collection that we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Buckets{Buckets: &streampb.Buckets{Collection: newCollection, Sums: make([]byte, 4096)}}},
			nil, nil,
		},
		"an answer about a collection that we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Applied{Applied: &streampb.Applied{Results: []*streampb.Result{{Collection: newCollection, Name: "a"}}}}},
			stream.Applied{Results: []stream.Result{}}, nil,
		},
		"an inventory of a collection that we do not know": {
			&streampb.Frame{Body: &streampb.Frame_Inventory{Inventory: &streampb.Inventory{Collection: newCollection, Buckets: make([]byte, 32)}}},
			nil, nil,
		},
	} {
		got, err := stream.ParseFrame(tt.frame)
		if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
			t.Errorf("%s: ParseFrame() = %v, want %v", name, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: ParseFrame() (-want +got):\n%s", name, diff)
		}
	}
}
