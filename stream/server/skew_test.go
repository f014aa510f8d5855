package server_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
)

// An agent of a newer or an older release of the protocol is worked with, by the
// capabilities that both have.
func TestSkewWithinTheProtocol(t *testing.T) {
	offered := stream.NewCapabilities("history", "gone-since")
	h := newHub(t, func(cfg *server.Config) { cfg.Capabilities = offered })
	newField := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a newer release")
	newFrame := &streampb.Frame{}
	newFrame.ProtoReflect().SetUnknown(newField)
	newCollection := &streampb.Frame{Body: &streampb.Frame_Digests{Digests: &streampb.Digests{
		Digests: []*streampb.Digest{{Collection: 99, Root: make([]byte, 16)}},
	}}}
	for name, tt := range map[string]struct {
		change func(*streampb.Hello)
		frames []*streampb.Frame
		common stream.Capabilities
	}{
		"newer": {
			func(h *streampb.Hello) {
				h.Capabilities = []string{"teleport", "history"}
				h.ProtoReflect().SetUnknown(newField)
			},
			[]*streampb.Frame{newFrame, newCollection}, stream.NewCapabilities("history"),
		},
		"older": {
			func(h *streampb.Hello) {
				h.Version, h.Capabilities, h.KubernetesClusterUid, h.KubernetesVersion = "", nil, "", ""
			}, nil, stream.Capabilities{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, welcome, err := h.as(edge1ID).try(rawHello(tt.change)(t))
			if err != nil {
				t.Fatalf("Connect() = %v", err)
			}
			if !welcome.Capabilities.Equal(offered) {
				t.Errorf("Welcome.Capabilities = %v, want all of the principal, %v", welcome.Capabilities, offered)
			}
			if session := <-h.sessions; !session.Capabilities.Equal(tt.common) {
				t.Errorf("Session.Capabilities = %v, want %v", session.Capabilities, tt.common)
			}
			for _, f := range tt.frames {
				if err := s.Send(f); err != nil {
					t.Fatal(err)
				}
			}
			s.alive(t)
		})
	}
}
