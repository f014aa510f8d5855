package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

func TestRegisteredAgentIsAdmitted(t *testing.T) {
	h := newHub(t, nil)
	s, welcome, err := h.as(edge1ID).try(helloFrame(t, "edge-1"))
	if err != nil {
		t.Fatalf("Connect() = %v", err)
	}
	session := <-h.sessions
	want := stream.Welcome{
		Protocol: stream.Protocol, Version: "v1.2.3", Agent: session.Agent.Name, HubUID: "hub-uid", Connection: session.Connection,
	}
	if diff := cmp.Diff(want, welcome, cmp.Comparer(func(a, b identity.AgentName) bool { return a == b })); diff != "" {
		t.Errorf("welcome (-want +got):\n%s", diff)
	}
	if got := session.Agent.Name.String(); got != "edge-1" {
		t.Errorf("Session.Agent.Name = %s, want edge-1", got)
	}
	if session.Peer.ID != edge1ID || session.Peer.Method != identity.MethodX509 || !session.Peer.NotAfter.After(time.Now()) {
		t.Errorf("Session.Peer = %+v, want a fresh %s by %s", session.Peer, edge1ID, identity.MethodX509)
	}
	if diff := cmp.Diff(hello(t, "edge-1"), session.Hello, cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b identity.AgentName) bool { return a == b })); diff != "" {
		t.Errorf("Session.Hello (-want +got):\n%s", diff)
	}
	s.alive(t)
	if got := h.metric("argomesh_stream_connections", ""); got != 1 {
		t.Errorf("argomesh_stream_connections = %v, want 1", got)
	}
	line := h.log.Wait(t, "message", "agent connected", "connection", session.Connection)
	if line["agent"] != "edge-1" || line["spiffe_id"] != edge1ID.String() {
		t.Errorf("log line %v names no agent edge-1 of %s", line, edge1ID)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
	h.log.Wait(t, "message", "agent disconnected", "connection", session.Connection)
}

// A frame of the handshake that is not as HelloFrame writes it.
func rawHello(change func(*streampb.Hello)) func(*testing.T) *streampb.Frame {
	return func(t *testing.T) *streampb.Frame {
		f := helloFrame(t, "edge-1")
		change(f.GetHello())
		return f
	}
}

// handshakeTime is enough for anyone who says hello, on a slow machine too.
const handshakeTime = 3 * time.Second

