package resource

import (
	"errors"
	"fmt"
	"net/http"
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

// maxToken is the longest Authorization that is checked, in bytes.
const maxToken = 8 << 10
