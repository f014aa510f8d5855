package devworkload

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	// minTTL is the shortest life of an SVID: certificates count in seconds,
	// and half of it must be enough to hand out the next.
	minTTL = 2 * time.Second
	// maxHintBytes is the longest hint SPIRE takes.
	maxHintBytes = 1024
)

// Entry is one identity that a server hands out to every caller.
type Entry struct {
	// ID is the SPIFFE ID, in the server's trust domain. Required, once per server.
	ID spiffeid.ID
	// Hint tells a caller that gets several SVIDs what this one is for. Empty
	// means none; otherwise unique on the server, at most 1024 bytes.
	Hint string
	// TTL is the life of the X.509-SVID, at least 2 s. Zero means the server's
	// X509TTL. A new one is handed out when half of it is over.
	TTL time.Duration
	// DNSNames are put into the certificate beside the SPIFFE ID.
	DNSNames []string
}

// ParseEntry reads an entry as it is written on a command line: a SPIFFE ID,
// then any of hint=<text>, ttl=<duration> and dns=<name> (several times),
// separated by commas. The error wraps [identity.ErrInvalid].
//
//	spiffe://hub.test/principal,hint=stream,ttl=30s,dns=principal.hub.test
func ParseEntry(s string) (Entry, error) {
	fields := strings.Split(s, ",")
	id, err := identity.ParseID(fields[0])
	if err != nil {
		return Entry{}, err
	}
	entry := Entry{ID: id}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case value == "":
			return Entry{}, fmt.Errorf("entry %s: %q is not key=value: %w", id, field, identity.ErrInvalid)
		case key == "hint" && entry.Hint == "":
			entry.Hint = value
		case key == "ttl" && entry.TTL == 0:
			entry.TTL, err = time.ParseDuration(value)
			if err != nil {
				return Entry{}, fmt.Errorf("entry %s: ttl: %w: %w", id, err, identity.ErrInvalid)
			}
		case key == "dns":
			entry.DNSNames = append(entry.DNSNames, value)
		default:
			return Entry{}, fmt.Errorf("entry %s: %q is unknown or given twice, use hint=, ttl= and dns=: %w", id, key,
				identity.ErrInvalid)
		}
	}
	if err := entry.check(); err != nil {
		return Entry{}, err
	}
	return entry, nil
}

// check reports what is wrong with the entry by itself.
func (e Entry) check() error {
	switch {
	case e.TTL != 0 && e.TTL < minTTL:
		return fmt.Errorf("entry %s: ttl %s is shorter than %s: %w", e.ID, e.TTL, minTTL, identity.ErrInvalid)
	case len(e.Hint) > maxHintBytes:
		return fmt.Errorf("entry %s: hint has more than %d bytes: %w", e.ID, maxHintBytes, identity.ErrInvalid)
	}
	for _, name := range e.DNSNames {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("entry %s: dns name %q: %w", e.ID, name, identity.ErrInvalid)
		}
	}
	return identity.CheckID(e.ID)
}

// checkEntries reports everything that is wrong with a server's list.
func checkEntries(td spiffeid.TrustDomain, entries []Entry) error {
	var problems []error
	ids := make(map[spiffeid.ID]bool, len(entries))
	hints := make(map[string]bool, len(entries))
	for _, e := range entries {
		if err := e.check(); err != nil {
			problems = append(problems, err)
			continue
		}
		if !e.ID.MemberOf(td) {
			problems = append(problems, fmt.Errorf("entry %s: not in trust domain %s: %w", e.ID, td, identity.ErrInvalid))
		}
		if ids[e.ID] {
			problems = append(problems, fmt.Errorf("entry %s: given twice: %w", e.ID, identity.ErrInvalid))
		}
		if e.Hint != "" && hints[e.Hint] {
			problems = append(problems,
				fmt.Errorf("entry %s: hint %q belongs to another entry: %w", e.ID, e.Hint, identity.ErrInvalid))
		}
		ids[e.ID], hints[e.Hint] = true, true
	}
	return errors.Join(problems...)
}