// Who is not who they should be is refused, with the reason in our log and in
// general terms to them, and no one else notices.
func TestRefusedCallers(t *testing.T) {
	refusals := make(chan server.Refusal, 8)
	h := newHub(t, func(cfg *server.Config) {
		cfg.HandshakeTimeout, cfg.Refused = handshakeTime, func(r server.Refusal) { refusals <- r }
	})
	witness := h.as(edge2ID).connect("edge-2")
	foreign := spiffekit.New(t, otherDomain)
	edge1 := h.trust.Source(edge1ID).ClientCredentials(identity.AllowIDs(principalID))
	edge1Elsewhere := spiffeid.RequireFromPath(otherDomain, edge1ID.Path())
	nothing := func(*testing.T) *streampb.Frame { return nil }
	ordinary := func(t *testing.T) *streampb.Frame { return helloFrame(t, "edge-1") }

	tests := map[string]struct {
		creds credentials.TransportCredentials
		first func(*testing.T) *streampb.Frame
		code  codes.Code
		says  string // to the caller
		kind  string // in metric and log
		logs  string
		told  server.RefusalReason // to the hub; empty for nothing
	}{
		"a SPIFFE ID that no Agent has": {
			creds: h.trust.Leaf(devworkload.Leaf{URIs: []string{strangerID.String()}}), first: ordinary,
			code: codes.PermissionDenied, says: "this SPIFFE ID is not registered for an agent of this hub",
			kind: "not-registered", logs: strangerID.String(), told: server.RefusedID,
		},
		"a SPIFFE ID that only begins as one of an Agent": {
			creds: h.trust.Leaf(devworkload.Leaf{URIs: []string{edge1ID.String() + "/more"}}), first: ordinary,
			code: codes.PermissionDenied, says: "this SPIFFE ID is not registered for an agent of this hub",
			kind: "not-registered", logs: edge1ID.String() + "/more", told: server.RefusedID,
		},
		"the name of another agent": {
			creds: edge1, first: func(t *testing.T) *streampb.Frame { return helloFrame(t, "edge-2") },
			code: codes.FailedPrecondition, says: `configured as "edge-2"`, kind: "mismatch", logs: `configured as "edge-2"`, told: server.RefusedName,
		},
		"another mode": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Mode = "autonomous" }),
			code: codes.FailedPrecondition, says: "configured as autonomous, but registered as managed",
			kind: "mismatch", logs: "configured as autonomous", told: server.RefusedMode,
		},
		"another protocol": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Protocol = stream.Protocol + 1 }),
			code: codes.OutOfRange, says: "the agent speaks protocol 2, the principal 1: upgrade the older one", kind: "incompatible", logs: "upgrade", told: server.RefusedVersion,
		},
		"no protocol": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Protocol = 0 }),
			code: codes.OutOfRange, says: "upgrade the older one", kind: "incompatible", logs: "the agent speaks protocol 0", told: server.RefusedVersion,
		},
		"another protocol whose hello says what we do not know": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Protocol, h.Mode, h.Agent = 2, "hybrid", "" }),
			code: codes.OutOfRange, says: "upgrade the older one", kind: "incompatible", logs: "the agent speaks protocol 2", told: server.RefusedVersion,
		},
		"a mode that there is not": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Mode = "anarchic" }),
			code: codes.InvalidArgument, says: "protocol violation", kind: "protocol", logs: "anarchic", told: server.RefusedProtocol,
		},
		"a name that is none": {
			creds: edge1, first: rawHello(func(h *streampb.Hello) { h.Agent = "../edge-1" }),
			code: codes.InvalidArgument, says: "protocol violation", kind: "protocol", logs: "../edge-1", told: server.RefusedProtocol,
		},
		"a first frame that is not hello": {
			creds: edge1, first: func(*testing.T) *streampb.Frame { return stream.FrameOf(stream.Heartbeat{}) },
			code: codes.InvalidArgument, says: "protocol violation", kind: "protocol", logs: "first frame is not hello", told: server.RefusedProtocol,
		},
		"a frame that is empty": {
			creds: edge1, first: func(*testing.T) *streampb.Frame { return &streampb.Frame{} },
			code: codes.InvalidArgument, says: "protocol violation", kind: "protocol", logs: "first frame is not hello", told: server.RefusedProtocol,
		},
		"no hello in time": {
			creds: edge1, first: nothing,
			code: codes.InvalidArgument, says: "protocol violation", kind: "protocol", logs: "no hello within " + handshakeTime.String(),
		},
		// The rest does not come as far as a call.
		"the right path in a trust domain that is not federated": {
			creds: foreign.Leaf(devworkload.Leaf{URIs: []string{edge1Elsewhere.String()}}), first: ordinary,
			code: codes.Unavailable, logs: "no_bundle",
		},
		"an SVID that another authority signed": {
			creds: foreign.Leaf(devworkload.Leaf{URIs: []string{edge1ID.String()}}), first: ordinary,
			code: codes.Unavailable, logs: "untrusted",
		},
		"an SVID that is over": {
			creds: h.trust.Leaf(devworkload.ExpiredLeaf(edge1ID)), first: ordinary,
			code: codes.Unavailable, logs: "expired",
		},
		"a certificate without SPIFFE ID": {
			creds: h.trust.Leaf(devworkload.NoURILeaf("edge-1.example")), first: ordinary,
			code: codes.Unavailable, logs: "bad_svid",
		},
		"no TLS": {creds: insecure.NewCredentials(), first: ordinary, code: codes.Unavailable, logs: "plaintext"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, refused := h.log.Count(), h.metric("argomesh_stream_refused_total", tt.kind)
			c := h.dial(tt.creds)
			defer func() { _ = c.cc.Close() }() // or it tries again
			_, _, err := c.try(tt.first(t))
			if status.Code(err) != tt.code {
				t.Fatalf("Connect() = %v, want %s", err, tt.code)
			}
			if tt.kind == "" {
				h.log.WaitAfter(t, before, "message", "handshake refused", "reason", tt.logs)
			} else {
				said := status.Convert(err).Message()
				if !strings.Contains(said, tt.says) {
					t.Errorf("the caller is told %q, want %q", said, tt.says)
				}
				for _, secret := range []string{"spiffe://", "127.0.0.1", h.trust.Dir(), "edge-1"} {
					if strings.Contains(said, secret) {
						t.Errorf("the caller is told %q, which names %q", said, secret)
					}
				}
				line := h.log.WaitAfter(t, before, "message", "connection refused", "error", tt.logs)
				if line["kind"] != tt.kind || line["level"] != "warn" {
					t.Errorf("log line %v, want kind %s as warning", line, tt.kind)
				}
				if got := h.metric("argomesh_stream_refused_total", tt.kind); got != refused+1 {
					t.Errorf("argomesh_stream_refused_total{kind=%q} = %v, want %v", tt.kind, got, refused+1)
				}
			}
			// It was told before the caller.
			var told server.Refusal
			select {
			case told = <-refusals:
			default:
			}
			of := map[bool]string{true: "edge-1"}[tt.told != "" && tt.told != server.RefusedID]
			if told.Reason != tt.told || told.Agent.String() != of || (told.Message != "") != (of != "") || strings.ContainsAny(told.Message, "\n\r") || len(told.Message) > 512 {
				t.Errorf("the hub is told %+v, want %q of %q", told, tt.told, of)
			}
			if tt.told != "" && told.Peer.ID.IsZero() {
				t.Error("the hub is not told whose SPIFFE ID it is")
			}
			witness.alive(t)
		})
	}
	if got := h.metric("argomesh_stream_connections", ""); got != 1 {
		t.Errorf("argomesh_stream_connections = %v, want the witness", got)
	}
}

