package resource

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
)

// prefix begins the path of every call to the hub's end.
const prefix = "/agents/"

// splitTarget divides the target of a request line into the agent it is for and the
// target at the agent's API server. The name is compared as it was sent: an encoded
// one is none.
func splitTarget(target string) (identity.AgentName, string, error) {
	rest, found := strings.CutPrefix(target, prefix)
	if !found {
		return identity.AgentName{}, "", errors.New("the path is not /agents/<name>/<path of the Kubernetes API>")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	name, err := identity.ParseAgentName(rest[:end])
	if err != nil {
		return identity.AgentName{}, "", fmt.Errorf("the path names no agent: %w", err)
	}
	rest = rest[end:]
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return name, rest, nil
}

// The protocols that Kubernetes upgrades a connection to.
const (
	websocket = "websocket"
	spdy      = "SPDY/3.1"
)

// checkMessage refuses what two readers of HTTP could take for two things, or what
// would become another call behind us. It returns the protocol that the caller wants
// to upgrade to, as Kubernetes writes it, or "". net/http has already refused
// malformed lines and headers, a Transfer-Encoding other than chunked, and disagreeing
// lengths; a Content-Length beside chunked it drops, and ours is written anew.
func checkMessage(r *http.Request) (upgrade string, err error) {
	switch {
	case !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1:
		// A body of HTTP/1.0 ends with its connection, so that a lost one looks whole.
		return "", errors.New("only HTTP/1.1 is spoken here")
	case !strings.HasPrefix(r.RequestURI, "/"):
		return "", errors.New("the target must be a path")
	}
	upgrades, err := connectionOptions(r.Header["Connection"])
	if err != nil {
		return "", err
	}
	asked := r.Header["Upgrade"]
	switch {
	case len(asked) == 0 && !upgrades:
		return "", nil
	case len(asked) != 1 || !upgrades:
		return "", errors.New("an upgrade needs one Upgrade and a Connection that says so")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return "", errors.New("an upgrade has no body")
	case strings.EqualFold(asked[0], websocket) && r.Method == http.MethodGet:
		return websocket, nil
	case strings.EqualFold(asked[0], spdy) && (r.Method == http.MethodGet || r.Method == http.MethodPost):
		return spdy, nil
	}
	return "", errors.New("the only upgrades are websocket, of a GET, and SPDY/3.1, of a GET or POST")
}

// connectionOptions reads Connection. Whatever it names is removed on the way, so it
// must name nothing that matters behind us.
func connectionOptions(lines []string) (upgrade bool, err error) {
	for _, line := range lines {
		for option := range strings.SplitSeq(line, ",") {
			switch strings.ToLower(strings.TrimSpace(option)) {
			case "upgrade":
				upgrade = true
			case "", "keep-alive", "close", "te":
			default:
				return false, errors.New("Connection names a header")
			}
		}
	}
	return upgrade, nil
}

// The headers that the two ends have for each other. Neither passes on one that
// came from elsewhere.
const (
	headerOurs = "Argomesh-"
	// headerRefusedBy names the rule by which the agent refused.
	headerRefusedBy = "Argomesh-Refused-By"
	// headerFailed says that the agent answered in place of its API server.
	headerFailed = "Argomesh-Failed"
	// headerOwnKinds says that the spoke's owner shows Kubernetes' own kinds alone.
	headerOwnKinds = "Argomesh-Own-Kinds"
	// headerMasked says that the spoke's owner lets no values of Secrets through.
	headerMasked = "Argomesh-Masked"
)

// stripped are headers that do not pass: credentials, whom a proxy takes the caller
// for, what a proxy or an audit on the way noted, and what changes how a message is sent.
var stripped = []string{
	"Authorization", "Cookie", "Expect", "Forwarded", "Idempotency-Key", "X-Idempotency-Key", "X-Real-Ip", "X-Request-Id", "Baggage",
	"Audit-Id", // an API server takes it for the id of its own record
}

// strippedPrefixes begin the names of more such headers. X-Forwarded-Client-Cert is
// one of them.
var strippedPrefixes = []string{"X-Remote-", "X-Forwarded-", "X-Envoy-", "Proxy-", headerOurs}

// webSocketProtocols is where a browser that cannot set Authorization gives Kubernetes
// a token, behind webSocketToken.
const (
	webSocketProtocols = "Sec-Websocket-Protocol"
	webSocketToken     = "base64url.bearer.authorization.k8s.io." //nolint:gosec // begins a header's value, and is no credential
)

// stripRequest removes from h what must not reach the spoke's API server. Impersonate
// headers stay: whether they may is decided before.
func stripRequest(h http.Header) {
	for name := range h {
		if isStripped(name) {
			delete(h, name)
		}
	}
	var kept []string
	for _, line := range h[webSocketProtocols] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			if protocol != "" && !strings.HasPrefix(strings.ToLower(protocol), webSocketToken) {
				kept = append(kept, protocol)
			}
		}
	}
	delete(h, webSocketProtocols)
	if len(kept) > 0 {
		h.Set(webSocketProtocols, strings.Join(kept, ", "))
	}
}

func isStripped(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	return slices.Contains(stripped, canonical) || slices.ContainsFunc(strippedPrefixes, func(p string) bool {
		return strings.HasPrefix(canonical, p)
	})
}

// stripAnswer removes from the header of an answer what the two ends have for each
// other, and what would make a browser remember something of a host that serves many
// spokes.
func stripAnswer(h http.Header) {
	for name := range h {
		canonical := http.CanonicalHeaderKey(name)
		if strings.HasPrefix(canonical, headerOurs) || slices.Contains([]string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security"}, canonical) {
			delete(h, name)
		}
	}
}

// bearer returns the token of a call: of exactly one Authorization of type Bearer.
func bearer(h http.Header) (string, bool) {
	lines := h["Authorization"]
	if len(lines) != 1 || len(lines[0]) > maxToken {
		return "", false
	}
	scheme, token, found := strings.Cut(lines[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", false
	}
	return token, true
}

// maxToken is the longest Authorization that is looked at, in bytes.
const maxToken = 8 << 10
