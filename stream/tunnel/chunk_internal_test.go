package tunnel

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/heap"
)

var sameChunk = cmp.Options{cmp.AllowUnexported(chunk{}), cmp.Comparer(func(a, b identity.AgentName) bool { return a == b })}

func edge1(t testing.TB) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// everyKind is a chunk of each kind.
func everyKind(t testing.TB) map[string]chunk {
	return map[string]chunk{
		"hello of an agent":    {kind: kindHello, Hello: Hello{Agent: edge1(t)}},
		"hello of a principal": {kind: kindHello, Hello: Hello{Agent: edge1(t), Connection: "c"}},
		"hello with a nonce":   {kind: kindHello, Hello: Hello{Agent: edge1(t), Nonce: stream.Nonce(strings.Repeat("n", stream.NonceBytes))}},
		"hello with a proof": {
			kind: kindHello, Hello: Hello{
				Agent: edge1(t), Connection: "c", Nonce: stream.Nonce(strings.Repeat("n", stream.NonceBytes)),
				Proof: strings.Repeat("p", identity.MaxTokenBytes), ProveAgain: stream.MaxProveAgain,
			},
		},
		"open":                  {kind: kindOpen, service: stream.Redis, waiting: 3},
		"open of many":          {kind: kindOpen, service: stream.Kubernetes, waiting: maxWaiting},
		"opened":                {kind: kindOpened},
		"refused":               {kind: kindOpened, reason: ReasonUnreachable},
		"a byte":                {kind: kindData, data: []byte("x")},
		"the most bytes":        {kind: kindData, data: bytes.Repeat([]byte("x"), maxData)},
		"credit":                {kind: kindCredit, credit: 1},
		"the most credit":       {kind: kindCredit, credit: window},
		"fin":                   {kind: kindFin},
		"close":                 {kind: kindClose},
		"close after a failure": {kind: kindClose, reason: ReasonFailed},
		"heartbeat":             {kind: kindHeartbeat},
		"nothing we know":       {},
	}
}

func TestChunksAreReadAsTheyAreWritten(t *testing.T) {
	for what, want := range everyKind(t) {
		raw, err := proto.Marshal(want.wire())
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > MaxChunk {
			t.Errorf("%s: %d bytes are longer than gRPC lets pass", what, len(raw))
		}
		pb := &streampb.Chunk{}
		if err := proto.Unmarshal(raw, pb); err != nil {
			t.Fatal(err)
		}
		got, err := parse(pb)
		if err != nil {
			t.Errorf("%s: parse() = %v", what, err)
		}
		if diff := cmp.Diff(want, got, sameChunk); diff != "" {
			t.Errorf("%s: parse() (-want +got):\n%s", what, diff)
		}
	}
	for _, r := range Reasons() {
		if got, err := parseReason(string(r)); err != nil || got != r {
			t.Errorf("parseReason(%s) = %s, %v", r, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	hello := func(change func(*streampb.TunnelHello)) *streampb.Chunk {
		h := &streampb.TunnelHello{Protocol: Protocol, Agent: "edge-1"}
		change(h)
		return &streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: h}}
	}
	for what, tt := range map[string]struct {
		pb   *streampb.Chunk
		kind error
	}{
		"another protocol":       {hello(func(h *streampb.TunnelHello) { h.Protocol = 2 }), stream.ErrIncompatible},
		"no protocol":            {hello(func(h *streampb.TunnelHello) { h.Protocol = 0 }), stream.ErrIncompatible},
		"a name that is none":    {hello(func(h *streampb.TunnelHello) { h.Agent = "../edge-1" }), stream.ViolationMalformed.Err()},
		"no name":                {hello(func(h *streampb.TunnelHello) { h.Agent = "" }), stream.ViolationMalformed.Err()},
		"a long connection":      {hello(func(h *streampb.TunnelHello) { h.Connection = long }), stream.ViolationMalformed.Err()},
		"a short nonce":          {hello(func(h *streampb.TunnelHello) { h.Nonce = []byte("short") }), stream.ViolationMalformed.Err()},
		"a long nonce":           {hello(func(h *streampb.TunnelHello) { h.Nonce = make([]byte, 65) }), stream.ViolationMalformed.Err()},
		"a long proof":           {hello(func(h *streampb.TunnelHello) { h.Credential = strings.Repeat("x", identity.MaxTokenBytes+1) }), stream.ViolationLimit.Err()},
		"never again":            {hello(func(h *streampb.TunnelHello) { h.ProveAgainSeconds = 1 << 31 }), stream.ViolationLimit.Err()},
		"no service":             {&streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{}}}, stream.ViolationMalformed.Err()},
		"a long service":         {&streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: long}}}, stream.ViolationMalformed.Err()},
		"a long refusal":         {&streampb.Chunk{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{Refusal: long}}}, stream.ViolationMalformed.Err()},
		"a long failure":         {&streampb.Chunk{Body: &streampb.Chunk_Close{Close: &streampb.TunnelClose{Failure: long}}}, stream.ViolationMalformed.Err()},
		"no data":                {&streampb.Chunk{Body: &streampb.Chunk_Data{}}, stream.ViolationMalformed.Err()},
		"one byte too many":      {&streampb.Chunk{Body: &streampb.Chunk_Data{Data: make([]byte, maxData+1)}}, stream.ViolationLimit.Err()},
		"no credit":              {&streampb.Chunk{Body: &streampb.Chunk_Credit{}}, stream.ViolationMalformed.Err()},
		"credit beyond a window": {&streampb.Chunk{Body: &streampb.Chunk_Credit{Credit: window + 1}}, stream.ViolationLimit.Err()},
	} {
		if got, err := parse(tt.pb); !errors.Is(err, tt.kind) {
			t.Errorf("%s: parse() = %+v, %v, want %v", what, got, err, tt.kind)
		}
	}
}