// A trust domain whose bundle we hold may prove its identities; none of them is
// one of ours.
func TestFederatedPathIsNotIdentity(t *testing.T) {
	foreign := spiffekit.New(t, otherDomain)
	h := newHub(t, nil)
	own := spiffekit.New(t, hubDomain)
	own.Federated = append(own.Federated, foreign.CA.Bundle())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	s, err := server.New(server.Config{
		Credentials:  own.Source(principalID).ServerCredentials(zerolog.Nop()),
		Authenticate: workload.PeerFromContext, Registry: h.registry, Serve: h.serve,
		HubUID: "hub-uid", Metrics: metrics, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return s.Run(ctx, l) })
	h.address = l.Addr().String()
	id := spiffeid.RequireFromPath(otherDomain, edge1ID.Path())
	_, _, err = h.dial(foreign.Leaf(devworkload.Leaf{URIs: []string{id.String()}})).try(helloFrame(t, "edge-1"))
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("Connect() as %s = %v, want %s", id, err, codes.PermissionDenied)
	}
	// Registered with that ID it is welcome.
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", id)})
	h.dial(foreign.Leaf(devworkload.Leaf{URIs: []string{id.String()}})).connect("edge-1").alive(t)
}

// Who proves an identity and ends its call without a word is told as which agent it is
// known, and no one else is told anything. No connection comes of it.
func TestSilentCallersAreToldWhoTheyAre(t *testing.T) {
	h := newHub(t, nil)
	witness := h.as(edge1ID).connect("edge-1")
	<-h.sessions
	asks := map[string]struct {
		id    spiffeid.ID
		first *streampb.Frame
		code  codes.Code
		told  string
	}{
		"a registered agent":         {edge1ID, nil, codes.InvalidArgument, "edge-1"},
		"another one":                {edge2ID, nil, codes.InvalidArgument, "edge-2"},
		"a stranger":                 {strangerID, nil, codes.PermissionDenied, ""},
		"one by the name of another": {edge1ID, helloFrame(t, "edge-2"), codes.FailedPrecondition, ""},
		"one that says nonsense":     {edge1ID, &streampb.Frame{}, codes.InvalidArgument, ""},
	}
	ask := func(title string, id spiffeid.ID, first *streampb.Frame, code codes.Code, told string) {
		t.Helper()
		s, err := h.as(id).call(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); status.Code(err) != code {
			t.Errorf("%s: the call ends with %v, want %s", title, err, code)
		}
		agent, ok := call.FromTrailer(s.Trailer())
		if agent.Name.String() != told || ok != (told != "") || ok && agent.Mode != stream.Managed {
			t.Errorf("%s: told is %+v, %t, want %q", title, agent, ok, told)
		}
	}
	for title, tt := range asks {
		ask(title, tt.id, tt.first, tt.code, tt.told)
	}
	suspended := agent("edge-2", edge2ID)
	suspended.Spec.Suspended = true
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID), suspended})
	ask("a suspended agent", edge2ID, nil, codes.PermissionDenied, "")
	witness.alive(t)
	if len(h.sessions) > 0 {
		t.Error("a connection came about, which would take the place of the agent's")
	}
}

