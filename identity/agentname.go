package identity

import (
	"fmt"
)

// maxLabelBytes is the longest DNS label (RFC 1035, section 2.3.4).
const maxLabelBytes = 63

// AgentName names one agent, unique on its hub. It is a DNS label in lower case
// (RFC 1123, section 2.1), 1 to 63 bytes, so it also fits a Kubernetes object
// name, a namespace and a SPIFFE path segment. It is comparable and may be a map
// key. The zero value names no agent.
type AgentName struct{ label string }

// ParseAgentName returns the name written in s. The error wraps [ErrInvalid]
// when s is not a DNS label in lower case.
func ParseAgentName(s string) (AgentName, error) {
	if problem := labelProblem(s); problem != "" {
		return AgentName{}, fmt.Errorf("agent name %s: %s: %w", Quote(s), problem, ErrInvalid)
	}
	return AgentName{label: s}, nil
}

// String returns the name, or "" for the zero value.
func (n AgentName) String() string { return n.label }

// IsZero reports whether n names no agent.
func (n AgentName) IsZero() bool { return n == AgentName{} }

// MarshalText returns the name, empty for the zero value. It never fails.
func (n AgentName) MarshalText() ([]byte, error) { return []byte(n.label), nil }

// UnmarshalText sets n to the name in text. Empty text gives the zero value, so
// that every value survives the way to text and back. The error wraps
// [ErrInvalid] and leaves n as it was.
func (n *AgentName) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*n = AgentName{}
		return nil
	}
	parsed, err := ParseAgentName(string(text))
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// labelProblem says in what way s is no DNS label, or "" when it is one.
func labelProblem(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxLabelBytes:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), maxLabelBytes)
	case s[0] == '-', s[len(s)-1] == '-':
		return "begins or ends with a hyphen"
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
		default:
			return "may hold only a-z, 0-9 and hyphens"
		}
	}
	return ""
}

// maxQuotedBytes bounds how much of a rejected text an error repeats.
const maxQuotedBytes = 100

// Quote returns s as a Go string literal, for an error about a text from outside. Of a long
// one it is the first 100 bytes and an ellipsis, so that the text does not decide how large
// the error is.
func Quote(s string) string {
	if len(s) > maxQuotedBytes {
		return fmt.Sprintf("%q…", s[:maxQuotedBytes])
	}
	return fmt.Sprintf("%q", s)
}