// What only a newer peer sends is no violation.
func TestParsePassesOverTheNew(t *testing.T) {
	for what, tt := range map[string]struct {
		pb   *streampb.Chunk
		want chunk
	}{
		"no chunk":               {nil, chunk{}},
		"a chunk of a new kind":  {&streampb.Chunk{}, chunk{}},
		"a new service":          {&streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: "ssh"}}}, chunk{kind: kindOpen}},
		"a new reason":           {&streampb.Chunk{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{Refusal: "tired"}}}, chunk{kind: kindOpened, reason: ReasonUnknown}},
		"more waiting than fits": {&streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: "redis", Waiting: 1 << 31}}}, chunk{kind: kindOpen, service: stream.Redis, waiting: maxWaiting}},
	} {
		got, err := parse(tt.pb)
		if err != nil {
			t.Errorf("%s: parse() = %v", what, err)
		}
		if diff := cmp.Diff(tt.want, got, sameChunk); diff != "" {
			t.Errorf("%s: parse() (-want +got):\n%s", what, diff)
		}
	}
}

// Every chunk that is taken can be written again, and is within the limits.
func FuzzParse(f *testing.F) {
	for _, c := range everyKind(f) {
		raw, err := proto.Marshal(c.wire())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		pb := &streampb.Chunk{}
		if proto.Unmarshal(raw, pb) != nil {
			return // gRPC ends the stream
		}
		var c chunk
		var err error
		heap.Bound(t, len(raw), func() { c, err = parse(pb) })
		if err != nil {
			if !errors.Is(err, stream.ErrProtocol) && !errors.Is(err, stream.ErrIncompatible) {
				t.Fatalf("parse() = %v, which is of no kind", err)
			}
			return
		}
		if len(c.data) > maxData || c.credit < 0 || c.credit > window || c.waiting < 0 || c.waiting > maxWaiting || len(c.Connection) > maxText {
			t.Fatalf("parse() = %+v, which is beyond the limits", c)
		}
		if c.kind == kindOpen && c.service == 0 {
			return // a service of a newer release has no name here
		}
		again, err := parse(c.wire())
		if err != nil {
			t.Fatalf("parse() of what parse() returned = %v", err)
		}
		if diff := cmp.Diff(c, again, sameChunk); diff != "" {
			t.Errorf("a chunk is written otherwise than it was read (-read +written):\n%s", diff)
		}
	})
}

