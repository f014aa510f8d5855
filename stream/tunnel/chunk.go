package tunnel

import (
	"fmt"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Protocol is the major version of the tunnel's wire that this release speaks. Peers
// of another one are refused with stream.ErrIncompatible.
const Protocol = 1

// Limits of the wire.
const (
	// maxData bounds the bytes of one chunk.
	maxData = 32 << 10
	// window bounds the bytes of one direction that the receiver has not read.
	window = 256 << 10
	// MaxChunk bounds a chunk as gRPC counts it.
	MaxChunk = maxData + 1<<10
	// maxText bounds a name or a reason, in bytes.
	maxText = 128
	// maxWaiting bounds what a principal may say of waiting dials; more is taken for
	// as many.
	maxWaiting = 1 << 16
)

// kind is what a chunk is. The zero value is one that this release does not know.
type kind uint8

const (
	kindHello kind = iota + 1
	kindOpen
	kindOpened
	kindData
	kindCredit
	kindFin
	kindClose
	kindHeartbeat
)

// Hello is the first chunk of each end.
type Hello struct {
	Agent      identity.AgentName
	Connection string // empty from an agent
	// Nonce of an agent asks for the proof of the principal, which repeats it there.
	Nonce stream.Nonce
	// Proof and ProveAgain are empty from an agent. Whether to believe the proof is another
	// matter.
	Proof      string
	ProveAgain time.Duration
}

// Wire is h as it is sent.
func (h Hello) Wire() *streampb.Chunk { return chunk{kind: kindHello, Hello: h}.wire() }

// chunk is one message of a tunnel. Which fields count follows from its kind.
type chunk struct {
	kind  kind
	Hello // of kindHello
	// Of kindOpen. The service is zero when this release does not know it.
	service stream.Service
	waiting int
	// Of kindOpened and kindClose; empty: in good order.
	reason Reason
	// Of kindData: 1 to maxData bytes.
	data []byte
	// Of kindCredit: 1 to window bytes.
	credit int
}

// wire writes c for the wire.
func (c chunk) wire() *streampb.Chunk {
	switch c.kind {
	case kindHello:
		return &streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: &streampb.TunnelHello{
			Protocol: Protocol, Agent: c.Agent.String(), Connection: c.Connection, Nonce: []byte(c.Nonce),
			Credential: c.Proof, ProveAgainSeconds: uint32(min(c.ProveAgain, stream.MaxProveAgain) / time.Second),
		}}}
	case kindOpen:
		return &streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{
			Service: c.service.String(), Waiting: uint32(min(max(c.waiting, 0), maxWaiting)),
		}}}
	case kindOpened:
		return &streampb.Chunk{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{Refusal: string(c.reason)}}}
	case kindData:
		return &streampb.Chunk{Body: &streampb.Chunk_Data{Data: c.data}}
	case kindCredit:
		return &streampb.Chunk{Body: &streampb.Chunk_Credit{Credit: uint32(c.credit)}} //nolint:gosec // at most window
	case kindFin:
		return &streampb.Chunk{Body: &streampb.Chunk_Fin{Fin: &streampb.TunnelFin{}}}
	case kindClose:
		return &streampb.Chunk{Body: &streampb.Chunk_Close{Close: &streampb.TunnelClose{Failure: string(c.reason)}}}
	case kindHeartbeat:
		return &streampb.Chunk{Body: &streampb.Chunk_Heartbeat{Heartbeat: &streampb.TunnelHeartbeat{}}}
	}
	return &streampb.Chunk{}
}

// parse reads a chunk from the wire. Texts and lengths are checked here and nowhere
// else; which chunk may follow which is conn's business. Errors wrap a
// stream.Violation, or stream.ErrIncompatible for a hello of another protocol. A
// chunk that only a newer release knows has kind zero.
func parse(pb *streampb.Chunk) (chunk, error) {
	switch body := pb.GetBody().(type) {
	case *streampb.Chunk_Hello:
		return parseHello(body.Hello)
	case *streampb.Chunk_Open:
		if n := len(body.Open.GetService()); n == 0 || n > maxText {
			return chunk{}, fmt.Errorf("service of %d bytes: %w", n, stream.ViolationMalformed.Err())
		}
		service, err := stream.ParseService(body.Open.GetService())
		if err != nil {
			service = 0 // of a newer principal, and refused by its stream's answer
		}
		return chunk{kind: kindOpen, service: service, waiting: int(min(body.Open.GetWaiting(), maxWaiting))}, nil
	case *streampb.Chunk_Opened:
		reason, err := parseReason(body.Opened.GetRefusal())
		return chunk{kind: kindOpened, reason: reason}, err
	case *streampb.Chunk_Data:
		switch n := len(body.Data); {
		case n == 0:
			return chunk{}, fmt.Errorf("data of no bytes: %w", stream.ViolationMalformed.Err())
		case n > maxData:
			return chunk{}, fmt.Errorf("data of %d bytes: %w", n, stream.ViolationLimit.Err())
		}
		return chunk{kind: kindData, data: body.Data}, nil
	case *streampb.Chunk_Credit:
		switch n := body.Credit; {
		case n == 0:
			return chunk{}, fmt.Errorf("credit of no bytes: %w", stream.ViolationMalformed.Err())
		case n > window:
			return chunk{}, fmt.Errorf("credit of %d bytes: %w", n, stream.ViolationLimit.Err())
		}
		return chunk{kind: kindCredit, credit: int(body.Credit)}, nil
	case *streampb.Chunk_Fin:
		return chunk{kind: kindFin}, nil
	case *streampb.Chunk_Close:
		reason, err := parseReason(body.Close.GetFailure())
		return chunk{kind: kindClose, reason: reason}, err
	case *streampb.Chunk_Heartbeat:
		return chunk{kind: kindHeartbeat}, nil
	}
	return chunk{}, nil
}