func TestGarbageIsRefused(t *testing.T) {
	h := newHub(t, func(cfg *server.Config) { cfg.HandshakeTimeout = handshakeTime })
	witness := h.as(edge2ID).connect("edge-2")
	for name, tt := range map[string]struct{ bytes, reason string }{
		"bytes that are no TLS":      {"\x00\xff\x13\x37garbage garbage", "garbage"},
		"a browser":                  {"GET / HTTP/1.1\r\nHost: principal\r\n\r\n", "plaintext"},
		"a TLS record that is wrong": {"\x16\x03\x01\x00\x05hello", "tls"},
		"nothing":                    {"", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			before := h.log.Count()
			c, err := net.Dial("tcp", h.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, tt.bytes); err != nil {
				t.Fatal(err)
			}
			h.log.WaitAfter(t, before, "message", "handshake refused", "reason", tt.reason)
			if err := c.SetReadDeadline(time.Now().Add(kit.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Errorf("the connection stays open: %v", err)
			}
			witness.alive(t)
		})
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	if raw, ok := v.([]byte); ok {
		return raw, nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshal %T", v)
	}
	return proto.Marshal(m)
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("unmarshal %T", v)
	}
	return proto.Unmarshal(data, m)
}

func (rawCodec) Name() string { return "proto" }

// padded is a frame of n bytes with nothing that this release knows: field 100.
func padded(n int) []byte {
	raw := protowire.AppendTag(nil, 100, protowire.BytesType)
	head := len(raw) + protowire.SizeBytes(n) - n
	return protowire.AppendBytes(raw, make([]byte, n-head))
}

