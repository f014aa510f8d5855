package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/heap"
)

var equalNames = cmp.Comparer(func(a, b identity.AgentName) bool { return a == b })

func hello(t testing.TB) stream.Hello {
	t.Helper()
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return stream.Hello{
		Protocol: stream.Protocol, Version: "v1.2.3", Capabilities: stream.NewCapabilities("history", "a-new-one"), Agent: name, Mode: stream.Autonomous,
		ClusterUID: "uid", Kubernetes: "v1.36.1", HubUID: "hub", History: stream.History{ID: "h", Token: "t", Revision: 7},
		Nonce: stream.Nonce(strings.Repeat("n", stream.NonceBytes)), Process: "p", Turn: stream.MaxTurn,
	}
}

func welcome(t testing.TB) stream.Welcome {
	t.Helper()
	return stream.Welcome{
		Protocol: stream.Protocol, Version: strings.Repeat("v", 128), Capabilities: stream.NewCapabilities("history"), Agent: hello(t).Agent,
		HubUID: "hub", Connection: "c1", Children: true,
		Proof: strings.Repeat("p", identity.MaxTokenBytes), Nonce: hello(t).Nonce, ProveAgain: stream.MaxProveAgain,
	}
}

func TestHandshakeSurvivesTheWire(t *testing.T) {
	gotHello, err := stream.ParseHello(stream.HelloFrame(hello(t)))
	if diff := cmp.Diff(hello(t), gotHello, equalNames); err != nil || diff != "" {
		t.Errorf("ParseHello() = %v (-want +got):\n%s", err, diff)
	}
	gotWelcome, err := stream.ParseWelcome(stream.WelcomeFrame(welcome(t)))
	if diff := cmp.Diff(welcome(t), gotWelcome, equalNames); err != nil || diff != "" {
		t.Errorf("ParseWelcome() = %v (-want +got):\n%s", err, diff)
	}
}

func TestParseHelloRefuses(t *testing.T) {
	long := strings.Repeat("v", 129)
	for name, change := range map[string]func(*streampb.Hello){
		"no agent":              func(h *streampb.Hello) { h.Agent = "" },
		"a bad agent":           func(h *streampb.Hello) { h.Agent = "Edge" },
		"a long agent":          func(h *streampb.Hello) { h.Agent = strings.Repeat("a", 64) },
		"no mode":               func(h *streampb.Hello) { h.Mode = "" },
		"a bad mode":            func(h *streampb.Hello) { h.Mode = "both" },
		"a long version":        func(h *streampb.Hello) { h.Version = long },
		"a long process":        func(h *streampb.Hello) { h.Process = long },
		"a long cluster uid":    func(h *streampb.Hello) { h.KubernetesClusterUid = long },
		"a long hub uid":        func(h *streampb.Hello) { h.HubUid = long },
		"a long token":          func(h *streampb.Hello) { h.History.Token = long },
		"a long history":        func(h *streampb.Hello) { h.History.Id = long },
		"a long kubernetes":     func(h *streampb.Hello) { h.KubernetesVersion = long },
		"many capabilities":     func(h *streampb.Hello) { h.Capabilities = make([]string, 65) },
		"a short nonce":         func(h *streampb.Hello) { h.Nonce = make([]byte, 15) },
		"a long nonce":          func(h *streampb.Hello) { h.Nonce = make([]byte, 65) },
		"a very able old agent": func(h *streampb.Hello) { h.Capabilities = []string{"a", long} },
		"an escape in a uid":    func(h *streampb.Hello) { h.KubernetesClusterUid = "\x1b[2K\rALL IS WELL" },
		"a bell in a token":     func(h *streampb.Hello) { h.History.Token = "t\a" },
		"a bell in a version":   func(h *streampb.Hello) { h.Version = "v1\a" },
		"a line in a process":   func(h *streampb.Hello) { h.Process = "p\nq" },
		"c1 in a hub uid":       func(h *streampb.Hello) { h.HubUid = "a\u009b2K" },
		"letters of elsewhere":  func(h *streampb.Hello) { h.KubernetesVersion = "v1.36.1\u202e" },
	} {
		f := stream.HelloFrame(hello(t))
		change(f.GetHello())
		if got, err := stream.ParseHello(f); !errors.Is(err, stream.ErrProtocol) || !cmp.Equal(got, stream.Hello{}, equalNames) {
			t.Errorf("%s: ParseHello() = %+v, %v, want an error of kind %q", name, got, err, stream.ErrProtocol)
		}
	}
	for _, f := range []*streampb.Frame{nil, {}, stream.WelcomeFrame(welcome(t)), {Body: &streampb.Frame_Hello{}}} {
		if _, err := stream.ParseHello(f); !errors.Is(err, stream.ErrProtocol) {
			t.Errorf("ParseHello(%v) = %v, want an error of kind %q", f, err, stream.ErrProtocol)
		}
	}
}

