package stream

import (
	"fmt"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Protocol is the major version of the wire that this release speaks. Peers of
// another one are refused with ErrIncompatible; within one, capabilities say what a
// peer can do.
const Protocol = 1

// Hello is how an agent introduces itself.
type Hello struct {
	Protocol     uint32 // what ParseHello returns is always ours
	Version      string // release of the agent
	Capabilities Capabilities
	Agent        identity.AgentName // as configured; the principal's registry decides
	Mode         Mode
	ClusterUID   string // UID of the spoke's namespace kube-system
	Kubernetes   string // version of the spoke's API server
	// HubUID is the hub whose history the spoke saw last, and History the newest of
	// it that the spoke keeps; zero when it saw none.
	HubUID  string
	History History
	// Nonce asks the principal to prove itself by a JWT-SVID; zero where TLS has
	// proven it.
	Nonce Nonce
	// Process is random at the agent's start, and Turn counts the connections that it
	// has opened: of two of one process the one with the higher is newer. Empty and
	// zero of an agent that does not say.
	Process string
	Turn    uint64
}

// Welcome is how a principal answers.
type Welcome struct {
	Protocol     uint32 // what ParseWelcome returns is always ours
	Version      string // release of the principal
	Capabilities Capabilities
	Agent        identity.AgentName // who the principal takes the peer for
	HubUID       string
	Connection   string // id of the connection, for both logs
	// Children says that the hub shows the spoke's own Applications.
	Children bool
	// Proof is a JWT-SVID of the principal, for the agent and its nonce. Whether to
	// believe it is another matter. Empty when there was no nonce.
	Proof string
	Nonce Nonce // that of hello
	// ProveAgain is after how long the agent should prove itself by a new connection,
	// in whole seconds, at most MaxProveAgain. Zero means that the agent knows when
	// its proof ends.
	ProveAgain time.Duration
}

// MaxProveAgain bounds Welcome.ProveAgain.
const MaxProveAgain = 24 * time.Hour

// The longest texts we take from a handshake.
const maxVersionBytes = 128

// MaxTurn is the highest Turn that we take: an int64 of the Kubernetes API holds it.
const MaxTurn = 1<<63 - 1

// HelloFrame writes h for the wire.
func HelloFrame(h Hello) *streampb.Frame {
	return &streampb.Frame{Body: &streampb.Frame_Hello{Hello: &streampb.Hello{
		Protocol: h.Protocol, Version: h.Version, Capabilities: h.Capabilities.Names(),
		Agent: h.Agent.String(), Mode: h.Mode.String(),
		KubernetesClusterUid: h.ClusterUID, KubernetesVersion: h.Kubernetes,
		HubUid: h.HubUID, History: historyOf(h.History), Nonce: []byte(h.Nonce),
		Process: h.Process, Turn: h.Turn,
	}}}
}

// ParseHello reads the first frame of an agent. Errors wrap ErrProtocol, or
// ErrIncompatible when the agent speaks another protocol, of which nothing else is
// understood.
func ParseHello(f *streampb.Frame) (Hello, error) {
	pb := f.GetHello()
	if pb == nil {
		return Hello{}, fmt.Errorf("first frame is not hello: %w", ViolationOrder.Err())
	}
	if pb.GetProtocol() != Protocol {
		return Hello{}, fmt.Errorf("%w: the agent speaks protocol %d, the principal %d: upgrade the older one",
			ErrIncompatible, pb.GetProtocol(), Protocol)
	}
	if err := bounded(pb.GetCapabilities(), pb.GetVersion(), pb.GetKubernetesClusterUid(), pb.GetKubernetesVersion(),
		pb.GetHubUid(), pb.GetProcess()); err != nil {
		return Hello{}, err
	}
	name, err := identity.ParseAgentName(pb.GetAgent())
	if err != nil {
		return Hello{}, fmt.Errorf("hello: %w: %w", ViolationMalformed.Err(), err)
	}
	mode, err := ParseMode(pb.GetMode())
	if err != nil {
		return Hello{}, fmt.Errorf("hello: %w: %w", ViolationMalformed.Err(), err)
	}
	history, err := parseHistory(pb.GetHistory())
	if err != nil {
		return Hello{}, fmt.Errorf("hello: %w", err)
	}
	nonce, err := ParseNonce(pb.GetNonce())
	if err != nil {
		return Hello{}, fmt.Errorf("hello: %w", err)
	}
	return Hello{
		Protocol: pb.GetProtocol(), Version: pb.GetVersion(), Capabilities: parseCapabilities(pb.GetCapabilities()),
		Agent: name, Mode: mode, ClusterUID: pb.GetKubernetesClusterUid(), Kubernetes: pb.GetKubernetesVersion(),
		HubUID: pb.GetHubUid(), History: history, Nonce: nonce,
		Process: pb.GetProcess(), Turn: min(pb.GetTurn(), MaxTurn),
	}, nil
}

// WelcomeFrame writes w for the wire.
func WelcomeFrame(w Welcome) *streampb.Frame {
	return &streampb.Frame{Body: &streampb.Frame_Welcome{Welcome: &streampb.Welcome{
		Protocol: w.Protocol, Version: w.Version, Capabilities: w.Capabilities.Names(),
		Agent: w.Agent.String(), HubUid: w.HubUID, Connection: w.Connection, ChildApplications: w.Children,
		Credential: w.Proof, Nonce: []byte(w.Nonce),
		ProveAgainSeconds: uint32(min(w.ProveAgain, MaxProveAgain) / time.Second),
	}}}
}

// ParseWelcome reads the first frame of a principal. Errors wrap ErrProtocol, or
// ErrIncompatible when the principal speaks another protocol.
func ParseWelcome(f *streampb.Frame) (Welcome, error) {
	pb := f.GetWelcome()
	if pb == nil {
		return Welcome{}, fmt.Errorf("first frame is not welcome: %w", ViolationOrder.Err())
	}
	if pb.GetProtocol() != Protocol {
		return Welcome{}, fmt.Errorf("%w: the principal speaks protocol %d, the agent %d: upgrade the older one",
			ErrIncompatible, pb.GetProtocol(), Protocol)
	}
	if err := bounded(pb.GetCapabilities(), pb.GetVersion(), pb.GetHubUid(), pb.GetConnection()); err != nil {
		return Welcome{}, err
	}
	if pb.GetHubUid() == "" || pb.GetConnection() == "" {
		return Welcome{}, fmt.Errorf("welcome names no hub or connection: %w", ViolationMalformed.Err())
	}
	name, err := identity.ParseAgentName(pb.GetAgent())
	if err != nil {
		return Welcome{}, fmt.Errorf("welcome: %w: %w", ViolationMalformed.Err(), err)
	}
	nonce, err := ParseNonce(pb.GetNonce())
	if err != nil {
		return Welcome{}, fmt.Errorf("welcome: %w", err)
	}
	if n := len(pb.GetCredential()); n > identity.MaxTokenBytes {
		return Welcome{}, fmt.Errorf("welcome: credential of %d bytes: %w", n, ViolationLimit.Err())
	}
	again := time.Duration(pb.GetProveAgainSeconds()) * time.Second
	if again > MaxProveAgain {
		return Welcome{}, fmt.Errorf("welcome: prove again after %s: %w", again, ViolationLimit.Err())
	}
	return Welcome{
		Protocol: pb.GetProtocol(), Version: pb.GetVersion(), Capabilities: parseCapabilities(pb.GetCapabilities()),
		Agent: name, HubUID: pb.GetHubUid(), Connection: pb.GetConnection(), Children: pb.GetChildApplications(),
		Proof: pb.GetCredential(), Nonce: nonce, ProveAgain: again,
	}, nil
}

// bounded checks the texts of a handshake, which logs, statuses and terminals show.
func bounded(capabilities []string, texts ...string) error {
	if len(capabilities) > MaxCapabilities {
		return fmt.Errorf("%d capabilities: %w", len(capabilities), ViolationLimit.Err())
	}
	for _, text := range append(texts, capabilities...) {
		if len(text) > maxVersionBytes {
			return fmt.Errorf("text of %d bytes in the handshake: %w", len(text), ViolationMalformed.Err())
		}
		if !printable(text) {
			return fmt.Errorf("text %q in the handshake is not printable ascii: %w", text, ViolationMalformed.Err())
		}
	}
	return nil
}