// What breaks the protocol ends its own stream only, with a kind that the peer, the
// log and the metric name. Each is repeated by a peer that is as it should be, up to
// the limit.
func TestProtocolViolationEndsTheStream(t *testing.T) {
	h := newHub(t, nil)
	witness := h.as(edge2ID).connect("edge-2")
	marshal := func(f *streampb.Frame, change func(*streampb.Frame)) []byte {
		if change != nil {
			change(f)
		}
		raw, err := proto.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	batch := func(change func(*streampb.Frame)) []byte {
		return marshal(stream.FrameOf(stream.Batch{Events: []stream.Event{largeEvent()}}), change)
	}
	digests := func(n int) []byte {
		d := stream.Digest{Collection: stream.Statuses}
		return marshal(stream.FrameOf(stream.Digests{Digests: slices.Repeat([]stream.Digest{d}, n)}), nil)
	}
	for name, tt := range map[string]struct {
		frame []byte
		kind  stream.Violation // empty: none
	}{
		"a second hello":                    {marshal(helloFrame(t, "edge-1"), nil), stream.ViolationOrder},
		"a welcome":                         {marshal(stream.WelcomeFrame(stream.Welcome{HubUID: "h", Connection: "c"}), nil), stream.ViolationOrder},
		"bytes that are no frame":           {[]byte("\xff\xff\xff garbage"), stream.ViolationMalformed},
		"a frame that is cut off":           {batch(nil)[:100], stream.ViolationMalformed},
		"an event without id":               {batch(func(f *streampb.Frame) { f.GetBatch().GetEvents()[0].Id = "" }), stream.ViolationMalformed},
		"an event":                          {batch(nil), ""},
		"a hash that lies":                  {batch(func(f *streampb.Frame) { f.GetBatch().GetEvents()[0].GetBinaryData()[0]++ }), stream.ViolationHash},
		"as many digests as anybody needs":  {digests(64), ""},
		"more digests than anybody needs":   {digests(65), stream.ViolationLimit},
		"a frame of the greatest length":    {padded(stream.MaxFrameBytes), ""},
		"a frame that is one byte longer":   {padded(stream.MaxFrameBytes + 1), stream.ViolationLimit},
		"a frame of a newer release":        {padded(100), ""},
		"no frame at all":                   {nil, ""},
		"an event that nobody knows":        {batch(func(f *streampb.Frame) { f.GetBatch().GetEvents()[0].Type = "io.argomesh.secret.apply" }), ""},
		"a collection that nobody knows":    {marshal(&streampb.Frame{Body: &streampb.Frame_Buckets{Buckets: &streampb.Buckets{Collection: 99}}}, nil), ""},
		"sums of a collection that is none": {marshal(&streampb.Frame{Body: &streampb.Frame_Buckets{Buckets: &streampb.Buckets{}}}, nil), stream.ViolationMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			before, counted := h.log.Count(), h.metric("argomesh_stream_violations_total", string(tt.kind))
			c := h.as(edge1ID)
			cs, err := c.cc.NewStream(kit.Context(t), &streampb.Stream_ServiceDesc.Streams[0], streampb.Stream_Connect_FullMethodName,
				grpc.ForceCodec(rawCodec{}), grpc.MaxCallSendMsgSize(2*stream.MaxFrameBytes))
			if err != nil {
				t.Fatal(err)
			}
			s := frames{&grpc.GenericClientStream[streampb.Frame, streampb.Frame]{ClientStream: cs}}
			if err := s.Send(helloFrame(t, "edge-1")); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
			if err := cs.SendMsg(tt.frame); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if tt.kind == "" {
				s.alive(t)
				return
			}
			err = s.end()
			if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), "protocol violation: "+string(tt.kind)) {
				t.Errorf("the stream ends with %v, want %s for %q", err, codes.InvalidArgument, tt.kind)
			}
			h.log.WaitAfter(t, before, "message", "agent disconnected", "reason", string(tt.kind))
			if got := h.metric("argomesh_stream_violations_total", string(tt.kind)); got != counted+1 {
				t.Errorf("argomesh_stream_violations_total{kind=%q} = %v, want %v", tt.kind, got, counted+1)
			}
			witness.alive(t)
		})
	}
	if got := h.metric("argomesh_stream_unsupported_total", "event"); got != 1 {
		t.Errorf("argomesh_stream_unsupported_total{what=event} = %v, want 1", got)
	}
	if got := h.metric("argomesh_stream_unsupported_total", "frame"); got != 4 {
		t.Errorf("argomesh_stream_unsupported_total{what=frame} = %v, want 4", got)
	}
}

