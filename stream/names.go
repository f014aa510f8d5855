package stream

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/argomesh/argomesh/identity"
)

// clip makes s one printable line of at most maxMessageBytes of UTF-8.
func clip(s string) string { return clipTo(s, maxMessageBytes) }

// clipTo makes s one printable line of at most limit bytes of UTF-8.
func clipTo(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") // a character may be cut
	}
	return s
}

// checkName accepts what can name a namespaced Kubernetes object.
func checkName(namespace, name string) error {
	if len(namespace) > maxLabelBytes || name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("entry name of %d and %d bytes: %w", len(namespace), len(name), ViolationMalformed.Err())
	}
	if namespace != "" {
		// A namespace and an agent name are both RFC 1123 labels.
		if _, err := identity.ParseAgentName(namespace); err != nil {
			return fmt.Errorf("entry namespace %.64q: %w", namespace, ViolationMalformed.Err())
		}
	}
	for _, label := range strings.Split(name, ".") {
		if !subdomainLabel(label) {
			return fmt.Errorf("entry name %.64q: %w", name, ViolationMalformed.Err())
		}
	}
	return nil
}

// subdomainLabel reports whether s may stand between the dots of an RFC 1123
// subdomain as Kubernetes takes it, where a label may be as long as the name.
func subdomainLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