func parseHello(pb *streampb.TunnelHello) (chunk, error) {
	if pb.GetProtocol() != Protocol {
		return chunk{}, fmt.Errorf("%w: the peer's tunnel speaks protocol %d, ours %d: upgrade the older one",
			stream.ErrIncompatible, pb.GetProtocol(), Protocol)
	}
	name, err := identity.ParseAgentName(pb.GetAgent())
	if err != nil {
		return chunk{}, fmt.Errorf("hello: %w: %w", stream.ViolationMalformed.Err(), err)
	}
	if n := len(pb.GetConnection()); n > maxText {
		return chunk{}, fmt.Errorf("hello: connection of %d bytes: %w", n, stream.ViolationMalformed.Err())
	}
	nonce, err := stream.ParseNonce(pb.GetNonce())
	if err != nil {
		return chunk{}, fmt.Errorf("hello: %w", err)
	}
	if n := len(pb.GetCredential()); n > identity.MaxTokenBytes {
		return chunk{}, fmt.Errorf("hello: credential of %d bytes: %w", n, stream.ViolationLimit.Err())
	}
	again := time.Duration(pb.GetProveAgainSeconds()) * time.Second
	if again > stream.MaxProveAgain {
		return chunk{}, fmt.Errorf("hello: prove again after %s: %w", again, stream.ViolationLimit.Err())
	}
	return chunk{kind: kindHello, Hello: Hello{
		Agent: name, Connection: pb.GetConnection(), Nonce: nonce, Proof: pb.GetCredential(), ProveAgain: again,
	}}, nil
}

// HelloOf parses what must be a hello.
func HelloOf(pb *streampb.Chunk) (Hello, error) {
	c, err := parse(pb)
	if err == nil && c.kind != kindHello {
		err = fmt.Errorf("first chunk is not hello: %w", stream.ViolationOrder.Err())
	}
	return c.Hello, err
}

// Reason says why the agent does not, or no longer, serve a connection. It is a
// closed set.
type Reason string

const (
	// ReasonUnsupported says that the agent is not configured for the service.
	ReasonUnsupported Reason = "unsupported"
	// ReasonDenied says that the agent's own rules forbid it.
	ReasonDenied Reason = "denied"
	// ReasonUnreachable says that the agent cannot connect to the service.
	ReasonUnreachable Reason = "unreachable"
	// ReasonTimeout says that the service did not answer the agent in time.
	ReasonTimeout Reason = "timeout"
	// ReasonFailed says that the connection between agent and service broke.
	ReasonFailed Reason = "failed"
	// ReasonStopping says that the agent stops.
	ReasonStopping Reason = "stopping"
	// ReasonBusy says that more of the hub waits at the agent, unread by its services, than
	// the agent keeps.
	ReasonBusy Reason = "busy"
	// ReasonUnknown stands for one of an agent newer than we are.
	ReasonUnknown Reason = "unknown"
)

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{ReasonUnsupported, ReasonDenied, ReasonUnreachable, ReasonTimeout, ReasonFailed, ReasonStopping,
		ReasonBusy, ReasonUnknown}
}

// parseReason maps what it does not know to ReasonUnknown.
func parseReason(s string) (Reason, error) {
	if len(s) > maxText {
		return "", fmt.Errorf("reason of %d bytes: %w", len(s), stream.ViolationMalformed.Err())
	}
	if s == "" {
		return "", nil
	}
	for _, r := range Reasons() {
		if s == string(r) {
			return r, nil
		}
	}
	return ReasonUnknown, nil
}