func TestParseWelcomeRefuses(t *testing.T) {
	long := strings.Repeat("v", 129)
	for name, change := range map[string]func(*streampb.Welcome){
		"no agent":            func(w *streampb.Welcome) { w.Agent = "" },
		"a bad agent":         func(w *streampb.Welcome) { w.Agent = "a/b" },
		"no hub":              func(w *streampb.Welcome) { w.HubUid = "" },
		"a long hub":          func(w *streampb.Welcome) { w.HubUid = long },
		"no connection":       func(w *streampb.Welcome) { w.Connection = "" },
		"a long connection":   func(w *streampb.Welcome) { w.Connection = long },
		"a long version":      func(w *streampb.Welcome) { w.Version = long },
		"a short nonce":       func(w *streampb.Welcome) { w.Nonce = []byte("n") },
		"a long nonce":        func(w *streampb.Welcome) { w.Nonce = make([]byte, 65) },
		"an escape in a hub":  func(w *streampb.Welcome) { w.HubUid = "\x1b[2K" },
		"a line in a version": func(w *streampb.Welcome) { w.Version = "v1\n" },
		"a long proof":        func(w *streampb.Welcome) { w.Credential = strings.Repeat("p", identity.MaxTokenBytes+1) },
		"a far proof again":   func(w *streampb.Welcome) { w.ProveAgainSeconds = 24*3600 + 1 },
		"many capabilities":   func(w *streampb.Welcome) { w.Capabilities = make([]string, 65) },
	} {
		f := stream.WelcomeFrame(welcome(t))
		change(f.GetWelcome())
		if got, err := stream.ParseWelcome(f); !errors.Is(err, stream.ErrProtocol) || !cmp.Equal(got, stream.Welcome{}, equalNames) {
			t.Errorf("%s: ParseWelcome() = %+v, %v, want an error of kind %q", name, got, err, stream.ErrProtocol)
		}
	}
	for _, f := range []*streampb.Frame{nil, {}, stream.HelloFrame(hello(t))} {
		if _, err := stream.ParseWelcome(f); !errors.Is(err, stream.ErrProtocol) {
			t.Errorf("ParseWelcome(%v) = %v, want an error of kind %q", f, err, stream.ErrProtocol)
		}
	}
}

// FuzzHandshake holds that what is accepted of a handshake survives the way back
// to the wire, and that nothing else than a protocol violation comes of the rest.
func FuzzHandshake(f *testing.F) {
	for _, frame := range []*streampb.Frame{stream.HelloFrame(hello(f)), stream.WelcomeFrame(welcome(f)), {}} {
		raw, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var frame streampb.Frame
		if proto.Unmarshal(raw, &frame) != nil {
			return
		}
		var h stream.Hello
		var w stream.Welcome
		var err error
		heap.Bound(t, len(raw), func() { h, err = stream.ParseHello(&frame) })
		switch again, againErr := stream.ParseHello(stream.HelloFrame(h)); {
		case err != nil && !errors.Is(err, stream.ErrProtocol) && !errors.Is(err, stream.ErrIncompatible):
			t.Errorf("ParseHello() = %v", err)
		case err == nil && (againErr != nil || !cmp.Equal(h, again, equalNames)):
			t.Errorf("ParseHello(HelloFrame(%+v)) = %+v, %v", h, again, againErr)
		}
		heap.Bound(t, len(raw), func() { w, err = stream.ParseWelcome(&frame) })
		switch again, againErr := stream.ParseWelcome(stream.WelcomeFrame(w)); {
		case err != nil && !errors.Is(err, stream.ErrProtocol) && !errors.Is(err, stream.ErrIncompatible):
			t.Errorf("ParseWelcome() = %v", err)
		case err == nil && (againErr != nil || !cmp.Equal(w, again, equalNames)):
			t.Errorf("ParseWelcome(WelcomeFrame(%+v)) = %+v, %v", w, again, againErr)
		}
	})
}

// FuzzFrame holds the same of all other frames.
func FuzzFrame(f *testing.F) {
	var buckets stream.BucketSet
	buckets.Add(3)
	for _, m := range []stream.Message{
		stream.Digests{Digests: []stream.Digest{{Collection: stream.Applications, Root: stream.Sum{1}, Entries: 2}}},
		stream.Heartbeat{},
		stream.Buckets{Collection: stream.Statuses},
		stream.Inventory{Collection: stream.Applications, Buckets: buckets, Entries: []stream.Entry{{Namespace: "n", Name: "a", Version: version("u")}}},
		stream.Batch{Events: []stream.Event{event(nil), deletion(key(stream.Commands, "a"))}},
		stream.Batch{Unsupported: []stream.Unsupported{{ID: "c1.3", Type: "io.argomesh.secret.apply"}}},
		stream.Applied{Results: []stream.Result{{Event: "c1.1", Refusal: &stream.Refusal{Kind: "unsupported"}}}},
		stream.Applied{Results: []stream.Result{{
			Key: key(stream.Statuses, "a"), Event: "c1.1", Held: version("u"), Refusal: &stream.Refusal{Kind: "invalid", Message: "no"},
		}}},
		stream.Goodbye{Reason: stream.GoodbyeRevoked},
		said(func(e *stream.ApplicationEvent) { e.Namespace, e.Message, e.First = "n", "failed", time.Minute }),
	} {
		raw, err := proto.Marshal(stream.FrameOf(m))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var frame streampb.Frame
		if proto.Unmarshal(raw, &frame) != nil {
			return
		}
		var m stream.Message
		var err error
		heap.Bound(t, len(raw), func() { m, err = stream.ParseFrame(&frame) })
		if err != nil {
			if !errors.Is(err, stream.ErrProtocol) || m != nil {
				t.Errorf("ParseFrame() = %v, %v", m, err)
			}
			return
		}
		if m == nil {
			return // of a newer peer
		}
		again, err := wire(t, m)
		if diff := cmp.Diff(m, again); err != nil || diff != "" {
			t.Errorf("ParseFrame(FrameOf(m)) = %v (-m +got):\n%s", err, diff)
		}
	})
}