func TestRevocationEndsTheStream(t *testing.T) {
	suspended, leaving, autonomous := agent("edge-1", edge1ID), agent("edge-1", edge1ID), agent("edge-1", edge1ID)
	suspended.Spec.Suspended = true
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	autonomous.Spec.Mode = v1alpha1.ModeAutonomous
	older := agent("older", edge1ID)
	older.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	newer := agent("edge-1", edge1ID)
	newer.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
	tests := map[string]struct {
		agents []v1alpha1.Agent
		code   codes.Code // of the next attempt
	}{
		"the Agent is gone":              {nil, codes.PermissionDenied},
		"the ID is gone":                 {[]v1alpha1.Agent{agent("edge-1", strangerID)}, codes.PermissionDenied},
		"the Agent is suspended":         {[]v1alpha1.Agent{suspended}, codes.PermissionDenied},
		"the Agent is being deleted":     {[]v1alpha1.Agent{leaving}, codes.PermissionDenied},
		"the Agent has another mode":     {[]v1alpha1.Agent{autonomous}, codes.FailedPrecondition},
		"the ID belongs to an older one": {[]v1alpha1.Agent{older, newer}, codes.FailedPrecondition},
	}
	h := newHub(t, nil)
	edge1, edge2 := h.as(edge1ID), agent("edge-2", edge2ID)
	witness := h.as(edge2ID).connect("edge-2")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID), edge2})
			s := edge1.connect("edge-1")
			s.alive(t)
			h.registry.Set(append([]v1alpha1.Agent{edge2}, tt.agents...))
			if err := s.end(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("the stream ends with %v, want %s", err, codes.PermissionDenied)
			}
			if _, _, err := edge1.try(helloFrame(t, "edge-1")); status.Code(err) != tt.code {
				t.Errorf("the next Connect() = %v, want %s", err, tt.code)
			}
			witness.alive(t)
		})
	}
}

// A connection outlasts the SVID that opened it by Grace, and then nothing new
// begins on it either.
func TestAuthorityEnds(t *testing.T) {
	const grace = 200 * time.Millisecond
	h := newHub(t, func(cfg *server.Config) { cfg.Grace = grace })
	witness := h.as(edge2ID).connect("edge-2")
	c := h.dial(h.trust.Leaf(devworkload.Leaf{URIs: []string{edge1ID.String()}, NotAfter: time.Now().Add(4 * time.Second).Truncate(time.Second)}))
	s := c.connect("edge-1")
	notAfter := time.Time{}
	for notAfter.IsZero() {
		if session := <-h.sessions; session.Agent.Name.String() == "edge-1" {
			notAfter = session.Peer.NotAfter
		}
	}
	s.alive(t)
	if err := s.end(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ends with %v, want %s", err, codes.Unauthenticated)
	}
	if early := time.Until(notAfter.Add(grace)); early > 0 {
		t.Errorf("the stream ended %s too early", early)
	}
	before := h.log.Count()
	if _, _, err := c.try(helloFrame(t, "edge-1")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a new call on the old connection = %v, want %s", err, codes.Unauthenticated)
	}
	if line := h.log.WaitAfter(t, before, "message", "connection refused", "error", "expired"); line["kind"] != "expired" {
		t.Errorf("log line %v, want kind expired", line)
	}
	witness.alive(t)
}

func TestDrain(t *testing.T) {
	h := newHub(t, nil)
	s := h.as(edge1ID).connect("edge-1")
	waiting, err := h.as(edge2ID).call(nil) // has not said hello
	if err != nil {
		t.Fatal(err)
	}
	s.alive(t)
	h.stop()
	for name, f := range map[string]frames{"an open stream": s, "a handshake": waiting} {
		if err := f.end(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s ends with %v, want %s", name, err, codes.Unavailable)
		}
	}
	if got := h.metric("argomesh_stream_connections", ""); got != 0 {
		t.Errorf("argomesh_stream_connections = %v, want 0", got)
	}
}