// script is a wire that brings what a peer might send, and takes what is sent.
type script struct {
	chunks []*streampb.Chunk
	end    chan struct{}
	stuck  chan struct{} // until it is closed nothing is sent; nil: all is, at once
}

func (s *script) Send(*streampb.Chunk) error {
	if s.stuck != nil {
		<-s.stuck
	}
	return nil
}

func (s *script) Recv() (*streampb.Chunk, error) {
	if len(s.chunks) == 0 {
		<-s.end
		return nil, errors.New("cut")
	}
	next := s.chunks[0]
	s.chunks = s.chunks[1:]
	return next, nil
}

// Whatever a peer sends, in whatever order, a connection neither panics nor holds
// more than its window, and ends.
func FuzzPeer(f *testing.F) {
	kinds := everyKind(f)
	names := make([]string, 0, len(kinds))
	for _, n := range []string{"hello of an agent", "open", "opened", "refused", "a byte", "the most bytes", "credit", "the most credit", "fin", "close", "close after a failure", "heartbeat", "nothing we know"} {
		if _, ok := kinds[n]; !ok {
			f.Fatalf("no chunk is called %q", n)
		}
		names = append(names, n)
	}
	f.Add(true, true, []byte{2, 5, 5, 8, 9})
	f.Add(true, true, []byte{2, 5, 5, 5, 5, 5, 5, 5, 5, 5})
	f.Add(false, true, []byte{1, 4, 4, 6, 9})
	f.Add(true, false, []byte{11, 12, 9})
	random := make([]byte, 64)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	f.Add(false, false, random)
	f.Fuzz(func(t *testing.T, hub, use bool, order []byte) {
		s := &script{end: make(chan struct{})}
		sent := 0
		for _, b := range order {
			c := kinds[names[int(b)%len(names)]].wire()
			s.chunks, sent = append(s.chunks, c), sent+proto.Size(c)
		}
		side := stream.Spoke
		if hub {
			side = stream.Hub
		}
		over := make(chan struct{})
		var c *Conn
		c = NewConn(side, edge1(t), "id", Timing{Heartbeat: DefaultHeartbeat, Silence: DefaultSilence}, s, Hooks{
			Finished: func(error) { close(over) },
			Asked: func(stream.Service, int) {
				if use {
					_, _ = c.Read(nil)
				}
			},
		})
		if hub && use && !c.Acquire(stream.Redis, 0, nil, nil) {
			t.Fatal("a new stream cannot be occupied")
		}
		// Beside what is sent, as many times as any decoder may take of it, each chunk may
		// have a stream made, which has buffers and goroutines.
		const ofStream = 16 << 10
		took := heap.Of(func() {
			received := make(chan struct{})
			go func() { c.Receive(); close(received) }()
			close(s.end)
			<-received
			<-over
		})
		if most := uint64(8*sent + ofStream*(len(order)+64)); took > most { //nolint:gosec // some megabytes
			t.Errorf("%d chunks of %d bytes take %d of heap, want %d at most", len(order), sent, took, most)
		}
		c.mu.Lock()
		held := 0
		for _, b := range c.ch.in.data {
			held += cap(b)
		}
		c.mu.Unlock()
		if held > 2*window {
			t.Errorf("%d bytes are held", held)
		}
		if err := c.Failure(); err != nil && !errors.Is(err, stream.ErrProtocol) && !errors.Is(err, ErrLost) {
			t.Errorf("the stream ends with %v, which is of no kind", err)
		}
		for range 20 { // what was received, and then an end
			if _, err := c.Read(make([]byte, window)); err != nil {
				return
			}
		}
		t.Error("reads never end")
	})
}
