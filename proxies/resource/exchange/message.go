package exchange

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/argomesh/argomesh/proxies/access"
)

const (
	// MaxHeader bounds the header of a call, in bytes. An exec with a long command
	// fits, a certificate chain in a header does not.
	MaxHeader = 96 << 10
)

// The rules in a record of a call that comes to no decision of a policy: a side does not
// understand it, or has no room.
const (
	RuleMessage     = "message"
	RuleConcurrency = "concurrency"
	RuleRate        = "rate"
)

// The protocols that Kubernetes upgrades a connection to.
const (
	websocket = "websocket"
	spdy      = "SPDY/3.1"
)

// CheckMessage refuses what two readers of HTTP could take for two things, or what
// would become another call behind us. It returns the protocol that the caller wants
// to upgrade to, as Kubernetes writes it, or "". net/http has already refused
// malformed lines and headers, a Transfer-Encoding other than chunked, and disagreeing
// lengths; a Content-Length beside chunked it drops, and ours is written again.
func CheckMessage(r *http.Request) (upgrade string, err error) {
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
	// HeaderRefusedBy names the rule by which the agent refused.
	HeaderRefusedBy = "Argomesh-Refused-By"
	// HeaderFailed says that the agent answered in place of its API server.
	HeaderFailed = "Argomesh-Failed"
	// HeaderOwnKinds says that the spoke's owner shows Kubernetes' own kinds alone.
	HeaderOwnKinds = "Argomesh-Own-Kinds"
	// HeaderMasked says that the spoke's owner lets no values of Secrets through.
	HeaderMasked = "Argomesh-Masked"
)

// stripped are headers that do not pass: credentials, whom a proxy takes the caller
// for, what a proxy or an audit on the way noted, and what changes how a message is sent.
var stripped = []string{
	"Authorization", "Cookie", "Expect", "Forwarded", "Idempotency-Key", "X-Idempotency-Key", "X-Real-Ip", "X-Request-Id",
	"Baggage",
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

// StripAnswer removes from the header of an answer what the two ends have for each
// other, and what would make a browser remember something of a host that serves many
// spokes.
func StripAnswer(h http.Header) {
	for name := range h {
		canonical := http.CanonicalHeaderKey(name)
		if strings.HasPrefix(canonical, headerOurs) ||
			slices.Contains([]string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security"}, canonical) {
			delete(h, name)
		}
	}
}

// IsLong reports whether a call goes on until someone ends it.
func IsLong(request access.Request, target *url.URL, upgrade string) bool {
	if upgrade != "" || request.Verb == "watch" {
		return true
	}
	if request.Subresource != "log" || !target.Query().Has("follow") {
		return false
	}
	follow, err := strconv.ParseBool(target.Query().Get("follow"))
	return err != nil || follow // Kubernetes takes follow without a value for true
}

// Moves reports whether an answer with that status sends the caller to its Location.
// Kubernetes gives such for an OpenAPI document whose hash is old, and for a proxy of a
// service without a slash at its end; and what is behind such a proxy has redirects of its
// own.
func Moves(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return true
	}
	return false
}