// Those who hold on do not keep the process: who reads nothing, and who connects
// and stays silent.
func TestShutdownIsBounded(t *testing.T) {
	const drain = 300 * time.Millisecond
	blocked := make(chan struct{}, 1)
	h := newHub(t, func(cfg *server.Config) {
		cfg.DrainTimeout = drain
		cfg.HandshakeTimeout = time.Minute
		cfg.Serve = func(ctx context.Context, _ server.Session, conn *server.Conn) error {
			sent := make(chan struct{})
			go func() {
				for conn.Send(stream.Batch{Events: []stream.Event{largeEvent()}}) == nil {
					select {
					case sent <- struct{}{}:
					case <-ctx.Done():
						return
					}
				}
			}()
			for {
				select {
				case <-sent:
				case <-time.After(200 * time.Millisecond): // Send does not return
					select {
					case blocked <- struct{}{}:
					default:
					}
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	})
	h.as(edge1ID).connect("edge-1")
	silent, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	select {
	case <-blocked:
	case <-time.After(kit.Patience):
		t.Fatal("a peer that reads nothing does not block Send")
	}
	began := time.Now()
	h.stop()
	if took := time.Since(began); took > drain+3*time.Second {
		t.Errorf("Run() returned after %s, want about %s", took, drain)
	}
}

func largeEvent() stream.Event {
	data := make([]byte, 256<<10)
	return stream.Event{
		ID: "e", Key: stream.EntryKey{Collection: stream.Applications, Name: "large"}, Verb: stream.Apply,
		Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(data)}, Data: data,
	}
}

func TestMaxConnections(t *testing.T) {
	h := newHub(t, func(cfg *server.Config) { cfg.MaxConnections = 2 })
	first := h.as(edge1ID)
	first.connect("edge-1").alive(t)
	h.as(edge2ID).connect("edge-2").alive(t)
	third := h.as(edge1ID)
	ctx, cancel := context.WithTimeout(kit.Context(t), 500*time.Millisecond)
	defer cancel()
	third.cc.Connect()
	for state := third.cc.GetState(); third.cc.WaitForStateChange(ctx, state); state = third.cc.GetState() {
		if state == connectivity.Ready {
			t.Fatal("a third connection was accepted, the limit is 2")
		}
	}
	if err := first.cc.Close(); err != nil {
		t.Fatal(err)
	}
	third.connect("edge-1").alive(t)
}

// Who proves an SVID and calls nothing does not keep one of the connections.
func TestIdleConnectionsEnd(t *testing.T) {
	h := newHub(t, func(cfg *server.Config) { cfg.HandshakeTimeout = handshakeTime })
	witness := h.as(edge2ID).connect("edge-2")
	c := h.as(edge1ID)
	c.cc.Connect()
	ctx := kit.Context(t)
	ready := false
	for state := c.cc.GetState(); !ready || state == connectivity.Ready; state = c.cc.GetState() {
		ready = ready || state == connectivity.Ready
		if !c.cc.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection is still %s", state)
		}
	}
	witness.alive(t)
}

func TestNewChecksItsConfig(t *testing.T) {
	good := func() server.Config {
		return server.Config{
			Credentials: insecure.NewCredentials(), Authenticate: workload.PeerFromContext, Registry: &fleet.Registry{}, HubUID: "hub",
			Serve:   func(context.Context, server.Session, *server.Conn) error { return nil },
			Metrics: prometheus.NewRegistry(),
		}
	}
	if _, err := server.New(good()); err != nil {
		t.Fatalf("New() = %v", err)
	}
	for name, change := range map[string]func(*server.Config){
		"no credentials":  func(c *server.Config) { c.Credentials = nil },
		"no authenticate": func(c *server.Config) { c.Authenticate = nil },
		"no registry":     func(c *server.Config) { c.Registry = nil },
		"no serve":        func(c *server.Config) { c.Serve = nil },
		"no hub uid":      func(c *server.Config) { c.HubUID = "" },
		"no metrics":      func(c *server.Config) { c.Metrics = nil },
	} {
		cfg := good()
		change(&cfg)
		if _, err := server.New(cfg); err == nil {
			t.Errorf("New() with %s returns no error", name)
		}
	}
	twice := good()
	if _, err := server.New(twice); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(twice); err == nil {
		t.Error("New() twice on the same registerer returns no error")
	}
}

// Without a client certificate, nor any, no one is who they say.
func TestWithoutMutualTLSNobodyIsAuthenticated(t *testing.T) {
	h := newHub(t, func(cfg *server.Config) { cfg.Credentials = insecure.NewCredentials() })
	_, _, err := h.dial(insecure.NewCredentials()).try(helloFrame(t, "edge-1"))
	if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "authentication failed" {
		t.Errorf("Connect() = %v, want %s", err, codes.Unauthenticated)
	}
	h.log.Wait(t, "message", "connection refused", "kind", "unauthenticated")
}
